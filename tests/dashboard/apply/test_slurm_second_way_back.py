"""A way back that waits for GPUs may be asked for again, on a real Slurm and by the real worker."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from beds.apply_bench import whatever_it_saves
from beds.slurm import SlurmBed
from beds.slurm_apply import applier_of, proposal, running
from factories import make_plan

from dashboard.apply.worker.worker import Worker
from dashboard.decisions import approvals
from data.base.clock import utc_now
from data.records.lifecycle import State
from data.settings.all_settings import Settings
from data.store import Store, open_store

pytestmark = pytest.mark.slurm


@pytest.fixture(autouse=True)
def _whatever_it_saves() -> Iterator[None]:
    """No saving is too small."""
    with whatever_it_saves():
        yield


class Trial:
    """Recommendations of one job, each approved, applied and taken back by the real worker."""

    def __init__(self, bed: SlurmBed, folder: Path, store: Store) -> None:
        applier = applier_of(
            bed, allow_requeue=True, requeue_behind_others=True, pending_seconds=5.0
        )
        settings = Settings()
        settings = replace(
            settings,
            apply=replace(
                settings.apply, enabled=True, stop_file=str(folder / "STOP"),
                watch_minutes=0.0, cool_down_minutes=0.0, max_per_hour=1000,
                max_namespace_share_ratio=1.0,
            ),
        )  # fmt: skip
        self._bed, self._store, self._appliers = bed, store, (applier,)
        self._skew = timedelta()
        self._worker = Worker(
            store=store,
            settings=lambda: settings,
            appliers=lambda _settings: self._appliers,
            clock=self.now,
        )

    def now(self) -> datetime:
        """The worker's time, which goes on while it has nothing to do."""
        return utc_now() + self._skew

    def state(self, digest: str) -> str:
        """What became of a recommendation."""
        found = self._store.reader.recommendation(digest, now=self.now())
        return str(found.state)

    def reaches(self, digest: str, state: State) -> None:
        """Work until a recommendation is in a state."""

        def is_there() -> bool:
            if not self._worker.work_once():
                self._skew += timedelta(seconds=1)
            found = self.state(digest)
            assert found != State.REFUSED, self._store.reader.audit()[-1].detail
            return found == state

        self._bed.until(f"it is {state}", is_there)

    def watch(self, hours: int) -> None:
        """Let hours pass in which the worker looks at what stands."""
        for _look in range(hours):
            self._skew += timedelta(hours=1)
            while self._worker.work_once():
                pass

    def apply(self, job: str, before: int, after: int) -> str:
        """Approve and apply a change of a job's GPUs; its digest."""
        now = self.now()
        plan = make_plan(plan_id=f"{after}" * 64, created_at=now)
        recommendation = proposal(
            job, before, after, plan_id=plan.plan_id, created_at=now + timedelta(seconds=1),
            expires_at=now + timedelta(hours=24),
        )  # fmt: skip
        self._store.keep_cycle(
            cycle_id=f"c{after}", started_at=now, finished_at=now, forecasts=(),
            plan=plan, recommendations=(recommendation,),
        )  # fmt: skip
        digest = recommendation.digest
        approvals.approve(self._store, digest, by="Robin", now=now)
        approvals.ask_to_apply(self._store, digest, by="Robin", now=now, appliers=self._appliers)
        self.reaches(digest, State.APPLIED)
        return digest

    def roll_back(self, digest: str, state: State) -> None:
        """Ask for the way back, and work until the state is reached."""
        approvals.ask_to_roll_back(self._store, digest, by="Robin", now=self.now())
        self.reaches(digest, state)


@pytest.fixture
def trial(bed: SlurmBed, tmp_path: Path) -> Iterator[Trial]:
    """A store with nothing in it yet, and a worker on it."""
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        yield Trial(bed, tmp_path, store)


def test_a_way_back_that_waits_may_be_asked_for_again(bed: SlurmBed, trial: Trial) -> None:
    """The requeue before was our own: nobody else is blamed, and the job asks for what it had."""
    job = running(bed, "--gres=gpu:h100:4")
    digest = trial.apply(job, 4, 2)
    others = [running(bed, "-w", node, "--gres=gpu:h100:2") for node in ("h1", "h2")]
    trial.roll_back(digest, State.FAILING)
    trial.roll_back(digest, State.ROLLED_BACK)
    for other in others:
        bed.run("scancel", other)
    bed.until("it runs", lambda: bed.states().get(job) == "RUNNING")
    assert "gres/gpu=4" in bed.run("scontrol", "show", "job", job)


def test_a_job_that_its_owner_requeues_still_has_the_change(bed: SlurmBed, trial: Trial) -> None:
    """It runs again with the changed GPUs: that is not gone, and the way back is kept."""
    job = running(bed, "--gres=gpu:h100:4")
    digest = trial.apply(job, 4, 2)
    bed.until("it runs", lambda: bed.states().get(job) == "RUNNING")
    bed.run("scontrol", "requeue", job)
    bed.until(
        "it runs again",
        lambda: (
            "Restarts=2" in bed.run("scontrol", "show", "job", job)
            and bed.states().get(job) == "RUNNING"
        ),
    )
    trial.watch(4)
    assert trial.state(digest) == State.APPLIED
    trial.roll_back(digest, State.ROLLED_BACK)
    bed.until("it runs", lambda: bed.states().get(job) == "RUNNING")
    assert "gres/gpu=4" in bed.run("scontrol", "show", "job", job)


def test_two_changes_in_a_row_are_taken_back_one_after_the_other(
    bed: SlurmBed, trial: Trial
) -> None:
    """The requeue of the second makes the job of the first no other one."""
    job = running(bed, "--gres=gpu:h100:4")
    first = trial.apply(job, 4, 3)
    bed.until("it runs", lambda: bed.states().get(job) == "RUNNING")
    second = trial.apply(job, 3, 2)
    assert trial.state(first) == State.REPLACED
    for digest, gpus in ((second, 3), (first, 4)):
        bed.until("it runs", lambda: bed.states().get(job) == "RUNNING")
        trial.roll_back(digest, State.ROLLED_BACK)
        assert f"gres/gpu={gpus}" in bed.run("scontrol", "show", "job", job)
