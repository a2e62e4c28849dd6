"""What an old plan is worth to a later problem, job by job: for problems without node plans."""

import numpy as np
import numpy.typing as npt

from planner.slots.slot_problem import Floats, Indices, Path
from planner.solver.replan import PlanPrices, WarmStart


def _later(values: Floats, elapsed: int) -> Floats:
    """Return an array [H, ...] that begins `elapsed` slots later; its last slot repeats."""
    slots = np.minimum(np.arange(len(values)) + elapsed, len(values) - 1)
    return values[slots]


def warmth_of(
    paths: Path,
    prices: PlanPrices,
    *,
    origin: Indices,
    present: Indices,
    elapsed: int = 0,
    reconsidered: npt.NDArray[np.bool_] | None = None,
    churn_price: float = 0.0,
) -> WarmStart:
    """Return the warm_start of a plan [J', H] for a problem that begins `elapsed` slots later.

    origin [J] is the row of the old plan that a job had, -1 for a new job; present [J] is what it
    holds now; reconsidered [J] marks jobs whose costs changed.
    """
    known = origin >= 0
    source = np.where(known, origin, 0)
    slots = np.minimum(np.arange(paths.shape[1]) + elapsed, paths.shape[1] - 1)
    announced = np.repeat(present[:, None], paths.shape[1], axis=1).astype(np.int16)
    work = np.full(len(origin), float(np.mean(prices.work)) if len(prices.work) else 0.0)
    if len(paths):
        announced = np.where(known[:, None], paths[source][:, slots], announced).astype(np.int16)
        work = np.where(known, prices.work[source], work)
    return WarmStart(
        prices=PlanPrices(
            rows=_later(prices.rows, elapsed), boots=_later(prices.boots, elapsed), work=work
        ),
        announced=announced,
        kept=known if reconsidered is None else known & ~reconsidered,
        churn_price=churn_price,
    )
