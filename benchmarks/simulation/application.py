"""What is true of an application, hidden from policies: its speed by placement, its learning."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from data.base.errors import ImpossibleProblemError

Floats = npt.NDArray[np.float64]
Steps = tuple[Floats, Floats, Floats]
"""Local batches, ascending; seconds of a step; seconds of it that wait for the network."""

RESTART_SECONDS = {
    "cifar10": 50.0,
    "deepspeech2": 25.0,
    "bert": 120.0,
    "yolov3": 80.0,
    "imagenet": 250.0,
    "ncf": 15.0,
}
"""Checkpoint and restore. Measured by the authors of Sia (SOSP 2023) on their clusters."""

OTHER_RESTART_SECONDS = 62.0
"""Mean preemption overhead of Tiresias' jobs, as quoted by Lucid (ASPLOS 2023)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredSpeed:
    """Steps measured on one GPU type: by exact placement, and by (nodes, GPUs) where that lacks.

    A placement is the GPUs on each node; its order counts for nothing.
    """

    by_placement: Mapping[tuple[int, ...], Steps]
    by_size: Mapping[tuple[int, int], Steps]
    least_local_batch: int
    largest_local_batch: int
    _known: dict[tuple[tuple[int, ...], int], tuple[float, float]] = field(default_factory=dict)

    def steps(self, placement: tuple[int, ...]) -> Steps:
        """Return what was measured of the placement, or of the nearest size at hand."""
        found = self.by_placement.get(tuple(sorted(placement, reverse=True)))
        if found is not None:
            return found
        nodes, gpus = len(placement), sum(placement)
        nearest = min(
            self.by_size,
            key=lambda size: (
                abs(np.log(size[1] / gpus)),
                abs(size[0] - nodes),
                size,
            ),
        )
        return self.by_size[nearest]

    def largest_local(self, placement: tuple[int, ...]) -> int:
        """Return the largest local batch that ran on the placement: what its memory holds."""
        return int(self.steps(placement)[0][-1])

    def seconds(self, placement: tuple[int, ...], local_batch: int) -> tuple[float, float]:
        """Return (seconds of a step, of it for the network), linear between measured batches."""
        key = (placement, local_batch)
        found = self._known.get(key)
        if found is None:
            local, step, sync = self.steps(placement)
            found = (
                float(np.interp(local_batch, local, step)),
                float(np.interp(local_batch, local, sync)),
            )
            self._known[key] = found
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearningCurve:
    """Training to its target: progress [E + 1] after every epoch, gradient noise [B, E] by batch.

    Progress counts steps of the smallest batch size; noise is interpolated between batch sizes.
    """

    batch_sizes: tuple[int, ...]
    progress: tuple[float, ...]
    square: Floats
    variance: Floats

    @property
    def total(self) -> float:
        """Progress of a finished job."""
        return self.progress[-1]

    def epoch(self, progress: float) -> int:
        """Return the epoch that the progress is in; the number of epochs when it is finished."""
        return bisect_right(self.progress, progress) - 1

    def noise(self, batch_size: float, epoch: int) -> tuple[float, float]:
        """Return (square, variance) of the gradient at a batch size in an epoch."""
        sizes = self.batch_sizes
        above = min(bisect_left(sizes, batch_size), len(sizes) - 1)
        below = max(above - 1, 0) if sizes[above] > batch_size else above
        weight = (
            (batch_size - sizes[below]) / (sizes[above] - sizes[below]) if above > below else 1.0
        )
        return (
            float((1 - weight) * self.square[below, epoch] + weight * self.square[above, epoch]),
            float(
                (1 - weight) * self.variance[below, epoch] + weight * self.variance[above, epoch]
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Application:
    """An application by name: speed on every GPU type, learning, what a restart takes.

    `slowdown` is how much longer real runs took than their profiles say; policies do not know it.
    """

    name: str
    speeds: Mapping[str, MeasuredSpeed]
    curve: LearningCurve
    restart_seconds: float
    slowdown: float = 1.0

    def __post_init__(self) -> None:
        if not self.speeds:
            raise ImpossibleProblemError(
                f"the application {self.name} was measured on no GPU type",
                "give its steps on at least one",
            )

    @property
    def initial_batch(self) -> int:
        """The batch size that progress counts in."""
        return self.curve.batch_sizes[0]

    @property
    def largest_batch(self) -> int:
        """The largest batch size that trains to the target."""
        return self.curve.batch_sizes[-1]

    def one_gpu_throughput(self, gpu_type: str) -> float:
        """Return samples per second of one GPU at its largest local batch."""
        local, step, _ = self.speeds[gpu_type].steps((1,))
        return float(local[-1] / step[-1])


def throughput_ratios(
    application: Application, gpu_types: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return one-GPU throughput of a type over that of another: [type][other].

    Types that the application was not measured on are left out.
    """
    known = {
        name: application.one_gpu_throughput(name)
        for name in gpu_types
        if name in application.speeds
    }
    return {entry: {two: known[entry] / known[two] for two in known} for entry in known}
