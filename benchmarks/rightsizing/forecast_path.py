"""Our allocation of one job over time: the cheapest path on what is foreseen, the first step done.

The expected shortfall over the forecast's quantiles is in the cost (planning on a high quantile as
if it were certain costs more, docs/planner.md), and so is every change: a limit moves only where
the steps ahead pay for it.
"""

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.rightsizing.charges import UnitCharges
from benchmarks.rightsizing.level_paths import cheapest_path, level_of
from benchmarks.rightsizing.past import QUANTILES, Past, StepForecast, Values

_TAIL = 1.4
"""q99 is taken to lie so many times as far above the median as q95 (normal: 1.41)."""
_MEDIAN = QUANTILES.index(0.50)
_MEMORY = 0.95
"""Share of a miss that lasts another step; 0.8 to 1 cost within 3 % on Philly, 1 % on Helios."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastPath:
    """`calm` multiplies the cost of a change in the plan, `care` that of a shortfall.

    Neither changes what is charged. q99, which is guessed, counts only with more care than 1: at
    true prices it took Philly from 50.7 to 54.3 % above the oracle.
    """

    charges: UnitCharges
    calm: float = 1.0
    care: float = 1.0
    name: str = "Trimtab, forecast path"

    def recommend(self, past: Past) -> Values:
        """Return the first step of the cheapest path; a job without a forecast keeps its limit."""
        if past.forecast is None:
            return past.kept()
        path, levels = past.forecast.path, list(QUANTILES)
        if self.care > 1:
            path, levels = _with_tail(path), [*QUANTILES, 0.99]
        planned = replace(
            self.charges,
            change_hours=self.charges.change_hours * self.calm,
            shortfall_weight=self.charges.shortfall_weight * self.care,
        )
        hours = past.sample_hours * past.samples_per_step
        weights = _weights(levels)
        cost = np.stack(
            [
                sum(
                    (
                        weight * planned.step_cost(path[:, [slot], at], past.levels, hours)
                        for at, weight in enumerate(weights)
                    ),
                    start=np.zeros(past.levels.shape),
                )
                for slot in range(path.shape[1])
            ],
            axis=1,
        )
        start = level_of(past.limits, past.levels)
        found = cheapest_path(cost, planned.change_cost(past.levels), start)[:, 0]
        wish = past.levels[np.arange(len(past.levels)), found]
        return np.where(np.isfinite(path[:, 0, 0]), wish, past.kept())


def _weights(levels: list[float]) -> Values:
    """Return the share of the future that each quantile stands for."""
    low, high = np.array([0.0, *levels[:-1]]), np.array([*levels[1:], 1.0])
    return np.asarray((high - low) / (high - low).sum())


def _with_tail(path: Values) -> Values:
    """Return the path with q99 beyond its quantiles."""
    median, high = path[:, :, [QUANTILES.index(0.50)]], path[:, :, [QUANTILES.index(0.95)]]
    return np.concatenate([path, median + _TAIL * (high - median)], axis=2)


def refreshed(path: Values, age: int, seen: Values) -> StepForecast:
    """Return the forecast `age` steps after its origin, path [jobs, slots, quantiles].

    The last step's miss of the median carries on, fading; bands are as wide as at the same lead
    from the origin. `seen` [jobs] is the last step's usage; where unknown nothing is moved.
    """
    if age == 0:
        return StepForecast(path=path)
    ahead = path.shape[1] - age
    miss = np.nan_to_num(seen - path[:, age - 1, _MEDIAN])
    fading = _MEMORY ** np.arange(1, ahead + 1)
    point = path[:, age:, _MEDIAN] + miss[:, None] * fading
    around = path[:, :ahead] - path[:, :ahead, [_MEDIAN]]
    return StepForecast(path=np.maximum(point[:, :, None] + around, 0.0))
