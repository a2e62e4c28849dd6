"""What every forecasting model does."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from forecasting.demand_series import DemandSeries, Values

LEVELS = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """q10, q50, q90 for the slots after the series' last, in the series' unit."""

    q10: Values
    q50: Values
    q90: Values


class DemandModel(Protocol):
    """A model: from a series to quantiles of its next slots."""

    @property
    def name(self) -> str:
        """The model's name in forecasts and evidence."""
        ...

    def forecast(self, series: DemandSeries, horizon: int) -> Quantiles:
        """Give the quantiles of the next `horizon` slots, within the series' bounds.

        Errors: NotEnoughHistoryError when the series has no known slot.
        """
        ...


def bounded(series: DemandSeries, point: Values, low: float, high: float) -> Quantiles:
    """Give point + low, point, point + high within the bounds; offsets in the series' unit."""
    clip = (series.lower, series.upper)
    return Quantiles(
        q10=np.clip(point + min(low, 0.0), *clip),
        q50=np.clip(point, *clip),
        q90=np.clip(point + max(high, 0.0), *clip),
    )
