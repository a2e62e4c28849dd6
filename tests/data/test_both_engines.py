"""DuckDB and PostgreSQL give the same rows, answers and view to plan on."""

from collections.abc import Iterator
from datetime import timedelta

import pandas as pd
import pytest
from beds.postgres import PostgresBed
from factories import NOW

from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from data.store import Store, StoreReader, open_store
from data.store.engine.bulk import read_frame
from data.store.facts.traced_reader import TracedRange

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def both(
    postgres: PostgresBed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Store, Store]]:
    """The same half day of a simulated fleet in a DuckDB file and in PostgreSQL."""
    collector = SimulatedFleetCollector(fleet=SimulatedFleet(seed=3, nodes=3), step_seconds=60)
    file = tmp_path_factory.mktemp("both") / "t.duckdb"
    with (
        postgres.database(template="store_template") as url,
        open_store(url) as server,
        open_store(f"duckdb:///{file}") as embedded,
    ):
        for store in (embedded, server):
            for hours in (10, 5):
                end = NOW - timedelta(hours=hours - 5)
                store.keep(collector.collect(Window(start=end - timedelta(hours=6), end=end)))
        yield embedded, server


WINDOW = {"start": NOW - timedelta(hours=9, minutes=17), "end": NOW - timedelta(minutes=3)}
_SLOT = {"slot_seconds": 900}


def a_board(reader: StoreReader) -> TracedRange:
    """The first board, over the window."""
    return TracedRange(**WINDOW, gpu_uuid=reader.boards(**WINDOW)["gpu_uuid"].iloc[0])


QUESTIONS = {
    "job history": lambda reader: reader.job_history("", **WINDOW, **_SLOT),
    "fleet history": lambda reader: reader.fleet_history(**WINDOW, **_SLOT),
    "fleet history by the hour": lambda reader: reader.fleet_history(**WINDOW, slot_seconds=3600),
    "group history": lambda reader: reader.group_history(**WINDOW, slot_seconds=3600),
    "boards": lambda reader: reader.boards(**WINDOW),
    "unwell boards": lambda reader: reader.unwell_boards(
        **WINDOW, throttled=0.0, hot=0.0, hot_memory=0.0
    ),
    "board history": lambda reader: reader.board_history(
        reader.boards(**WINDOW)["gpu_uuid"].iloc[0], **WINDOW, **_SLOT
    ),
    "readings of a board": lambda reader: reader.readings(a_board(reader), most=99),
    "slots of a board": lambda reader: reader.slots(a_board(reader), most=99),
    "slots of a job": lambda reader: reader.slots(
        TracedRange(**WINDOW, job_id=reader.jobs()[0].job_id), most=10**6
    ),
    "slots after a place": lambda reader: reader.slots(
        a_board(reader), most=9, after=(WINDOW["start"] + timedelta(hours=1), "", "", "", "")
    ),
    "all readings": lambda reader: reader.power_readings(**WINDOW, most=10**6),
    "disagreements": lambda reader: reader.energy_disagreements(**WINDOW),
    **{
        f"energy by {by}": lambda reader, by=by: reader.energy(**WINDOW, by=by)
        for by in ("job", "namespace", "node", "gpu_model", "day", "hour", "fleet")
    },
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_both_engines_give_the_same_answer(both: tuple[Store, Store], question: str) -> None:
    """Every question of the pages, to the rounding of a sum in another order."""
    embedded, server = (QUESTIONS[question](store.reader) for store in both)
    assert len(embedded) or question == "disagreements"
    pd.testing.assert_frame_equal(embedded, server, rtol=1e-9)


def test_both_engines_give_the_same_view_to_plan_on(both: tuple[Store, Store]) -> None:
    """GPUs, jobs, signals: the planner is told one thing."""
    embedded, server = (
        store.reader.planning_view(NOW, slot_seconds=900, history_days=14) for store in both
    )
    assert embedded.cluster == server.cluster
    assert (embedded.jobs, embedded.known_jobs) == (server.jobs, server.known_jobs)
    assert embedded.signals == server.signals
    pd.testing.assert_frame_equal(embedded.history, server.history, rtol=1e-9)


@pytest.mark.parametrize("table", ["five_minute", "hourly"])
def test_both_engines_roll_up_to_the_same_rows(both: tuple[Store, Store], table: str) -> None:
    """One statement makes them, so they agree to the last bits of a sum."""
    query = f"SELECT * FROM {table} ORDER BY slot_start, gpu_uuid, mig_instance, job_id, holder"  # noqa: S608
    frames = []
    for store in both:
        with store._engine.connect() as connection:
            frames.append(read_frame(connection, query))
    assert len(frames[0]) > 100
    pd.testing.assert_frame_equal(frames[0], frames[1], rtol=1e-12)
