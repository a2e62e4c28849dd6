"""First fit, best fit and their kin: milliseconds, and the peers of every better packing.

Orders and rules as in the temporal bin packing literature (Aydin, Muter, Birbil 2020).
"""

from enum import Enum

import numpy as np

from benchmarks.packing import fits_kernel
from benchmarks.packing.grids import interval_grid
from benchmarks.packing.temporal_instance import Ints, SlotGrid, TemporalInstance, clique_grid


class Order(Enum):
    """In which order the items are placed; ties keep the order of the instance."""

    START = "by start, larger first"
    START_LONGEST = "by start, longer first"
    SIZE = "larger first, then by start"
    AREA = "larger size x duration first"


class Rule(Enum):
    """Which of the bins that can take an item gets it."""

    FIRST = fits_kernel.FIRST
    BEST = fits_kernel.BEST
    MIN_ADDED = fits_kernel.MIN_ADDED


BEST_OF_FIVE = (
    (Order.START, Rule.FIRST),
    (Order.START, Rule.BEST),
    (Order.SIZE, Rule.FIRST),
    (Order.SIZE, Rule.BEST),
    (Order.AREA, Rule.FIRST),
)


def order_of(instance: TemporalInstance, order: Order) -> Ints:
    """Return the items in the order in which they are placed."""
    durations = instance.ends - instance.starts
    keys = {
        Order.START: (-instance.sizes, instance.starts),
        Order.START_LONGEST: (-durations, instance.starts),
        Order.SIZE: (instance.starts, -instance.sizes),
        Order.AREA: (-instance.sizes * durations,),
    }
    return np.lexsort(keys[order])


def fit(
    instance: TemporalInstance,
    order: Order,
    rule: Rule,
    *,
    grid: SlotGrid | None = None,
    idle_weight: float = 1.0,
) -> Ints:
    """Return the bin of every item, numbered as opened. `grid` spares making the slots again."""
    if grid is None:
        timed = rule is Rule.MIN_ADDED
        grid = interval_grid(instance) if timed else clique_grid(instance)
    return fits_kernel.fit(
        grid.first,
        grid.last,
        instance.sizes,
        grid.lengths,
        order_of(instance, order),
        instance.capacity,
        rule.value,
        idle_weight,
    )


def bins_of(bin_of: Ints) -> int:
    """Return the number of bins of a packing numbered from 0."""
    return int(bin_of.max(initial=-1)) + 1


def best_fit_of_five(instance: TemporalInstance) -> Ints:
    """Return the packing with the fewest bins of five common heuristics, the earlier on ties."""
    grid = clique_grid(instance)
    packings = [fit(instance, order, rule, grid=grid) for order, rule in BEST_OF_FIVE]
    return min(packings, key=bins_of)
