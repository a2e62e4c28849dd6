"""The front door: a packing with a certified lower bound, within a budget.

Bounds and searches take turns, cheapest first, until they meet or the work is done:
heuristics and L2; dual feasible functions; a short ejection search; the pattern program of single
moments; a longer search; the covering program over time on windows; the longest search.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from benchmarks.packing.column_generation import covering_bound, state_graph, window
from benchmarks.packing.ejection_search import BinReduction, bin_reduction
from benchmarks.packing.fits import best_fit_of_five, bins_of
from benchmarks.packing.grids import clique_counts
from benchmarks.packing.moment_bound import PatternBound, gilmore_gomory_bound
from benchmarks.packing.temporal_instance import Ints, SlotGrid, TemporalInstance, clique_grid
from planner.packing import run_bounds as bounds

_WINDOWS = (60, 100, 200, 500)
_WINDOW_MOMENTS = 3
_MAX_NODES = 3_000_000
_SHORT_SEARCH = (1_000, 2_000, 3_000)
_MIDDLE_SEARCH = (6_000, 6_000, 20_000)
_LONG_SEARCH = (20_000,) * 8


class Proof(Enum):
    """What proved the lower bound."""

    VOLUME = "load of one moment over the capacity"
    L2 = "Martello-Toth L2 of one moment"
    DUAL_FEASIBLE = "dual feasible function of one moment"
    PATTERNS = "Gilmore-Gomory program of one moment"
    COVERING = "covering program over time"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packing:
    """A bin for every item [n], numbered from 0, and what is known about fewer bins."""

    bin_of: Ints
    bins: int
    lower_bound: int
    proof: Proof
    seconds: float

    @property
    def is_optimal(self) -> bool:
        """Whether no packing has fewer bins."""
        return self.bins == self.lower_bound

    @property
    def gap_ratio(self) -> float:
        """(bins - lower bound) / bins: how far from optimal it can be at most."""
        return (self.bins - self.lower_bound) / self.bins if self.bins else 0.0


@dataclass(slots=True, kw_only=True)
class _Search:
    """What the stages work on."""

    instance: TemporalInstance
    grid: SlotGrid
    sizes: Ints
    counts: Ints
    reduction: BinReduction
    lower_bound: int
    proof: Proof
    deadline: float
    moments: PatternBound | None = None

    @property
    def open(self) -> bool:
        """Whether there is a gap and time."""
        return self.reduction.bins > self.lower_bound and time.monotonic() < self.deadline

    def lift(self, bound: int, proof: Proof) -> None:
        """Keep a bound that is better."""
        if bound > self.lower_bound:
            self.lower_bound, self.proof = bound, proof

    def search(self, rounds: tuple[int, ...]) -> None:
        """Search fewer bins in rounds of so many iterations; a success starts the rounds anew."""
        number = 0
        while self.open and number < len(rounds):
            found = self.reduction.run(rounds[number], deadline=self.deadline)
            number = 0 if found else number + 1

    def bound_moments(self) -> None:
        """Lift the bound by the pattern programs of single moments."""
        self.moments = gilmore_gomory_bound(
            self.counts,
            self.sizes,
            self.instance.capacity,
            floor=self.lower_bound,
            ceiling=self.reduction.bins,
            deadline=self.deadline,
        )
        self.lift(self.moments.bins, Proof.PATTERNS)

    def bound_windows(self) -> None:
        """Lift the bound by covering programs of the items around the hardest moments."""
        for kept in self._windows():
            if not self.open:
                return
            own = self.reduction.bin_of[kept]
            if len(np.unique(own)) <= self.lower_bound:
                continue
            graph = state_graph(subset(self.instance, kept), most_nodes=_MAX_NODES)
            if graph is None:
                continue
            bound = covering_bound(
                graph,
                own,
                floor=self.lower_bound,
                ceiling=self.reduction.bins,
                deadline=self.deadline,
            )
            self.lift(bound, Proof.COVERING)

    def _windows(self) -> Iterator[Ints]:
        """Yield sets of items, small ones first."""
        if self.moments is None:
            return
        hardest = np.argsort(-self.moments.values, kind="stable")
        starts = np.sort(self.instance.starts)
        for count in _WINDOWS:
            if count >= self.instance.items:
                yield np.arange(self.instance.items)
                return
            centres: list[int] = []
            for slot in hardest:
                active = (self.grid.first <= slot) & (slot < self.grid.last)
                moment = int(self.instance.starts[active].max())
                if all(abs(moment - centre) > (starts[-1] - starts[0]) / 20 for centre in centres):
                    centres.append(moment)
                    yield window(self.instance, moment, count)
                if len(centres) == _WINDOW_MOMENTS:
                    break


def subset(instance: TemporalInstance, kept: Ints) -> TemporalInstance:
    """Return the instance of some items only, in the given order."""
    return TemporalInstance(
        capacity=instance.capacity,
        starts=instance.starts[kept],
        ends=instance.ends[kept],
        sizes=instance.sizes[kept],
    )


def _scaled(instance: TemporalInstance) -> TemporalInstance:
    """Return the instance in units of the greatest common divisor of its sizes."""
    unit = math.gcd(*(int(size) for size in instance.sizes))
    return TemporalInstance(
        capacity=instance.capacity // unit,
        starts=instance.starts,
        ends=instance.ends,
        sizes=instance.sizes // unit,
    )


def pack(instance: TemporalInstance, *, budget_seconds: float, seed: int) -> Packing:
    """Return a packing of few bins, a lower bound, and what proved it.

    The work is bounded by counts, so that the same instance and seed give the same packing; a
    budget that is too short for them ends the work early, and the best so far is given. Even a
    budget of 0 gives a packing and a bound: those of the heuristics and of L2.
    """
    started = time.monotonic()
    if instance.items == 0:
        return Packing(
            bin_of=np.zeros(0, dtype=np.int64),
            bins=0,
            lower_bound=0,
            proof=Proof.VOLUME,
            seconds=0.0,
        )
    search = _started(_scaled(instance), seed=seed, deadline=started + budget_seconds)
    if search.open:
        found = bounds.dual_feasible_bound(search.counts, search.sizes, search.instance.capacity)
        search.lift(int(found.max()), Proof.DUAL_FEASIBLE)
    search.search(_SHORT_SEARCH)
    if search.open:
        search.bound_moments()
    search.search(_MIDDLE_SEARCH)
    search.bound_windows()
    search.search(_LONG_SEARCH)
    return Packing(
        bin_of=search.reduction.bin_of,
        bins=search.reduction.bins,
        lower_bound=search.lower_bound,
        proof=search.proof,
        seconds=time.monotonic() - started,
    )


def _started(instance: TemporalInstance, *, seed: int, deadline: float) -> _Search:
    """Return the state after the heuristics and the bounds that cost next to nothing."""
    grid = clique_grid(instance)
    sizes, counts = clique_counts(grid, instance.sizes)
    bin_of = best_fit_of_five(instance)
    search = _Search(
        instance=instance,
        grid=grid,
        sizes=sizes,
        counts=counts,
        reduction=bin_reduction(grid, instance.sizes, instance.capacity, bin_of, seed=seed),
        lower_bound=int(bounds.volume_bound(counts, sizes, instance.capacity).max()),
        proof=Proof.VOLUME,
        deadline=deadline,
    )
    if bins_of(bin_of) > search.lower_bound:
        search.lift(int(bounds.l2_bound(counts, sizes, instance.capacity).max()), Proof.L2)
    return search
