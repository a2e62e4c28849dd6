"""Grids of temporal packing that a plan has no use for."""

import numpy as np

from benchmarks.packing.temporal_instance import Ints, SlotGrid, TemporalInstance


def interval_grid(instance: TemporalInstance) -> SlotGrid:
    """Return the intervals between consecutive starts and ends: the grid of busy time."""
    points = np.unique(np.concatenate([instance.starts, instance.ends]))
    return SlotGrid(
        first=np.searchsorted(points, instance.starts),
        last=np.searchsorted(points, instance.ends),
        lengths=np.diff(points),
    )


def clique_counts(grid: SlotGrid, sizes: Ints) -> tuple[Ints, Ints]:
    """Return the distinct sizes [m], ascending, and how many of each are active [slots, m]."""
    distinct, kind = np.unique(sizes, return_inverse=True)
    change = np.zeros((grid.slots + 1, len(distinct)), dtype=np.int64)
    np.add.at(change, (grid.first, kind), 1)
    np.add.at(change, (grid.last, kind), -1)
    return distinct, np.cumsum(change, axis=0)[:-1]
