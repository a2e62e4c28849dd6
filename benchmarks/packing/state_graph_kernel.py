"""All ways to fill one bin over time, as a graph whose paths are bins.

Items by start. Layer q decides on item q; a node is the set of chosen items that are still active,
as a mask of 128 bits whose positions are used again once an item has ended. Prices change, the
graph does not: it is built once and swept in both directions for each set of prices.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from data.base.compiled import compiled, copy_into, inner

Ints = npt.NDArray[np.int64]
Nodes = npt.NDArray[np.int32]
Masks = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]

POSITIONS = 128


@compiled
def bit_positions(first: Ints, last: Ints) -> Ints:
    """Return every item a position that no other active item has, or -1 beyond the 128th."""
    items = len(first)
    position = np.full(items, -1, dtype=np.int64)
    holder = np.full(POSITIONS, -1, dtype=np.int64)
    for item in range(items):
        for place in range(POSITIONS):
            if holder[place] < 0 or last[holder[place]] <= first[item]:
                holder[place] = item
                position[item] = place
                break
    return position


class Layer(NamedTuple):
    """Masks [nodes, 2] and loads of the nodes of a layer, found by a stamped hash table."""

    masks: Masks
    loads: Ints
    table: Ints
    stamps: Ints


class Step(NamedTuple):
    """What a step from one item to the next does to masks: bits set, kept and given back.

    `ending` are the items that end before the next one starts.
    """

    own: Masks
    kept: Masks
    ending: Ints


@inner
def _mask(position: Ints, members: Ints) -> Masks:
    """Return the two words with the bits of some items set."""
    mask = np.zeros(2, dtype=np.uint64)
    for item in members:
        mask[position[item] // 64] |= np.uint64(1) << np.uint64(position[item] % 64)
    return mask


@inner
def _step(first: Ints, last: Ints, position: Ints, item: int) -> Step:
    """Return the step that decides on an item."""
    following = first[item + 1] if item + 1 < len(first) else np.int64(1) << 62
    seen = np.flatnonzero(last[: item + 1] > first[item])
    return Step(
        _mask(position, np.array([item])),
        _mask(position, seen[last[seen] > following]),
        seen[last[seen] <= following],
    )


@inner
def _layer(nodes: int) -> Layer:
    """Return an empty layer with room for so many nodes."""
    size = 64
    while size < 4 * nodes:
        size *= 2
    return Layer(
        np.zeros((nodes, 2), dtype=np.uint64),
        np.zeros(nodes, dtype=np.int64),
        np.zeros(size, dtype=np.int64),
        np.full(size, -1, dtype=np.int64),
    )


@inner
def _node_of(layer: Layer, low: np.uint64, high: np.uint64, load: int, count: int) -> int:
    """Return the number of a mask among the layer's `count`, adding it as the last when new."""
    last_place = np.uint64(len(layer.table) - 1)
    mixed = (low ^ (high * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xBF58476D1CE4E5B9)
    place = np.int64((mixed ^ (mixed >> np.uint64(31))) & last_place)
    while layer.stamps[place] >= 0:
        known = layer.table[place]
        if layer.masks[known, 0] == low and layer.masks[known, 1] == high:
            return int(known)
        place = (place + 1) & np.int64(last_place)
    layer.stamps[place] = 1
    layer.table[place] = count
    layer.masks[count, 0] = low
    layer.masks[count, 1] = high
    layer.loads[count] = load
    return count


@inner
def _child(
    step: Step,
    sizes: Ints,
    position: Ints,
    low: np.uint64,
    high: np.uint64,
    load: int,
    following: Layer,
    count: int,
) -> int:
    """Return the node of the next layer that a mask becomes once the ending items have left."""
    for other in step.ending:
        word = low if position[other] < 64 else high
        if (word >> np.uint64(position[other] % 64)) & np.uint64(1):
            load -= sizes[other]
    return _node_of(following, low & step.kept[0], high & step.kept[1], load, count)


@inner
def _longer(values: Nodes, length: int) -> Nodes:
    """Return the array itself when it has the length, else a copy of twice the length."""
    if length <= len(values):
        return values
    grown = np.empty(2 * length, dtype=np.int32)
    copy_into(grown, values)
    return grown


@compiled
def build(
    first: Ints, last: Ints, sizes: Ints, position: Ints, capacity: int, most_nodes: int
) -> tuple[Ints, Nodes, Nodes]:
    """Return (layer [n + 2], skip [nodes], take [nodes]); take is -1 where the item does not fit.

    Nodes of layer q are layer[q] .. layer[q + 1]; the single node of layer n is the end. Empty
    arrays when there would be more than `most_nodes` nodes.
    """
    items = len(first)
    begins = np.zeros(items + 2, dtype=np.int64)
    skip = np.empty(1024, dtype=np.int32)
    take = np.empty(1024, dtype=np.int32)
    here = _layer(1)
    width = 1
    for item in range(items):
        begin = begins[item]
        end = begin + width
        begins[item + 1] = end
        if end + 2 * width > most_nodes:
            return begins[:0], skip[:0], take[:0]
        skip = _longer(skip, end)
        take = _longer(take, end)
        step = _step(first, last, position, item)
        following = _layer(2 * width)
        count = 0
        for node in range(width):
            low = here.masks[node, 0]
            high = here.masks[node, 1]
            load = here.loads[node]
            child = _child(step, sizes, position, low, high, load, following, count)
            count = max(count, child + 1)
            skip[begin + node] = end + child
            take[begin + node] = -1
            if load + sizes[item] <= capacity:
                low |= step.own[0]
                high |= step.own[1]
                load += sizes[item]
                child = _child(step, sizes, position, low, high, load, following, count)
                count = max(count, child + 1)
                take[begin + node] = end + child
        here = following
        width = count
    begins[items + 1] = begins[items] + 1
    return begins, skip[: begins[items]], take[: begins[items]]


@compiled
def sweep(
    layer: Ints,
    skip: Nodes,
    take: Nodes,
    prices: Floats,
    ahead: Floats,
    behind: Floats,
    came_from: Nodes,
) -> float:
    """Return the price of the most valuable bin; fill the best values and ways of every node.

    ahead [nodes + 1]: from the node to the end; behind [nodes + 1]: from the root to the node,
    which was entered from came_from, a node x as x + 1 when its item was taken, else as -(x + 1).
    """
    items = len(layer) - 2
    ahead[layer[items]] = 0.0
    for item in range(items - 1, -1, -1):
        for node in range(layer[item], layer[item + 1]):
            best = ahead[skip[node]]
            if take[node] >= 0:
                best = max(best, prices[item] + ahead[take[node]])
            ahead[node] = best
    behind[: layer[items] + 1] = -1.0
    behind[0] = 0.0
    came_from[0] = 0
    for item in range(items):
        for node in range(layer[item], layer[item + 1]):
            value = behind[node]
            child = skip[node]
            if value > behind[child]:
                behind[child] = value
                came_from[child] = -(node + 1)
            child = take[node]
            if child >= 0 and value + prices[item] > behind[child]:
                behind[child] = value + prices[item]
                came_from[child] = node + 1
    return float(ahead[0])


@compiled
def best_bins(
    layer: Ints,
    skip: Nodes,
    take: Nodes,
    prices: Floats,
    ahead: Floats,
    behind: Floats,
    came_from: Nodes,
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return for every item the price of the best bin with it, and that bin as a row [n, n]."""
    items = len(layer) - 2
    value = np.full(items, -1.0)
    chosen = np.zeros((items, items), dtype=np.bool_)
    for item in range(items):
        middle = -1
        for node in range(layer[item], layer[item + 1]):
            if take[node] >= 0:
                total = behind[node] + prices[item] + ahead[take[node]]
                if total > value[item]:
                    value[item] = total
                    middle = node
        node = middle
        for earlier in range(item - 1, -1, -1):
            way = came_from[node]
            chosen[item, earlier] = way > 0
            node = abs(way) - 1
        chosen[item, item] = True
        node = take[middle]
        for later in range(item + 1, items):
            taken = take[node] >= 0 and prices[later] + ahead[take[node]] > ahead[skip[node]]
            chosen[item, later] = taken
            node = take[node] if taken else skip[node]
    return value, chosen
