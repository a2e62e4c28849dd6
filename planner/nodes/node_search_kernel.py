"""Ruin and recreate on nodes: units of some nodes and slots leave and come back cheaper.

Greedy on the exact cost of nodes and moves: a change is kept when neither that cost nor the one
with moves at `clearly` times their price rises. Paths of jobs stay what they are.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from data.base.compiled import compiled, inner
from planner.packing.random_kernel import RandomState, draw

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MAX_LEAVING, _FEW_LEAVING = 256, 32
_MAX_LOOKS = 64
"""Nodes of its pool that a unit is tried on, from a random one on."""
_SKIP_ONE_IN = 20
"""One node in so many is passed over."""
_SAME = 1e-9


class UnitArrays(NamedTuple):
    """Slots [start, end), pool, needs [U, 3], home (-1: none) and what leaving it costs [U]."""

    start: Ints
    end: Ints
    pool: Ints
    needs: Floats
    home: Ints
    move_cost: Floats


class NodeArrays(NamedTuple):
    """Room [N, 3], load [N, 3, H], pool (-1: takes nothing) and boards [N] of nodes."""

    room: Floats
    load: Floats
    pool: Ints
    boards: Floats


class NodePrices(NamedTuple):
    """Cost of a board's share of a node by slot [H] and of its boot; shortest time off in slots."""

    per_board: Floats
    boot: float
    min_off: float
    clearly: float


class SearchEffort(NamedTuple):
    """Rounds at most, and what they and emptying nodes look at: slots of nodes, and nodes."""

    emptied_cells: int
    rounds: int
    round_cells: int


@inner
def _cost_of(nodes: NodeArrays, prices: NodePrices, node: int, start: int, end: int) -> float:
    """Return the cost of a node if slots [start, end) are in use too (node_hours.node_cost)."""
    load = nodes.load[node, 0]
    cost, gap, off = 0.0, 0.0, 0
    for slot in range(len(load)):
        if load[slot] > 0 or start <= slot < end:
            if off:
                cost += gap if off < prices.min_off else min(gap, prices.boot)
            cost += prices.per_board[slot]
            gap, off = 0.0, 0
        else:
            gap += prices.per_board[slot]
            off += 1
    if off < min(prices.min_off, len(load)):
        cost += gap
    return float(cost * nodes.boards[node])


@inner
def _recost(nodes: NodeArrays, prices: NodePrices, cost: Floats, node: int) -> float:
    """Bring the cost of a node up to date; return the change."""
    before = cost[node]
    cost[node] = _cost_of(nodes, prices, node, 0, 0)
    return float(cost[node] - before)


@inner
def _fullness(units: UnitArrays, nodes: NodeArrays, unit: int, node: int) -> tuple[float, bool]:
    """Return the board-slots in use beside a unit, -1 without room, and if all slots are in use."""
    total, on = 0.0, True
    for slot in range(units.start[unit], units.end[unit]):
        for kind in range(3):
            needed = nodes.load[node, kind, slot] + units.needs[unit, kind]
            if needed > nodes.room[node, kind] + 1e-6:
                return -1.0, on
        total += nodes.load[node, 0, slot]
        on = on and nodes.load[node, 0, slot] > 0
    return total, on


@inner
def _cheapest(
    units: UnitArrays,
    nodes: NodeArrays,
    prices: NodePrices,
    cost: Floats,
    unit: int,
    max_looks: int,
    state: RandomState,
) -> int:
    """Return the node where a unit adds least, the fullest of several; -1 where none takes it."""
    best, least, fullest = -1, np.inf, -1.0
    count, looked = len(nodes.pool), 0
    offset = draw(state, count)
    for step in range(count):
        node = (offset + step) % count
        if nodes.pool[node] != units.pool[unit] or draw(state, _SKIP_ONE_IN) == 0:
            continue
        looked += 1
        if looked > max_looks:
            break
        full, on = _fullness(units, nodes, unit, node)
        if full < 0:
            continue
        added = 0.0
        if not on:
            added = _cost_of(nodes, prices, node, units.start[unit], units.end[unit]) - cost[node]
        if units.home[unit] >= 0 and units.home[unit] != node:
            added += prices.clearly * units.move_cost[unit]
        if added < least - _SAME or (added <= least + _SAME and full > fullest):
            best, least, fullest = node, added, full
    return best


@inner
def _put(units: UnitArrays, nodes: NodeArrays, at: Ints, unit: int, node: int) -> float:
    """Put a unit on a node, or on none (-1); return what that changes in moves."""
    change = 0.0
    for sign, place in ((-1.0, at[unit]), (1.0, node)):
        if place < 0:
            continue
        for kind in range(3):
            for slot in range(units.start[unit], units.end[unit]):
                nodes.load[place, kind, slot] += sign * units.needs[unit, kind]
        if units.home[unit] >= 0 and units.home[unit] != place:
            change += sign * units.move_cost[unit]
    at[unit] = node
    return change


@inner
def _choose(
    units: UnitArrays,
    at: Ints,
    where: tuple[int, int, int],
    span: tuple[int, int],
    leaving: Ints,
    state: RandomState,
) -> int:
    """Choose the units on up to three nodes in slots [start, end); return their number.

    They are in the order in which they come back: by boards, by boards times slots, or by chance.
    """
    order = draw(state, 3)
    keys = np.zeros(len(leaving))
    gone = 0
    for unit in range(len(at)):
        there = at[unit] == where[0] or at[unit] == where[1] or at[unit] == where[2]
        then = units.start[unit] < span[1] and units.end[unit] > span[0]
        if not there or not then or gone == len(leaving):
            continue
        key = draw(state, 1000) * 1e-3
        if order:
            key += units.needs[unit, 0] * (units.end[unit] - units.start[unit] if order > 1 else 1)
        place = gone
        while place and keys[place - 1] < key:
            keys[place], leaving[place] = keys[place - 1], leaving[place - 1]
            place -= 1
        keys[place], leaving[place] = key, unit
        gone += 1
    return gone


@inner
def _retry(
    units: UnitArrays,
    nodes: NodeArrays,
    prices: NodePrices,
    cost: Floats,
    at: Ints,
    leaving: Ints,
    max_looks: int,
    state: RandomState,
) -> None:
    """Place the leaving units anew; all go back where that is dearer, or one finds no room."""
    before, gone = at[leaving], len(leaving)
    change, moved = 0.0, 0.0
    for index in range(gone):
        moved += _put(units, nodes, at, leaving[index], -1)
    for index in range(gone):
        change += _recost(nodes, prices, cost, before[index])
    for index in range(gone):
        node = _cheapest(units, nodes, prices, cost, leaving[index], max_looks, state)
        if node < 0:
            change = np.inf
            break
        moved += _put(units, nodes, at, leaving[index], node)
        change += _recost(nodes, prices, cost, node)
    if change + max(prices.clearly * moved, moved) <= _SAME:
        return
    for index in range(gone):
        tried = at[leaving[index]]
        _put(units, nodes, at, leaving[index], before[index])
        if tried >= 0:
            _recost(nodes, prices, cost, tried)
    for index in range(gone):
        _recost(nodes, prices, cost, before[index])


@compiled
def search_nodes(
    units: UnitArrays,
    nodes: NodeArrays,
    prices: NodePrices,
    at: Ints,
    emptied: Ints,
    effort: SearchEffort,
    state: RandomState,
) -> None:
    """Improve the nodes `at` [U]: each of the `emptied` whole, then some in some slots."""
    count, slots = nodes.load.shape[0], nodes.load.shape[2]
    cost = np.array([_cost_of(nodes, prices, node, 0, 0) for node in range(count)])
    leaving = np.zeros(_MAX_LEAVING, dtype=np.int64)
    cells = 0
    for node in emptied:
        gone = _choose(units, at, (node, node, node), (0, slots), leaving, state)
        cells += gone * count
        if cells > effort.emptied_cells:
            break
        _retry(units, nodes, prices, cost, at, leaving[:gone], count, state)
    cells = 0
    for _ in range(effort.rounds):
        start = draw(state, slots)
        end = start + 1 + draw(state, slots - start)
        if draw(state, 4) == 0:
            start, end = 0, slots
        first = at[draw(state, len(at))]
        second = at[draw(state, len(at))] if draw(state, 3) else first
        third = at[draw(state, len(at))] if draw(state, 2) else second
        few = leaving[:_FEW_LEAVING]
        gone = _choose(units, at, (first, second, third), (start, end), few, state)
        cells += len(at) + gone * slots * min(count, _MAX_LOOKS)
        if cells > effort.round_cells:
            break
        _retry(units, nodes, prices, cost, at, leaving[:gone], _MAX_LOOKS, state)
