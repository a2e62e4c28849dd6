"""From a job file to the plans that fit: what MARP admits on the GPU types on offer."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from dashboard.submission.job_file import JobFile
from data.errors import ImpossibleProblemError
from data.records.submissions import MeasuredPeak
from planner.memory.calibration import Calibration, FinishedRun
from planner.memory.training_job import Recompute, Sharding, TrainingJob
from planner.training_plans import GpuType, PlanQuestion, TrainingPlan, training_plans
from planner.training_time import hours_range


def family_of(job: TrainingJob) -> str:
    """Name what finished runs have in common that calibrate one another."""
    kept = job.precision or "default"
    return f"{job.framework or 'generic'}/{job.method}/{job.optimizer or 'default'}/{kept}"


def calibration_of(family: str, peaks: Iterable[MeasuredPeak]) -> Calibration:
    """Give the calibration that the measured peaks of a family make."""
    calibration = Calibration(family=family)
    for one in peaks:
        calibration = calibration.with_run(
            FinishedRun(
                static_bytes=one.static_bytes,
                dynamic_bytes=one.dynamic_bytes,
                measured_bytes=one.measured_bytes,
            )
        )
    return calibration


def plans_for(
    job: JobFile,
    gpu_types: Sequence[GpuType],
    *,
    largest_gpus: int,
    calibration: Calibration | None = None,
    raised: float = 1.0,
) -> tuple[TrainingPlan, ...]:
    """Give the plans that fit and that the job's program can run.

    Errors: ImpossibleProblemError with the smallest cluster that would do, or with what the
    program would have to support.
    """
    question = PlanQuestion(
        job=job.training_job,
        global_batch=job.global_batch,
        gpu_types=gpu_types,
        largest_gpus=largest_gpus,
        calibration=calibration,
        raised=raised,
    )
    if job.micro_batch is not None:
        question = replace(question, micro_batches=(job.micro_batch,))
    if job.recompute:
        question = replace(question, recomputes=(Recompute(job.recompute),))
    elif "recompute" not in job.supports:
        question = replace(question, recomputes=(Recompute.NONE,))
    plans = training_plans(question)
    able = tuple(one for one in plans if _runs(job, one))
    if not able:
        needs = sorted({word for one in plans for word in _needs(one)} - set(job.supports))
        raise ImpossibleProblemError(
            f"{job.name} fits only with {' or '.join(needs)}, which its program does not support",
            "Add it to supports in the job file, or choose larger GPUs or a smaller model.",
        )
    return able


def _needs(plan: TrainingPlan) -> set[str]:
    spread = plan.job.parallelism
    words = {
        "tensor": spread.tensor > 1,
        "pipeline": spread.pipeline > 1,
        "sharding": spread.sharding is not Sharding.NONE,
    }
    return {word for word, needed in words.items() if needed}


def _runs(job: JobFile, plan: TrainingPlan) -> bool:
    return _needs(plan) <= set(job.supports)


def misses_deadline(job: JobFile, plan: TrainingPlan, now: datetime) -> bool:
    """Say whether the plan, at worst, ends after the job's deadline; no when it cannot be told."""
    if job.deadline is None or job.tokens is None:
        return False
    return now + timedelta(hours=hours_range(plan, job.tokens)[1]) > job.deadline
