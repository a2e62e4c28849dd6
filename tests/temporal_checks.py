"""What packings are held against: a checker that knows nothing of grids, and brute force."""

from collections import defaultdict

import numpy as np

from benchmarks.packing.temporal_instance import Ints, TemporalInstance


def overloads(instance: TemporalInstance, bin_of: Ints) -> list[tuple[int, int, int]]:
    """Every (bin, time unit, load) above the capacity, unit by unit."""
    load: dict[tuple[int, int], int] = defaultdict(int)
    for item in range(instance.items):
        for unit in range(int(instance.starts[item]), int(instance.ends[item])):
            load[int(bin_of[item]), unit] += int(instance.sizes[item])
    return [(entry, unit, held) for (entry, unit), held in load.items() if held > instance.capacity]


def busy_units(instance: TemporalInstance, bin_of: Ints) -> int:
    """The number of (bin, time unit) pairs with an item."""
    return len(
        {
            (int(bin_of[item]), unit)
            for item in range(instance.items)
            for unit in range(int(instance.starts[item]), int(instance.ends[item]))
        }
    )


def packings(instance: TemporalInstance) -> list[Ints]:
    """Return every way to put the items into unnamed bins in which no bin is over its capacity."""
    found: list[list[int]] = [[]]
    for _ in range(instance.items):
        found = [
            [*group, number] for group in found for number in range(max(group, default=-1) + 2)
        ]
    tried = [np.array(group, dtype=np.int64) for group in found]
    return [packing for packing in tried if not overloads(instance, packing)]
