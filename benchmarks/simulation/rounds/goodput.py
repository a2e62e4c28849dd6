"""Goodput of all jobs on all configurations, from models that many rounds share."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.simulation.rounds.configurations import Configurations
from benchmarks.simulation.rounds.goodput_kernel import SAMPLES, best_split, goodputs, tabulate
from data.base.errors import ImpossibleProblemError

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputModel:
    """The speed of a job's learning on one GPU type, by the model of Pollux (goodput_kernel).

    `step` are the seven parameters of the step time, `noise` the square and the variance of the
    gradient; batch sizes are in samples.
    """

    step: tuple[float, float, float, float, float, float, float]
    noise: tuple[float, float]
    initial_batch: float
    largest_batch: float
    least_local_batch: float
    largest_local_batch: float

    def __post_init__(self) -> None:
        if not 0 < self.initial_batch <= self.largest_batch:
            raise ImpossibleProblemError(
                f"a largest batch of {self.largest_batch} and an initial one of "
                f"{self.initial_batch} samples",
                "give 0 < initial batch <= largest batch",
            )

    @property
    def limits(self) -> tuple[float, float, float, float]:
        """The batch sizes in the order of the kernel."""
        return (
            self.initial_batch,
            self.largest_batch,
            self.least_local_batch,
            self.largest_local_batch,
        )

    def best(self, nodes: int, gpus: int) -> tuple[float, float, float]:
        """Return (goodput in samples per s, local batch, accumulated steps) of so many GPUs."""
        best: tuple[float, float, float] = best_split(
            np.array(self.step), np.array(self.noise), np.array(self.limits), nodes, gpus
        )
        return best


def step_seconds(step: Sequence[float], nodes: int, gpus: int, local_batch: float) -> float:
    """Return the seconds of a step without accumulation, by the seven parameters."""
    grad = step[0] + step[1] * local_batch
    if gpus == 1:
        return grad
    start = 2 if nodes > 1 else 4
    sync = step[start] + step[start + 1] * max(gpus - 2, 0)
    gamma = step[6]
    return float((grad**gamma + sync**gamma) ** (1 / gamma))


class GoodputTables:
    """Throughput of models on all configurations and batch sizes, kept while they are in use.

    Step times change rarely, the gradient's noise with every epoch: so the first are tabulated once
    [P, C, 50] and the second multiplied in each round, all rows in one call.
    """

    def __init__(self, configurations: Configurations, *, room: int = 256) -> None:
        self._configurations = configurations
        self._slots: dict[tuple[float, ...], int] = {}
        count = len(configurations.gpus)
        self._throughput = np.zeros((room, count, SAMPLES))
        self._batches = np.ones((room, count, SAMPLES))

    def goodput(self, models: Sequence[GoodputModel], mask: Flags) -> Floats:
        """Return goodput [models, C] in samples per s where `mask`; 0 elsewhere or if barred."""
        best = np.zeros((len(models), len(self._configurations.gpus)))
        if models:
            if len(self._slots) + len(models) > len(self._throughput):
                self._make_room(len(models))
            goodputs(
                self._throughput,
                self._batches,
                np.array([self._slot(model) for model in models], dtype=np.int64),
                np.array([model.noise for model in models], dtype=np.float64),
                np.array([model.initial_batch for model in models], dtype=np.float64),
                mask,
                best,
            )
        return best

    def _make_room(self, rows: int) -> None:
        """Forget all tables; those in use come back at once, in a pool that holds all models."""
        self._slots.clear()
        if rows > len(self._throughput):
            shape = (2 * rows, *self._throughput.shape[1:])
            self._throughput, self._batches = np.zeros(shape), np.ones(shape)

    def _slot(self, model: GoodputModel) -> int:
        key = (*model.step, *model.limits)
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = len(self._slots)
            tabulate(
                np.array(model.step),
                np.array(model.limits, dtype=np.float64),
                self._configurations.nodes,
                self._configurations.gpus,
                self._throughput[slot],
                self._batches[slot],
            )
        return slot
