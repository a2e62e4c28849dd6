"""Prophet (Taylor and Letham 2018), bounded and silenced.

Growth is flat: on GPU demand Prophet's linear trend continues a doubling or a decline far beyond
what the hardware can do. Seasonality by span: daily from two days, weekly from fourteen. Bands are
the quantiles of the in-sample residuals; Prophet's own are neither needed nor calibrated here.
"""

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

from data.base.errors import NotEnoughHistoryError
from data.base.extras import require_extra
from data.base.units import SECONDS_PER_DAY
from forecasting.models.demand_model import Quantiles, banded
from forecasting.series.demand_series import DemandSeries

_MIN_POINTS = 12
_SEED = 20_260_101


def _quiet_prophet() -> Any:
    """Import Prophet and silence it; its loggers get their handlers at import."""
    require_extra("prophet", "planning.model is prophet")
    from prophet import Prophet

    for name in ("cmdstanpy", "prophet", "prophet.plot"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    return Prophet


@dataclass(frozen=True, slots=True)
class ProphetModel:
    """Prophet with flat growth within the series' bounds."""

    name: str = "prophet"

    def forecast(self, series: DemandSeries, horizon: int) -> Quantiles:
        """Return the quantiles; see DemandModel. Errors: NotEnoughHistoryError below 12 slots."""
        finite = series.known
        if int(finite.sum()) < _MIN_POINTS:
            raise NotEnoughHistoryError(f"Prophet needs {_MIN_POINTS} known slots")
        indices = np.arange(len(series.values) + horizon)
        # Prophet takes naive times only; they are UTC.
        start = datetime.fromtimestamp(series.first_slot, tz=UTC).replace(tzinfo=None)
        stamps = pd.Timestamp(start) + pd.to_timedelta(indices * series.slot_seconds, unit="s")
        observed = np.flatnonzero(finite)
        span_days = (observed[-1] - observed[0]) * series.slot_seconds / SECONDS_PER_DAY
        model = _quiet_prophet()(
            growth="flat",
            daily_seasonality=span_days >= 2,
            weekly_seasonality=span_days >= 14,
            yearly_seasonality=False,
            uncertainty_samples=0,
        )
        values = series.values[observed]
        model.fit(pd.DataFrame({"ds": stamps[observed], "y": values}), seed=_SEED)
        fitted = model.predict(pd.DataFrame({"ds": stamps}))["yhat"].to_numpy()
        return banded(series, fitted[len(series.values) :], values - fitted[observed])
