"""Jobs: who holds GPUs, of which kind, and which of its facts were assumed rather than read."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Platform(StrEnum):
    """Where a job runs, hence where a change to it is made."""

    KUBERNETES = "kubernetes"
    SLURM = "slurm"
    UNKNOWN = "unknown"


class WorkloadKind(StrEnum):
    """What a job does with its GPUs."""

    TRAINING = "training"
    INFERENCE = "inference"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as last known. Text from labels is untrusted and only ever shown escaped.

    `namespace` is the Kubernetes namespace or the Slurm partition. `assumed` names facts that a
    map or a default supplied, as (fact, value) pairs.
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

    def __post_init__(self) -> None:
        if not self.job_id:
            raise ValueError("job_id must not be empty")
        if self.gpu_count < 1:
            raise ValueError(f"gpu_count of {self.job_id} must be at least 1, got {self.gpu_count}")
