"""Paths of the state graph priced by what the slots cost in which their bin is busy.

A step from item q to the next costs the slots of [start q, start q + 1) in which the items taken so
far still run; what runs longest is known per node, because a node is the set of running items.
Starts and ends are slots; `until` [slots + 1] is what the slots before each cost together.
"""

import numpy as np
import numpy.typing as npt

from benchmarks.packing.state_graph_kernel import Floats, Ints, Nodes
from data.base.compiled import compiled, inner


@compiled
def latest_ends(layer: Ints, skip: Nodes, take: Nodes, starts: Ints, ends: Ints) -> Ints:
    """Return for every node when the last of its running items ends, -1 where none runs."""
    items = len(starts)
    latest = np.full(layer[items] + 1, -1, dtype=np.int64)
    for item in range(items - 1):
        following = starts[item + 1]
        for node in range(layer[item], layer[item + 1]):
            end = latest[node]
            latest[skip[node]] = end if end > following else -1
            if take[node] >= 0:
                end = max(end, ends[item])
                latest[take[node]] = end if end > following else -1
    return latest


@inner
def _busy(until: Floats, starts: Ints, item: int, end: int) -> float:
    """Return the cost of an item's start to the next one's while something runs until `end`."""
    if item + 1 < len(starts):
        end = min(end, starts[item + 1])
    return float(until[max(end, starts[item])] - until[starts[item]])


@compiled
def sweep_busy(
    layer: Ints,
    skip: Nodes,
    take: Nodes,
    latest: Ints,
    starts: Ints,
    ends: Ints,
    until: Floats,
    prices: Floats,
    ahead: Floats,
    behind: Floats,
    came_from: Nodes,
) -> float:
    """Return the largest price minus cost of a path, and fill the best values and ways.

    ahead and behind [nodes + 1] and came_from as in `sweep` of the state graph, less costs.
    """
    items = len(layer) - 2
    ahead[layer[items]] = 0.0
    for item in range(items - 1, -1, -1):
        for node in range(layer[item], layer[item + 1]):
            best = ahead[skip[node]] - _busy(until, starts, item, latest[node])
            if take[node] >= 0:
                end = max(latest[node], ends[item])
                taken = prices[item] + ahead[take[node]] - _busy(until, starts, item, end)
                best = max(best, taken)
            ahead[node] = best
    behind[: layer[items] + 1] = -np.inf
    behind[0] = 0.0
    came_from[0] = 0
    for item in range(items):
        for node in range(layer[item], layer[item + 1]):
            value = behind[node] - _busy(until, starts, item, latest[node])
            child = skip[node]
            if value > behind[child]:
                behind[child] = value
                came_from[child] = -(node + 1)
            child = take[node]
            if child >= 0:
                end = max(latest[node], ends[item])
                value = behind[node] + prices[item] - _busy(until, starts, item, end)
                if value > behind[child]:
                    behind[child] = value
                    came_from[child] = node + 1
    return float(ahead[0])


@inner
def _onward(
    skip: Nodes,
    take: Nodes,
    latest: Ints,
    starts: Ints,
    ends: Ints,
    until: Floats,
    prices: Floats,
    ahead: Floats,
    node: int,
    begin: int,
    chosen: npt.NDArray[np.bool_],
) -> None:
    """Fill what the best way from a node of layer `begin` to the end takes."""
    for item in range(begin, len(starts)):
        taken = False
        if take[node] >= 0:
            end = max(latest[node], ends[item])
            gain = prices[item] + ahead[take[node]] - _busy(until, starts, item, end)
            taken = gain > ahead[skip[node]] - _busy(until, starts, item, latest[node])
        chosen[item] = taken
        node = take[node] if taken else skip[node]


@compiled
def best_path(
    skip: Nodes,
    take: Nodes,
    latest: Ints,
    starts: Ints,
    ends: Ints,
    until: Floats,
    prices: Floats,
    ahead: Floats,
) -> npt.NDArray[np.bool_]:
    """Return the items [n] of the path of the largest price minus cost."""
    chosen = np.zeros(len(starts), dtype=np.bool_)
    _onward(skip, take, latest, starts, ends, until, prices, ahead, 0, 0, chosen)
    return chosen


@compiled
def best_paths(
    layer: Ints,
    skip: Nodes,
    take: Nodes,
    latest: Ints,
    starts: Ints,
    ends: Ints,
    until: Floats,
    prices: Floats,
    ahead: Floats,
    behind: Floats,
    came_from: Nodes,
) -> npt.NDArray[np.bool_]:
    """Return for every item, as a row [n, n], the best path that takes it."""
    items = len(starts)
    chosen = np.zeros((items, items), dtype=np.bool_)
    for item in range(items):
        middle = -1
        best = -np.inf
        for node in range(layer[item], layer[item + 1]):
            if take[node] >= 0:
                end = max(latest[node], ends[item])
                total = (
                    behind[node]
                    + prices[item]
                    + ahead[take[node]]
                    - _busy(until, starts, item, end)
                )
                if total > best:
                    best = total
                    middle = node
        node = middle
        for earlier in range(item - 1, -1, -1):
            way = came_from[node]
            chosen[item, earlier] = way > 0
            node = abs(way) - 1
        chosen[item, item] = True
        _onward(
            skip,
            take,
            latest,
            starts,
            ends,
            until,
            prices,
            ahead,
            take[middle],
            item + 1,
            chosen[item],
        )
    return chosen
