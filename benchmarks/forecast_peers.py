"""Models that are compared with Trimtab's: statsforecast's, and Prophet's exact optimum."""

import warnings
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks._prophet_design import bands
from forecasting.models.demand_model import Quantiles
from forecasting.prophet.batch import fit_batch
from forecasting.series.demand_series import DemandSeries, Values

_WINDOW_DAYS = 28
_LEVELS = (0.05, 0.1, 0.5, 0.9, 0.95)


@dataclass(frozen=True, slots=True)
class ExactProphet:
    """Default Prophet's own objective at its optimum, with Prophet's own bands."""

    name: str = "prophet_batch"

    def forecast(self, series: DemandSeries, horizon: int) -> Quantiles:
        """Return the quantiles from the last 28 d."""
        values = series.values[-_WINDOW_DAYS * series.slots_per_day :]
        first = series.first_slot + (len(series.values) - len(values)) * series.slot_seconds
        fits = fit_batch(values[None, :], series.slot_seconds, first)
        rows = np.clip(bands(fits, horizon, _LEVELS)[:, 0], series.lower, series.upper)
        return Quantiles(q05=rows[0], q10=rows[1], q50=rows[2], q90=rows[3], q95=rows[4])


@dataclass(frozen=True, slots=True)
class StatsForecast:
    """A model of statsforecast on the last 28 d, with its own bands."""

    name: str

    def forecast(self, series: DemandSeries, horizon: int) -> Quantiles:
        """Return the quantiles; gaps are carried forward, since these models take none."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from statsforecast.models import MSTL, AutoETS, AutoTheta

            day = series.slots_per_day
            make = {
                "AutoETS": partial(AutoETS, season_length=day),
                "AutoTheta": partial(AutoTheta, season_length=day),
                "MSTL": partial(
                    MSTL, season_length=[day, 7 * day], trend_forecaster=AutoETS(model="ZZN")
                ),
            }[self.name]
            values = _filled(series.values[-_WINDOW_DAYS * day :])
            found = make().forecast(y=values, h=horizon, level=[80, 90])
        clip = (series.lower, series.upper)
        return Quantiles(
            q05=np.clip(found["lo-90"], *clip),
            q10=np.clip(found["lo-80"], *clip),
            q50=np.clip(found["mean"], *clip),
            q90=np.clip(found["hi-80"], *clip),
            q95=np.clip(found["hi-90"], *clip),
        )


def _filled(values: Values) -> Values:
    known = np.isfinite(values)
    index = np.maximum.accumulate(np.where(known, np.arange(len(values)), 0))
    return np.where(np.isfinite(values[index]), values[index], 0.0)
