"""Annealing of the time that bins are busy, and the best way to split an item once.

Slots are the intervals between starts and ends; a bin is busy in a slot where it holds an item.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from data.base.compiled import compiled, inner
from planner.packing.random_kernel import RandomState, draw

Ints = npt.NDArray[np.int64]

_NEIGHBOUR_RATIO = 0.9
_TAIL_RATIO = 0.03


@inner
def draw_unit(state: RandomState) -> float:
    """Return a random number in [0, 1)."""
    return float(draw(state, 1 << 53)) / float(1 << 53)


class Pieces(NamedTuple):
    """Slots [first, last), sizes and neighbours [n, k] of items or parts; lengths of slots."""

    first: Ints
    last: Ints
    sizes: Ints
    neighbours: Ints
    lengths: Ints
    capacity: int


class Fleet(NamedTuple):
    """Load and number of items [bins, slots], members [bins, n], and every item's bin and place."""

    load: Ints
    held: Ints
    members: Ints
    counts: Ints
    place_of: Ints
    bin_of: Ints


@inner
def enter(pieces: Pieces, fleet: Fleet, item: int, one: int) -> None:
    """Put an item into a bin."""
    for slot in range(pieces.first[item], pieces.last[item]):
        fleet.load[one, slot] += pieces.sizes[item]
        fleet.held[one, slot] += 1
    fleet.bin_of[item] = one
    fleet.place_of[item] = fleet.counts[one]
    fleet.members[one, fleet.counts[one]] = item
    fleet.counts[one] += 1


@inner
def leave(pieces: Pieces, fleet: Fleet, item: int) -> None:
    """Take an item out of its bin."""
    one = fleet.bin_of[item]
    for slot in range(pieces.first[item], pieces.last[item]):
        fleet.load[one, slot] -= pieces.sizes[item]
        fleet.held[one, slot] -= 1
    fleet.counts[one] -= 1
    moved = fleet.members[one, fleet.counts[one]]
    fleet.members[one, fleet.place_of[item]] = moved
    fleet.place_of[moved] = fleet.place_of[item]
    fleet.bin_of[item] = -1


@inner
def filled(pieces: Pieces, bin_of: Ints, bins: int) -> Fleet:
    """Return the bins that hold the items as `bin_of` says, which they keep up to date."""
    slots = len(pieces.lengths)
    items = len(pieces.first)
    fleet = Fleet(
        np.zeros((bins, slots), dtype=np.int64),
        np.zeros((bins, slots), dtype=np.int64),
        np.empty((bins, items), dtype=np.int64),
        np.zeros(bins, dtype=np.int64),
        np.zeros(items, dtype=np.int64),
        bin_of,
    )
    for item in range(items):
        enter(pieces, fleet, item, bin_of[item])
    return fleet


@inner
def fits(pieces: Pieces, fleet: Fleet, item: int, one: int) -> bool:
    """Say whether a bin takes an item."""
    room = pieces.capacity - pieces.sizes[item]
    for slot in range(pieces.first[item], pieces.last[item]):
        if fleet.load[one, slot] > room:
            return False
    return True


@inner
def alone(pieces: Pieces, fleet: Fleet, item: int, one: int, others: int) -> int:
    """Return the time in the item's life when the bin holds exactly so many items."""
    total = 0
    for slot in range(pieces.first[item], pieces.last[item]):
        if fleet.held[one, slot] == others:
            total += pieces.lengths[slot]
    return total


@inner
def accepts(change: float, temperature: float, state: RandomState) -> bool:
    """Say whether the annealing takes a change of busy time (Metropolis)."""
    return change <= 0 or draw_unit(state) < np.exp(-change / temperature)


@inner
def _relocate(
    pieces: Pieces, fleet: Fleet, item: int, one: int, temperature: float, state: RandomState
) -> None:
    """Move an item into a bin that takes it, if the annealing does."""
    change = alone(pieces, fleet, item, one, 0) - alone(pieces, fleet, item, fleet.bin_of[item], 1)
    if accepts(change, temperature, state):
        leave(pieces, fleet, item)
        enter(pieces, fleet, item, one)


@inner
def _swap(
    pieces: Pieces, fleet: Fleet, item: int, other: int, temperature: float, state: RandomState
) -> None:
    """Exchange two items of different bins, if both fit and the annealing does."""
    home = fleet.bin_of[item]
    one = fleet.bin_of[other]
    change = -alone(pieces, fleet, item, home, 1)
    leave(pieces, fleet, item)
    change -= alone(pieces, fleet, other, one, 1)
    leave(pieces, fleet, other)
    possible = fits(pieces, fleet, item, one) and fits(pieces, fleet, other, home)
    if possible:
        change += alone(pieces, fleet, item, one, 0) + alone(pieces, fleet, other, home, 0)
        possible = accepts(change, temperature, state)
    enter(pieces, fleet, item, one if possible else home)
    enter(pieces, fleet, other, home if possible else one)


@inner
def _staying(pieces: Pieces, fleet: Fleet, one: int, cut: int, stays: Ints, row: int) -> int:
    """Fill load and number of the items that hold the cut and stay; give where the last ends."""
    end = cut
    for index in range(fleet.counts[one]):
        item = fleet.members[one, index]
        if pieces.first[item] < cut < pieces.last[item]:
            for slot in range(cut, pieces.last[item]):
                stays[row, slot] += pieces.sizes[item]
                stays[row + 1, slot] += 1
            end = max(end, pieces.last[item])
    return end


@inner
def _tail_change(
    pieces: Pieces, fleet: Fleet, one: int, two: int, cut: int, end: int, stays: Ints
) -> int:
    """Return the change of busy time when two bins exchange what starts at the cut or later.

    A change larger than any when it does not fit. Beyond `end` nothing stays, and what is there
    changes bins as a whole.
    """
    change = 0
    for slot in range(cut, end):
        to_one = fleet.load[two, slot] - stays[2, slot] + stays[0, slot]
        to_two = fleet.load[one, slot] - stays[0, slot] + stays[2, slot]
        if to_one > pieces.capacity or to_two > pieces.capacity:
            return 1 << 60
        busy_one = fleet.held[two, slot] - stays[3, slot] + stays[1, slot] > 0
        busy_two = fleet.held[one, slot] - stays[1, slot] + stays[3, slot] > 0
        change += pieces.lengths[slot] * (
            int(busy_one)
            + int(busy_two)
            - int(fleet.held[one, slot] > 0)
            - int(fleet.held[two, slot] > 0)
        )
    return change


@inner
def _exchange_tails(
    pieces: Pieces,
    fleet: Fleet,
    one: int,
    two: int,
    cut: int,
    stays: Ints,
    temperature: float,
    state: RandomState,
) -> None:
    """Exchange what two bins start at the cut or later, if it fits and the annealing does."""
    end = max(
        _staying(pieces, fleet, one, cut, stays, 0), _staying(pieces, fleet, two, cut, stays, 2)
    )
    change = _tail_change(pieces, fleet, one, two, cut, end, stays)
    stays[:, cut:end] = 0
    if end == cut or not accepts(change, temperature, state):
        return
    moved_one = np.array(
        [item for item in fleet.members[one, : fleet.counts[one]] if pieces.first[item] >= cut]
    )
    moved_two = np.array(
        [item for item in fleet.members[two, : fleet.counts[two]] if pieces.first[item] >= cut]
    )
    for item in moved_one:
        leave(pieces, fleet, item)
    for item in moved_two:
        leave(pieces, fleet, item)
    for item in moved_one:
        enter(pieces, fleet, item, two)
    for item in moved_two:
        enter(pieces, fleet, item, one)


@inner
def _partner(pieces: Pieces, fleet: Fleet, item: int, neighbour: int, one: int) -> int:
    """Return an item of the bin whose life overlaps: the neighbour, else any of eight members."""
    if neighbour >= 0:
        return neighbour
    for index in range(min(8, fleet.counts[one])):
        other = fleet.members[one, fleet.counts[one] - 1 - index]
        if pieces.first[other] < pieces.last[item] and pieces.first[item] < pieces.last[other]:
            return int(other)
    return -1


@compiled
def anneal(
    pieces: Pieces,
    bin_of: Ints,
    bins: int,
    proposals: int,
    hot: float,
    cold: float,
    state: RandomState,
) -> None:
    """Change `bin_of` in place by so many proposals, cooling geometrically from hot to cold.

    A proposal moves an item to the bin of one of its neighbours in time, or swaps the two, or
    exchanges all that two bins start from some moment on. Temperatures in units of time.
    """
    fleet = filled(pieces, bin_of, bins)
    stays = np.zeros((4, len(pieces.lengths)), dtype=np.int64)
    items = len(pieces.first)
    width = pieces.neighbours.shape[1]
    temperature = hot
    cooling = (cold / hot) ** (1.0 / max(1, proposals))
    for _ in range(proposals):
        temperature *= cooling
        item = draw(state, items)
        neighbour = -1
        if width > 0 and draw_unit(state) < _NEIGHBOUR_RATIO:
            neighbour = pieces.neighbours[item, draw(state, width)]
            one = fleet.bin_of[neighbour]
        else:
            one = draw(state, bins)
        home = fleet.bin_of[item]
        if one == home:
            continue
        if draw_unit(state) < _TAIL_RATIO:
            cut = pieces.first[item]
            _exchange_tails(pieces, fleet, home, one, cut, stays, temperature, state)
        elif fits(pieces, fleet, item, one):
            _relocate(pieces, fleet, item, one, temperature, state)
        else:
            other = _partner(pieces, fleet, item, neighbour, one)
            if other >= 0:
                _swap(pieces, fleet, item, other, temperature, state)


@compiled
def busy_length(pieces: Pieces, bin_of: Ints, bins: int) -> int:
    """Return the total time that bins hold anything."""
    fleet = filled(pieces, bin_of.copy(), bins)
    total = 0
    for number in range(bins):
        for slot in range(len(pieces.lengths)):
            if fleet.held[number, slot] > 0:
                total += pieces.lengths[slot]
    return total


@inner
def _best_cut(pieces: Pieces, fleet: Fleet, item: int, one: int, tail: bool) -> tuple[int, int]:
    """Return the saving and the cut when the head or the tail of an item moves into a bin."""
    home = fleet.bin_of[item]
    room = pieces.capacity - pieces.sizes[item]
    first = pieces.first[item]
    last = pieces.last[item]
    saving = 0
    best = 0
    cut = -1
    for step in range(last - first - 1):
        slot = last - 1 - step if tail else first + step
        if fleet.load[one, slot] > room:
            break
        saving += pieces.lengths[slot] * (
            int(fleet.held[home, slot] == 1) - int(fleet.held[one, slot] == 0)
        )
        if saving > best:
            best = saving
            cut = slot if tail else slot + 1
    return best, cut


@compiled
def best_splits(pieces: Pieces, bin_of: Ints, bins: int, splittable: Ints, most: int) -> Ints:
    """Return at most so many splits, one after the other the one that saves most busy time.

    Rows (item, cut slot, bin of the head, bin of the tail) of items that `splittable` marks; every
    split is found with the earlier ones done.
    """
    fleet = filled(pieces, bin_of.copy(), bins)
    splits = np.empty((most, 4), dtype=np.int64)
    free = splittable.copy()
    for number in range(most):
        top = 0
        for item in range(len(pieces.first)):
            if free[item] == 0:
                continue
            home = fleet.bin_of[item]
            for index in range(bins):
                if index == home:
                    continue
                for tail in (False, True):
                    saving, cut = _best_cut(pieces, fleet, item, index, tail)
                    if saving > top:
                        top = saving
                        splits[number, 0] = item
                        splits[number, 1] = cut
                        splits[number, 2] = home if tail else index
                        splits[number, 3] = index if tail else home
        if top == 0:
            return splits[:number]
        _move_part(pieces, fleet, splits[number])
        free[splits[number, 0]] = 0
    return splits


@inner
def _move_part(pieces: Pieces, fleet: Fleet, split: Ints) -> None:
    """Do a split in loads and numbers; the item stays a member of its bin."""
    item, cut, head, tail = split
    home = fleet.bin_of[item]
    one = tail if head == home else head
    low = cut if head == home else pieces.first[item]
    high = pieces.last[item] if head == home else cut
    for slot in range(low, high):
        fleet.load[home, slot] -= pieces.sizes[item]
        fleet.held[home, slot] -= 1
        fleet.load[one, slot] += pieces.sizes[item]
        fleet.held[one, slot] += 1
