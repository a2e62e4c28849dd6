"""The request rate of an inference service over the next hours, by slots of ten minutes."""

import math
from collections.abc import Sequence

import numpy as np

from data.records.forecasts import Quantity
from forecasting.demand_model import Quantiles
from forecasting.demand_series import DemandSeries, Values
from forecasting.mix.model import MIN_KNOWN, mix_many

RATE_SLOT_SECONDS = 600


def rate_quantiles(rates: Values, ahead: int, *, first_slot: int = 0) -> Quantiles | None:
    """Return the quantiles of the next slots, None with too little history.

    `rates` are requests per second by slot, NaN where unknown; `first_slot` is the start of the
    first (s, epoch), on which hours of the day are counted.
    """
    return rate_quantiles_of([(first_slot, rates)], ahead)[0]


def rate_quantiles_of(
    histories: Sequence[tuple[int, Values]], ahead: int
) -> list[Quantiles | None]:
    """Return the quantiles of many services, each as `rate_quantiles` does: faster than alone."""
    enough = [int(np.isfinite(rates).sum()) >= MIN_KNOWN for _first, rates in histories]
    series = [
        DemandSeries(
            quantity=Quantity.ALLOCATED_GPUS,  # a count without a bound
            first_slot=first,
            slot_seconds=RATE_SLOT_SECONDS,
            values=rates,
            lower=0.0,
            upper=math.inf,
        )
        for (first, rates), known in zip(histories, enough, strict=True)
        if known
    ]
    found = iter(mix_many(series, [ahead] * len(series), judged=False))
    return [next(found).quantiles if known else None for known in enough]
