"""A real Slurm: a job about to run out is found, spread after approval, read back, measured."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_apply import GPU_MODELS, MODEL, applier_of
from beds.slurm_files import BedNode
from factories import make_collected, make_samples
from memory_cases import climbing, world_of
from outsiders.proposals import OlderJobs

from collectors.slurm.jobs import slurm_collector
from dashboard.apply.worker.worker import Worker
from dashboard.cycle.run_cycle import run_cycle
from dashboard.decisions import approvals
from data.base.clock import utc_now
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.actions import Action
from data.records.commands import Measurement
from data.records.recommendations import Recommendation
from data.settings.all_settings import Settings
from data.settings.apply import ApplySettings
from data.settings.sources import SlurmSettings
from data.store import Store
from data.store.engine.record_json import from_json

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
MEMORY = 81_559.0
NODES = (
    BedNode(name="h1", gpu_type="h100", gpus=4, features="nvlink"),
    BedNode(name="c1", features="cpuonly"),
)


def recommended(bed: SlurmBed, store: Store, job: str) -> Recommendation:
    """What a cycle recommends for a job of one H100 whose memory climbs."""
    now = utc_now()
    frame = climbing(f"slurm:{job}", gpu_model=MODEL, memory_mib=MEMORY, end=now)
    store.keep(make_collected(frame, jobs=()))
    source = SlurmSettings(mode="commands", conf_file=str(bed.conf), gpu_models=GPU_MODELS)
    world = world_of(store, OlderJobs(slurm_collector(source, load_gpu_catalogue())))
    outcome = run_cycle(world, now=utc_now() + timedelta(seconds=1))
    (found,) = (
        recommendation
        for recommendation in outcome.recommendations
        if recommendation.job_id == f"slurm:{job}"
    )
    return found


def worker_of(bed: SlurmBed, store: Store, folder: Path, *, later: timedelta) -> Worker:
    """A worker on the bed that may requeue, so much later."""
    settings = replace(
        Settings(), apply=ApplySettings(enabled=True, stop_file=str(folder / "STOP"))
    )
    applier = applier_of(bed, allow_requeue=True)

    def clock() -> datetime:
        return utc_now() + later

    return Worker(
        store=store, settings=lambda: settings, appliers=lambda _s: (applier,), clock=clock
    )


def test_a_job_about_to_run_out_is_spread_measured_and_put_back(
    store: Store, tmp_path: Path
) -> None:
    """Finding, recommendation, approval, two GPUs on the cluster, memory read, one GPU again."""
    with running_slurm(nodes=NODES) as bed:
        job = bed.submit("--gres=gpu:h100:1", "--requeue", "-J", "grows")
        bed.until("it runs", lambda: bed.states().get(job) == "RUNNING")
        one = recommended(bed, store, job)
        assert (one.action, one.proposed.gpu_count) == (Action.SPREAD, 2)
        assert "chance of at least" in one.why
        digest = one.digest

        def state() -> str:
            return store.reader.recommendation(digest, now=utc_now()).state

        worker = worker_of(bed, store, tmp_path, later=timedelta(seconds=2))
        approvals.approve(store, digest, by="Robin", now=worker.clock())
        applier = worker.appliers(worker.settings())
        approvals.ask_to_apply(store, digest, by="Robin", now=worker.clock(), appliers=applier)

        def reached(wanted: str) -> bool:
            worker.work_once()
            return state() == wanted

        bed.until("it is applied", lambda: reached("applied"), 400)
        bed.until("it runs with two", lambda: gpus_of(bed, job) == "RUNNING gpu:h100:2", 400)

        later = timedelta(hours=6)
        half = make_samples(
            minutes=6 * 60,
            gpus=2,
            job_id=f"slurm:{job}",
            end=utc_now() + later,
            memory_used_mib=0.5 * MEMORY,
        )
        store.keep(make_collected(half, jobs=()))
        worker = worker_of(bed, store, tmp_path, later=later)
        bed.until("it is measured", lambda: reached("verified"), 400)
        (row,) = store.reader.journal(digest=digest, events=("verified",))
        read = from_json(Measurement, row.record)
        assert read.memory_peak_mib == pytest.approx(0.5 * MEMORY)
        assert read.memory_limit_mib == pytest.approx(0.985 * MEMORY, abs=1)

        approvals.ask_to_roll_back(store, digest, by="Robin", now=worker.clock())
        bed.until("it is rolled back", lambda: reached("rolled-back"), 400)
        bed.until("it runs with one", lambda: gpus_of(bed, job) == "RUNNING gpu:h100:1", 400)
    assert store.reader.verify_audit() == ()


def gpus_of(bed: SlurmBed, job: str) -> str:
    """State and GPUs per node of a job, as Slurm says it."""
    line = bed.run("squeue", "-h", "-j", job, "-o", "%T %b")
    return line.replace("gres:", "").replace("gres/", "").strip()
