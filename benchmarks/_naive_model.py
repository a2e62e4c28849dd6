"""The yardstick of every forecast: the last value. Bands are the spread of changes by lead."""

from dataclasses import dataclass

import numpy as np

from data.base.errors import NotEnoughHistoryError
from forecasting.models.demand_model import Quantiles
from forecasting.series.demand_series import DemandSeries, Values

_LEVELS = np.array([0.05, 0.1, 0.9, 0.95])
_MIN_CHANGES = 4


@dataclass(frozen=True, slots=True)
class NaiveModel:
    """The last known value, with the quantiles of past changes over the same lead."""

    name: str = "naive"

    def forecast(self, series: DemandSeries, horizon: int) -> Quantiles:
        """Return the quantiles; see DemandModel.

        Changes are looked up at leads a factor 1.5 apart and are linear between; a lead longer than
        half the history has the band of the longest lead that is not.
        """
        slots = np.flatnonzero(series.known)
        if not len(slots):
            raise NotEnoughHistoryError("the series has no known slot")
        last = float(series.values[slots[-1]])
        longest = max(1, min(horizon, len(series.values) // 2))
        leads = np.unique(np.round(1.5 ** np.arange(0, 60)).astype(int))
        leads = np.unique(np.append(leads[leads < longest], longest))
        spreads = np.stack([_spread(series.values, int(lead)) for lead in leads])
        ahead = np.arange(1, horizon + 1)
        low, lower, upper, high = (
            np.clip(last + np.interp(ahead, leads, spreads[:, level]), series.lower, series.upper)
            for level in range(len(_LEVELS))
        )
        point = np.full(horizon, np.clip(last, series.lower, series.upper))
        return Quantiles(q05=low, q10=lower, q50=point, q90=upper, q95=high)


def _spread(values: Values, lead: int) -> Values:
    """Return the quantiles of the changes over `lead` slots; they hold zero."""
    changes = values[lead:] - values[:-lead]
    changes = changes[np.isfinite(changes)]
    if len(changes) < _MIN_CHANGES:
        return np.zeros(len(_LEVELS))
    spread = np.quantile(changes, _LEVELS)
    return np.asarray(np.where(_LEVELS < 0.5, np.minimum(spread, 0.0), np.maximum(spread, 0.0)))
