"""One plan against its proven optimum: bound <= optimum <= plan."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import nan
from typing import TypeVar

T = TypeVar("T")
COMPARED = "compared"
IMPOSSIBLE = "refused, and impossible"
NO_PLACE = "a job without a place, named"
EXACT = 1e-6
"""Share of the cost: float64 sums."""
ROUNDED = 1e-4
"""Share of the cost: single precision in plans, feasibility in HiGHS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What became of one problem; `broken` is the promise that it broke, '' for none.

    `seconds` of CPU time went into the plan, `exact_seconds` into the exact model.
    """

    kind: str
    broken: str = ""
    cost: float = nan
    bound: float = nan
    optimum: float = nan
    seconds: float = nan
    exact_seconds: float = nan

    @property
    def distance(self) -> float:
        """The plan above the optimum, share of the optimum; NaN where not compared."""
        return (self.cost - self.optimum) / max(1.0, abs(self.optimum))

    @property
    def gap(self) -> float:
        """The gap that the plan certifies, share of its cost."""
        return (self.cost - self.bound) / max(abs(self.cost), 1e-9)

    def checked(self, bound_name: str, tolerance: float = EXACT) -> "Judged":
        """Return it with what is wrong about bound, optimum and plan."""
        scale = max(1.0, abs(self.optimum))
        if self.bound > self.optimum + tolerance * scale:
            text = f"bound {self.bound} ({bound_name}) above the optimum {self.optimum}"
            return replace(self, broken=text)
        if self.cost < self.optimum - ROUNDED * scale:
            return replace(self, broken=f"plan {self.cost} below the optimum {self.optimum}")
        return self


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return a result, and the CPU time in seconds that it took."""
    started = time.process_time()
    result = work()
    return result, time.process_time() - started
