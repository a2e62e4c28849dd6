"""The simulated fleet's XID errors on the page Fleet, in the catalogue's words."""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from beds.page_world import page_at
from streamlit.testing.v1 import AppTest

from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.cycle.cycle_thread import CycleState
from dashboard.decisions.service import DecisionService
from dashboard.web.access.context import WebWorld
from dashboard.web.access.identity import register
from data.catalogue.xid_table import meaning_of
from data.settings.all_settings import Settings
from data.settings.load import LoadedSettings
from data.store import open_store

pytestmark = pytest.mark.slow
APP = Path(__file__).parents[2] / "dashboard/web/app.py"
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
"""Two boards of the fleet had an error in the day before: 31, and 109, which no table explains."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebWorld]:
    """A day of the fleet that the demo shows."""
    source = SimulatedFleetCollector(fleet=SimulatedFleet(seed=7, nodes=8), step_seconds=900)
    settings = Settings()
    with open_store(f"duckdb:///{tmp_path_factory.mktemp('xids')}/t.duckdb") as store:
        store.keep(source.collect(Window(start=NOW - timedelta(days=1), end=NOW)))
        yield WebWorld(
            store=store,
            settings=LoadedSettings(settings=settings, origins={}),
            decision_service=DecisionService(store=store, settings=lambda: settings),
            cycle_state=CycleState,
            worker_problem=lambda: "",
            run_lifespan=nullcontext,
            clock=lambda: NOW,
        )


def drawn(world: WebWorld, view: str, monkeypatch: pytest.MonkeyPatch, **query: str) -> AppTest:
    """A page of that world."""
    # Streamlit puts the page in the place of `__main__`.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    register(world)
    app = page_at(view, **query)
    app.run()
    assert not app.exception
    return app


def table_with(app: AppTest, *columns: str) -> pd.DataFrame:
    """The page's table that has these columns."""
    (found,) = [entry.value for entry in app.dataframe if set(columns) <= set(entry.value.columns)]
    return found


def test_fleet_lists_errors_among_what_needs_a_look(
    world: WebWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code, meaning, board and next step; an unknown code says that it is unknown."""
    rows = table_with(drawn(world, "fleet", monkeypatch), "what", "where", "since or why")
    told = {
        entry["what"]: entry for entry in rows.to_dict("records") if entry["what"].startswith("XID")
    }
    assert set(told) == {f"XID {code}: {meaning_of(code).what}" for code in (31, 109)}
    for code in (31, 109):
        one = told[f"XID {code}: {meaning_of(code).what}"]
        assert meaning_of(code).next_step in one["since or why"]
        assert "· GPU" in one["where"]
    assert "a code that this table does not hold" in " ".join(told)


def test_a_boards_page_tells_its_code_and_others_none(
    world: WebWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board in error has the row with its meaning; a sound one had no error."""
    xids = world.reader.board_xids(since=NOW - timedelta(days=1))
    faulty = xids[xids["xid"] == 109]["gpu_uuid"].iloc[0]
    sound = next(
        entry
        for entry in sorted(xids["gpu_uuid"])
        if not xids[xids["gpu_uuid"] == entry]["xid"].any()
    )
    rows = table_with(drawn(world, "fleet", monkeypatch, gpu=faulty), "concerns", "next_step")
    assert (rows["xid"].tolist(), rows["concerns"].tolist()) == ([109], ["unknown"])
    captions = [entry.value for entry in drawn(world, "fleet", monkeypatch, gpu=sound).caption]
    assert any(caption.startswith("No XID error in the last") for caption in captions)
