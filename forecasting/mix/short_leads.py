"""The next hours, anchored on the newest reading; beyond, the mix with its quartiles."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from data.base.units import SECONDS_PER_HOUR
from forecasting.mix.anchor_kernel import LEVELS, anchored
from forecasting.mix.bands_kernel import faded
from forecasting.models.demand_model import Quantiles
from forecasting.series.demand_series import DemandSeries, Values

_NAMES = tuple(f"q{round(100 * level):02d}" for level in LEVELS)
_FITTED_HOURS = 3.0
_UNTIL_HOURS = 6.0


def with_short_leads(series: DemandSeries, y: Values, mixed: Values) -> Quantiles:
    """Return the mix with quartiles, and its first hours from `y`, the series from its first slot.

    `mixed` are q05, q10, q50, q90 and q95 by slot [5, slots]. Up to 3 h the short leads hold, up to
    6 h they fade into the mix. Where little is known or the newest slot is not, the mix stands.
    Lines of every quantile are fitted at one slot, 1 h and 3 h and are straight between.
    """
    hour = SECONDS_PER_HOUR / series.slot_seconds
    leads = _leads(hour)
    short = anchored(y, leads, max(1, series.slots_per_day))
    finite = np.isfinite(short[0])
    if not finite.all():
        leads, short = leads[finite], short[:, finite]
    until, fades = _UNTIL_HOURS * hour, (_UNTIL_HOURS - _FITTED_HOURS) * hour
    rows = faded(mixed, leads, short, until, fades, series.lower, series.upper)
    return Quantiles(**dict(zip(_NAMES, rows, strict=True)))


@lru_cache(maxsize=64)
def _leads(hour: float) -> npt.NDArray[np.int64]:
    """Return the leads in slots at which lines are fitted."""
    return np.array(sorted({1, max(1, round(hour)), max(1, round(_FITTED_HOURS * hour))}))
