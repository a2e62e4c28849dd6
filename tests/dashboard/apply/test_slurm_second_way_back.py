"""A way back that waits for GPUs may be asked for again, on a real Slurm and by the real worker."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from beds.slurm import SlurmBed
from beds.slurm_apply import applier_of, proposal, running
from factories import make_plan

from dashboard import decisions
from dashboard.apply.worker import Worker
from data.clock import utc_now
from data.records.lifecycle import State
from data.settings import Settings
from data.store import open_store

pytestmark = pytest.mark.slurm


def test_a_way_back_that_waits_may_be_asked_for_again(bed: SlurmBed, tmp_path: Path) -> None:
    """The requeue before was our own: nobody else is blamed, and the job asks for what it had."""
    applier = applier_of(bed, allow_requeue=True, requeue_behind_others=True, pending_seconds=5.0)
    settings = Settings()
    settings = replace(
        settings,
        apply=replace(
            settings.apply, enabled=True, stop_file=str(tmp_path / "STOP"), poll_seconds=1.0,
            watch_minutes=0.0, cool_down_minutes=0.0, max_per_hour=1000,
            max_namespace_share_ratio=1.0, min_gpu_hours=0.0, min_energy_kwh=0.0,
        ),
    )  # fmt: skip
    job = running(bed, "--gres=gpu:h100:4")
    now = utc_now()
    recommendation = proposal(job, 4, 2, plan_id="p" * 64, expires_at=now + timedelta(hours=24))
    digest = recommendation.digest
    skew = timedelta()
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        store.keep_cycle(
            cycle_id="c1", started_at=now, finished_at=now, reports=(), forecasts=(),
            plan=make_plan(), recommendations=(recommendation,),
        )  # fmt: skip
        worker = Worker(
            store=store,
            settings=lambda: settings,
            appliers=lambda _settings: (applier,),
            clock=lambda: utc_now() + skew,
        )

        def reaches(state: State) -> None:
            def is_there() -> bool:
                nonlocal skew
                if not worker.work_once():
                    skew += timedelta(seconds=1)
                return store.reader.recommendation(digest, now=utc_now() + skew).state == state

            bed.until(f"it is {state}", is_there)

        decisions.approve(store, digest, by="Robin", now=now)
        decisions.ask_to_apply(store, digest, by="Robin", now=now, appliers=(applier,))
        reaches(State.APPLIED)
        others = [running(bed, "-w", node, "--gres=gpu:h100:2") for node in ("h1", "h2")]
        decisions.ask_to_roll_back(store, digest, by="Robin", now=utc_now() + skew)
        reaches(State.FAILING)
        decisions.ask_to_roll_back(store, digest, by="Robin", now=utc_now() + skew)
        reaches(State.ROLLED_BACK)
        for other in others:
            bed.run("scancel", other)
        bed.until("it runs", lambda: bed.states().get(job) == "RUNNING")
    assert "gres/gpu=4" in bed.run("scontrol", "show", "job", job)
