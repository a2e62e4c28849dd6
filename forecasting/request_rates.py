"""The request rate of an inference service over the next hours, by slots of ten minutes."""

import math

import numpy as np

from data.records.forecasts import Quantity
from forecasting.demand_model import Quantiles
from forecasting.demand_series import DemandSeries, Values
from forecasting.mix.model import MIN_KNOWN, mix

RATE_SLOT_SECONDS = 600


def rate_quantiles(rates: Values, ahead: int, *, first_slot: int = 0) -> Quantiles | None:
    """Return the quantiles of the next slots, None with too little history.

    `rates` are requests per second by slot, NaN where unknown; `first_slot` is the start of the
    first (s, epoch), on which hours of the day are counted.
    """
    if int(np.isfinite(rates).sum()) < MIN_KNOWN:
        return None
    past = DemandSeries(
        quantity=Quantity.ALLOCATED_GPUS,  # a count without a bound
        first_slot=first_slot,
        slot_seconds=RATE_SLOT_SECONDS,
        values=rates,
        lower=0.0,
        upper=math.inf,
    )
    return mix(past, ahead).quantiles
