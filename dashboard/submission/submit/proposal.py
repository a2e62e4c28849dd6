"""A proposal: one job with its plan, place and manifest, as a person sees it before it is sent."""

import math
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypedDict

from dashboard.submission.estimates.decision_notes import decision_notes
from dashboard.submission.estimates.estimate import Offers, chosen_types, offered, unlikely_reason
from dashboard.submission.job.feasible_plans import (
    calibration_of,
    family_of,
    limit_warning,
    misses_deadline,
    missing_options,
    plans_for,
)
from dashboard.submission.job.fleet import SubmissionFleet
from dashboard.submission.job.job_file import JobFile
from dashboard.submission.job.manifest import JobOrder, Manifest
from dashboard.submission.job.placement import Arrival, HostNeed, Placement, place
from dashboard.submission.targets.target import SubmissionTarget
from data.base.errors import ImpossibleProblemError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.gpu_resources import PRODUCT_LABEL
from data.records.submissions import (
    Attempt,
    MeasuredPeak,
    Submission,
    SubmissionState,
    SubmittedPlan,
)
from data.settings.submission import SubmitSettings
from data.store.engine.record_json import to_json
from planner.memory.estimate.calibration import Calibration
from planner.memory.estimate.predictor import finished_run, needed_bytes
from planner.memory.estimate.training_plans import GpuType, TrainingPlan
from planner.memory.estimate.training_time import hours_range
from planner.scheduling.arrival import WaitingJob

_KEEP_FINISHED_SECONDS = 7 * 86_400
"""Kubernetes deletes a finished job after so long: a week to read its logs."""


class _PlanLimits(TypedDict):
    """Limits and corrections of the plans of a job."""

    max_gpus: int
    calibration: Calibration
    raised: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFactors:
    """Lessons of earlier attempts of the same job: factors on GPU and on host memory."""

    raised: float = 1.0
    host_raised: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionProposal:
    """Content to send, and the reasons. `submission` holds it as its latest attempt.

    `offers` are the plans that it was chosen from, `warnings` what may make the run fail.
    """

    job: JobFile
    offers: Offers
    placement: Placement
    manifest: Manifest
    submission: Submission
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def propose(
    job: JobFile,
    target: SubmissionTarget,
    *,
    settings: SubmitSettings,
    peaks: tuple[MeasuredPeak, ...],
    by: str,
    now: datetime,
    earlier: Submission | None = None,
    lessons: AttemptFactors | None = None,
    waiting: tuple[WaitingJob, ...] = (),
) -> SubmissionProposal:
    """Plan, place and write the manifest of a job; nothing is sent and nothing is kept.

    `earlier` is the submission whose next attempt this is, `waiting` what is in the queue besides.
    Errors: ImpossibleProblemError when it
    fits nowhere, ChangeRefusedError, CollectorError when the cluster does not answer.
    """
    learned = lessons or AttemptFactors()
    fleet = target.fleet()
    types = gpu_types(fleet)
    limits: _PlanLimits = {
        "max_gpus": min(settings.max_gpus, fleet.gpus),
        "calibration": calibration_of(family_of(job.training_job), peaks),
        "raised": learned.raised,
    }
    plans = plans_for(job, types, **limits)
    host = host_need(job, raised=learned.host_raised)
    placement = place(
        plans,
        fleet,
        Arrival(
            host=host,
            late=lambda plan: misses_deadline(job, plan, now),
            hours=lambda plan: _hours(job, plan),
            waiting=waiting,
        ),
    )
    attempt = Attempt(
        number=1 if earlier is None else earlier.latest.number + 1,
        plan=submitted_plan(placement, raised=learned.raised),
        manifest="",
        state=SubmissionState.SENDING,
        sent_at=now,
        raised=learned.raised,
        host_raised=learned.host_raised,
    )
    bare = earlier or Submission(
        name=job.name,
        target=target.name,
        job=to_json(job),
        family=family_of(job.training_job),
        submitted_by=by,
        created_at=now,
        attempts=(attempt,),
    )
    order = JobOrder(
        submission_id=bare.submission_id,
        attempt=attempt.number,
        namespace=settings.namespace,
        partition=settings.partition,
        account=settings.account,
        raised_host=learned.host_raised,
        keep_finished_seconds=_KEEP_FINISHED_SECONDS,
    )
    manifest = target.manifest(job, placement, order)
    offers = offered(plans, fleet, host)
    knobs = missing_options(job, placement.plan, types, **limits)
    before = () if earlier is None else earlier.attempts
    return SubmissionProposal(
        job=job,
        offers=offers,
        placement=placement,
        manifest=manifest,
        submission=replace(bare, attempts=(*before, replace(attempt, manifest=manifest.text))),
        notes=(*_notes(job, fleet, placement), *filter(None, (offers.remark, knobs))),
        warnings=tuple(filter(None, (target.why_not(), *_warnings(job, fleet, placement)))),
    )


def host_need(job: JobFile, *, raised: float = 1.0) -> HostNeed:
    """Return the job's stated need from a node, its memory raised by a factor."""
    memory = job.memory_mib_per_gpu
    return HostNeed(
        cpus_per_gpu=job.cpus_per_gpu,
        memory_mib_per_gpu=None if memory is None else round(memory * raised),
    )


def _warnings(job: JobFile, fleet: SubmissionFleet, placement: Placement) -> tuple[str, ...]:
    plan = placement.plan
    memory = ""
    if fleet.default_memory and not (job.memory_mib_per_gpu or placement.fair_memory_mib):
        memory = (
            f"no host memory is asked for, as {fleet.source} does not say what its nodes have: "
            f"the job gets the site's default ({fleet.default_memory}). State memory_gib_per_gpu"
        )
    stated = job.time_limit_hours is not None
    late = limit_warning(
        plan,
        job.tokens,
        job.time_limit_hours if stated else fleet.default_hours,
        whose="time_limit_hours" if stated else f"the default time limit of {fleet.source}",
        max_hours=fleet.max_hours,
    )
    closed = f"{fleet.closed}: it starts no job" if fleet.closed else ""
    return tuple(
        text for text in (closed, memory, late, unlikely_reason(plan.job, plan.estimate)) if text
    )


def _hours(job: JobFile, plan: TrainingPlan) -> float | None:
    """Return the middle of the hours that a run takes, None where its tokens are not stated."""
    if job.tokens is None:
        return None
    low, high = hours_range(plan, job.tokens)
    return math.sqrt(low * high)


def gpu_types(fleet: SubmissionFleet) -> tuple[GpuType, ...]:
    """Return the types on offer that run CUDA. Errors: ImpossibleProblemError for none."""
    types = chosen_types(fleet.gpu_types(load_gpu_catalogue()), ())
    if not types:
        unknown = f"; not in the catalogue: {', '.join(fleet.unknown)}" if fleet.unknown else ""
        raise ImpossibleProblemError(
            f"{fleet.source} has no node that takes jobs with GPUs of a known model{unknown}",
            f"Map gres types by slurm.gpu_models, or label nodes with {PRODUCT_LABEL}.",
        )
    return types


def _notes(job: JobFile, fleet: SubmissionFleet, placement: Placement) -> tuple[str, ...]:
    estimate = placement.plan.estimate
    notes = [f"the model's config did not state {entry}" for entry in job.assumed]
    notes += estimate.notes
    if job.tokens is not None:
        low, high = hours_range(placement.plan, job.tokens)
        notes.append(f"roughly {low:.2g} to {high:.2g} hours for {job.tokens:.3g} tokens")
    elif job.time_limit_hours is not None:
        notes.append("whether time_limit_hours suffices is not known without data.tokens")
    if job.tokens is None and job.deadline is not None:
        notes.append("the deadline has no effect: data.tokens does not say how long the run is")
    if placement.misses_deadline:
        notes.append("no plan is sure to meet the deadline: the fastest were weighed")
    if placement.waits:
        notes.append("no place is free now: the job will wait in the cluster's queue")
    if placement.decision is not None:
        notes += decision_notes(placement.decision)
    if fleet.unknown:
        notes.append(f"GPUs of unknown models are left out: {', '.join(fleet.unknown)}")
    return tuple(notes)


def submitted_plan(placement: Placement, *, raised: float) -> SubmittedPlan:
    """Return the record of a placed plan; its need is that before it was raised."""
    plan, spread = placement.plan, placement.plan.job.parallelism
    raw = finished_run(plan.job, 1.0)
    return SubmittedPlan(
        gpu_type=plan.gpu_type,
        gpus=plan.gpus,
        nodes=placement.node_count,
        gpus_per_node=placement.gpus_per_node,
        data=spread.data,
        tensor=spread.tensor,
        pipeline=spread.pipeline,
        sharding=str(spread.sharding),
        micro_batch=plan.job.micro_batch or 1,
        gradient_accumulation=plan.job.gradient_accumulation or 1,
        recompute=str(plan.job.recompute or "none"),
        p50_bytes=plan.estimate.p50_bytes,
        p99_bytes=plan.estimate.p99_bytes,
        needed_bytes=needed_bytes(plan.estimate) / raised,
        static_bytes=raw.static_bytes,
        dynamic_bytes=raw.dynamic_bytes,
        gpu_memory_bytes=plan.job.gpu_memory_bytes or 0.0,
        tier=str(plan.estimate.tier),
    )
