"""Jobs whose use has left the interval that the plan in force was made on."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from data.records.forecasts import DemandForecast, ForecastSkipped, Quantity


def outside_interval(
    forecasts: Sequence[DemandForecast | ForecastSkipped], history: pd.DataFrame
) -> frozenset[str]:
    """Return the jobs that had a slot outside q05..q95 since the forecasts were made.

    `history` has the columns HISTORY with slots of the forecasts' length. Forecasts without outer
    quantiles say nothing. A plan owes such a job no loyalty to the path that rested on that
    interval.
    """
    rows = {str(job_id): part for job_id, part in history.groupby("job_id", sort=False)}
    outside = set()
    for forecast in forecasts:
        if not isinstance(forecast, DemandForecast) or forecast.job_id not in rows:
            continue
        path = forecast.path(Quantity.EFFECTIVE_GPUS)
        if path is not None and len(path.q05):
            slots = pd.DatetimeIndex(forecast.slot_starts)
            mine = rows[forecast.job_id].set_index("slot_start")[str(Quantity.EFFECTIVE_GPUS)]
            values = mine.reindex(slots).to_numpy(dtype=np.float64)  # NaN: not seen yet
            if ((values < np.array(path.q05)) | (values > np.array(path.q95))).any():
                outside.add(forecast.job_id)
    return frozenset(outside)
