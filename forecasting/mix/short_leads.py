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

    Lines of every quantile are fitted at one slot, 1 h and 3 h and are straight between; up to 6 h
    they fade into the mix. Where little is known or the newest slot is not, the mix stands.
    """
    rows = np.stack([getattr(mixed, name) for name in _NAMES if getattr(mixed, name) is not None])
    low, middle, high = rows[1], rows[2], rows[3]
    lower = middle - _QUARTILE * (middle - low)
    rows = np.insert(rows, [2, 3], [lower, middle + _QUARTILE * (high - middle)], axis=0)
    hour = SECONDS_PER_HOUR / series.slot_seconds
    leads = np.unique([1, max(1, round(hour)), max(1, round(_FITTED_HOURS * hour))])
    found = anchored(y, leads, max(1, series.slots_per_day))
    known = np.isfinite(found[0])
    if known.any():
        ahead = np.arange(1, rows.shape[1] + 1)
        near = np.stack([np.interp(ahead, leads[known], row[known]) for row in found])
        fading = (_UNTIL_HOURS * hour - ahead) / ((_UNTIL_HOURS - _FITTED_HOURS) * hour)
        share = np.clip(fading, 0.0, 1.0)
        rows = np.where(share > 0, share * near + (1 - share) * rows, rows)
    rows = np.clip(rows, series.lower, series.upper)
    return Quantiles(**dict(zip(_NAMES, rows, strict=True)))
