"""What is started once is used in one worker only, however many there are."""

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from workers import pytest_collection_modifyitems


class _Item(SimpleNamespace):
    """As much of a test as the plugin asks for."""

    __hash__ = object.__hash__

    def iter_markers(self, name: str | None = None) -> list[pytest.Mark]:
        """Its marks."""
        return [one for one in self.marks if name in (None, one.name)]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        """The first with this name."""
        return next(iter(self.iter_markers(name)), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        """Mark it."""
        self.marks.append(mark.mark)


def item(node: str, *marks: str, fixtures: Sequence[str] = ()) -> _Item:
    """A test with these marks and fixtures."""
    found = [getattr(pytest.mark, name).mark for name in marks]
    return _Item(nodeid=node, marks=found, fixturenames=list(fixtures))


def shared(items: list[_Item], *, together: bool = True) -> list[tuple[str, str]]:
    """Name and group of each test, in the order of the run."""
    config = SimpleNamespace(getoption=lambda _name, default: together)
    pytest_collection_modifyitems(config, items)  # type: ignore[arg-type]
    marks = {one: one.get_closest_marker("xdist_group") for one in items}
    return [(one.nodeid, mark.args[0] if mark else "") for one, mark in marks.items()]


def test_clusters_are_in_one_worker_and_first() -> None:
    """Whatever file asks for it; the other tests of these files stay with their file."""
    found = shared(
        [
            item("a.py::quick"),
            item("a.py::real", "slurm"),
            item("b.py::page", "browser", fixtures=["server", "filled_store"]),
            item("c.py::page", "slow", "browser"),
            item("d.py::real[x@y]", "browser", "slurm"),
            item("e.py::page", "browser", fixtures=["filled_store"]),
            item("f.py::real", "kubernetes"),
        ]
    )
    assert found == [
        ("a.py::real", "clusters"),
        ("d.py::real[x@y]", "clusters"),
        ("f.py::real", "clusters"),
        ("b.py::page", "pages"),
        ("c.py::page", "c.py"),
        ("e.py::page", "pages"),
        ("a.py::quick", "a.py"),
    ]


def test_one_process_runs_all_in_their_order() -> None:
    """Without workers nothing is marked or moved."""
    assert shared([item("a.py::quick"), item("b.py::real", "slurm")], together=False) == [
        ("a.py::quick", ""),
        ("b.py::real", ""),
    ]
