"""What the tests of one folder share, and no longer than them."""

from contextlib import ExitStack
from pathlib import Path

import pytest


class FolderEnds:
    """Ends what the tests of a folder share once the next test is of another folder.

    An idle Kubernetes takes 6 % of a core, for as long as the session would keep it.
    """

    def __init__(self) -> None:
        self._open: dict[Path, ExitStack] = {}

    def of(self, folder: Path) -> ExitStack:
        """Return what is closed when the tests leave the folder, last entered first."""
        return self._open.setdefault(folder, ExitStack())

    @pytest.hookimpl(trylast=True)  # after what the last test had for itself
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Close what is left. Tests that come back to the folder start its fixtures anew."""
        for folder in list(self._open):
            if nextitem is not None and folder not in nextitem.path.parents:
                self._open.pop(folder).close()
                _end_fixtures(item, folder)

    def close(self) -> None:
        """Close all at the end of the session."""
        while self._open:
            self._open.popitem()[1].close()


def _end_fixtures(item: pytest.Item, folder: Path) -> None:
    """End session-wide fixtures of the folder's conftest: asked for again, they begin anew."""
    for by_node in item.session._fixturemanager._arg2node2fixturedefs.values():
        for node, fixtures in by_node.items():
            if getattr(node, "path", None) == folder:
                for fixture in fixtures:
                    if fixture.scope == "session":
                        fixture.finish(item._request)
