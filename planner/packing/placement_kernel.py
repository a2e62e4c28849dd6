"""Passes of node placement around the ejection search: home, first fit, and home again."""

import numpy as np
import numpy.typing as npt

from data.base.compiled import compiled
from planner.packing.ejection_kernel import Items, admits, enter, filled, first_excess, leave, swap

Ints = npt.NDArray[np.int64]


@compiled
def place_at_home(items: Items, room: Ints, bin_of: Ints, home: Ints, order: Ints) -> None:
    """Put every item on its home node (-1: none) where it fits, in the order given."""
    bins = filled(items, room, bin_of)
    for item in order:
        one = home[item]
        if (
            one >= 0
            and bin_of[item] < 0
            and admits(items, bins, item, one)
            and first_excess(items, bins, item, one, 0) < 0
        ):
            enter(items, bins, item, one)


@compiled
def place_first_fit(items: Items, room: Ints, bin_of: Ints, group: Ints, order: Ints) -> None:
    """Put every item that has no node on the node of its group's last item, or the first that fits.

    `group` [n] numbers the jobs.
    """
    bins = filled(items, room, bin_of)
    latest = np.full(group.max() + 1, -1, dtype=np.int64)
    for item in range(len(bin_of)):
        if bin_of[item] >= 0:
            latest[group[item]] = bin_of[item]
    for item in order:
        if bin_of[item] >= 0:
            continue
        preferred = latest[group[item]]
        best = -1
        for step in range(-1, len(room)):
            one = preferred if step < 0 else step
            if (
                one >= 0
                and admits(items, bins, item, one)
                and first_excess(items, bins, item, one, 0) < 0
            ):
                best = one
                break
        if best >= 0:
            enter(items, bins, item, best)
            latest[group[item]] = best


@compiled
def return_home(items: Items, room: Ints, bin_of: Ints, home: Ints) -> int:
    """Move items back to their homes, alone or by a swap that takes no other off its home.

    Give how many returned; a second call may return more.
    """
    bins = filled(items, room, bin_of)
    returned = 0
    for item in range(len(bin_of)):
        one = home[item]
        if one < 0 or bin_of[item] == one or not admits(items, bins, item, one):
            continue
        if bin_of[item] < 0:
            if first_excess(items, bins, item, one, 0) < 0:
                enter(items, bins, item, one)
                returned += 1
            continue
        if first_excess(items, bins, item, one, 0) < 0:
            leave(items, bins, item)
            enter(items, bins, item, one)
            returned += 1
            continue
        for index in range(bins.counts[one]):
            other = bins.members[one, index]
            if (
                home[other] != one
                and admits(items, bins, other, bin_of[item])
                and swap(items, bins, item, other)
            ):
                returned += 1
                break
    return returned
