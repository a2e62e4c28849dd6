"""The bound on bins by the strongest pattern program of single moments."""

import math
import time
from dataclasses import dataclass

import numpy as np

from benchmarks.packing.gilmore_gomory import Floats, moment_prices
from benchmarks.packing.gilmore_gomory_kernel import best_pattern, first_fit_decreasing
from benchmarks.packing.temporal_instance import Ints

_ROUNDING = 1e-6
_MAX_CAPACITY = 20_000
"""Beyond this the knapsack's table costs more than the bound is worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternBound:
    """The bound on bins, and per moment the value that the prices found so far certify."""

    bins: int
    values: Floats


def gilmore_gomory_bound(
    counts: Ints,
    sizes: Ints,
    capacity: int,
    *,
    floor: int,
    ceiling: int,
    deadline: float,
) -> PatternBound:
    """Return the best bound over all moments, at least `floor`; stops at `ceiling`.

    counts [moments, m] of the distinct sizes [m], ascending; `deadline` of time.monotonic.
    """
    values = (counts @ sizes) / capacity
    bound = floor
    if capacity > _MAX_CAPACITY:
        return PatternBound(bins=bound, values=values)
    most = counts.max(axis=0, initial=0)
    waiting = list(np.argsort(-values, kind="stable"))
    while waiting and bound < ceiling and time.monotonic() < deadline:
        moment = waiting.pop(0)
        present = np.flatnonzero(counts[moment])
        here, kinds = counts[moment, present], sizes[present]
        start = first_fit_decreasing(here, kinds, capacity)
        if len(start) <= bound:
            continue
        prices = moment_prices(here, kinds, capacity, start, floor=bound, deadline=deadline)
        if prices is None:
            continue
        own, _ = best_pattern(prices, kinds, here, capacity)
        shared, _ = best_pattern(prices, kinds, most[present], capacity)
        values[moment] = max(values[moment], float(prices @ here) / max(1.0, own))
        values = np.maximum(values, counts[:, present] @ prices / max(1.0, shared))
        bound = max(bound, math.ceil(float(values.max()) - _ROUNDING))
        waiting.sort(key=lambda entry: -values[entry])
    return PatternBound(bins=bound, values=values)
