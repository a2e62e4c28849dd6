"""A large fleet written straight into a store: roll-ups, jobs, nodes and batches.

Nodes of eight boards are cut into lanes of 1 to 8 boards. Three lanes in ten hold one service for
good, the others run a job every 12 or 24 h, some of which hold their boards without work. Every
board is read once per five minutes, at the start of the slot, and has no energy counter. From that
the roll-ups follow row by row (`tests/test_stored_fleet.py` compares them with those that the store
makes of the same readings). The last two days are made so; a day before is the last but one again,
with the jobs of its own. Five-minute rows are written for the last `five_minute_days` only: older
ones would be pruned by their time in every question of the pages, and 86 M of them take a quarter
of an hour to write. The same seed gives the same fleet.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import sqlalchemy as sa

from benchmarks._complete_report import complete_report
from benchmarks._stored_fleet_sql import (
    FIVE_MINUTES,
    LATER,
    SAMPLES_SQL,
    SLOT,
    SLOTS_PER_DAY,
    SOURCE,
)
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.fleet import Node
from data.facts.jobs import Job, JobState, Platform, SchedulerFacts, WorkloadKind
from data.store.engine import tables
from data.store.engine.bulk import read_frame
from data.store.engine.record_json import to_json
from data.store.rollups import rollup_sql

FINE_DAYS = 8
_CUTS = ((8,), (4, 4), (2, 2, 4), (1, 1, 2, 4), (2, 2, 2, 2), (1, 1, 1, 1, 4))
_MODELS = ("H100-SXM5-80GB",) * 5 + ("A100-SXM4-80GB",) * 3 + ("L40S-48GB",) * 2
_NAMESPACES = ("search", "vision", "speech", "robotics", "ads", "research", "maps", "safety")
_MODELLED = ("bert", "llama", "resnet", "whisper", "yolo", "diffusion", "ranker", "tts", "vit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Boards of one node that are always given out together.

    A job takes `busy` of every `period` slots; `level` is what it does, 0 for nothing.
    """

    number: int
    gpus: int
    model: str
    namespace: str
    service: bool
    slurm: bool
    period: int
    busy: int
    phase: int
    level: float

    def begun(self, fleet: "StoredFleet") -> int:
        """Return the run that was under way at the fleet's first slot."""
        return (fleet.first_slot + self.phase) // self.period

    def job_id(self, run: int) -> str:
        """Return the id of the run-th job."""
        if self.service:
            return f"{self.namespace}/deployment/serve-{self.number}"
        if self.slurm:
            return f"slurm:{1_000_000 + 1_000 * self.number + run}"
        return f"{self.namespace}/job/train-{self.number % 97}-{self.number}-{run}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFleet:
    """A fleet of `nodes` × 8 boards over about `days` up to `end` (the start of a slot, UTC)."""

    seed: int
    nodes: int
    days: int
    end: datetime
    five_minute_days: int = FINE_DAYS
    sample_hours: int = 24

    @property
    def first_slot(self) -> int:
        """The first slot, the start of an hour, in slots since the epoch."""
        return self.pattern_start - (self.days - 2) * SLOTS_PER_DAY

    @property
    def pattern_start(self) -> int:
        """The first slot of the day that the days before repeat; whole hours end before `end`."""
        return self.last_slot // 12 * 12 - 2 * SLOTS_PER_DAY + 12

    @property
    def last_slot(self) -> int:
        """The slot of the last reading."""
        return int(self.end.timestamp()) // SLOT

    def lanes(self) -> tuple[tuple[Lane, ...], pd.DataFrame]:
        """Return the lanes, and the boards with the number of their lane."""
        random = np.random.default_rng(self.seed)
        catalogue = load_gpu_catalogue()
        lanes: list[Lane] = []
        boards = []
        for node in range(self.nodes):
            model = catalogue.get(_MODELS[node % len(_MODELS)])
            index = 0
            for gpus in _CUTS[node % len(_CUTS)]:
                lane = self._lane(len(lanes), gpus, model.name, random)
                lanes.append(lane)
                for _board in range(gpus):
                    boards.append(
                        {
                            "board": len(boards),
                            "lane": lane.number,
                            "node": f"node-{node:04d}",
                            "gpu_index": str(index),
                            "gpu_uuid": f"GPU-{self.seed:04d}-{node:04d}-{index}",
                            "gpu_model": model.name,
                            "memory_total_mib": float(model.memory_mib),
                            "tdp": float(model.tdp_watts),
                            "idle": float(model.idle_watts),
                        }
                    )
                    index += 1
        return tuple(lanes), pd.DataFrame(boards)

    def _lane(self, number: int, gpus: int, model: str, random: np.random.Generator) -> Lane:
        service = bool(random.random() < 0.3)
        period = 10**7 if service else int(random.choice([SLOTS_PER_DAY // 2, SLOTS_PER_DAY]))
        idle = random.random() < 0.08
        return Lane(
            number=number,
            gpus=gpus,
            model=model,
            namespace=_NAMESPACES[int(random.integers(len(_NAMESPACES)))],
            service=service,
            slurm=not service and bool(random.random() < 0.5),
            period=period,
            busy=period if service else int(period * random.uniform(0.8, 0.98)),
            phase=0 if service else int(random.integers(period)),
            level=0.0 if idle else round(float(random.uniform(0.1, 0.9)), 2),
        )


def write_facts(connection: sa.Connection, fleet: StoredFleet) -> None:
    """Write samples of the last hours, roll-ups of all days, jobs, nodes and a source's report."""
    lanes, boards = fleet.lanes()
    _write_boards(connection, lanes, boards)
    connection.execute(
        sa.text(FIVE_MINUTES),
        {
            "first": fleet.pattern_start,
            "until": fleet.last_slot + 1,
            "newest": fleet.last_slot,
            "oldest": fleet.first_slot,
        },
    )
    connection.execute(
        sa.text(rollup_sql.HOURS),
        {
            "start": float(fleet.pattern_start * SLOT),
            "end": float((fleet.last_slot + 1) * SLOT),
        },
    )
    for back in range(1, fleet.days - 1):
        _repeat(connection, fleet, lanes, back)
    since = max(fleet.first_slot, fleet.last_slot - fleet.sample_hours * 12)
    connection.execute(
        sa.text(SAMPLES_SQL),
        {"first": since, "until": fleet.last_slot + 1, "oldest": fleet.first_slot},
    )
    _write_jobs(connection, fleet, lanes)
    _write_nodes(connection, fleet, boards)
    _write_report(connection, fleet, len(boards))


def _write_boards(connection: sa.Connection, lanes: tuple[Lane, ...], boards: pd.DataFrame) -> None:
    """Make the temporary table that readings are made from."""
    frame = pd.DataFrame(
        [(lane.number, lane.service, lane.slurm, lane.period, lane.busy, lane.phase, lane.level,
          lane.namespace) for lane in lanes],
        columns=["lane", "service", "slurm", "period", "busy", "phase", "level", "namespace"],
    )  # fmt: skip
    _replace(connection, "fleet_boards", boards.merge(frame, on="lane"))


def next_samples(connection: sa.Connection, fleet: StoredFleet, slots: int) -> pd.DataFrame:
    """Return samples of the `slots` after the last reading, one a minute, as SAMPLES.

    They are those of the slot's reading.
    """
    _write_boards(connection, *fleet.lanes())
    return read_frame(
        connection,
        LATER,
        {
            "first": fleet.last_slot + 1,
            "until": fleet.last_slot + 1 + slots,
            "oldest": fleet.first_slot,
        },
    )


def _repeat(
    connection: sa.Connection, fleet: StoredFleet, lanes: tuple[Lane, ...], back: int
) -> None:
    """Write the day that many days before the pattern: its rows again, under the jobs of then."""
    start, end = fleet.pattern_start, fleet.pattern_start + SLOTS_PER_DAY
    renamed = [
        (lane.job_id(run - lane.begun(fleet)), lane.job_id(run - back * days - lane.begun(fleet)))
        for lane in lanes
        if not lane.service
        for days in (SLOTS_PER_DAY // lane.period,)
        for run in range((start + lane.phase) // lane.period, (end + lane.phase) // lane.period + 1)
    ]
    _replace(connection, "renamed", pd.DataFrame(renamed, columns=["job_id", "earlier"]))
    fine = ("five_minute",) if back < fleet.five_minute_days - 1 else ()
    for table in (*fine, "hourly"):
        connection.execute(
            sa.text(
                f"""
                INSERT INTO {table} SELECT * EXCLUDE (earlier) REPLACE (
                    slot_start - to_days(:back) AS slot_start,
                    last_at - to_days(:back) AS last_at,
                    coalesce(earlier, job_id) AS job_id)
                FROM {table} LEFT JOIN renamed USING (job_id)
                WHERE slot_start >= to_timestamp(:start) AND slot_start < to_timestamp(:end)
                """  # noqa: S608 - our own tables
            ),
            {"back": back, "start": float(start * SLOT), "end": float(end * SLOT)},
        )


def _write_jobs(connection: sa.Connection, fleet: StoredFleet, lanes: tuple[Lane, ...]) -> None:
    rows = [
        (job.job_id, job.last_seen_at, to_json(job))
        for lane in lanes
        for job in jobs_of(fleet, lane)
    ]
    frame = pd.DataFrame(rows, columns=["job_id", "last_seen_at", "record"])
    _insert(connection, "jobs", frame)


def jobs_of(fleet: StoredFleet, lane: Lane) -> list[Job]:
    """Return every job that held the lane, in order."""
    begun = lane.begun(fleet)
    last = (fleet.last_slot + lane.phase) // lane.period
    if begun * lane.period - lane.phase + lane.busy <= fleet.first_slot:
        runs = range(begun + 1, last + 1)
    else:
        runs = range(begun, last + 1)
    return [_job(fleet, lane, run, run - begun) for run in runs]


def _job(fleet: StoredFleet, lane: Lane, run: int, number: int) -> Job:
    start = run * lane.period - lane.phase
    end = start + lane.busy
    seen = _time(min(end - 1, fleet.last_slot))
    running = end > fleet.last_slot
    job_id = lane.job_id(number)
    owner = f"{lane.namespace}-team-{lane.number % 5}"
    facts = SchedulerFacts(
        state=JobState.RUNNING if running else JobState.FINISHED,
        workload=job_id.partition("/")[2],
        user=f"user{lane.number % 211:03d}",
        account=lane.namespace,
        submitted_at=_time(start - 6),
        started_at=_time(start),
        ended_at=None if running else _time(end),
        time_limit_seconds=float(2 * lane.busy * SLOT) if lane.slurm else None,
        extra=(("gpus_per_pod", "1"), ("gpu_containers", "1")) if lane.service else (),
    )
    memory = load_gpu_catalogue().get(lane.model).memory_mib
    words = _MODELLED[lane.number % len(_MODELLED)]
    return Job(
        job_id=job_id,
        name=f"serve-{lane.number}" if lane.service else f"train-{words}-{lane.number}-{number}",
        namespace=lane.namespace,
        owner=owner,
        platform=Platform.SLURM if lane.slurm else Platform.KUBERNETES,
        kind=WorkloadKind.INFERENCE if lane.service else WorkloadKind.TRAINING,
        gpu_model=lane.model,
        gpu_count=lane.gpus,
        mig_profile="",
        gpu_memory_mib=float(memory),
        first_seen_at=_time(max(start, fleet.first_slot)),
        last_seen_at=seen,
        source=SOURCE,
        scheduler=facts,
    )


def _time(slot: int) -> datetime:
    return datetime.fromtimestamp(slot * SLOT, tz=UTC)


def _write_nodes(connection: sa.Connection, fleet: StoredFleet, boards: pd.DataFrame) -> None:
    nodes = [
        Node(
            name=str(name),
            gpu_model=str(rows["gpu_model"].iloc[0]),
            gpu_count=len(rows),
            state="ready",
            seen_at=fleet.end,
            source=SOURCE,
        )
        for name, rows in boards.groupby("node")
    ]
    frame = pd.DataFrame(
        [(node.name, node.source, node.seen_at, to_json(node)) for node in nodes],
        columns=["name", "source", "seen_at", "record"],
    )
    _insert(connection, "nodes", frame)


def _write_report(connection: sa.Connection, fleet: StoredFleet, boards: int) -> None:
    """One batch an hour, as collecting would have left behind."""
    hours = fleet.days * 24
    rows = []
    for hour in range(hours):
        end = fleet.end - timedelta(hours=hours - 1 - hour)
        report = complete_report(SOURCE, 12 * boards, start=end - timedelta(hours=1), end=end)
        rows.append((f"{SOURCE}-{hour}", hour, SOURCE, 12 * boards, to_json(report)))
    columns = [column.name for column in tables.batches.columns]
    _insert(connection, "batches", pd.DataFrame(rows, columns=columns))


def _replace(connection: sa.Connection, name: str, frame: pd.DataFrame) -> None:
    """Make a temporary table of the frame."""
    with _registered(connection, frame):
        connection.exec_driver_sql(
            f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM fleet_rows"  # noqa: S608
        )


def _insert(connection: sa.Connection, table: str, frame: pd.DataFrame) -> None:
    columns = ", ".join(frame.columns)
    with _registered(connection, frame):
        connection.exec_driver_sql(
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM fleet_rows"  # noqa: S608
        )


@contextmanager
def _registered(connection: sa.Connection, frame: pd.DataFrame) -> Iterator[None]:
    """Let SQL see the frame as fleet_rows."""
    driver = connection.connection.driver_connection
    if driver is None:
        raise RuntimeError("the connection is closed")
    driver.register("fleet_rows", pa.Table.from_pandas(frame, preserve_index=False))
    try:
        yield
    finally:
        driver.unregister("fleet_rows")
