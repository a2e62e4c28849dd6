"""Jobs: their GPUs, owners and schedulers, and the facts that were assumed rather than read."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from data.facts.cluster_names import cluster_in


class Platform(StrEnum):
    """The system that runs a job, hence the one that is changed for it."""

    KUBERNETES = "kubernetes"
    SLURM = "slurm"
    UNKNOWN = "unknown"


class WorkloadKind(StrEnum):
    """The use that a job makes of its GPUs."""

    TRAINING = "training"
    INFERENCE = "inference"
    UNKNOWN = "unknown"


class JobState(StrEnum):
    """The state of a job at its scheduler; unknown when only telemetry names it."""

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


ENDED_STATES = frozenset((JobState.FINISHED, JobState.FAILED, JobState.CANCELLED))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWait:
    """A wait of a job in its queue until it started: for how many GPUs, and of which model.

    `gpu_model` is '' where that is unknown.
    """

    submitted_at: datetime
    started_at: datetime
    gpu_count: int
    gpu_model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerFacts:
    """Facts of a job that only a scheduler knows. Empty text and None: the scheduler did not say.

    `workload` is the object a person changes, such as deployment/ranker or 123_4 of an array;
    `reason` the scheduler's word for why it waits or ended; `managed_by` who would undo a change
    (Helm, Argo CD, an autoscaler, Kueue). `extra` holds further (fact, value) pairs. A requeue
    gives a job of Slurm another submit time; `earlier_waits` are those before it, oldest first.
    """

    state: JobState = JobState.UNKNOWN
    reason: str = ""
    workload: str = ""
    user: str = ""
    account: str = ""
    qos: str = ""
    nodes: tuple[str, ...] = ()
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    time_limit_seconds: float | None = None
    managed_by: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()
    earlier_waits: tuple[JobWait, ...] = ()


_UNKNOWN = SchedulerFacts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as last known. Text from labels is untrusted and only ever shown escaped.

    `namespace` is the Kubernetes namespace or the Slurm partition. `assumed` names facts that a
    map or a default supplied, as (fact, value) pairs. `scheduler` is None when only telemetry
    names the job. `job_id` is `slurm:ID` (the raw id that prologs see), `namespace/kind/name` of a
    Kubernetes workload, or `namespace/pod` of a pod whose workload is not known; in a further
    cluster with `@CLUSTER` behind it (see `data.facts.cluster_names`).
    """

    job_id: str
    name: str
    namespace: str
    owner: str
    platform: Platform
    kind: WorkloadKind
    gpu_model: str
    gpu_count: int
    mig_profile: str
    gpu_memory_mib: float | None
    first_seen_at: datetime
    last_seen_at: datetime
    source: str
    assumed: tuple[tuple[str, str], ...] = ()
    scheduler: SchedulerFacts | None = None

    def tenant(self, by: str) -> str:
        """Return the name of its tenant, '' when it has none; `by` is a choice of `tenants.by`."""
        if "account" in by:
            return self.scheduling.account or (self.namespace if by != "account" else "")
        return "" if by == "none" else str(getattr(self, by))

    @property
    def scheduling(self) -> SchedulerFacts:
        """The facts of its scheduler, all of them unknown where only telemetry names the job."""
        return self.scheduler or _UNKNOWN

    @property
    def extra(self) -> dict[str, str]:
        """The further facts of its scheduler."""
        return dict(self.scheduling.extra)

    @property
    def cluster(self) -> str:
        """The cluster that it runs in, '' for the store's own."""
        return cluster_in(self.job_id)

    @property
    def named_since(self) -> datetime | None:
        """The time from which the job id names this job; None where it may always have.

        Slurm uses job numbers again. A requeue gives another submit time, not another job.
        """
        facts = self.scheduler
        if self.platform is not Platform.SLURM or facts is None:
            return None
        restarted = dict(facts.extra).get("restarts", "0") not in ("", "0")
        return None if restarted else facts.submitted_at

    @property
    def wait(self) -> JobWait | None:
        """The present wait as a later one will know it; None before its start, or of no time."""
        facts = self.scheduler
        if facts is None or facts.submitted_at is None or facts.started_at is None:
            return None
        if facts.started_at <= facts.submitted_at:
            return None
        return JobWait(
            submitted_at=facts.submitted_at,
            started_at=facts.started_at,
            gpu_count=self.gpu_count,
            gpu_model=self.gpu_model,
        )

    def __post_init__(self) -> None:
        if not self.job_id:
            raise ValueError("job_id must not be empty")
        if self.gpu_count < 1:
            raise ValueError(f"gpu_count of {self.job_id} must be at least 1, got {self.gpu_count}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnNames:
    """Names by which a job belongs to a person: those of its owner, and of its scheduler's user."""

    owners: frozenset[str]
    users: frozenset[str]

    def hold(self, job: Job) -> bool:
        """Return whether the job is theirs."""
        user = job.scheduling.user
        return job.owner in self.owners or user in self.users
