"""Forecasts of jobs too young for one of their own: the spread of similar jobs' use.

Every lender counts the same, however long it ran. The job's own few slots count as they grow in
number. Bands are wider than named: q10 and q90 are the lenders' 5 and 95 %.
"""

from collections.abc import Sequence

import numpy as np

from forecasting.models.demand_model import Quantiles
from forecasting.series.demand_series import Values

OUTER = np.array([0.02, 0.05, 0.50, 0.95, 0.98])
"""Levels of the pooled values that become q05, q10, q50, q90, q95."""
_OWN_COUNTS_HALF_AT = 16
"""Known slots of its own at which a job's own spread weighs as much as its lenders'."""
MODEL = "borrowed"


def borrowed(
    history: Values, lent: Sequence[Values], horizon: int, *, lower: float, upper: float
) -> Quantiles | None:
    """Return the same quantiles for each of `horizon` slots; None without any known value.

    history: the job's values so far; lent: an array of values per lender, in the same unit (per GPU
    values multiplied by the job's GPUs). NaN is unknown.
    """
    runs = [run[np.isfinite(run)] for run in lent]
    runs = [run for run in runs if len(run)]
    mine = history[np.isfinite(history)]
    if not runs:
        return None
    values = np.concatenate(runs)
    weights = np.concatenate([np.full(len(run), 1 / len(run)) for run in runs])
    levels = _weighted_quantiles(values, weights)
    if len(mine):
        share = len(mine) / (len(mine) + _OWN_COUNTS_HALF_AT)
        levels = share * np.quantile(mine, OUTER) + (1 - share) * levels
    rows = np.tile(np.clip(levels, lower, upper)[:, None], horizon)
    return Quantiles(q05=rows[0], q10=rows[1], q50=rows[2], q90=rows[3], q95=rows[4])


def _weighted_quantiles(values: Values, weights: Values) -> Values:
    order = np.argsort(values)
    share = np.cumsum(weights[order])
    middle = (share - 0.5 * weights[order]) / share[-1]
    return np.asarray(np.interp(OUTER, middle, values[order]))
