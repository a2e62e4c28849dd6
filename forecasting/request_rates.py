"""The request rate of an inference service over the next hours, by slots of ten minutes."""

import math
from collections.abc import Sequence

import numpy as np

from data.records.forecasts import Quantity
from forecasting.demand_model import Quantiles
from forecasting.demand_series import DemandSeries, Values
from forecasting.mix.model import MIN_KNOWN, mix_many

RATE_SLOT_SECONDS = 600


def rate_quantiles_of(
    histories: Sequence[tuple[int, Values]], ahead: int
) -> list[Quantiles | None]:
    """Return q05 to q95 of the next `ahead` slots of each service, None with too little known.

    `histories` are of each the start of the first slot (s, epoch), on which hours of the day are
    counted, and requests per second by slot, NaN where unknown. Many at once are faster than alone.
    """
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
