"""Replicas' readings summed by service and slot, compiled."""

from typing import Any

import numpy as np

from data.base.compiled import inner, outer
from data.base.units import SLOT_SECONDS

FULLEST, FULL, CACHE, REPLICAS = -4, -3, -2, -1
"""Places after the sums: what the replica with most had at work, those that let requests wait, the
largest share of the cache, and how many there were."""

_SLOT_US = SLOT_SECONDS * 1_000_000


@inner
def _larger(one: float, other: float) -> float:
    """Return the larger of the two that is known, NaN where none is."""
    return other if np.isnan(one) or other > one else one


@outer
def add_readings(service: Any, begun: Any, values: Any, cells: Any) -> None:
    """Add readings, a row a replica and slot, to `cells` [services, slots, sums + 4], 0 at first.

    `begun` is the start of a row's slot, us after that of the first in `cells`.
    `values` [sums + 1, rows]: requests at work, those that wait, the other sums, and the cache. A
    sum is NaN where a part of it is. All of a cell lies together, as rows lie by slot.
    """
    sums = len(values) - 1
    for row in range(len(service)):
        cell = cells[service[row], begun[row] // _SLOT_US]
        if cell[REPLICAS] == 0.0:
            cell[FULLEST] = cell[FULL] = cell[CACHE] = np.nan
        cell[REPLICAS] += 1.0
        for name in range(sums):
            cell[name] += values[name, row]
        cell[FULLEST] = _larger(cell[FULLEST], values[0, row])
        if values[1, row] >= 1.0:
            cell[FULL] = _larger(cell[FULL], values[0, row])
        cell[CACHE] = _larger(cell[CACHE], values[sums, row])
