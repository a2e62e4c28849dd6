"""The benchmark's fleet has the form that a real cycle writes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
import sqlalchemy as sa
from factories import make_collected

from benchmarks._stored_cycle import write_cycle
from benchmarks._stored_fleet import StoredFleet, jobs_of, write_facts
from data.facts.columns import SAMPLES, check_frame
from data.settings.all_settings import Settings
from data.store import open_store
from data.store.engine.bulk import read_frame
from data.store.engine.duckdb_engine import open_engine
from data.store.engine.migrate import migrate

FLEET = StoredFleet(
    seed=7, nodes=6, days=4, end=datetime(2026, 1, 5, 11, 25, tzinfo=UTC), sample_hours=99
)
KEYS = ["slot_start", "gpu_uuid", "mig_instance", "job_id", "holder"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> sa.Engine:
    """A store that the generator wrote."""
    engine = open_engine(tmp_path_factory.mktemp("written") / "t.duckdb", create=True)
    migrate(engine)
    with engine.begin() as connection:
        write_facts(connection, FLEET)
    return engine


def frame_of(engine: sa.Engine, table: str) -> pd.DataFrame:
    """A table of roll-ups in the order of its keys."""
    with engine.connect() as connection:
        frame = read_frame(connection, f"SELECT * FROM {table}")  # noqa: S608 - ours
    return frame.sort_values(KEYS, ignore_index=True)


def test_its_roll_ups_are_those_of_its_samples(written: sa.Engine, tmp_path: Path) -> None:
    """What the store makes of the same readings is row by row what the generator wrote."""
    with written.connect() as connection:
        samples = read_frame(connection, "SELECT * EXCLUDE (batch_id) FROM samples")
    collected = make_collected(check_frame(samples, SAMPLES), ())
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        store.keep(collected)
        for table in ("five_minute", "hourly"):
            made = frame_of(store._engine, table)
            pd.testing.assert_frame_equal(frame_of(written, table), made)


def test_every_holder_has_its_job(written: sa.Engine) -> None:
    """The jobs written are those that the roll-ups name, and each id counts once."""
    with written.connect() as connection:
        held = {row[0] for row in connection.exec_driver_sql(
            "SELECT DISTINCT job_id FROM five_minute WHERE holder = 'job'")}  # fmt: skip
    lanes, _boards = FLEET.lanes()
    known = [job.job_id for lane in lanes for job in jobs_of(FLEET, lane)]
    assert held == set(known)
    assert len(known) == len(set(known))


def test_its_plan_is_of_what_runs(tmp_path: Path) -> None:
    """A job that ended an hour ago still has readings to forecast from, and holds nothing."""
    fleet = replace(FLEET, seed=31, days=2, sample_hours=1)
    lanes, _boards = fleet.lanes()
    ends = {
        job.job_id: job.scheduler.ended_at
        for lane in lanes
        for job in jobs_of(fleet, lane)
        if job.scheduler is not None
    }
    assert any(fleet.end - timedelta(hours=1) <= end for end in ends.values() if end is not None)
    path = tmp_path / "t.duckdb"
    engine = open_engine(path, create=True)
    migrate(engine)
    with engine.begin() as connection:
        write_facts(connection, fleet)
    engine.dispose()
    with open_store(f"duckdb:///{path}") as store:
        write_cycle(store, now=fleet.end, settings=Settings())
        plan = store.reader.latest_plan()
    assert plan is not None
    assert {job.job_id for job in plan.jobs} == {job for job, end in ends.items() if end is None}
