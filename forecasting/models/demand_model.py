"""The interface of forecasting models."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from forecasting.series.demand_series import DemandSeries, Values

LEVELS = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Quantiles of the slots after the series' last, in the series' unit.

    The outer two, q05 and q95, are the band that reality should seldom leave. q25 and q75 are None
    where a model does not give them.
    """

    q05: Values
    q10: Values
    q50: Values
    q90: Values
    q95: Values
    q25: Values | None = None
    q75: Values | None = None


class DemandModel(Protocol):
    """A model: from a series to quantiles of its next slots."""

    @property
    def name(self) -> str:
        """The model's name in forecasts and evidence."""
        ...

    def forecast(self, series: DemandSeries, horizon: int) -> Quantiles:
        """Return the quantiles of the next `horizon` slots, within the series' bounds.

        Errors: NotEnoughHistoryError when the series has no known slot.
        """
        ...


def banded(series: DemandSeries, point: Values, errors: Values) -> Quantiles:
    """Return point plus the 5, 10, 90 and 95 % quantiles of past errors, within the series' bounds.

    The band holds the point; with fewer than four errors it has no width.
    """
    spread = np.quantile(errors, [0.05, 0.1, 0.9, 0.95]) if len(errors) >= 4 else np.zeros(4)
    clip = (series.lower, series.upper)
    return Quantiles(
        q05=np.clip(point + min(spread[0], 0.0), *clip),
        q10=np.clip(point + min(spread[1], 0.0), *clip),
        q50=np.clip(point, *clip),
        q90=np.clip(point + max(spread[2], 0.0), *clip),
        q95=np.clip(point + max(spread[3], 0.0), *clip),
    )
