"""Guided ejection search: empty one bin after the other.

The items of the emptied bin wait in a pool. One after the other enters a bin with room; where none
has, it ejects the set of items whose placing failed least often so far, and those wait in turn.
The idea is that of Nagata and Braysy (2009) for the number of vehicles in routing.
"""

import time
from dataclasses import dataclass

import numpy as np

from benchmarks.packing.fits import bins_of
from benchmarks.packing.temporal_instance import Ints, SlotGrid
from planner.packing.ejection_kernel import Items, place_pool
from planner.packing.random_kernel import RandomState, random_state

SETTINGS = ((4, 10), (3, 50), (2, 10))
"""(ejections, shakes) tried in turn: each closes instances that the other does not."""
_EMPTIED = 5
"""After a failure the bin with the next least load is tried, of so many."""
_ITEM_ITERATIONS = 100_000
_MIN_ITERATIONS = 20


@dataclass(slots=True, kw_only=True)
class BinReduction:
    """The search for packings of fewer bins than `bin_of`."""

    grid: SlotGrid
    sizes: Ints
    capacity: int
    bin_of: Ints
    state: RandomState
    rounds: int = 0
    failures: int = 0

    @property
    def bins(self) -> int:
        """The bins of the best packing so far."""
        return bins_of(self.bin_of)

    def run(self, iterations: int, *, deadline: float) -> bool:
        """Search one bin less for so many iterations; keep the packing and say whether found.

        Ends early, within a few milliseconds, when time.monotonic passes the deadline.
        """
        depth, shakes = SETTINGS[self.rounds % len(SETTINGS)]
        self.rounds += 1
        trial, bins = self._without_the_emptiest_bin()
        items = len(self.sizes)
        chunk = max(_MIN_ITERATIONS, _ITEM_ITERATIONS // items)
        tasks = Items(
            first=self.grid.first,
            last=self.grid.last,
            sizes=self.sizes[:, None],
            weights=np.ones_like(trial),
            allowed=np.ones((items, bins), dtype=np.bool_),
            apart=np.full(items, -1),
            slots=self.grid.slots,
        )
        room = np.full((bins, 1), self.capacity, dtype=np.int64)
        best, penalty = trial.copy(), np.ones_like(trial)
        while iterations > 0 and time.monotonic() < deadline:
            left = place_pool(
                tasks,
                room,
                trial,
                best,
                penalty,
                depth,
                shakes,
                min(chunk, iterations),
                self.state,
            )
            if left == 0:
                self.bin_of, self.failures = best, 0
                return True
            iterations -= chunk
        self.failures += 1
        return False

    def _without_the_emptiest_bin(self) -> tuple[Ints, int]:
        """Return the packing with a bin of little load x slots emptied, and the bins left."""
        area = np.bincount(self.bin_of, weights=self.sizes * (self.grid.last - self.grid.first))
        emptied = int(np.argsort(area, kind="stable")[self.failures % min(_EMPTIED, self.bins)])
        trial = self.bin_of.copy()
        trial[self.bin_of == emptied] = -1
        trial[self.bin_of > emptied] -= 1
        return trial, self.bins - 1


def bin_reduction(
    grid: SlotGrid, sizes: Ints, capacity: int, bin_of: Ints, *, seed: int
) -> BinReduction:
    """Return the search from a packing; the same seed gives the same packings."""
    return BinReduction(
        grid=grid, sizes=sizes, capacity=capacity, bin_of=bin_of, state=random_state(seed)
    )
