"""One pass over the items in a given order, each into the bin that a fit rule prefers."""

import numpy as np
import numpy.typing as npt

from data.base.compiled import compiled, copy_into, inner

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FIRST, BEST, MIN_ADDED = 0, 1, 2


@inner
def _peak(load: Ints, first: int, last: int) -> int:
    """Return the largest load in slots [first, last)."""
    peak = 0
    for slot in range(first, last):
        peak = max(peak, load[slot])
    return peak


@inner
def _added(
    load: Ints, lengths: Ints, first: int, last: int, room: int, capacity: int, idle: float
) -> float:
    """Return busy time that an item adds plus `idle` times the capacity that it leaves unused."""
    empty = 0.0
    waste = 0.0
    for slot in range(first, last):
        if load[slot] == 0:
            empty += lengths[slot]
        waste += (room - load[slot]) * lengths[slot]
    return empty + idle * waste / capacity


@compiled
def fit(
    first: Ints,
    last: Ints,
    sizes: Ints,
    lengths: Ints,
    order: Ints,
    capacity: int,
    rule: int,
    idle: float,
) -> Ints:
    """Return the bin of every item [n], bins numbered from 0 as they were opened.

    A new bin is opened only when no open bin takes the item. FIRST: the oldest bin; BEST: the
    highest peak while the item is there; MIN_ADDED: least added busy time plus `idle` times the
    unused capacity during the item's life.
    """
    items = len(first)
    slots = len(lengths)
    bin_of = np.full(items, -1, dtype=np.int64)
    load = np.zeros((8, slots), dtype=np.int64)
    bins = 0
    for item in order:
        room = capacity - sizes[item]
        best = -1
        best_score = np.inf
        for number in range(bins):
            peak = _peak(load[number], first[item], last[item])
            if peak > room:
                continue
            if rule == FIRST:
                best = number
                break
            if rule == BEST:
                score = float(room - peak)
            else:
                score = _added(load[number], lengths, first[item], last[item], room, capacity, idle)
            if score < best_score:
                best_score = score
                best = number
        if best < 0:
            if bins == len(load):
                grown = np.zeros((2 * bins, slots), dtype=np.int64)
                copy_into(grown, load)
                load = grown
            best = bins
            bins += 1
        bin_of[item] = best
        for slot in range(first[item], last[item]):
            load[best, slot] += sizes[item]
    return bin_of
