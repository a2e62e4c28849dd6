"""What commands may cost a new user, in CPU seconds of all processes, with a third of slack.

On a machine that is slower now than that of the goals, as much more as it is slower.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks.first_minute import GOALS, LISTS, Place, slowness
from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from data.store import open_store

pytestmark = [pytest.mark.slow, pytest.mark.slow_end]
SLACK = 1.3
END = datetime(2026, 1, 7, 12, tzinfo=UTC)


def at_most(row: str) -> float:
    """The budget of a row of the benchmark, with its slack."""
    goal = GOALS[row]
    assert goal.at_most is not None
    return SLACK * goal.at_most * (slowness() if goal.unit == "CPU s" else 1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The folders of a new user, with two days of the demo's fleet in the store `demo`."""
    folder = tmp_path_factory.mktemp("first-minute")
    collector = SimulatedFleetCollector(fleet=SimulatedFleet(seed=7, nodes=8), step_seconds=300)
    with open_store(f"duckdb:///{folder}/demo.duckdb") as store:
        store.keep(collector.collect(Window(start=END - timedelta(days=2), end=END)))
    return Place(folder)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_stays_within_its_budget(place: Place, name: str) -> None:
    """The second of two runs, with a store and without one."""
    for store, row, codes in (("demo", name, (0, 3)), ("none", f"{name}, no store", (1,))):
        spent = min(place.spent(store, *name.split(), codes=codes) for _ in range(2))
        assert spent <= at_most(row), row


def test_the_report_stays_within_its_budgets(place: Place, tmp_path: Path) -> None:
    """As HTML: CPU seconds and size."""
    out = tmp_path / "week.html"
    asked = ("report", "weekly", "--format", "html", "--now", END.isoformat(), "--out", str(out))
    assert min(place.spent("demo", *asked) for _ in range(2)) <= at_most("report")
    assert out.stat().st_size / 1e6 <= at_most("report size")


def test_help_and_the_server_stay_within_their_budgets(place: Place) -> None:
    """`--help`, and `serve` until its port answers."""
    assert min(place.spent("none", "--help") for _ in range(2)) <= at_most("--help")
    with place.served("demo", "serve") as served:
        assert served.when_listening() <= at_most("serve ready")
