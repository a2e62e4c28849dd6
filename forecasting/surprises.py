"""Jobs whose use has left the interval that the plan in force was made on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from data.records.forecasts import DemandForecast, ForecastSkipped, Quantity
from forecasting.replan_trigger import replan_trigger

FALSE_ALARMS_PER_SLOT = 1e-3
"""Of the whole fleet under calibrated bands: about one in ten days of 15-min slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surprise:
    """One job that left its band, which side and why that is no chance."""

    job_id: str
    quantity: Quantity
    side: str
    reason: str


def surprises(
    forecasts: Sequence[DemandForecast | ForecastSkipped], history: pd.DataFrame
) -> tuple[Surprise, ...]:
    """Return the jobs whose demand left q05..q95 of their forecasts since these were made.

    `history` has the columns HISTORY with slots of the forecasts' length. Forecasts without outer
    quantiles say nothing.
    """
    known = [forecast for forecast in forecasts if isinstance(forecast, DemandForecast)]
    rows = {str(job_id): part for job_id, part in history.groupby("job_id", sort=False)}
    watched = [forecast for forecast in known if forecast.job_id in rows and _has_band(forecast)]
    found = []
    for entry in watched:
        path = entry.path(Quantity.EFFECTIVE_GPUS)
        if path is None:
            continue
        mine = rows[entry.job_id].set_index("slot_start")[str(Quantity.EFFECTIVE_GPUS)]
        seen = mine.reindex(pd.DatetimeIndex(entry.slot_starts)).to_numpy(dtype=np.float64)
        trigger = replan_trigger(
            seen,
            path.q05,
            path.q95,
            false_alarms_per_slot=FALSE_ALARMS_PER_SLOT / max(1, len(watched)),
        )
        if trigger.triggered:
            found.append(
                Surprise(
                    job_id=entry.job_id,
                    quantity=Quantity.EFFECTIVE_GPUS,
                    side=trigger.side or "",
                    reason=trigger.reason,
                )
            )
    return tuple(found)


def _has_band(forecast: DemandForecast) -> bool:
    path = forecast.path(Quantity.EFFECTIVE_GPUS)
    return path is not None and len(path.q05) > 0
