"""Bands of the mix at every slot, compiled: between buckets, and from the short leads into it."""

from typing import Any

import numpy as np

from data.base.compiled import inner, outer
from forecasting.mix.members_kernel import BASELINE, PROPHET, sort

_QUARTILE = np.log(2.0) / np.log(5.0)
"""Where a quartile lies between the median and the decile: of two exponential tails, which jumps of
demand have; the straight line's 0.625 lies far above."""


@inner
def _on_line(ahead: float, after: int, places: Any, values: Any) -> Any:
    """Return the value at `ahead` on straight lines through values at ascending places.

    `after` is the first place at `ahead` or behind it. Before and behind all of them it is flat.
    """
    if after == 0:
        return values[0]
    if after == len(places):
        return values[-1]
    if places[after] == ahead:
        return values[after]
    first, last = values[after - 1], values[after]
    slope = (last - first) / (places[after] - places[after - 1])
    return slope * (ahead - places[after - 1]) + first


@inner
def _within(value: float, lower: float, upper: float) -> Any:
    """Return the value, or the bound that it is beyond."""
    value = max(lower, value)
    return min(upper, value)


@outer
def add_prophet_points(
    forecasts: Any, probes: Any, min_share: float, points: Any, now: Any
) -> None:
    """Write Prophet's points [origins + 1, leads], the newest last, into the members' points.

    Only if it has a word now and had one at more than `min_share` of the moments; where it had
    none, naive's stands.
    """
    heard = 0
    for moment in range(len(forecasts)):
        complete = 1
        for lead in range(forecasts.shape[1]):
            complete = complete if np.isfinite(forecasts[moment, lead]) else 0
        heard += complete
    if not complete or heard / len(forecasts) <= min_share:
        return
    for lead in range(forecasts.shape[1]):
        now[PROPHET, lead] = forecasts[-1, lead]
    for moment in range(len(forecasts) - 1):
        for place in range(len(probes)):
            point = forecasts[moment, probes[place] - 1]
            if not np.isfinite(point):
                point = points[BASELINE, moment, place]
            points[PROPHET, moment, place] = point


@outer
def banded(point: Any, middles: Any, bands: Any, lower: float, upper: float) -> Any:
    """Return quantiles [LEVELS, slots] within the bounds: the point of each slot plus its band.

    bands [buckets, LEVELS], straight between the `middles` of the buckets, leads in slots.
    """
    levels = bands.shape[1]
    quantiles, values, after = np.empty((levels, len(point))), np.empty(levels), 0
    for slot in range(len(point)):
        while after < len(middles) and middles[after] < slot + 1:
            after += 1
        for level in range(levels):
            values[level] = point[slot] + _on_line(slot + 1, after, middles, bands[:, level])
        sort(values, levels)
        for level in range(levels):
            quantiles[level, slot] = _within(values[level], lower, upper)
    return quantiles


@outer
def all_quantiles(
    mixed: Any, leads: Any, short: Any, until: float, fades: float, lower: float, upper: float
) -> Any:
    """Return q05, q10, q25 to q95 [7, slots] within the bounds, of q05, q10, q50, q90, q95.

    `short` [7, leads] are those of the short leads, straight between; none without leads. From
    `fades` slots before `until` on they fade into the mix.
    """
    slots, after = mixed.shape[1], 0
    quantiles = np.empty((7, slots))
    for slot in range(slots):
        low, middle, high = mixed[1, slot], mixed[2, slot], mixed[3, slot]
        quantiles[0, slot], quantiles[1, slot], quantiles[3, slot] = mixed[0, slot], low, middle
        quantiles[2, slot] = middle - _QUARTILE * (middle - low)
        quantiles[4, slot] = middle + _QUARTILE * (high - middle)
        quantiles[5, slot], quantiles[6, slot] = high, mixed[4, slot]
        share = _within((until - (slot + 1)) / fades, 0.0, 1.0) if len(leads) else 0.0
        while after < len(leads) and leads[after] < slot + 1:
            after += 1
        for level in range(7):
            value = quantiles[level, slot]
            if share > 0:
                value = share * _on_line(slot + 1, after, leads, short[level]) + (1 - share) * value
            quantiles[level, slot] = _within(value, lower, upper)
    return quantiles
