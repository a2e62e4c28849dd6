"""Fewest bin-hours: how long bins hold anything, with or without moving items once.

Busy time is what idle power and booked nodes cost (Flammini et al. 2010). Greedy by added busy
time in order of starts, then ruin and recreate under annealing, then annealing of single moves,
swaps and exchanges of tails; where some items may move once, the splits that save most, and
annealing of the parts.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.packing.busy_time_kernel import Pieces, anneal, best_splits, busy_length
from benchmarks.packing.fits import Order, Rule, bins_of, fit
from benchmarks.packing.grids import clique_counts, interval_grid
from benchmarks.packing.ruin_kernel import ruin_and_recreate
from benchmarks.packing.temporal_instance import Ints, SlotGrid, TemporalInstance
from planner.packing import run_bounds as bounds
from planner.packing.random_kernel import RandomState, random_state

_NEIGHBOURS = 40
_SPARE_BINS = 1
_RUIN_HEAT, _RUIN_COOLING = 90.0, 8.0
"""Hot is this over the number of items: more items cool as far in the same work from less heat."""
_COOLEST, _HOTTEST = 0.05, 0.5
_RUINED_BINS, _MAX_STRING = 8, 10
_HOT, _COLD = 0.01, 0.001
_SPLIT_ROUNDS = 6
_ROUNDS_A_CHUNK, _PROPOSALS_A_CHUNK = 250, 20_000
_PROPOSALS_A_ROUND = 8
_ROUNDS_AN_ITEM = 120
"""A descent has so many rounds per item: small instances gain more from another one."""
ROUNDS = 60_000
Step = Callable[[Ints, int, float, float], Ints]
"""Changes an assignment by so much work from one temperature to another; gives the best seen."""


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
    """Return the sum over time of ceil(load / capacity): what unlimited moves could not beat."""
    grid = interval_grid(instance)
    bins = -(-grid.load(instance.sizes) // instance.capacity)
    return int(bins @ grid.lengths)


def static_busy_time(instance: TemporalInstance) -> int:
    """Return the sum over time of the best dual feasible bound; holds with any number of moves."""
    grid = interval_grid(instance)
    sizes, counts = clique_counts(grid, instance.sizes)
    return int(bounds.dual_feasible_bound(counts, sizes, instance.capacity) @ grid.lengths)


def neighbours(grid: SlotGrid) -> Ints:
    """Return the items [n, k] whose lives begin or end nearest to each item's own.

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

    def ruin(self, rounds: int, *, cooled: bool = False) -> None:
        """Ruin and recreate, and keep the best; what is good already starts cooled."""

        def step(trial: Ints, count: int, hot: float, cold: float) -> Ints:
            best = trial.copy()
            ruin_and_recreate(
                self.pieces,
                trial,
                best,
                self.bins,
                count,
                hot,
                cold,
                _RUINED_BINS,
                _MAX_STRING,
                self.state,
            )
            return best

        hot = min(_HOTTEST, max(_COOLEST, _RUIN_HEAT / len(self.item)))
        if cooled:
            hot /= _RUIN_COOLING / 2
        self._cooled(step, rounds, _ROUNDS_A_CHUNK, hot, hot / _RUIN_COOLING)

    def anneal(self, proposals: int, hot: float, cold: float) -> None:
        """Anneal single moves, swaps and exchanges of tails, and keep the best."""

        def step(trial: Ints, count: int, hot: float, cold: float) -> Ints:
            anneal(self.pieces, trial, self.bins, count, hot, cold, self.state)
            return trial

        self._cooled(step, proposals, _PROPOSALS_A_CHUNK, hot, cold)

    def _cooled(self, step: Step, work: int, chunk: int, hot: float, cold: float) -> None:
        """Do the work in chunks that cool geometrically from hot to cold, in mean durations.

        Cools with the work done, and faster when the time left would not do for all of it.
        """
        begun = time.monotonic()
        allowed = self.deadline - begun
        trial, least = self.bin_of.copy(), self.busy_time
        done, share = 0, 0.0
        while done < work and share < 1.0 and allowed > 0:
            count = min(chunk, work - done)
            done += count
            late = (time.monotonic() - begun) / allowed
            ahead = min(1.0, max(done / work, late + max(0.0, late - share)))
            best = step(trial, count, *(self._heat(hot, cold, entry) for entry in (share, ahead)))
            share = ahead
            reached = busy_length(self.pieces, best, self.bins)
            if reached < least:
                self.bin_of, least = best.copy(), reached

    def _heat(self, hot: float, cold: float, share: float) -> float:
        """Return the temperature, in units of time, when so much of the work is done."""
        return float(self.mean_duration * hot * (cold / hot) ** share)

    def join(self) -> None:
        """Make parts of an item that share a bin one part again, so that others may be split."""
        order = np.lexsort((self.pieces.first, self.item))
        same = (self.item[order][1:] == self.item[order][:-1]) & (
            self.bin_of[order][1:] == self.bin_of[order][:-1]
        )
        earlier, later = order[:-1][same], order[1:][same]
        if not len(later):
            return
        last = self.pieces.last.copy()
        last[earlier] = last[later]
        kept = np.setdiff1d(np.arange(len(self.item)), later)
        self.item, self.bin_of = self.item[kept], self.bin_of[kept]
        grid = SlotGrid(first=self.pieces.first[kept], last=last[kept], lengths=self.pieces.lengths)
        self.pieces = _pieces(grid, self.pieces.sizes[kept], self.pieces.capacity)

    def split(self, most: int) -> None:
        """Split at most so many items that are still whole, those that save most first.

        Where fewer save anything, others are cut at random and stay in their bins for now: the
        search that follows may find a use for a part.
        """
        whole = (np.bincount(self.item)[self.item] == 1).astype(np.int64)
        splits = best_splits(self.pieces, self.bin_of, self.bins, whole, most)
        whole[splits[:, 0]] = 0
        whole[self.pieces.last - self.pieces.first < 2] = 0
        spare = np.flatnonzero(whole)
        count = min(most - len(splits), len(spare))
        if count:
            draws = np.random.default_rng(int(self.state[0]) + count)
            lives = (self.pieces.last - self.pieces.first)[spare].astype(np.float64)
            chosen = draws.choice(spare, count, replace=False, p=lives / lives.sum())
            cuts = draws.integers(self.pieces.first[chosen] + 1, self.pieces.last[chosen])
            home = self.bin_of[chosen]
            splits = np.concatenate([splits, np.stack([chosen, cuts, home, home], axis=1)])
        self._cut(splits)

    def _cut(self, splits: Ints) -> None:
        """Do splits (item, cut slot, bin of the head, bin of the tail)."""
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
    rounds: int = ROUNDS,
) -> BusyTime:
    """Return a packing with little busy time; at most `moved_share` of the items move, once each.

    `rounds` of ruin and recreate bound the work. The same seed gives the same answer as long as the
    budget is ample; a short one cools faster.
    """
    started = time.monotonic()
    grid = interval_grid(instance)
    greedy = [
        fit(instance, order, Rule.MIN_ADDED, grid=grid)
        for order in (Order.START_LONGEST, Order.START)
    ]
    pieces = _pieces(grid, instance.sizes, instance.capacity)
    bin_of = min(greedy, key=lambda name: busy_length(pieces, name, bins_of(name)))
    most_moved = int(moved_share * instance.items)
    work = _Annealing(
        pieces=pieces,
        item=np.arange(instance.items),
        bin_of=bin_of,
        bins=bins_of(bin_of) + _SPARE_BINS,
        mean_duration=float(np.mean(instance.ends - instance.starts)) if instance.items else 1.0,
        state=random_state(seed),
        deadline=started + budget_seconds * (0.6 if most_moved else 0.9),
    )
    if instance.items > 1:
        descents = max(1, rounds // (_ROUNDS_AN_ITEM * instance.items))
        for _ in range(descents):
            work.ruin(rounds // descents)
        work.deadline = started + budget_seconds * (0.7 if most_moved else 1.0)
        work.anneal(_PROPOSALS_A_ROUND * rounds, _HOT, _COLD)
        work.deadline = started + budget_seconds
        _split(work, most_moved, -(-rounds // _SPLIT_ROUNDS))
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


def _split(work: _Annealing, most: int, rounds: int) -> None:
    """Split items in rounds, each round a larger share of them, and search again after each."""
    for number in range(1, _SPLIT_ROUNDS + 1):
        left = -(-most * number // _SPLIT_ROUNDS) - _moved(work.item, work.bin_of)
        if left > 0 and time.monotonic() < work.deadline:
            work.split(left)
            work.ruin(rounds, cooled=True)
            work.anneal(_PROPOSALS_A_ROUND * rounds, _HOT, _COLD)
            work.join()


def _moved(item: Ints, bin_of: Ints) -> int:
    """Return how many items have parts in two bins."""
    order = np.argsort(item, kind="stable")
    same = item[order][1:] == item[order][:-1]
    return int((same & (bin_of[order][1:] != bin_of[order][:-1])).sum())
