"""Nodes switched on per type and slot: what they cost, and what they are worth in the dual.

At least ceil(use / boards per node) nodes are on, at most ceil(capacity / boards per node). A node
that is off costs nothing; switching one on costs its fire-up. Cost is linear in nodes, so the best
numbers fall apart into layers: layer i is on or off in every slot by itself, and the layers are
nested. Fire-ups in temporal bin packing: Aydin, Muter and Birbil 2020.
"""

import numpy as np

from planner.solver.slot_problem import Fleet, Floats, Indices


def nodes_needed(fleet: Fleet, used: Floats) -> Indices:
    """Give ceil(use / boards per node) [H, G] for the boards in use [H, G]."""
    return np.ceil(used / fleet.boards_per_node - 1e-6).astype(np.int64)


def most_nodes(fleet: Fleet) -> Floats:
    """Give the nodes of every type and slot [H, G]."""
    return np.asarray(np.ceil(fleet.capacity.T / fleet.boards_per_node - 1e-6))


def reduced_node_cost(fleet: Fleet, fire_ups: Floats) -> Floats:
    """Give node cost [H, G] with prices [H, G] in [0, fire-up cost] on every fire-up."""
    following = np.vstack([fire_ups[1:], np.zeros((1, fire_ups.shape[1]))])
    return np.asarray(fleet.node_cost.T + fire_ups - following)


def node_bound(fleet: Fleet, worth: Floats) -> float:
    """Give the least sum of node cost - worth and fire-ups, worth [H, G] of one node in a slot.

    Exact: layers between two levels of (nodes on now, nodes there are) are alike, and one layer is
    a dynamic program over off and on.
    """
    most = most_nodes(fleet)
    total = 0.0
    for kind in range(len(fleet.gpu_types)):
        now = float(fleet.nodes_on[kind])
        levels = np.unique(np.concatenate([[0.0, now], most[:, kind]]))
        tops = levels[1:]
        gain = fleet.node_cost[kind] - worth[:, kind]
        fire_up = float(fleet.fire_up_cost[kind])
        off = np.zeros(len(tops))
        on = np.where(tops <= now, 0.0, np.inf)
        for slot in range(len(gain)):
            there = tops <= most[slot, kind]
            switched = np.minimum(on, off + fire_up) + gain[slot]
            off = np.minimum(off, on)
            on = np.where(there, switched, np.inf)
        total += float((np.diff(levels) * np.minimum(off, on)).sum())
    return total
