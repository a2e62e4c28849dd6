"""Fewest bin-hours: how long bins hold anything, with or without moving items once.

Busy time is what idle power and booked nodes cost. Greedy by added busy time in order of starts,
then simulated annealing; where some items may move once, the splits that save most, and annealing
of the parts. Flammini et al. (2010) study the problem; the moves are our own.
"""

import time
from dataclasses import dataclass

import numpy as np

from planner.temporal import bounds
from planner.temporal.busy_time_kernel import Pieces, anneal, best_splits, busy_length
from planner.temporal.compile_kernel import RandomState, random_state
from planner.temporal.fits import Order, Rule, bins_of, fit
from planner.temporal.instance import Ints, SlotGrid, TemporalInstance, interval_grid

_NEIGHBOURS = 20
_SPARE_BINS = 1
_HOT, _COLD = 0.05, 0.002
_SPLIT_HOT, _SPLIT_COLD = 0.03, 0.005
_SPLIT_ROUNDS = 4
_CHUNK = 20_000
PROPOSALS = 3_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BusyTime:
    """Parts of items with their bins: part p is item[p] in [starts[p], ends[p]) in bin_of[p].

    An item has one part, or two when it moves. `busy_time` is in the unit of the instance's times;
    `static_bound` holds for any number of moves.
    """

    item: Ints
    starts: Ints
    ends: Ints
    bin_of: Ints
    busy_time: int
    static_bound: int
    moved_items: int
    seconds: float

    @property
    def over_static_ratio(self) -> float:
        """Busy time above the static bound, as a share of it."""
        return self.busy_time / self.static_bound - 1 if self.static_bound else 0.0


def volume_busy_time(instance: TemporalInstance) -> int:
    """Give the sum over time of ceil(load / capacity): what unlimited moves could not beat."""
    grid = interval_grid(instance)
    bins = -(-grid.load(instance.sizes) // instance.capacity)
    return int(bins @ grid.lengths)


def static_busy_time(instance: TemporalInstance) -> int:
    """Give the sum over time of the best dual feasible bound; holds with any number of moves."""
    grid = interval_grid(instance)
    sizes, counts = bounds.clique_counts(grid, instance.sizes)
    return int(bounds.dual_feasible_bound(counts, sizes, instance.capacity) @ grid.lengths)


def neighbours(grid: SlotGrid) -> Ints:
    """Give the items [n, k] whose lives begin or end nearest to each item's own.

    Nearness of i and j: min(|ds|, |de|) + (|ds| + |de|) / 10 + the gap between their lives.
    """
    points = np.concatenate([[0], np.cumsum(grid.lengths)])
    starts, ends = points[grid.first], points[grid.last]
    count = max(0, min(_NEIGHBOURS, len(starts) - 1))
    rows = []
    for item in range(len(starts)):
        apart_start = np.abs(starts - starts[item])
        apart_end = np.abs(ends - ends[item])
        gap = np.maximum(0, np.maximum(starts - ends[item], starts[item] - ends))
        distance = np.minimum(apart_start, apart_end) + 0.1 * (apart_start + apart_end) + gap
        distance[item] = np.inf
        if count > 0:
            rows.append(np.sort(np.argpartition(distance, count - 1)[:count]))
    return np.array(rows, dtype=np.int64).reshape(len(starts), count)


@dataclass(slots=True, kw_only=True)
class _Annealing:
    """Pieces, their item and bins, improved in rounds."""

    pieces: Pieces
    item: Ints
    bin_of: Ints
    bins: int
    mean_duration: float
    state: RandomState
    deadline: float

    @property
    def busy_time(self) -> int:
        """The time that bins hold anything."""
        return busy_length(self.pieces, self.bin_of, self.bins)

    def run(self, proposals: int, hot: float, cold: float) -> None:
        """Anneal, and keep the result when it is better.

        Cools with the work done, and faster when the time left would not do for all of it.
        """
        begun = time.monotonic()
        allowed = self.deadline - begun
        trial = self.bin_of.copy()
        before = self.busy_time
        done, share = 0, 0.0
        while done < proposals and share < 1.0 and allowed > 0:
            late = (time.monotonic() - begun) / allowed
            count = min(_CHUNK, proposals - done)
            done += count
            ahead = max(done / proposals, late + (late - share if late > share else 0.0))
            scale = self.mean_duration * hot
            anneal(
                self.pieces,
                trial,
                self.bins,
                count,
                scale * (cold / hot) ** min(1.0, share),
                scale * (cold / hot) ** min(1.0, ahead),
                self.state,
            )
            share = ahead
        if busy_length(self.pieces, trial, self.bins) < before:
            self.bin_of = trial

    def join(self) -> None:
        """Make parts of an item that share a bin one part again, so that others may be split."""
        order = np.lexsort((self.pieces.first, self.item))
        same = (self.item[order][1:] == self.item[order][:-1]) & (
            self.bin_of[order][1:] == self.bin_of[order][:-1]
        )
        earlier, later = order[:-1][same], order[1:][same]
        last = self.pieces.last.copy()
        last[earlier] = last[later]
        kept = np.setdiff1d(np.arange(len(self.item)), later)
        self.item, self.bin_of = self.item[kept], self.bin_of[kept]
        grid = SlotGrid(first=self.pieces.first[kept], last=last[kept], lengths=self.pieces.lengths)
        self.pieces = _pieces(grid, self.pieces.sizes[kept], self.pieces.capacity)

    def split(self, most: int) -> int:
        """Split at most so many items that are still whole; give how many were."""
        parts = np.bincount(self.item)[self.item]
        splits = best_splits(
            self.pieces, self.bin_of, self.bins, (parts == 1).astype(np.int64), most
        )
        if not len(splits):
            return 0
        chosen, cuts, heads, tails = splits.T
        last = self.pieces.last.copy()
        last[chosen] = cuts
        self.bin_of = np.concatenate([self.bin_of, tails])
        self.bin_of[chosen] = heads
        grid = SlotGrid(
            first=np.concatenate([self.pieces.first, cuts]),
            last=np.concatenate([last, self.pieces.last[chosen]]),
            lengths=self.pieces.lengths,
        )
        self.item = np.concatenate([self.item, self.item[chosen]])
        sizes = np.concatenate([self.pieces.sizes, self.pieces.sizes[chosen]])
        self.pieces = _pieces(grid, sizes, self.pieces.capacity)
        return len(splits)


def _pieces(grid: SlotGrid, sizes: Ints, capacity: int) -> Pieces:
    return Pieces(
        first=grid.first,
        last=grid.last,
        sizes=sizes,
        neighbours=neighbours(grid),
        lengths=grid.lengths,
        capacity=capacity,
    )


def minimise_busy_time(
    instance: TemporalInstance,
    *,
    budget_seconds: float,
    seed: int,
    moved_share: float = 0.0,
    proposals: int = PROPOSALS,
) -> BusyTime:
    """Give a packing with little busy time; at most `moved_share` of the items move, once each.

    The same seed gives the same answer as long as the budget is ample; a short one cools faster.
    """
    started = time.monotonic()
    grid = interval_grid(instance)
    greedy = [
        fit(instance, order, Rule.LEAST_ADDED, grid=grid)
        for order in (Order.START_LONGEST, Order.START)
    ]
    pieces = _pieces(grid, instance.sizes, instance.capacity)
    bin_of = min(greedy, key=lambda one: busy_length(pieces, one, bins_of(one)))
    most_moved = int(moved_share * instance.items)
    work = _Annealing(
        pieces=pieces,
        item=np.arange(instance.items),
        bin_of=bin_of,
        bins=bins_of(bin_of) + _SPARE_BINS,
        mean_duration=float(np.mean(instance.ends - instance.starts)) if instance.items else 1.0,
        state=random_state(seed),
        deadline=started + budget_seconds * (0.6 if most_moved else 1.0),
    )
    if instance.items > 1:
        work.run(proposals, _HOT, _COLD)
        work.deadline = started + budget_seconds
        _split(work, most_moved, proposals // 8)
    begin = instance.starts.min() if instance.items else 0
    points = np.concatenate([[0], np.cumsum(grid.lengths)]) + begin
    return BusyTime(
        item=work.item,
        starts=points[work.pieces.first],
        ends=points[work.pieces.last],
        bin_of=work.bin_of,
        busy_time=work.busy_time,
        static_bound=static_busy_time(instance),
        moved_items=_moved(work.item, work.bin_of),
        seconds=time.monotonic() - started,
    )


def _split(work: _Annealing, most: int, proposals: int) -> None:
    """Split items in rounds, each round a larger share of them, and anneal after each."""
    for number in range(1, _SPLIT_ROUNDS + 1):
        work.join()
        left = most * number // _SPLIT_ROUNDS - _moved(work.item, work.bin_of)
        if left > 0 and time.monotonic() < work.deadline:
            work.split(left)
            work.run(proposals, _SPLIT_HOT, _SPLIT_COLD)
    work.join()


def _moved(item: Ints, bin_of: Ints) -> int:
    """Give how many items have parts in two bins."""
    order = np.argsort(item, kind="stable")
    same = item[order][1:] == item[order][:-1]
    return int((same & (bin_of[order][1:] != bin_of[order][:-1])).sum())
