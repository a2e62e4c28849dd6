"""What stands above the columns of every view's tables."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest
from beds.page_world import page_at
from factories import NOW, make_collected, make_job, make_samples
from streamlit.testing.v1 import AppTest

from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.cycle.cycle_thread import CycleState
from dashboard.cycle.run_cycle import run_cycle
from dashboard.cycle.wiring import build_world
from dashboard.decisions.service import DecisionService
from dashboard.web.access.context import WebWorld
from dashboard.web.access.identity import register
from dashboard.web.frame.headings import HEADINGS, column_settings, heading
from dashboard.web.frame.navigation import FORMER_ADDRESSES, PAGES
from data.facts.columns import XIDS, check_frame
from data.settings.load import load_settings
from data.store import open_store

APP = Path(__file__).parents[2] / "dashboard/web/app.py"
RAW = re.compile(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)+")
VIEWS = FORMER_ADDRESSES.keys() | {tab.view for row in PAGES for tab in row.tabs}
"""Each tab, and what a former address opens."""
WITH_TABLES = {"fleet", "jobs", "serving", "forecasts", "plan", "findings", "energy", "health"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebWorld]:
    """Two days of a small fleet, a job whose two boards idle, and one cycle on them."""
    path = tmp_path_factory.mktemp("headings") / "t.duckdb"
    loaded = load_settings(environ={}, overrides={"store.url": f"duckdb:///{path}"})
    settings = loaded.settings
    with open_store(settings.store.url) as store:
        source = SimulatedFleetCollector(fleet=SimulatedFleet(seed=7, nodes=1), step_seconds=900)
        store.keep(source.collect(Window(start=NOW - timedelta(days=2), end=NOW)))
        idle = make_samples(gpus=2, minutes=24 * 60, job_id="idle", end=NOW, utilization_ratio=0.0)
        jobs = (make_job("idle", gpu_count=2, last_seen_at=NOW),)
        store.keep(make_collected(idle, jobs, xids=shown_codes()))
        run_cycle(build_world(settings, store=store), now=NOW)
        yield WebWorld(
            store=store,
            settings=loaded,
            decision_service=DecisionService(store=store, settings=lambda: settings),
            cycle_state=CycleState,
            worker_problem=lambda: "",
            run_lifespan=nullcontext,
            clock=lambda: NOW,
        )


def shown_codes() -> pd.DataFrame:
    """Every board of the idle job has fallen off the bus."""
    boards = ["GPU-0000", "GPU-0001"]
    frame = pd.DataFrame({"gpu_uuid": boards, "xid": 79, "node": "n", "gpu_index": ["0", "1"]})
    times = pd.Timestamp(NOW).as_unit("us")
    return check_frame(frame.assign(first_seen_at=times, last_seen_at=times), XIDS)


def headings_of(app: AppTest) -> list[str]:
    """What a person reads above the columns of all tables of a page."""
    found = []
    for entry in app.dataframe:
        settings = json.loads(entry.proto.columns or "{}")
        found += [settings.get(name, {}).get("label") or name for name in entry.value.columns]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "view", sorted(FORMER_ADDRESSES.keys() | {tab.view for row in PAGES for tab in row.tabs})
)
def test_no_table_shows_a_name_of_the_program(
    view: str, world: WebWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every view's tables are headed by words, never by a column's name in the code."""
    # Streamlit puts the page in the place of `__main__`.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    register(world)
    app = page_at(view, **({"job": "idle"} if view == "job" else {})).run()
    assert not app.exception
    shown = headings_of(app)
    assert view not in WITH_TABLES or shown
    assert [name for name in shown if RAW.search(name)] == []


def test_every_heading_is_in_words() -> None:
    """No entry of the table of headings is a program's name again."""
    assert [entry for entry in HEADINGS.values() if RAW.search(entry)] == []


def test_a_heading_names_the_currency() -> None:
    """The column of a cost carries its currency in its name."""
    assert heading("cost_eur_per_work") == "cost per work (EUR)"


def test_times_say_their_zone() -> None:
    """A column of times is shown in UTC and says so; its seconds are shown where there are any."""
    rows = pd.DataFrame({"last_seen_at": [NOW], "at": [NOW + timedelta(seconds=5)]})
    shown = column_settings(rows)
    assert [entry["label"] for entry in shown.values()] == ["last seen (UTC)", "at (UTC)"]
    assert [entry["type_config"]["format"][-2:] for entry in shown.values()] == ["mm", "ss"]


def test_a_table_may_name_its_own_columns() -> None:
    """A word that means something else in one table is told there."""
    rows = pd.DataFrame({"now": [1.0], "used_ratio": [0.5]})
    shown = column_settings(rows, other={"now": "now (boards)"})
    assert [entry["label"] for entry in shown.values()] == ["now (boards)", "in use (%)"]


def test_large_whole_numbers_have_separators_and_small_shares_keep_their_digits() -> None:
    """Localized, 0.0608 would be 0.061; a year or an XID needs no separator."""
    rows = pd.DataFrame(
        {
            "rows": [23_107_364, 0],
            "cost": [1_537_827.0, None],
            "both": [12_345.0, 0.0608],
            "small": [79, 13],
            "text": ["12345", ""],
            "flag": [True, False],
        }
    )
    forms = {
        name: (entry.get("type_config") or {}).get("format")
        for name, entry in column_settings(rows).items()
    }
    assert {name for name, form in forms.items() if form == "localized"} == {"rows", "cost"}
