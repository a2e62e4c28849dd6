"""A store with one approved recommendation, a cluster in a file, and a worker on both."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from beds.file_cluster import FileApplier, FileCluster
from factories import NOW, make_collected, make_job, make_plan, make_recommendation, make_samples

from dashboard.apply.worker import guards
from dashboard.apply.worker.worker import Worker
from dashboard.decisions import approvals
from data.records.changes import Change
from data.records.recommendations import Recommendation
from data.settings.all_settings import Settings
from data.settings.apply import ApplySettings
from data.store import Store
from data.store.engine import tables

JOB = "search/ranker-0"
START = NOW + timedelta(minutes=10)


@contextmanager
def whatever_it_saves() -> Iterator[None]:
    """Let no saving be too small while the block runs."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MIN_GPU_HOURS", "MIN_ENERGY_KWH"):
            patch.setattr(guards, name, 0.0)
        yield


@dataclass
class Clock:
    """A clock that a test moves."""

    at: datetime = START

    def __call__(self) -> datetime:
        """Return the time."""
        return self.at

    def forward(self, **step: float) -> None:
        """Let time pass."""
        self.at += timedelta(**step)


@dataclass
class Bench:
    """Store, cluster, worker and clock of one test."""

    store: Store
    cluster: FileCluster
    folder: Path
    clock: Clock = field(default_factory=Clock)
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        """Switch applying on, with a stop file of the test's own."""
        self.digest = make_recommendation().digest
        self.set(enabled=True, stop_file=str(self.folder / "STOP"))
        self.applier = FileApplier(self.cluster)
        self.worker = self.new_worker()

    def set(self, **apply: object) -> None:
        """Change settings of section apply."""
        changed: ApplySettings = replace(self.settings.apply, **apply)  # type: ignore[arg-type]
        self.settings = replace(self.settings, apply=changed)

    def new_worker(self) -> Worker:
        """Another worker on the same store and cluster."""
        return Worker(
            store=self.store,
            settings=lambda: self.settings,
            appliers=lambda _settings: (self.applier,),
            clock=self.clock,
        )

    def approve(self, *, previewed: Change | None = None) -> None:
        """Approve the recommendation, over a previewed change when one is given."""
        approvals.approve(
            self.store,
            self.digest,
            by="Robin",
            now=self.clock(),
            change_digest=previewed.digest if previewed else "",
            access=self.settings.access,
        )

    def ask(self) -> None:
        """Ask for the apply."""
        approvals.ask_to_apply(
            self.store,
            self.digest,
            by="Robin",
            now=self.clock(),
            appliers=(self.applier,),
            access=self.settings.access,
        )

    def roll_back(self) -> None:
        """Ask for the last change, or its rollback, to be undone."""
        again = self.state == "rolled-back"
        approvals.ask_to_roll_back(
            self.store, self.digest, by="Robin", now=self.clock(), again=again
        )

    @property
    def state(self) -> str:
        """What became of the recommendation."""
        return self.store.reader.recommendation(self.digest, now=self.clock()).state

    @property
    def held(self) -> str:
        """Why the last command waits."""
        return self.store.reader.commands(self.digest)[-1].held

    def work(self, *, visits: int = 40, until: Callable[[], bool] | None = None) -> None:
        """Let the worker visit each second, as often as asked or until `until` says so.

        Seconds in which no command is due pass without a visit.
        """
        passed = 0
        while passed < visits and not (until is not None and until()):
            seconds = 1 if self.worker.work_once() else min(self._idle_seconds(), visits - passed)
            self.clock.forward(seconds=seconds)
            passed += seconds

    def _idle_seconds(self) -> int:
        """Return after how many seconds (at least 1) a visit can find a command that is due."""
        leases = tables.leases.c
        with self.store._engine.connect() as connection:
            open_ = connection.execute(sa.select(tables.leases).where(leases.finished.is_(False)))
            waits = [
                (max(row.not_before, row.until) if row.owner else row.not_before) - self.clock()
                for row in open_
            ]
        first = min(waits, default=timedelta(days=1))
        return max(1, math.ceil(first / timedelta(seconds=1)))

    def job(self) -> dict[str, object]:
        """The job as the cluster has it."""
        found = self.cluster.read(JOB)
        assert found is not None
        return found


def fill(store: Store, recommendation: Recommendation | None = None) -> None:
    """Keep a namespace of eight boards, of which the job holds four, and a recommendation."""
    store.keep(
        make_collected(make_samples(gpus=4), (make_job(gpu_count=4),)),
        make_collected(
            make_samples(gpus=4, job_id="search/other").assign(
                gpu_uuid=lambda frame: "O-" + frame["gpu_uuid"]
            ),
            (make_job("search/other", gpu_count=4),),
        ),
    )
    propose(store, recommendation or make_recommendation())


def propose(store: Store, recommendation: Recommendation) -> None:
    """Keep the cycle that found a recommendation."""
    store.keep_cycle(
        cycle_id="c1",
        started_at=NOW,
        finished_at=NOW,
        forecasts=(),
        plan=make_plan(),
        recommendations=(recommendation,),
    )


def applied_bench(
    store: Store, folder: Path, recommendation: Recommendation | None = None
) -> Bench:
    """Return a change from four boards, worked at a quarter for a day, to two, applied at NOW."""
    change = recommendation or make_recommendation()
    cluster = FileCluster(folder / "cluster.json")
    cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
    day = make_samples(gpus=4, minutes=24 * 60, utilization_ratio=0.25)
    store.keep(make_collected(day, (make_job(gpu_count=4),)))
    propose(store, change)
    made = Bench(store, cluster, folder)
    made.digest = change.digest
    made.set(max_namespace_share_ratio=1.0)
    made.clock.at = NOW
    made.approve()
    made.ask()
    made.work(visits=3)
    assert made.state == "applied"
    return made


def sent(bench: Bench) -> list[list[str]]:
    """Every command that ever arrived at the job."""
    log = bench.job()["log"]
    assert isinstance(log, list)
    return log
