"""Changes that a job allows: its elasticity class by its scheduler's facts, with the reason.

A service serves and has no end; an elastic job changes its number of GPUs by itself; a restartable
one can be stopped and started again; a rigid one cannot be changed while it runs. Unknown is rigid.

That Slurm may requeue a job or that a Job can be suspended says nothing of checkpoints. Without a
sign of them the worst case counts: all that the run has done. A sign without a time leaves what was
assumed for every job before: half of ten minutes between checkpoints.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase

from data.base.units import SECONDS_PER_HOUR
from data.facts.jobs import Job, Platform, SchedulerFacts, WorkloadKind
from data.records.feasible_changes import (
    AUTOSCALERS,
    CHECKPOINT_AT,
    CHECKPOINTS,
    unit_of,
    whole_fact,
)
from data.settings.all_settings import PlanningSettings

_CHECKPOINT_AGES = (0.0, 300.0, 1800.0)
"""Seconds since a checkpoint whose time nobody tells, as low, central, high."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostWork:
    """Seconds of a run that its end loses, as low, central, high, and their source.

    `at_worst`: nothing tells of a checkpoint, so that all of the run may be lost.
    """

    seconds: tuple[float, float, float]
    since: str
    at_worst: bool = False

    @property
    def hours(self) -> float:
        """The worst case in h."""
        return self.seconds[2] / SECONDS_PER_HOUR


def lost_work_of(job: Job, planning: PlanningSettings) -> LostWork:
    """Return the work that a stop of a job's run loses, as of its last reading."""
    facts = job.scheduling
    extra = dict(facts.extra)
    now = job.last_seen_at
    elapsed = max(0.0, (now - (facts.started_at or job.first_seen_at)).total_seconds())
    if written := extra.get(CHECKPOINT_AT):
        age = min(elapsed, max(0.0, (now - datetime.fromisoformat(written)).total_seconds()))
        return LostWork(seconds=(age, age, age), since=f"its checkpoint of {written}")
    sign = extra.get(CHECKPOINTS, "") or _named_by(job, planning)
    if sign:
        low, central, high = (min(elapsed, seconds) for seconds in _CHECKPOINT_AGES)
        return LostWork(seconds=(low, central, high), since="a checkpoint")
    return LostWork(seconds=(0.0, elapsed, elapsed), since="its start", at_worst=True)


def _named_by(job: Job, planning: PlanningSettings) -> str:
    patterns = (part.strip() for part in planning.checkpointed_jobs.split(","))
    names = (job.job_id, job.namespace)
    return next(
        (
            f"planning.checkpointed_jobs: {pattern}"
            for pattern in patterns
            if pattern and any(fnmatchcase(name, pattern) for name in names)
        ),
        "",
    )


class Elasticity(StrEnum):
    """The ways in which a job can be changed."""

    RIGID = "rigid"
    RESTARTABLE = "restartable"
    ELASTIC = "elastic"
    SERVICE = "service"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobElasticity:
    """A job's class and why; `protected` names the pattern that protects it, '' when none does.

    `scaled_by` names who would undo a change of its number of GPUs. `step` is the smallest such
    change, in devices; `least` and `most` the fewest and most devices it may have, None when nobody
    said. `lost` is what the end of its run loses. `is_of_copies`: each of its units holds its own
    model, as the pods of a Deployment do.
    """

    elasticity: Elasticity
    reason: str
    protected: str = ""
    scaled_by: str = ""
    step: int = 1
    least: int | None = None
    most: int | None = None
    lost: LostWork | None = None
    is_of_copies: bool = False

    @property
    def may_restart(self) -> bool:
        """Whether another configuration can be given to it at all."""
        return self.elasticity is not Elasticity.RIGID

    @property
    def ends(self) -> bool:
        """Whether its work has an end that a change can delay."""
        return self.elasticity is not Elasticity.SERVICE


_SERVICES = frozenset(
    {
        "deployment",
        "statefulset",
        "replicaset",
        "leaderworkerset",
        "rayservice",
        "inferenceservice",
        "nimservice",
        "dynamocomponentdeployment",
        "dynamographdeployment",
    }
)
_OF_COPIES = ("deployment", "replicaset")
_RESTARTABLE = {
    "job": "a Kubernetes Job can be suspended",
    "cronjob": "the Job of a CronJob can be suspended",
    "jobset": "a JobSet can be suspended",
    "mpijob": "an MPIJob can be suspended",
    "trainjob": "a TrainJob can be suspended",
    "pytorchjob": "a PyTorchJob can be suspended",
    "rayjob": "a RayJob can be suspended",
}


def standing_of(job: Job, planning: PlanningSettings) -> JobElasticity:
    """Return the changes that a job allows."""
    facts = job.scheduling
    extra = dict(facts.extra)
    elasticity, reason = _class_of(job, facts, extra)
    step = unit_of(job)
    low, high = whole_fact(extra, "min_replicas"), whole_fact(extra, "max_replicas")
    return JobElasticity(
        elasticity=elasticity,
        reason=reason,
        protected=_protected_by(job, planning),
        scaled_by=next((name for name in facts.managed_by if name in AUTOSCALERS), ""),
        step=step,
        least=None if low is None else max(1, low) * step,
        most=None if high is None else high * step,
        lost=lost_work_of(job, planning),
        is_of_copies=_workload_kind(job, facts) in _OF_COPIES
        and whole_fact(extra, "gpus_per_pod") is not None,
    )


def _protected_by(job: Job, planning: PlanningSettings) -> str:
    """Return the pattern that protects a job: one of its id, or of its namespace or partition."""
    patterns = (part.strip() for part in planning.protected_jobs.split(","))
    names = (job.job_id, job.namespace)
    return next(
        (
            pattern
            for pattern in patterns
            if pattern and any(fnmatchcase(name, pattern) for name in names)
        ),
        "",
    )


def _class_of(job: Job, facts: SchedulerFacts, extra: dict[str, str]) -> tuple[Elasticity, str]:
    if job.platform is Platform.SLURM and job.scheduler is not None:
        return _slurm_class(extra)
    kind = _workload_kind(job, facts)
    if kind in _SERVICES:
        return Elasticity.SERVICE, f"a {kind} serves"
    if kind in _RESTARTABLE:
        if "max_replicas" in extra or "Ray autoscaler" in facts.managed_by:
            return Elasticity.ELASTIC, f"its {kind} may change its number of workers"
        return Elasticity.RESTARTABLE, _RESTARTABLE[kind]
    if job.kind is WorkloadKind.INFERENCE:
        return Elasticity.SERVICE, "its kind is inference"
    return Elasticity.RIGID, "no scheduler says that it can be stopped and started again"


def _slurm_class(extra: dict[str, str]) -> tuple[Elasticity, str]:
    if extra.get("requeue") == "no":
        return Elasticity.RIGID, "it was submitted with --no-requeue"
    if extra.get("batch") == "no":
        return Elasticity.RIGID, "it is no batch job: nothing would start it again"
    if extra.get("requeue") == "yes":
        return Elasticity.RESTARTABLE, "Slurm may requeue it"
    if extra.get("restarts", "0") not in ("", "0"):
        return Elasticity.RESTARTABLE, "Slurm has requeued it before"
    return Elasticity.RIGID, "Slurm does not say that it may be requeued"


def _workload_kind(job: Job, facts: SchedulerFacts) -> str:
    """Return the kind of the Kubernetes object that a person changes, lower case, '' if unknown."""
    if job.platform is Platform.SLURM:
        return ""
    stated = facts.workload.partition("/")[0]
    parts = job.job_id.split("/")
    kind = stated or (parts[1] if len(parts) == 3 else "")
    return kind.partition(".")[0].lower()
