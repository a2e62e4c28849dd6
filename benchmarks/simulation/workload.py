"""What is submitted when: jobs with the guesses of their users, and the cluster they go to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from data.base.errors import ImpossibleProblemError


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedJob:
    """One job: when in s, of which application, with the GPUs and batch its user asked for.

    A rigid job takes exactly `gpus` or none. `memory_gib` maps GPUs to the true peak of one GPU in
    GiB, `predicted_gib` to what a memory predictor says; both empty where memory is no matter.
    """

    name: str
    submitted_at: float
    application: str
    gpus: int
    batch_size: int
    rigid: bool = False
    memory_gib: Mapping[int, float] = field(default_factory=dict)
    predicted_gib: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.batch_size < 1 or self.submitted_at < 0:
            raise ImpossibleProblemError(
                f"job {self.name}: {self.gpus} GPUs, batch {self.batch_size}, "
                f"submitted at {self.submitted_at} s",
                "give 1 or more of GPUs and batch, and a time of 0 or later",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPool:
    """Equal nodes: GPU type, nodes, GPUs on each, GiB of one GPU (None: memory is no matter)."""

    gpu_type: str
    nodes: int
    gpus_per_node: int
    memory_gib: float | None = None

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.gpus_per_node < 1:
            raise ImpossibleProblemError(
                f"{self.nodes} nodes of {self.gpus_per_node} {self.gpu_type}",
                "give 1 or more of both, or leave the type out",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCluster:
    """The pools of a cluster, one for every GPU type; no job takes more than `most_nodes`."""

    pools: tuple[GpuPool, ...]
    most_nodes: int = 16

    def __post_init__(self) -> None:
        names = [pool.gpu_type for pool in self.pools]
        if not names or len(set(names)) < len(names):
            raise ImpossibleProblemError(
                f"a cluster of the GPU types {', '.join(names) or 'none'}",
                "name every GPU type once, and at least one",
            )

    @property
    def gpus(self) -> int:
        """All GPUs of the cluster."""
        return sum(pool.nodes * pool.gpus_per_node for pool in self.pools)

    def scaled(self, factor: int) -> "WorkloadCluster":
        """Return the cluster with so many times the nodes."""
        return replace(
            self, pools=tuple(replace(pool, nodes=pool.nodes * factor) for pool in self.pools)
        )


def in_order(jobs: Iterable[SubmittedJob]) -> tuple[SubmittedJob, ...]:
    """Return the jobs by the time they are submitted. Refuses two of one name."""
    ordered = tuple(sorted(jobs, key=lambda job: (job.submitted_at, job.name)))
    names = [job.name for job in ordered]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ImpossibleProblemError(
            f"two jobs are called {twice}", "give every job a name of its own"
        )
    return ordered
