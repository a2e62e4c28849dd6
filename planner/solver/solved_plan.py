"""The solver's inputs besides the problem, and its result."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.slots.slot_problem import Floats, Path
from planner.solver.bounds import Bound
from planner.solver.replan import PlanPrices


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The most work of every kind: steps on the prices, chunks of the dive, moves, labels.

    Zero leaves a kind out. dive_chunks counts only with so many blocks of 16 jobs; label_room is
    the labels that one slot and configuration keeps in the bound of a job with work; `exact`: small
    problems are solved by an exact program.
    """

    price_steps: int = 80
    dive_chunks: int = 20
    moves: int = 100_000
    label_room: int = 16
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start of a search: prices near the best ones, which then move in short steps only.

    paths [J, H] of a plan made elsewhere (in parts) are the plan to improve, jobs planned anew
    where they do not fit together; its bound is not searched again.
    """

    prices: PlanPrices
    paths: Path | None = None
    bound: Bound | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SolvedPlan:
    """A plan: paths [J, H] of configurations, its true cost and what is certified about it.

    cost_of_now is today's allocation's, or with now_fits False that of its repair. gap is
    (cost - lower_bound) / |cost|. changed are the jobs that leave today's (warm: the announced)
    path. violated names the soft limits that the plan breaks. used [H, R] is the use of the rows
    of coupling_rows.py. history holds (seconds, cost, bound) as they were found.
    """

    paths: Path
    cost: float
    cost_of_now: float
    now_fits: bool
    lower_bound: float
    bound_name: str
    prices: PlanPrices
    used: Floats
    changed: npt.NDArray[np.int64]
    violated: tuple[str, ...]
    price_steps: int
    moves: int
    seconds: float
    history: tuple[tuple[float, float, float], ...]

    @property
    def gap(self) -> float:
        """Return the largest distance to the optimum, as a share of the cost."""
        if self.cost == self.lower_bound:
            return 0.0
        return (self.cost - self.lower_bound) / max(abs(self.cost), 1e-12)
