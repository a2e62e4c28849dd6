"""The problem as a value, and the two ways in which its time line is cut into slots."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.base.errors import ImpossibleProblemError
from planner.packing.placement import clique_slots

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TemporalInstance:
    """Items [n] that hold `sizes` of one bin of `capacity` in [starts, ends); all integers.

    Raises ImpossibleProblemError, naming the item, when one cannot be placed in any bin.
    """

    capacity: int
    starts: Ints
    ends: Ints
    sizes: Ints

    def __post_init__(self) -> None:
        """Refuse items that no packing could hold."""
        if self.capacity < 1:
            raise ImpossibleProblemError(
                f"a bin has a capacity of {self.capacity}", "Give a capacity of at least 1"
            )
        if not self.starts.shape == self.ends.shape == self.sizes.shape == (self.items,):
            raise ImpossibleProblemError(
                f"starts, ends and sizes have shapes {self.starts.shape}, {self.ends.shape} and "
                f"{self.sizes.shape}",
                "Give one start, one end and one size per item",
            )
        for wrong, what, fix in (
            (self.ends <= self.starts, "ends no later than it starts", "An end is after its start"),
            (self.sizes < 1, "has no size", "Give a size of at least 1"),
            (
                self.sizes > self.capacity,
                f"is larger than the capacity of {self.capacity}",
                "Split the item or give larger bins",
            ),
        ):
            if wrong.any():
                item = int(np.flatnonzero(wrong)[0])
                raise ImpossibleProblemError(
                    f"item {item} of size {self.sizes[item]} in [{self.starts[item]}, "
                    f"{self.ends[item]}) {what}",
                    fix,
                )

    @property
    def items(self) -> int:
        """The number of items."""
        return len(self.sizes)


def instance_of(items: Sequence[tuple[int, int, int]], capacity: int) -> TemporalInstance:
    """Return the instance of (start, end, size) tuples."""
    table = np.array(items, dtype=np.int64).reshape(-1, 3)
    return TemporalInstance(
        capacity=capacity,
        starts=table[:, 0].copy(),
        ends=table[:, 1].copy(),
        sizes=table[:, 2].copy(),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SlotGrid:
    """Slots in time order; item i is active in slots [first[i], last[i]).

    lengths [slots] are durations, in the unit of the instance's times.
    """

    first: Ints
    last: Ints
    lengths: Ints

    @property
    def slots(self) -> int:
        """The number of slots."""
        return len(self.lengths)

    def active(self) -> Bools:
        """Return a mask of active items [slots, items]."""
        slot = np.arange(self.slots)[:, None]
        return np.asarray((self.first <= slot) & (slot < self.last))

    def load(self, sizes: Ints) -> Ints:
        """Return the total size of the active items per slot."""
        change = np.zeros(self.slots + 1, dtype=np.int64)
        np.add.at(change, self.first, sizes)
        np.add.at(change, self.last, -sizes)
        return np.asarray(np.cumsum(change)[:-1])


def clique_grid(instance: TemporalInstance) -> SlotGrid:
    """Return the maximal cliques of the items' interval graph: the grid of feasibility.

    Lengths are from one kept start to the next and mean nothing else.
    """
    first, last, edges = clique_slots(instance.starts, instance.ends)
    lengths = np.diff(edges, append=edges[-1:] + 1)
    return SlotGrid(first=first, last=last, lengths=lengths)
