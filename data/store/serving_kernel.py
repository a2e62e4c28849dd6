"""Replicas' readings summed by service and slot, compiled."""

from typing import Any

import numpy as np

from data.compiled import inner, outer

FULLEST, FULL, CACHE, REPLICAS = -4, -3, -2, -1
"""Places after the sums: what the replica with most had at work, those that let requests wait, the
largest share of the cache, and how many there were."""


@inner
def _larger(one: float, other: float) -> float:
    """Return the larger of the two that is known, NaN where none is."""
    return other if np.isnan(one) or other > one else one


@outer
def add_sums(service: Any, slot: Any, name: int, values: Any, cells: Any) -> None:
    """Add a row a replica and slot to sum `name` of `cells` [services, sums + 4, slots].

    A sum is NaN where a part of it is.
    """
    for row in range(len(values)):
        cells[service[row], name, slot[row]] += values[row]


@outer
def add_extremes(
    service: Any, slot: Any, running: Any, waiting: Any, cache: Any, cells: Any
) -> None:
    """Add the same rows to what follows the sums in `cells`, 0 at first."""
    for row in range(len(running)):
        s, t = service[row], slot[row]
        if cells[s, REPLICAS, t] == 0.0:
            cells[s, FULLEST, t] = cells[s, FULL, t] = cells[s, CACHE, t] = np.nan
        cells[s, REPLICAS, t] += 1.0
        cells[s, FULLEST, t] = _larger(cells[s, FULLEST, t], running[row])
        if waiting[row] >= 1.0:
            cells[s, FULL, t] = _larger(cells[s, FULL, t], running[row])
        cells[s, CACHE, t] = _larger(cells[s, CACHE, t], cache[row])
