"""The request rate of an inference service over the next hours, by slots of ten minutes."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from data.records.forecasts import Quantity
from forecasting.mix.model import MIN_KNOWN, mix_many
from forecasting.models.demand_model import Quantiles
from forecasting.series.demand_series import DemandSeries, Values

RATE_SLOT_SECONDS = 600
_DAY = 86_400 // RATE_SLOT_SECONDS
_WEEK = 7 * _DAY
_NEAR_SLOTS = np.arange(-3, 4)
"""Slots before and after one that are taken to have requests as often."""
_MAX_RARE_SHARE = 0.05
_IDLE_RATIO = 0.05
"""Of the mean rate: a day below it is idle, and the newest days say nothing of the next."""


def rate_quantiles_of(
    histories: Sequence[tuple[int, Values]], ahead: int
) -> list[Quantiles | None]:
    """Return q05 to q95 of the next `ahead` slots of each service, None with too little known.

    `histories` are of each the start of the first slot (s, epoch), on which hours of the day are
    counted, and requests per second by slot, NaN where unknown. Many at once are faster than alone.
    After an idle day the middle and the high quantiles are never below the week before.
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
        for (first, rates), usable in zip(histories, enough, strict=True)
        if usable
    ]
    forecasts = iter(mix_many(series, [ahead] * len(series), judged=False))
    return [
        _raised_to_week_before(next(forecasts).quantiles, rates) if usable else None
        for (_first, rates), usable in zip(histories, enough, strict=True)
    ]


def _raised_to_week_before(quantiles: Quantiles, rates: Values) -> Quantiles:
    """Return the quantiles, after an idle day never below what came a week before.

    On a Monday morning the mix, which rests on the newest days, foresees another Sunday. The high
    quantiles take the larger of neighbouring slots as well.
    """
    filled = np.nan_to_num(rates)
    if filled[-_DAY:].mean() >= _IDLE_RATIO * filled.mean():
        return quantiles
    ahead = len(quantiles.q50)
    week = np.zeros(ahead + 2)  # a slot before and one after
    before = np.arange(-1, ahead + 1) + len(filled) - _WEEK
    there = (before >= 0) & (before < len(filled))
    week[there] = filled[before[there]]
    high = np.maximum(np.maximum(week[:-2], week[1:-1]), week[2:])
    return replace(
        quantiles,
        q50=np.maximum(quantiles.q50, week[1:-1]),
        q75=None if quantiles.q75 is None else np.maximum(quantiles.q75, week[1:-1]),
        q90=np.maximum(quantiles.q90, high),
        q95=np.maximum(quantiles.q95, high),
    )


def slots_without_requests(rates: Values, ahead: int) -> npt.NDArray[np.bool_]:
    """Return in which of the next `ahead` slots no request comes with at least 95 %.

    By the slots up to half an hour from the same time of all days: of n known ones of which m had
    a request, the next one has with (m + 1) / (n + 1) at most, where they come in no order. The
    bands of the mix are too wide for it: they vary with the hour as little as its errors do.
    """
    count = len(rates)
    days = np.arange(1, count // _DAY + 2)
    index = count + np.arange(ahead)[:, None, None] - days[:, None] * _DAY + _NEAR_SLOTS
    nearby = np.where((index >= 0) & (index < count), rates[np.clip(index, 0, count - 1)], np.nan)
    slots = np.isfinite(nearby).sum(axis=(1, 2))
    return np.asarray(((nearby > 0).sum(axis=(1, 2)) + 1) / (slots + 1) <= _MAX_RARE_SHARE)
