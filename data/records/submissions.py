"""Jobs that Trimtab submitted: what was asked, what was sent, and what became of every attempt."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from data.facts.identifiers import SHORT_ID_LENGTH, digest_of


class SubmissionState(StrEnum):
    """The state of an attempt. SENDING: written down, not yet confirmed by the cluster."""

    SENDING = "sending"
    PENDING = "pending"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    OUT_OF_GPU_MEMORY = "out-of-gpu-memory"
    OUT_OF_HOST_MEMORY = "out-of-host-memory"
    REFUSED = "refused"
    LOST = "lost"

    @property
    def is_open(self) -> bool:
        """Return whether it may still change."""
        return self in _OPEN


_OPEN = (SubmissionState.SENDING, SubmissionState.PENDING, SubmissionState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedPlan:
    """The spread of an attempt and its expected memory, bytes of its fullest GPU.

    `needed_bytes` is what a GPU must have for the job to be let in; `static_bytes` and
    `dynamic_bytes` are the raw estimate, before runs of the family corrected it.
    """

    gpu_type: str
    gpus: int
    nodes: int
    gpus_per_node: int
    data: int
    tensor: int
    pipeline: int
    sharding: str
    micro_batch: int
    gradient_accumulation: int
    recompute: str
    p50_bytes: float
    p99_bytes: float
    needed_bytes: float
    static_bytes: float
    dynamic_bytes: float
    gpu_memory_bytes: float
    tier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One job as sent. `job_id` is the cluster's, as telemetry names it; '' before it answered.

    `raised` is the factor on the estimate that earlier attempts taught. `peak_bytes` is the
    largest memory that telemetry saw on one of its GPUs, None while unknown.
    """

    number: int
    plan: SubmittedPlan
    manifest: str
    state: SubmissionState
    sent_at: datetime
    job_id: str = ""
    reason: str = ""
    raised: float = 1.0
    host_raised: float = 1.0
    ended_at: datetime | None = None
    peak_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One job of a person, with its attempts, the latest last.

    `job` is the job file as canonical JSON, so that it can be planned anew; `family` names the
    runs that calibrate one another.
    """

    name: str
    target: str
    job: str
    family: str
    submitted_by: str
    created_at: datetime
    attempts: tuple[Attempt, ...]

    def __post_init__(self) -> None:
        if not self.attempts:
            raise ValueError(f"submission {self.name} has no attempt")

    @property
    def job_digest(self) -> str:
        """SHA-256 of what was asked and where: the same for the same job sent twice."""
        return digest_of([self.target, self.job])

    @property
    def digest(self) -> str:
        """SHA-256 of what was asked, by whom and when; the attempts do not change it."""
        return digest_of([self.target, self.job, self.submitted_by, self.created_at])

    @property
    def submission_id(self) -> str:
        """The first characters of the digest, for people to type."""
        return self.digest[:SHORT_ID_LENGTH]

    @property
    def latest(self) -> Attempt:
        """The attempt that counts."""
        return self.attempts[-1]

    @property
    def state(self) -> SubmissionState:
        """The state of the latest attempt."""
        return self.latest.state


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPeak:
    """A finished job as its family's sample: the raw estimate beside the measured peak, bytes."""

    family: str
    job_id: str
    static_bytes: float
    dynamic_bytes: float
    measured_bytes: float
    measured_at: datetime
