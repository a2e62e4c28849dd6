"""Ruin and recreate for busy time: empty some bins around a moment, and fill them anew.

Slack induction by string removals (Christiaens and Vanden Berghe, Transportation Science 2020)
carried over from routes to bins: strings are the items of a bin around a moment, and an item enters
where it adds least busy time, passing over a bin by chance now and then.
"""

import numpy as np

from benchmarks.packing.busy_time_kernel import (
    Fleet,
    Ints,
    Pieces,
    accepts,
    alone,
    draw_unit,
    enter,
    filled,
    fits,
    leave,
)
from data.base.compiled import compiled, copy_into, inner
from planner.packing.random_kernel import RandomState, draw

_BLINK = 0.02


@inner
def _ruin(
    pieces: Pieces,
    fleet: Fleet,
    removed: Ints,
    homes: Ints,
    bins: int,
    longest: int,
    state: RandomState,
) -> tuple[int, int]:
    """Take strings of items out of some bins around a random one; give (their number, change)."""
    seed = draw(state, len(pieces.first))
    width = pieces.neighbours.shape[1]
    count = 0
    change = 0
    for number in range(bins):
        item = seed if number == 0 else pieces.neighbours[seed, draw(state, width)]
        one = fleet.bin_of[item]
        if one < 0:
            continue
        left = 1 + draw(state, longest)
        moment = pieces.first[item]
        begin = draw(state, fleet.counts[one])
        index = 0
        while index < fleet.counts[one] and left > 0:
            other = fleet.members[one, (begin + index) % fleet.counts[one]]
            near = pieces.first[other] < pieces.last[item] and moment < pieces.last[other]
            if not near:
                index += 1
                continue
            change -= alone(pieces, fleet, other, one, 1)
            removed[count] = other
            homes[count] = one
            count += 1
            left -= 1
            leave(pieces, fleet, other)
    return count, change


@inner
def _waste(pieces: Pieces, fleet: Fleet, item: int, one: int) -> int:
    """Return the capacity x time that stays unused in a bin during an item's life."""
    room = pieces.capacity - pieces.sizes[item]
    total = 0
    for slot in range(pieces.first[item], pieces.last[item]):
        total += (room - fleet.load[one, slot]) * pieces.lengths[slot]
    return total


@inner
def _best_bin(
    pieces: Pieces, fleet: Fleet, item: int, idle: float, state: RandomState
) -> tuple[int, int]:
    """Return the bin where an item adds least busy time plus `idle` times waste, and the time."""
    chosen = -1
    chosen_added = 0
    least = np.inf
    for number in range(len(fleet.counts)):
        if draw_unit(state) < _BLINK or not fits(pieces, fleet, item, number):
            continue
        added = alone(pieces, fleet, item, number, 0)
        if added >= least:
            continue
        value = added + idle * _waste(pieces, fleet, item, number) / pieces.capacity
        if value < least:
            least = value
            chosen = number
            chosen_added = added
    return chosen, chosen_added


@inner
def _recreate(pieces: Pieces, fleet: Fleet, order: Ints, idle: float, state: RandomState) -> int:
    """Put items back in the order given; give the change, or 1 << 60 when one found no bin."""
    change = 0
    for item in order:
        one, added = _best_bin(pieces, fleet, item, idle, state)
        if one < 0:
            return 1 << 60
        enter(pieces, fleet, item, one)
        change += added
    return change


@inner
def _order(pieces: Pieces, removed: Ints, state: RandomState) -> Ints:
    """Return the items by start, by length or by size, the longer and larger first."""
    kind = draw(state, 8)
    keys = pieces.first[removed]
    if kind == 0:
        keys = -pieces.sizes[removed]
    elif kind <= 2:
        keys = keys - pieces.last[removed]
    return removed[np.argsort(keys)]


@compiled
def ruin_and_recreate(
    pieces: Pieces,
    bin_of: Ints,
    best: Ints,
    bins: int,
    rounds: int,
    hot: float,
    cold: float,
    most: int,
    longest: int,
    state: RandomState,
) -> int:
    """Return the change from `bin_of` as it was to `best`, at most 0; both change in place.

    `best` [n] becomes the best assignment seen; temperatures as in `anneal`.
    """
    fleet = filled(pieces, bin_of, bins)
    items = len(pieces.first)
    removed = np.empty(items, dtype=np.int64)
    homes = np.empty(items, dtype=np.int64)
    temperature = hot
    cooling = (cold / hot) ** (1.0 / max(1, rounds))
    total = 0
    least = 0
    for _ in range(rounds):
        temperature *= cooling
        number = 2 + draw(state, most)
        count, change = _ruin(pieces, fleet, removed, homes, number, longest, state)
        idle = draw_unit(state)
        order = _order(pieces, removed[:count], state)
        change += _recreate(pieces, fleet, order, idle, state)
        if change < 1 << 40 and accepts(float(change), temperature, state):
            total += change
            if total < least:
                least = total
                copy_into(best, bin_of)
            continue
        for index in range(count):
            if fleet.bin_of[removed[index]] >= 0:
                leave(pieces, fleet, removed[index])
        for index in range(count):
            enter(pieces, fleet, removed[index], homes[index])
    return least
