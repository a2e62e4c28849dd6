"""Which tests stay together when several worker processes run them (`make test`).

Tests of one group run in one worker, in their order: those of a file, since they may share what it
starts; those on one store in a browser; and all those on clusters. So no two clusters start at
once, and these tests, which mostly wait for controllers, run beside pages, which mostly compute.
Groups with servers come first: at the end there is always something small left to share.
"""

import pytest

_CLUSTERS = ("slurm", "kubernetes")
_RANKS = (*_CLUSTERS, "browser", "prometheus", "postgres", "slow")
_SHARED_STORE = "filled_store"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Name the group of each test, and put the long groups first; alone, the order stays."""
    if not config.getoption("loadgroup", default=False):
        return
    groups = {item: _group(item) for item in items}
    ranks: dict[str, int] = {}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
        ranks[group] = min(ranks.get(group, len(_RANKS)), _rank(item))
    items.sort(key=lambda item: ranks[groups[item]])


def _rank(item: pytest.Item) -> int:
    """The place of the first of its marks; tests that need no server come last."""
    marks = {mark.name for mark in item.iter_markers()}
    return next((at for at, name in enumerate(_RANKS) if name in marks), len(_RANKS))


def _group(item: pytest.Item) -> str:
    """Clusters, the store that most pages show, or else the file."""
    if any(item.get_closest_marker(name) for name in _CLUSTERS):
        return "clusters"
    shares = _SHARED_STORE in getattr(item, "fixturenames", ())
    return "pages" if shares else item.nodeid.partition("::")[0]
