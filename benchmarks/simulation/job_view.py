"""What a policy sees of a job and of a node: the attributes of Sia's simulator, and a few more."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.simulation.rounds.goodput import GoodputModel

Floats = npt.NDArray[np.float64]


class SpeedFunction(Protocol):
    """Goodput of a job on one GPU type, in samples per second."""

    def get_goodput(self, num_nodes: Floats, num_replicas: Floats) -> Floats:
        """Return the goodput of every pair of nodes and GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpeed:
    """The goodput of a model fitted to the steps seen so far."""

    model: GoodputModel

    def get_goodput(self, num_nodes: Floats, num_replicas: Floats) -> Floats:
        """Return the goodput of every pair of nodes and GPUs."""
        return np.array(
            [
                self.model.best(int(nodes), int(gpus))[0]
                for nodes, gpus in zip(num_nodes, num_replicas, strict=True)
            ]
        )


@dataclass(slots=True, kw_only=True)
class JobView:
    """One active job in a round. Dictionaries are by GPU type; seconds, GPU-seconds, samples.

    `speedup_fn` is None on a type the job has not run on. `max_replicas` is twice what it has run
    on, so that it grows step by step. `scaling_underway` says that it is restarting and must keep
    what it holds; `restart_seconds` is None where policies are to learn what that takes.
    `memory_gib` is what a memory predictor says by GPUs (empty: unknown), and `failed_on` the GPU
    types where the job has run out of memory.
    """

    application: str
    speedup_fn: Mapping[str, SpeedFunction | None]
    min_replicas: Mapping[str, int]
    max_replicas: Mapping[str, int]
    cluster_throughput_ratios: Mapping[str, Mapping[str, float]]
    creation_timestamp: float
    age: float
    attained_service: float
    used_gpu_seconds: float
    wasted_gpu_seconds: float
    num_restarts: int
    scaling_underway: bool
    restart_seconds: float | None
    target_num_replicas: int
    category: str | None = None
    memory_gib: Mapping[int, float] = field(default_factory=dict)
    gpu_memory_gib: Mapping[str, float] = field(default_factory=dict)
    failed_on: frozenset[tuple[str, int]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node: what it offers, under the name Kubernetes gives it."""

    resources: Mapping[str, int]


Allocation = tuple[str | None, tuple[int, ...]]
"""(GPU type, node of every GPU); (None, ()) holds nothing."""

Nodes = Mapping[str, Mapping[int, NodeView]]


class SchedulingPolicy(Protocol):
    """Decides every round who gets which GPUs."""

    def optimize(
        self,
        jobs: Mapping[str, JobView],
        nodes: Nodes,
        prev_allocations: Mapping[str, Allocation],
    ) -> Mapping[str, Allocation]:
        """Return the allocation of every job; one left out holds nothing."""
