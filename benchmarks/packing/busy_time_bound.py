"""A lower bound on busy time without moves: covering by busy periods, by column generation.

min sum of length(p) x_p over all busy periods p of a bin; every item in one of them, and in every
slot as many as the best dual feasible bound says (no fraction of a bin helps there). Paths of the
state graph are bins, a bin falls into busy periods at its gaps, and a sweep prices all of them
exactly. Prices bound from below once no period holds more worth than its length; any prices become
such by scaling down (Dinkelbach 1967), so the bound holds wherever the work stops.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.packing.busy_time_bound_kernel import best_path, best_paths, latest_ends, sweep_busy
from benchmarks.packing.gilmore_gomory import Column, CoveringProgram
from benchmarks.packing.grids import clique_counts, interval_grid
from benchmarks.packing.state_graph_kernel import bit_positions, build
from benchmarks.packing.temporal_instance import Ints, TemporalInstance
from planner.packing import run_bounds as bounds

Floats = npt.NDArray[np.float64]
_TOLERANCE = 1e-6
_ROUNDS = 300
_SCALINGS = 30
_SMOOTHING = 0.5
MAX_NODES = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Prices:
    """Worth of items [n] in order of starts, and of a busy bin in every slot [slots]."""

    item: Floats
    slot: Floats

    def times(self, factor: float) -> "_Prices":
        """Return both times a factor."""
        return _Prices(item=self.item * factor, slot=self.slot * factor)

    def mixed(self, other: "_Prices", share: float) -> "_Prices":
        """Return so much of the other, the rest of this."""
        return _Prices(
            item=(1 - share) * self.item + share * other.item,
            slot=(1 - share) * self.slot + share * other.slot,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Paths:
    """The state graph of items in order of starts (slots), and room for its nodes' values."""

    starts: Ints
    ends: Ints
    lengths: Ints
    floor: Ints
    layer: Ints
    skip: npt.NDArray[np.int32]
    take: npt.NDArray[np.int32]
    latest: Ints
    ahead: Floats
    behind: Floats
    came_from: npt.NDArray[np.int32]

    def _until(self, prices: _Prices) -> Floats:
        return np.concatenate([[0.0], np.cumsum(self.lengths - prices.slot)])

    def profit(self, prices: _Prices) -> float:
        """Return the largest worth minus length of a bin."""
        return float(
            sweep_busy(
                self.layer,
                self.skip,
                self.take,
                self.latest,
                self.starts,
                self.ends,
                self._until(prices),
                prices.item,
                self.ahead,
                self.behind,
                self.came_from,
            )
        )

    def best(self, prices: _Prices) -> Ints:
        """Return the items of the best bin, after `profit` of the same prices."""
        chosen = best_path(
            self.skip,
            self.take,
            self.latest,
            self.starts,
            self.ends,
            self._until(prices),
            prices.item,
            self.ahead,
        )
        return np.flatnonzero(chosen)

    def through_every_item(self, prices: _Prices) -> list[Ints]:
        """Return the best bin with each item, after `profit` of the same prices."""
        rows = best_paths(
            self.layer,
            self.skip,
            self.take,
            self.latest,
            self.starts,
            self.ends,
            self._until(prices),
            prices.item,
            self.ahead,
            self.behind,
            self.came_from,
        )
        return [np.flatnonzero(row) for row in rows]

    def periods(self, items: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield the busy periods of a bin's items, in order of starts: items, and slots."""
        reached = np.maximum.accumulate(self.ends[items])
        cuts = np.flatnonzero(self.starts[items[1:]] >= reached[:-1]) + 1
        for part in np.split(items, cuts):
            yield part, np.arange(self.starts[part[0]], self.ends[part].max())

    def bound(self, prices: _Prices) -> float:
        """Return what prices are worth together, if no bin holds more than its length."""
        return float(prices.item.sum() + prices.slot @ self.floor)


def busy_time_bound(
    instance: TemporalInstance,
    bin_of: Ints,
    *,
    budget_seconds: float,
    most_nodes: int = MAX_NODES,
) -> int:
    """Return what no packing without moves can be busy less than; 0 when the graph is too large.

    bin_of [n] is any packing: its busy periods are the first columns. At convergence the bound is
    that of the covering program, rounded up.
    """
    deadline = time.monotonic() + budget_seconds
    order = np.lexsort((-instance.ends, instance.starts))
    paths = _paths(instance, order, most_nodes)
    if paths is None:
        return 0
    program = CoveringProgram(np.concatenate([np.ones(instance.items), paths.floor]))
    known: set[bytes] = set()
    packed = bin_of[order]
    bins = [np.flatnonzero(packed == entry) for entry in np.unique(packed)]
    alone = np.arange(instance.items)[:, None]
    program.add(list(_columns(paths, [*bins, *alone], known, None)))
    best = 0.0
    centre: _Prices | None = None
    for _ in range(_ROUNDS):
        value, duals = program.solve()
        prices = _Prices(item=duals[: instance.items], slot=duals[instance.items :])
        new: list[Column] = []
        for trial in (prices if centre is None else prices.mixed(centre, _SMOOTHING), prices):
            bound, scaled = _scaled(paths, trial)
            if bound > best:
                best, centre = bound, scaled
            paths.profit(trial)
            new = list(_columns(paths, paths.through_every_item(trial), known, prices))
            if new:
                break
        if not new or math.ceil(value - _TOLERANCE) <= best or time.monotonic() > deadline:
            break
        program.add(new)
    return math.ceil(best - _TOLERANCE)


def _paths(instance: TemporalInstance, order: Ints, most_nodes: int) -> _Paths | None:
    if not instance.items:
        return None
    grid = interval_grid(instance)
    first, last, sizes = grid.first[order], grid.last[order], instance.sizes[order]
    position = bit_positions(first, last)
    if (position < 0).any():
        return None
    layer, skip, take = build(first, last, sizes, position, instance.capacity, most_nodes)
    if not len(layer):
        return None
    kinds, counts = clique_counts(grid, instance.sizes)
    nodes = len(skip) + 1
    return _Paths(
        starts=first,
        ends=last,
        lengths=grid.lengths,
        floor=bounds.dual_feasible_bound(counts, kinds, instance.capacity),
        layer=layer,
        skip=skip,
        take=take,
        latest=latest_ends(layer, skip, take, first, last),
        ahead=np.zeros(nodes),
        behind=np.zeros(nodes),
        came_from=np.zeros(nodes, dtype=np.int32),
    )


def _columns(
    paths: _Paths, bins: list[Ints], known: set[bytes], prices: _Prices | None
) -> Iterator[Column]:
    """Yield the new busy periods of bins, where prices are given only those worth having."""
    for items in bins:
        for part, slots in paths.periods(items):
            key, length = part.tobytes(), float(paths.lengths[slots].sum())
            if key in known or (prices is not None and not _welcome(prices, part, slots, length)):
                continue
            known.add(key)
            rows = np.concatenate([part, len(paths.starts) + slots])
            yield rows, np.ones(len(rows)), length


def _welcome(prices: _Prices, part: Ints, slots: Ints, length: float) -> bool:
    return bool(prices.item[part].sum() + prices.slot[slots].sum() > length + _TOLERANCE)


def _scaled(paths: _Paths, prices: _Prices) -> tuple[float, _Prices]:
    """Return the bound of prices, scaled down until no bin holds more worth than its length."""
    scaled, profit = prices, paths.profit(prices)
    for _ in range(_SCALINGS):
        if profit <= _TOLERANCE:
            break
        items = paths.best(scaled)
        slots = np.concatenate([entry for _, entry in paths.periods(items)])
        worth = scaled.item[items].sum() + scaled.slot[slots].sum()
        scaled = scaled.times(float(paths.lengths[slots].sum() / worth))
        profit = paths.profit(scaled)
    # A period is a unit of time long at least, so what is left of profit scales away.
    return paths.bound(scaled) / (1 + max(0.0, profit)), scaled
