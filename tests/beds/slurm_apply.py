"""What the tests of the Slurm applier share: recommendations for jobs of a bed, and one apply."""

from datetime import timedelta
from typing import Any

import pytest
from beds.slurm import SlurmBed
from beds.steps import send_step
from factories import make_recommendation

from dashboard.apply.slurm.change.applier import SlurmApplier
from data.base.clock import utc_now
from data.base.errors import ChangeRefusedError
from data.facts.jobs import Platform
from data.records.actions import Action
from data.records.changes import Change, ReadBack, StepOutcome, StepResult, VerificationResult
from data.records.plans import Configuration
from data.records.recommendations import Recommendation
from data.settings.apply import SlurmApplySettings
from data.settings.sources import SlurmSettings

MODEL = "H100-SXM5-80GB"
GPU_MODELS = f"h100={MODEL},a100=A100-SXM4-80GB"


def applier_of(
    bed: SlurmBed, mode: str = "commands", *, gpu_models: str = GPU_MODELS, **changes: Any
) -> SlurmApplier:
    """An applier for a bed."""
    settings = SlurmApplySettings(
        enabled=True,
        rest_user=bed.plan.user,
        rest_token=bed.token() if mode == "rest" else "",
        **changes,
    )
    source = SlurmSettings(conf_file=str(bed.conf), rest_url=bed.rest_url, gpu_models=gpu_models)
    return SlurmApplier(settings, source=source)


def proposal(job: str, has: int, gets: int, **changes: Any) -> Recommendation:
    """A recommendation of another GPU count, made now for a job with a raw number."""
    values: dict[str, Any] = {
        "job_id": f"slurm:{job}",
        "platform": Platform.SLURM,
        "action": Action.FEWER_GPUS,
        "created_at": utc_now() + timedelta(seconds=1),
        "now": Configuration(gpu_model=MODEL, gpu_count=has),
        "proposed": Configuration(gpu_model=MODEL, gpu_count=gets),
    }
    return make_recommendation(**(values | changes))


def prepared(applier: SlurmApplier, recommendation: Recommendation) -> Change:
    """The change of a recommendation, looked at now."""
    target = applier.look(recommendation, job=None, gpus=())
    return applier.change_for(recommendation, target)


def run_steps(applier: SlurmApplier, change: Change) -> list[StepResult]:
    """Send the steps in order until one is not done; one that is busy is sent again."""
    results = []
    for step in change.steps:
        answer = send_step(applier, step, change)
        results.append(answer)
        if answer.outcome is not StepOutcome.DONE:
            break
    return results


def running(bed: SlurmBed, *options: str) -> str:
    """A job that runs."""
    job = bed.submit(*options)
    bed.until("it runs", lambda: bed.states().get(job) == "RUNNING")
    return job


def full(bed: SlurmBed) -> str:
    """A job that holds every H100."""
    return running(bed, "-N2", "--gres=gpu:h100:4", "-J", "full")


def waiting(bed: SlurmBed, *options: str) -> str:
    """A job that the scheduler has looked at and that waits."""
    job = bed.submit(*options)
    bed.until("it waits", lambda: bed.run("squeue", "-h", "-j", job, "-o", "%r") != "None")
    return job


def shown(bed: SlurmBed, job: str) -> str:
    """What scontrol shows of a job."""
    return bed.run("scontrol", "show", "job", job)


def nodes_answer(bed: SlurmBed) -> None:
    """Wait until every node takes jobs: one that was resumed may not answer for a while."""
    fine = {"idle", "mixed", "allocated"}
    bed.until("nodes answer", lambda: set(bed.run("sinfo", "-h", "-N", "-o", "%T").split()) <= fine)


def settled(bed: SlurmBed, applier: SlurmApplier, change: Change) -> ReadBack:
    """What reading back finds once the scheduler has looked at the job."""
    found: list[ReadBack] = []

    def looked() -> bool:
        found[:] = [applier.read_back(change, done=len(change.steps))]
        return found[0].seen is not VerificationResult.NOT_YET

    bed.until("a scheduling pass", looked)
    return found[0]


def ends_as_measured(
    bed: SlurmBed, mode: str, recommendation: Recommendation, *, refusal: str, until_it_runs: str
) -> None:
    """A change that 22.05 is refused, and that later releases make and start with."""
    applier = applier_of(bed, mode)
    if bed.plan.version < (24, 11):
        with pytest.raises(ChangeRefusedError, match=refusal):
            prepared(applier, recommendation)
        return
    change = prepared(applier, recommendation)
    assert {step.outcome for step in run_steps(applier, change)} == {StepOutcome.DONE}
    bed.run("scancel", until_it_runs)
    job = recommendation.job_id.removeprefix("slurm:")
    bed.until("it runs", lambda: bed.states().get(job) == "RUNNING")
    seen = applier.read_back(change, done=len(change.steps))
    assert (seen.seen, seen.detail) == (
        VerificationResult.AS_INTENDED,
        "the job is RUNNING with 2 GPUs",
    )
