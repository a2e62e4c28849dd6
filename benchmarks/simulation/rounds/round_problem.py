"""A round as a value, and its solution with a certified gap."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.base.errors import ImpossibleProblemError
from planner.scheduling.round_kernel import solve

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundProblem:
    """Costs [J, C + 1] of every job on every configuration, the last one being nothing.

    `kind` and `gpus` [C + 1] say what a configuration takes of the `capacity` [T]; a cost is
    infinite where a choice is not allowed. `previous` [J] is what the jobs hold.
    """

    cost: Floats
    kind: Ints
    gpus: Ints
    capacity: Ints
    previous: Ints

    def __post_init__(self) -> None:
        if np.isnan(self.cost).any() or not np.isfinite(self.cost).any(axis=1).all():
            raise ImpossibleProblemError(
                "a job has no allowed configuration, or one of unknown cost",
                "allow it at least nothing, which is the last configuration",
            )

    @property
    def nothing(self) -> int:
        """The configuration without GPUs."""
        return len(self.gpus) - 1

    def total(self, choice: Ints) -> float:
        """Return the cost of a choice [J]; infinite when it takes more than there is."""
        use = np.bincount(
            self.kind[choice], weights=self.gpus[choice], minlength=len(self.capacity)
        )
        if (use > self.capacity).any():
            return float("inf")
        return float(self.cost[np.arange(len(choice)), choice].sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundSolution:
    """The chosen configurations [J], their cost, a lower bound of any, and prices [T] per GPU."""

    choice: Ints
    cost: float
    bound: float
    prices: Floats

    @property
    def gap(self) -> float:
        """The largest distance of the cost to the least, as a share of it."""
        return (self.cost - self.bound) / max(abs(self.cost), 1e-12)


def solve_round(
    problem: RoundProblem, *, prices: Floats | None = None, steps: int = 60
) -> RoundSolution:
    """Return a choice for every job, from the prices of the round before when there are any.

    Errors: ImpossibleProblemError when what must stay takes more GPUs than there are.
    """
    start = np.zeros(len(problem.capacity)) if prices is None else prices.copy()
    choice = np.full(len(problem.cost), problem.nothing, dtype=np.int64)
    cost, bound = solve(
        problem.cost,
        problem.kind,
        problem.gpus,
        problem.capacity,
        problem.previous,
        start,
        steps,
        choice,
    )
    if not np.isfinite(cost):
        raise ImpossibleProblemError(
            "jobs that must keep their GPUs hold more than the cluster has",
            "check the nodes given against the allocations of the round before",
        )
    return RoundSolution(choice=choice, cost=cost, bound=bound, prices=start)
