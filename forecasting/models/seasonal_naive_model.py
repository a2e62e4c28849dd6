"""The baseline that every other model must beat: the same slot of the day before.

Below two days of history: the last known value. The band is the spread of the rule's own past
errors (split-conformal on the series itself).
"""

from dataclasses import dataclass

import numpy as np

from data.base.errors import NotEnoughHistoryError
from forecasting.models.demand_model import Quantiles, banded
from forecasting.series.demand_series import DemandSeries, Values


@dataclass(frozen=True, slots=True)
class SeasonalNaiveModel:
    """Seasonal naive with a period of one day."""

    name: str = "seasonal-naive"

    def forecast(self, series: DemandSeries, horizon: int) -> Quantiles:
        """Return the quantiles; see DemandModel."""
        filled = _carried_forward(series.values)
        if not len(filled):
            raise NotEnoughHistoryError("the series has no known slot")
        day = series.slots_per_day
        if len(filled) >= 2 * day:
            point = np.array([filled[len(filled) - day + step % day] for step in range(horizon)])
            errors = _known_errors(series.values, (day,))
        else:
            point = np.full(horizon, filled[-1])
            errors = _known_errors(series.values, range(1, min(horizon, len(filled) // 2) + 1))
        return banded(series, point, errors)


def _carried_forward(values: Values) -> Values:
    """Return the values with each gap holding the last known one; leading gaps are cut."""
    slots = np.flatnonzero(np.isfinite(values))
    if not len(slots):
        return np.zeros(0)
    index = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(len(values)), 0))
    return np.asarray(values[index][slots[0] :])


def _known_errors(values: Values, lags: "tuple[int, ...] | range") -> Values:
    """Return value minus the value `lag` slots before, for all lags where both are known."""
    parts = [values[lag:] - values[:-lag] for lag in lags]
    errors = np.concatenate(parts) if parts else np.zeros(0)
    return np.asarray(errors[np.isfinite(errors)])
