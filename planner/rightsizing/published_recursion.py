"""A published forecast-driven recursion for one job alone (US 12,411,713, prior description).

PPN_i units are provisioned at timepoint i, at least the forecast need U_i, at most M; with K units
now and a rebalance factor 0 < RF < 1 the path of least
POC = sum of PPN_i + RF |PPN_i - PPN_{i-1}| is taken, PPN_0 = K, and its first step provisioned. The
median forecast is the need; nothing is shared and nothing is uncertain in it.
"""

from dataclasses import dataclass

import numpy as np

from planner.rightsizing.level_paths import level_of
from planner.rightsizing.past import QUANTILES, Past, Values, quantile

_MEDIAN = QUANTILES.index(0.50)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRecursion:
    """`rebalance_factor` is RF."""

    rebalance_factor: float = 0.5
    name: str = "per-job DP alone (published)"

    def recommend(self, past: Past) -> Values:
        """Return the first step; without a forecast the last step's peak is the need."""
        if past.forecast is None:
            need = quantile(past.usage[:, -past.samples_per_step :], 1.0)[:, None]
        else:
            need = past.forecast.path[:, :, _MEDIAN]
        levels = past.levels
        between = np.abs(levels[:, :, None] - levels[:, None, :]) * self.rebalance_factor
        value = np.zeros_like(levels)
        for wanted in need.T[::-1]:
            top = np.minimum(np.nan_to_num(wanted), levels[:, -1])
            covered = np.where(levels >= top[:, None] * (1 - 1e-12), levels, np.inf)
            here = covered + value
            value = (between + here[:, None, :]).min(axis=2)
        rows = np.arange(len(levels))
        start = level_of(past.limits, levels)
        moving = np.where((start >= 0)[:, None], between[rows, np.maximum(start, 0)], 0.0)
        wish = levels[rows, (moving + here).argmin(axis=1)]
        return np.where(np.isfinite(need[:, 0]), wish, past.kept())
