"""The next hours, anchored on the newest reading; beyond, the mix with its quartiles."""

import numpy as np

from data.units import SECONDS_PER_HOUR
from forecasting.demand_model import Quantiles
from forecasting.demand_series import DemandSeries, Values
from forecasting.mix.anchor_kernel import LEVELS, anchored

_NAMES = tuple(f"q{round(100 * level):02d}" for level in LEVELS)
_FITTED_HOURS = 3.0
_UNTIL_HOURS = 6.0
_QUARTILE = np.log(2.0) / np.log(5.0)
"""Where a quartile lies between the median and the decile: of two exponential tails, which jumps of
demand have; the straight line's 0.625 lies far above."""


def with_short_leads(series: DemandSeries, y: Values, mixed: Quantiles) -> Quantiles:
    """Return the mix with quartiles, and its first hours from `y`, the series from its first slot.

    Up to 3 h the short leads hold, up to 6 h they fade into the mix. Where little is known or the
    newest slot is not, the mix stands.
    """
    rows = _with_quartiles(mixed)
    near = _near(series, y, rows.shape[1])
    if near is not None:
        hour = SECONDS_PER_HOUR / series.slot_seconds
        ahead = np.arange(1, rows.shape[1] + 1)
        fading = (_UNTIL_HOURS * hour - ahead) / ((_UNTIL_HOURS - _FITTED_HOURS) * hour)
        share = np.clip(fading, 0.0, 1.0)
        rows = np.where(share > 0, share * near + (1 - share) * rows, rows)
    rows = np.clip(rows, series.lower, series.upper)
    return Quantiles(**dict(zip(_NAMES, rows, strict=True)))


def _near(series: DemandSeries, y: Values, horizon: int) -> Values | None:
    """Return the quantiles [LEVELS, horizon] that start from the newest reading, None if unknown.

    Lines of every quantile are fitted at one slot, 1 h and 3 h and are straight between.
    """
    hour, season = SECONDS_PER_HOUR / series.slot_seconds, max(1, series.slots_per_day)
    leads = np.array(sorted({1, max(1, round(hour)), max(1, round(_FITTED_HOURS * hour))}))
    found = anchored(y, leads, season)
    known = np.isfinite(found[0])
    if known.any():
        ahead = np.arange(1, horizon + 1)
        return np.stack([np.interp(ahead, leads[known], row[known]) for row in found])
    return None


def _with_quartiles(quantiles: Quantiles) -> Values:
    """Return the quantiles [LEVELS, slots] of a forecast without quartiles."""
    low, middle, high = quantiles.q10, quantiles.q50, quantiles.q90
    lower = middle - _QUARTILE * (middle - low)
    upper = middle + _QUARTILE * (high - middle)
    return np.stack([quantiles.q05, low, lower, middle, upper, high, quantiles.q95])
