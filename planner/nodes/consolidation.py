"""Emptying nodes that hold little, where what the node costs pays clearly for the moves.

One node after the other, the cheapest to empty first: all that is on it goes to other nodes of the
pool that are in use anyway, the fullest that takes it, or nothing does.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from planner.nodes.node_runs import Places, Unit
from planner.problem.fleet import FleetNode

Floats = npt.NDArray[np.float64]

_CLEARLY = 1.5
"""The node's cost has to be so many times that of the moves."""
_MAX_NODES = 256
"""Nodes tried per pool: the work stays bounded by counts."""


def consolidated(
    nodes: Sequence[FleetNode],
    pool_of: Sequence[int],
    units: Sequence[Unit],
    places: Places,
    *,
    node_cost: Floats,
) -> Places:
    """Return the places with nodes emptied; `node_cost` [H] of a board's share of a node."""
    found = dict(places)
    slots = len(node_cost)
    load = np.zeros((len(nodes), 3, slots))
    on_node: dict[int, list[int]] = defaultdict(list)
    for number, at in found.items():
        for node, count in at:
            load[node, :, units[number].start : units[number].end] += _needs(units[number], count)
            on_node[node].append(number)
    room = np.array([_room(node) for node in nodes]).reshape(-1, 3)
    for pool in sorted(set(pool_of)):
        members = [n for n, own in enumerate(pool_of) if own == pool and not _blocked(nodes[n])]
        for node in _cheapest(members, nodes, units, on_node, load, node_cost)[:_MAX_NODES]:
            _empty(node, members, units, found, on_node, load, room)
    return found


def _needs(unit: Unit, count: int) -> Floats:
    share = count / unit.gpus
    return np.array([[count], [(unit.cpus or 0.0) * share], [(unit.memory_mib or 0.0) * share]])


def _room(node: FleetNode) -> tuple[float, float, float]:
    return (
        float(node.gpus),
        np.inf if node.cpus is None else float(node.cpus),
        np.inf if node.memory_mib is None else node.memory_mib,
    )


def _blocked(node: FleetNode) -> bool:
    """Say whether a node is left alone: closed, away, not seen, or with work not explained."""
    return not node.open or bool(node.away) or not node.seen or node.foreign


def _cheapest(
    members: Sequence[int],
    nodes: Sequence[FleetNode],
    units: Sequence[Unit],
    on_node: dict[int, list[int]],
    load: Floats,
    node_cost: Floats,
) -> list[int]:
    """Return the nodes that are worth emptying, the best ratio of cost to moves first."""
    worth = []
    for node in members:
        own = [units[number] for number in on_node[node]]
        if not own or not all(unit.may_move for unit in own):
            continue
        saved = nodes[node].gpus * float(node_cost[load[node, 0] > 0].sum())
        moves = sum(unit.move_cost for unit in own if unit.home and unit.start == 0)
        if saved > _CLEARLY * moves and saved > 0:
            worth.append((moves / saved, node))
    return [node for _ratio, node in sorted(worth)]


def _empty(
    node: int,
    members: Sequence[int],
    units: Sequence[Unit],
    found: Places,
    on_node: dict[int, list[int]],
    load: Floats,
    room: Floats,
) -> None:
    """Move everything off a node, or nothing."""
    own = list(on_node[node])
    if not own or any(len(found[number]) > 1 for number in own):
        return
    others = np.array([member for member in members if member != node], dtype=np.int64)
    done: list[tuple[int, int]] = []
    for number in sorted(own, key=lambda index: (-units[index].gpus, units[index].start, index)):
        unit = units[number]
        window = load[others, :, unit.start : unit.end]
        needs = _needs(unit, unit.gpus)
        fits = (window + needs <= room[others][:, :, None] + 1e-6).all(axis=(1, 2))
        fits &= (window[:, 0] > 0).all(axis=1)
        if not fits.any():
            for moved, target in done:
                _shift(units[moved], load, target, -1.0)
            return
        fullest = np.where(fits, window[:, 0].sum(axis=1), -1.0).argmax()
        target = int(others[fullest])
        _shift(unit, load, target, 1.0)
        done.append((number, target))
    for number, target in done:
        found[number] = ((target, units[number].gpus),)
        _shift(units[number], load, node, -1.0)
        on_node[target].append(number)
    on_node[node] = []


def _shift(unit: Unit, load: Floats, node: int, sign: float) -> None:
    load[node, :, unit.start : unit.end] += sign * _needs(unit, unit.gpus)
