"""Plans of a job file that fit: what MARP admits on the GPU types on offer."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from dashboard.submission.job.command_options import Need, needs
from dashboard.submission.job.job_file import JobFile
from data.base.errors import ImpossibleProblemError
from data.records.submissions import MeasuredPeak
from planner.memory.estimate.calibration import Calibration, FinishedRun
from planner.memory.estimate.training_plans import (
    GpuType,
    PlanQuestion,
    TrainingPlan,
    training_plans,
)
from planner.memory.estimate.training_time import hours_range
from planner.memory.step.training_job import Parallelism, Recompute, Sharding, TrainingJob


def family_of(job: TrainingJob) -> str:
    """Return the family of finished runs that calibrate one another."""
    precision = job.precision or "default"
    return f"{job.framework or 'generic'}/{job.method}/{job.optimizer or 'default'}/{precision}"


def calibration_of(family: str, peaks: Iterable[MeasuredPeak]) -> Calibration:
    """Return the calibration that the measured peaks of a family make."""
    calibration = Calibration(family=family)
    for peak in peaks:
        calibration = calibration.with_run(
            FinishedRun(
                static_bytes=peak.static_bytes,
                dynamic_bytes=peak.dynamic_bytes,
                measured_bytes=peak.measured_bytes,
            )
        )
    return calibration


def plans_for(
    job: JobFile,
    gpu_types: Sequence[GpuType],
    *,
    max_gpus: int,
    calibration: Calibration | None = None,
    raised: float = 1.0,
) -> tuple[TrainingPlan, ...]:
    """Return the plans that fit and that the job's program can be told to run.

    Errors: ImpossibleProblemError with the smallest cluster that would do, or with what the
    program would have to support or be told.
    """
    question = _question(job, gpu_types, max_gpus, calibration, raised)
    if not job.recompute and "recompute" not in job.supports:
        question = replace(question, recomputes=(Recompute.NONE,))
    parallel = {name for name in ("tensor", "pipeline") if f"{name}_parallel" in job.told}
    usable = {"sharding", *parallel}.intersection(job.supports)
    limited = replace(
        question,
        can_spread=lambda spread: _uses(spread) <= usable,
        can_run=lambda layout: not missing_needs(job, layout),
    )
    if job.micro_batch is None and not _takes_accumulation(job):
        global_batch = job.global_batch
        # Those that make a global batch at once on a power of two of GPUs.
        halves = range((global_batch & -global_batch).bit_length())
        limited = replace(limited, micro_batches=tuple(global_batch >> power for power in halves))
    try:
        return training_plans(limited)
    except ImpossibleProblemError:
        # Raises itself where memory is what lacks.
        raise _untold(job, training_plans(question)) from None


def _question(
    job: JobFile,
    gpu_types: Sequence[GpuType],
    max_gpus: int,
    calibration: Calibration | None,
    raised: float,
) -> PlanQuestion:
    question = PlanQuestion(
        job=job.training_job,
        global_batch=job.global_batch,
        gpu_types=gpu_types,
        max_gpus=max_gpus,
        calibration=calibration,
        raised=raised,
    )
    if job.micro_batch is not None:
        question = replace(question, micro_batches=(job.micro_batch,))
    if job.recompute:
        question = replace(question, recomputes=(Recompute(job.recompute),))
    return question


def missing_options(
    job: JobFile,
    first: TrainingPlan,
    gpu_types: Sequence[GpuType],
    *,
    max_gpus: int,
    calibration: Calibration | None = None,
    raised: float = 1.0,
) -> str:
    """Return the options that a command lacks so that the job fits, or fits on fewer GPUs.

    '' where nothing that its program supports would do that.
    """
    if first.fits and first.gpus == 1:
        return ""
    plans = training_plans(_question(job, gpu_types, max_gpus, calibration, raised))
    better = [
        plan
        for plan in plans
        if plan.fits
        and _uses(plan.job.parallelism) <= set(job.supports)
        and (not first.fits or plan.gpus < first.gpus)
        and missing_needs(job, plan.job)
    ]
    if not better:
        return ""
    best = min(better, key=lambda plan: (len(missing_needs(job, plan.job)), plan.gpus, plan.cost))
    names = " and ".join(map(str, missing_needs(job, best.job)))
    return (
        f"name {names} in the command, or in reads, and {best.gpus} x {best.gpu_type} fits with a "
        f"probability of {100 * best.fit_probability:.0f} %"
    )


def missing_needs(job: JobFile, layout: TrainingJob) -> tuple[Need, ...]:
    """Return the needs of a layout that the job's program is not told."""
    values = job.told
    return tuple(need for need in needs(layout, launcher=job.launcher) if not need.is_met(values))


def _uses(spread: Parallelism) -> set[str]:
    words = {
        "tensor": spread.tensor > 1,
        "pipeline": spread.pipeline > 1,
        "sharding": spread.sharding is not Sharding.NONE,
    }
    return {word for word, used in words.items() if used}


def _takes_accumulation(job: JobFile) -> bool:
    layout = replace(job.training_job, micro_batch=1, gradient_accumulation=2)
    return not any("gradient_accumulation" in need.what for need in missing_needs(job, layout))


def _untold(job: JobFile, plans: Sequence[TrainingPlan]) -> ImpossibleProblemError:
    """Return error for a job of which every plan that fits is one that its program cannot run."""
    able = [plan for plan in plans if _uses(plan.job.parallelism) <= set(job.supports)]
    if not able:
        words = sorted(
            {word for plan in plans for word in _uses(plan.job.parallelism)} - set(job.supports)
        )
        return ImpossibleProblemError(
            f"{job.name} fits only with {' or '.join(words)}, which its program does not support",
            "Add it to supports in the job file, or choose larger GPUs or a smaller model.",
        )
    nearest = min(able, key=lambda plan: len(missing_needs(job, plan.job)))
    missing = missing_needs(job, nearest.job)
    return ImpossibleProblemError(
        f"no plan of {job.name} that fits can be told to its command: on {nearest.gpus} x "
        f"{nearest.gpu_type} it would have to hear {', '.join(need.what for need in missing)}",
        f"Name {' and '.join(map(str, missing))} in the command, or list in reads what the program "
        "takes from TRIMTAB_... in its environment.",
    )


def misses_deadline(job: JobFile, plan: TrainingPlan, now: datetime) -> bool:
    """Say whether the plan, at worst, ends after the job's deadline; no when it cannot be told."""
    if job.deadline is None or job.tokens is None:
        return False
    return now + timedelta(hours=hours_range(plan, job.tokens)[1]) > job.deadline


def limit_warning(
    plan: TrainingPlan,
    tokens: float | None,
    limit_hours: float | None,
    *,
    whose: str = "time_limit_hours",
    max_hours: float | None = None,
) -> str:
    """Say that a time limit ends a run before it is done, and which would do; '' if it does not.

    `whose` says where the limit was stated; `max_hours` is the longest that the cluster allows.
    """
    if limit_hours is not None and max_hours is not None and limit_hours > max_hours:
        return (
            f"{whose} of {limit_hours:g} h is above the {max_hours:g} h that the cluster allows: "
            "the job would wait without end"
        )
    if tokens is None or limit_hours is None:
        return ""
    low, high = hours_range(plan, tokens)
    if limit_hours >= high:
        return ""
    hours = math.ceil(high)
    fix = f"set time_limit_hours = {hours}"
    if max_hours is not None and hours > max_hours:
        fix = f"the cluster allows {max_hours:g} h: use more GPUs, or checkpoints and several runs"
    return (
        f"{whose} of {limit_hours:g} h {'ends' if limit_hours < low else 'may end'} the run before "
        f"it is done: {tokens:.3g} tokens take {low:.2g} to {high:.2g} h; {fix}"
    )
