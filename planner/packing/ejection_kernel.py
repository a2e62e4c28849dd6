"""The inner loop of guided ejection search, for several resources and unlike bins.

The load of a bin is one row: slot k of resource r stands in column r * slots + k.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from data.base.compiled import compiled, copy_into
from planner.packing.random_kernel import RandomState, draw

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MAX_EJECTED = 4
_UNLIMITED = 1 << 60


class Items(NamedTuple):
    """Slots [first, last) and weights [n], sizes [n, resources], bins allowed [n, bins].

    Items of one number in `apart` [n] need a bin each (-1: with any other).
    """

    first: Ints
    last: Ints
    sizes: Ints
    weights: Ints
    allowed: Bools
    apart: Ints
    slots: int


class Bins(NamedTuple):
    """Room [bins, resources], loads, the members of every bin and every item's place there."""

    room: Ints
    load: Ints
    members: Ints
    counts: Ints
    place_of: Ints
    bin_of: Ints


class WaitingPool(NamedTuple):
    """Waiting items, the last in is the first out; `state` holds their number and weight."""

    waiting: Ints
    state: Ints


class Workspace(NamedTuple):
    """The arrays of the search for an ejection, allocated once."""

    gone: Bools
    stack: Ints
    cheapest: Ints
    best: Ints
    column: Ints
    place: Ints


@compiled
def first_excess(items: Items, bins: Bins, item: int, one: int, begin: int) -> int:
    """Return the first column from `begin` on where the item does not fit into a bin, or -1."""
    for resource in range(items.sizes.shape[1]):
        size = items.sizes[item, resource]
        if size == 0:
            continue
        limit = bins.room[one, resource] - size
        offset = resource * items.slots
        for column in range(max(begin, offset + items.first[item]), offset + items.last[item]):
            if bins.load[one, column] > limit:
                return column
    return -1


@compiled
def admits(items: Items, bins: Bins, item: int, one: int) -> bool:
    """Return whether an item may be in a bin: a bin that is allowed, without a part of its run."""
    if items.apart[item] >= 0:
        for index in range(bins.counts[one]):
            if items.apart[bins.members[one, index]] == items.apart[item]:
                return False
    return bool(items.allowed[item, one])


@compiled
def _shift(items: Items, bins: Bins, item: int, one: int, sign: int) -> None:
    """Add an item to the load of a bin (sign 1) or take it away (sign -1)."""
    for resource in range(items.sizes.shape[1]):
        size = items.sizes[item, resource]
        if size == 0:
            continue
        offset = resource * items.slots
        for column in range(offset + items.first[item], offset + items.last[item]):
            bins.load[one, column] += sign * size


@compiled
def enter(items: Items, bins: Bins, item: int, one: int) -> None:
    """Put an item into a bin."""
    _shift(items, bins, item, one, 1)
    bins.bin_of[item] = one
    bins.place_of[item] = bins.counts[one]
    bins.members[one, bins.counts[one]] = item
    bins.counts[one] += 1


@compiled
def leave(items: Items, bins: Bins, item: int) -> None:
    """Take an item out of its bin."""
    one = bins.bin_of[item]
    _shift(items, bins, item, one, -1)
    bins.counts[one] -= 1
    moved = bins.members[one, bins.counts[one]]
    bins.members[one, bins.place_of[item]] = moved
    bins.place_of[moved] = bins.place_of[item]
    bins.bin_of[item] = -1


@compiled
def _next_candidate(
    items: Items, bins: Bins, work: Workspace, penalty: Ints, one: int, level: int, budget: int
) -> int:
    """Return the next member of the bin that is in the way at this level's column, or -1.

    Members whose penalty reaches `budget` are passed over.
    """
    resource = work.column[level] // items.slots
    slot = work.column[level] - resource * items.slots
    while work.place[level] < bins.counts[one]:
        other = bins.members[one, work.place[level]]
        work.place[level] += 1
        if (
            items.first[other] <= slot < items.last[other]
            and items.sizes[other, resource] > 0
            and not work.gone[other]
            and penalty[other] < budget
        ):
            return int(other)
    return -1


@compiled
def _cheapest_ejection(
    items: Items,
    bins: Bins,
    work: Workspace,
    penalty: Ints,
    item: int,
    one: int,
    limit: int,
    depth: int,
) -> tuple[int, int]:
    """Return the penalty and the number of the cheapest set whose leaving lets the item in.

    Depth first over the sets of at most `depth` members: at the first column in excess, one of the
    members active there has to leave. Sets of penalty `limit` or more are cut; when none is left,
    (limit, 0). The set is written to work.cheapest; loads are as before on return.
    """
    number = 0
    cost = 0
    level = 0
    work.column[0] = first_excess(items, bins, item, one, 0)
    work.place[0] = 0
    while level >= 0:
        other = _next_candidate(items, bins, work, penalty, one, level, limit - cost)
        if other >= 0:
            work.stack[level] = other
            work.gone[other] = True
            cost += penalty[other]
            _shift(items, bins, other, one, -1)
            excess = first_excess(items, bins, item, one, work.column[level])
            if excess >= 0 and level + 1 < depth:
                level += 1
                work.column[level] = excess
                work.place[level] = 0
                continue
            if excess < 0:
                limit = cost
                number = level + 1
                copy_into(work.cheapest[:number], work.stack[:number])
        else:
            level -= 1
            if level < 0:
                break
            other = work.stack[level]
        work.gone[other] = False
        cost -= penalty[other]
        _shift(items, bins, other, one, 1)
    return limit, number


@compiled
def _eject(
    items: Items,
    bins: Bins,
    pool: WaitingPool,
    work: Workspace,
    penalty: Ints,
    item: int,
    depth: int,
    state: RandomState,
) -> int:
    """Empty the cheapest way for an item into the pool; return the bin that now takes it, or -1."""
    best = -1
    number = 0
    limit = _UNLIMITED
    count = len(bins.counts)
    offset = draw(state, count)
    for step in range(count):
        one = (offset + step) % count
        if not admits(items, bins, item, one):
            continue
        limit, size = _cheapest_ejection(items, bins, work, penalty, item, one, limit, depth)
        if size > 0:
            best = one
            number = size
            copy_into(work.best[:size], work.cheapest[:size])
    for index in range(number):
        leave(items, bins, work.best[index])
        _wait(items, pool, work.best[index])
    return best


@compiled
def _wait(items: Items, pool: WaitingPool, item: int) -> None:
    """Put an item on top of the pool."""
    pool.waiting[pool.state[0]] = item
    pool.state[0] += 1
    pool.state[1] += items.weights[item]


@compiled
def _wait_longest(items: Items, pool: WaitingPool, item: int) -> None:
    """Put an item at the bottom of the pool."""
    for index in range(pool.state[0], 0, -1):
        pool.waiting[index] = pool.waiting[index - 1]
    pool.waiting[0] = item
    pool.state[0] += 1
    pool.state[1] += items.weights[item]


@compiled
def _random_fitting_bin(items: Items, bins: Bins, item: int, state: RandomState) -> int:
    """Return one of the bins that take the item, each as likely as the other, or -1."""
    choice = -1
    fitting = 0
    for number in range(len(bins.counts)):
        if admits(items, bins, item, number) and first_excess(items, bins, item, number, 0) < 0:
            fitting += 1
            if fitting == 1 or draw(state, fitting) == 0:
                choice = number
    return choice


@compiled
def swap(items: Items, bins: Bins, item: int, other: int) -> bool:
    """Exchange two items of different bins if both fit; return whether they did."""
    home = bins.bin_of[item]
    one = bins.bin_of[other]
    leave(items, bins, item)
    leave(items, bins, other)
    fits = (
        first_excess(items, bins, item, one, 0) < 0
        and first_excess(items, bins, other, home, 0) < 0
    )
    enter(items, bins, item, one if fits else home)
    enter(items, bins, other, home if fits else one)
    return fits


@compiled
def _shake(items: Items, bins: Bins, tries: int, state: RandomState) -> None:
    """Move random items to random bins, or swap them with an item there, where both fit."""
    for _ in range(tries):
        item = draw(state, len(items.first))
        one = draw(state, len(bins.counts))
        home = bins.bin_of[item]
        if home < 0 or home == one or not admits(items, bins, item, one):
            continue
        if first_excess(items, bins, item, one, 0) < 0:
            leave(items, bins, item)
            enter(items, bins, item, one)
        elif bins.counts[one] > 0:
            other = bins.members[one, draw(state, bins.counts[one])]
            overlap = (
                items.first[other] < items.last[item] and items.first[item] < items.last[other]
            )
            if overlap and admits(items, bins, other, home):
                swap(items, bins, item, other)


@compiled
def filled(items: Items, room: Ints, bin_of: Ints) -> Bins:
    """Return the bins that hold the items as `bin_of` says, which they keep up to date."""
    count = len(items.first)
    bins = Bins(
        room,
        np.zeros((len(room), items.slots * room.shape[1]), dtype=np.int64),
        np.empty((len(room), count), dtype=np.int64),
        np.zeros(len(room), dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        bin_of,
    )
    for item in range(count):
        if bin_of[item] >= 0:
            enter(items, bins, item, bin_of[item])
    return bins


@compiled
def place_pool(
    items: Items,
    room: Ints,
    bin_of: Ints,
    best: Ints,
    penalty: Ints,
    depth: int,
    shakes: int,
    iterations: int,
    state: RandomState,
) -> int:
    """Return the weight left out of `best`, the packing with the least found so far.

    room [bins, resources]; bin_of, best, penalty [n]. The pool is every item with bin_of < 0.
    bin_of, best and the penalties change in place, so that a second call goes on where the first
    one stopped.
    """
    count = len(items.first)
    bins = filled(items, room, bin_of)
    pool = WaitingPool(np.empty(count, dtype=np.int64), np.zeros(2, dtype=np.int64))
    work = Workspace(
        np.zeros(count, dtype=np.bool_),
        np.empty(MAX_EJECTED, dtype=np.int64),
        np.empty(MAX_EJECTED, dtype=np.int64),
        np.empty(MAX_EJECTED, dtype=np.int64),
        np.empty(MAX_EJECTED, dtype=np.int64),
        np.empty(MAX_EJECTED, dtype=np.int64),
    )
    best_weight = 0
    for item in range(count):
        if bin_of[item] < 0:
            _wait(items, pool, item)
        if best[item] < 0:
            best_weight += items.weights[item]
    for _ in range(iterations):
        if pool.state[0] == 0:
            break
        pool.state[0] -= 1
        item = pool.waiting[pool.state[0]]
        pool.state[1] -= items.weights[item]
        one = _random_fitting_bin(items, bins, item, state)
        if one < 0:
            penalty[item] += 1
            one = _eject(items, bins, pool, work, penalty, item, depth, state)
        if one < 0:
            _wait_longest(items, pool, item)
        else:
            enter(items, bins, item, one)
        if pool.state[1] < best_weight:
            best_weight = pool.state[1]
            copy_into(best, bin_of)
        if pool.state[0] > 0:
            _shake(items, bins, shakes, state)
    return best_weight
