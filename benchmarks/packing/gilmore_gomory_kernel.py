"""Inner loops of the linear program of one moment: a knapsack, and a quick packing."""

import numpy as np
import numpy.typing as npt

from data.base.compiled import compiled

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@compiled
def best_pattern(values: Floats, sizes: Ints, limits: Ints, capacity: int) -> tuple[float, Ints]:
    """Return the most valuable bin and how many items of each size [m] it holds.

    Bounded knapsack by dynamic programming over the capacity.
    """
    kinds = len(sizes)
    best = np.zeros(capacity + 1)
    counts = np.zeros((kinds, capacity + 1), dtype=np.int64)
    for kind in range(kinds):
        size = sizes[kind]
        value = values[kind]
        if value <= 0.0 or limits[kind] == 0:
            continue
        for room in range(capacity, size - 1, -1):
            most = min(limits[kind], room // size)
            top = best[room]
            for number in range(1, most + 1):
                trial = best[room - number * size] + number * value
                if trial > top:
                    top = trial
                    counts[kind, room] = number
            best[room] = top
    pattern = np.zeros(kinds, dtype=np.int64)
    room = capacity
    for kind in range(kinds - 1, -1, -1):
        pattern[kind] = counts[kind, room]
        room -= pattern[kind] * sizes[kind]
    return best[capacity], pattern


@compiled
def first_fit_decreasing(counts: Ints, sizes: Ints, capacity: int) -> Ints:
    """Return the patterns [bins, m] of first fit decreasing of one moment; sizes ascend."""
    kinds = len(sizes)
    total = counts.sum()
    patterns = np.zeros((total, kinds), dtype=np.int64)
    room = np.full(total, capacity, dtype=np.int64)
    bins = 0
    for kind in range(kinds - 1, -1, -1):
        one = 0
        for _ in range(counts[kind]):
            while room[one] < sizes[kind]:
                one += 1
            patterns[one, kind] += 1
            room[one] -= sizes[kind]
            bins = max(bins, one + 1)
    return patterns[:bins]
