"""The bound of whole bins over time: set covering by column generation on the state graph.

min sum of x over all ways to fill a bin over time, every item covered. A path of the state graph
is a way to fill a bin, so one sweep finds the most valuable bin exactly, and the best bin through
every single item besides. A bound on some of the items is a bound on all.
"""

import math
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.packing.gilmore_gomory import Column, CoveringProgram
from benchmarks.packing.state_graph_kernel import best_bins, bit_positions, build, sweep
from benchmarks.packing.temporal_instance import Ints, TemporalInstance, clique_grid

Floats = npt.NDArray[np.float64]
_ROUNDING = 1e-6
_SMOOTHING = 0.5
_ROUNDS = 200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StateGraph:
    """The graph of an instance whose items were put in `order` (by start, longer first)."""

    order: Ints
    layer: Ints
    skip: npt.NDArray[np.int32]
    take: npt.NDArray[np.int32]
    ahead: Floats
    behind: Floats
    came_from: npt.NDArray[np.int32]

    def most_valuable(self, prices: Floats) -> float:
        """Return the price of the best bin; prices [n] in the graph's order."""
        return sweep(
            self.layer, self.skip, self.take, prices, self.ahead, self.behind, self.came_from
        )

    def bins(self, prices: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return the best bin through every item, after `most_valuable` of the same prices."""
        return best_bins(
            self.layer, self.skip, self.take, prices, self.ahead, self.behind, self.came_from
        )


def state_graph(instance: TemporalInstance, *, most_nodes: int) -> StateGraph | None:
    """Return the graph, or None when it is too large to be worth it."""
    grid = clique_grid(instance)
    order = np.lexsort((-grid.last, grid.first))
    first, last, sizes = grid.first[order], grid.last[order], instance.sizes[order]
    position = bit_positions(first, last)
    if (position < 0).any():
        return None
    layer, skip, take = build(first, last, sizes, position, instance.capacity, most_nodes)
    if not len(layer):
        return None
    nodes = len(skip) + 1
    return StateGraph(
        order=order,
        layer=layer,
        skip=skip,
        take=take,
        ahead=np.zeros(nodes),
        behind=np.zeros(nodes),
        came_from=np.zeros(nodes, dtype=np.int32),
    )


def _column(rows: Ints) -> Column:
    return rows, np.ones(len(rows)), 1.0


def covering_bound(
    graph: StateGraph, bin_of: Ints, *, floor: int, ceiling: int, deadline: float
) -> int:
    """Return a lower bound on bins: `floor` when the program cannot lift it.

    bin_of [n] is a packing of the graph's instance; its bins are the first columns. Stops as soon
    as the bound of Farley (1990) reaches `ceiling`. Prices are smoothed (Wentges, 1997).
    """
    items = len(graph.order)
    packed = bin_of[graph.order]
    rows = np.arange(items)
    program = CoveringProgram(np.ones(items))
    first = [rows[packed == entry] for entry in np.unique(packed)]
    program.add([_column(row) for row in [*first, *rows[:, None]]])
    known: set[bytes] = set()
    bound, best_value = floor, -math.inf
    centre: Floats | None = None
    for _ in range(_ROUNDS):
        value, prices = program.solve()
        if math.ceil(value - _ROUNDING) <= bound or time.monotonic() > deadline:
            break
        found: list[Column] = []
        smoothed = prices if centre is None else _SMOOTHING * centre + (1 - _SMOOTHING) * prices
        for trial in (smoothed, prices):
            worth = max(1.0, graph.most_valuable(trial))
            certified = float(trial.sum()) / worth
            if certified > best_value:
                best_value, centre = certified, trial / worth
            bound = max(bound, math.ceil(certified - _ROUNDING))
            found = _new_columns(graph, trial, prices, known)
            if found or bound >= ceiling:
                break
        if not found or bound >= ceiling:
            break
        program.add(found)
    return min(bound, ceiling)


def _new_columns(
    graph: StateGraph, trial: Floats, prices: Floats, known: set[bytes]
) -> list[Column]:
    """Return the bins found with the trial prices that the program's own prices welcome."""
    found = []
    for chosen in graph.bins(trial)[1]:
        key = chosen.tobytes()
        if key not in known and float(prices @ chosen) > 1.0 + _ROUNDING:
            known.add(key)
            found.append(_column(np.flatnonzero(chosen)))
    return found


def window(instance: TemporalInstance, moment: int, count: int) -> Ints:
    """Return the `count` items whose lives are nearest to a moment, in the instance's order."""
    distance = np.maximum(instance.starts - moment, moment - instance.ends + 1)
    nearest = np.argsort(np.maximum(distance, 0), kind="stable")[:count]
    return np.sort(nearest)
