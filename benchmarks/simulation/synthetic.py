"""A seeded workload of made-up applications, for a try without recorded data and for tests.

Sizes and shapes are chosen to span what clusters see: most jobs are done in minutes, a few take
hours and hold most of the GPU time; gradient noise grows while training goes on, so that larger
batches pay later. Step times follow the model of Pollux (OSDI 2021) without error.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.simulation.application import (
    OTHER_RESTART_SECONDS,
    Application,
    LearningCurve,
    MeasuredSpeed,
)
from benchmarks.simulation.rounds.configurations import configurations
from benchmarks.simulation.rounds.goodput import step_seconds
from benchmarks.simulation.workload import SubmittedJob, WorkloadCluster, in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticApplication:
    """A made-up application: seconds per step and sample at relative speed 1, its network, size.

    `hours` is what it takes on one GPU of relative speed 1 at its smallest batch; `share` how
    often it is submitted.
    """

    share: int
    hours: float
    fixed_s: float
    sample_s: float
    between_nodes_s: float
    batches: tuple[int, ...]
    local: tuple[int, int]
    noise: float
    restart_s: float


KINDS: Mapping[str, SyntheticApplication] = {
    "small_image": SyntheticApplication(
        share=12, hours=0.6, fixed_s=0.02, sample_s=6e-4, between_nodes_s=0.05,
        batches=(128, 512, 2048, 4096), local=(32, 1024), noise=6.0, restart_s=50.0,
    ),
    "speech": SyntheticApplication(
        share=3, hours=1.5, fixed_s=0.05, sample_s=2e-2, between_nodes_s=0.12,
        batches=(16, 64, 256), local=(4, 64), noise=4.0, restart_s=OTHER_RESTART_SECONDS,
    ),
    "language": SyntheticApplication(
        share=2, hours=3.0, fixed_s=0.04, sample_s=3e-2, between_nodes_s=0.25,
        batches=(16, 64, 256), local=(2, 16), noise=10.0, restart_s=120.0,
    ),
    "detection": SyntheticApplication(
        share=2, hours=8.0, fixed_s=0.03, sample_s=2.5e-2, between_nodes_s=0.2,
        batches=(8, 64, 512), local=(4, 16), noise=8.0, restart_s=80.0,
    ),
    "large_image": SyntheticApplication(
        share=1, hours=40.0, fixed_s=0.03, sample_s=4e-3, between_nodes_s=0.15,
        batches=(200, 1600, 12800), local=(20, 400), noise=12.0, restart_s=250.0,
    ),
}  # fmt: skip
_EPOCHS = 20


def synthetic_applications(
    cluster: WorkloadCluster, relative_speed: Mapping[str, float]
) -> dict[str, Application]:
    """Return the made-up applications on the GPU types of a cluster, by speed relative to one."""
    return {name: _application(name, kind, cluster, relative_speed) for name, kind in KINDS.items()}


def synthetic_jobs(
    count: int, *, hours: float, max_gpus: int, seed: int
) -> tuple[SubmittedJob, ...]:
    """Return so many jobs, submitted evenly at random over the hours; the seed gives the same."""
    rng = random.Random(seed)  # noqa: S311 - a reproducible workload, no secret
    bag = [name for name, kind in KINDS.items() for _ in range(kind.share)]
    jobs = []
    for number in range(count):
        name = rng.choice(bag)
        gpus = rng.choice([size for size in (1, 2, 4, 8, 16) if size <= max_gpus])
        kind = KINDS[name]
        batch = next(
            (size for size in kind.batches if size >= kind.local[0] * gpus), kind.batches[-1]
        )
        jobs.append(
            SubmittedJob(
                name=f"{name}-{number}",
                submitted_at=rng.uniform(0.0, hours * 3600),
                application=name,
                gpus=gpus,
                batch_size=batch,
            )
        )
    return in_order(jobs)


def _application(
    name: str,
    kind: SyntheticApplication,
    cluster: WorkloadCluster,
    relative_speed: Mapping[str, float],
) -> Application:
    smallest = kind.batches[0]
    local, accumulated = min(smallest, kind.local[1]), max(1, smallest // kind.local[1])
    slow = kind.fixed_s + kind.sample_s * local
    steps = kind.hours * 3600 / (slow * accumulated)
    growth = np.geomspace(1.0, kind.noise, _EPOCHS)
    size = len(kind.batches)
    curve = LearningCurve(
        batch_sizes=kind.batches,
        progress=tuple(float(entry) for entry in np.linspace(0.0, steps, _EPOCHS + 1)),
        square=np.ones((size, _EPOCHS)),
        variance=np.tile(kind.noise * growth, (size, 1)),
    )
    speeds = {
        pool.gpu_type: _speed(kind, pool.nodes, pool.gpus_per_node, relative_speed[pool.gpu_type])
        for pool in cluster.pools
    }
    return Application(name=name, speeds=speeds, curve=curve, restart_seconds=kind.restart_s)


def _speed(
    kind: SyntheticApplication, nodes: int, gpus_per_node: int, speed: float
) -> MeasuredSpeed:
    inside = kind.between_nodes_s / 8
    step = (
        kind.fixed_s,
        kind.sample_s / speed,
        kind.between_nodes_s,
        kind.between_nodes_s / 50,
        inside,
        inside / 50,
        1.5,
    )
    local = np.unique(np.geomspace(kind.local[0], kind.local[1], 12).round())
    table = configurations({"one": [gpus_per_node] * nodes})
    by_size = {}
    for spread, gpus in zip(table.nodes, table.gpus, strict=True):
        seconds = np.array(
            [step_seconds(step, int(spread), int(gpus), float(entry)) for entry in local]
        )
        by_size[int(spread), int(gpus)] = (local, seconds, seconds - (step[0] + step[1] * local))
    return MeasuredSpeed(
        by_placement={},
        by_size=by_size,
        least_local_batch=kind.local[0],
        largest_local_batch=kind.local[1],
    )
