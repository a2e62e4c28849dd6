"""Nodes switched on per type and slot: their cost, and their worth in the dual.

At least ceil(use / boards per node) nodes are on in a slot. A node may stay on, idle, through slots
in which its boards cannot be used: maintenance lowers the capacity and switches nothing off. So the
nodes that are on are limited by what the horizon ever has, not by the slot's capacity. A node that
is off costs nothing; switching one on costs a boot. Cost is linear in nodes, so the best numbers
fall apart into layers: layer i is on or off in every slot by itself, and the layers are nested.
Boots in temporal bin packing: Aydin, Muter and Birbil 2020.
"""

import numpy as np

from planner.slots.slot_problem import Floats, SlotFleet


def max_nodes(fleet: SlotFleet) -> Floats:
    """Return the number of nodes of every type that may be on at once [G].

    A cheapest plan never has more on than are on now or than some slot's boards need.
    """
    there = np.ceil(fleet.capacity.max(axis=1) / fleet.boards_per_node - 1e-6)
    return np.asarray(np.maximum(there, fleet.nodes_on))


def reduced_node_cost(fleet: SlotFleet, boots: Floats) -> Floats:
    """Return node cost [H, G] with prices [H, G] in [0, boot cost] on every boot."""
    following = np.vstack([boots[1:], np.zeros((1, boots.shape[1]))])
    return np.asarray(fleet.node_cost.T + boots - following)


def node_bound(fleet: SlotFleet, worth: Floats) -> float:
    """Return the least sum of node cost - worth and boots, worth [H, G] of one node in a slot.

    Exact: the layers that are on now are alike, so are the others, and one layer is a dynamic
    program over off and on.
    """
    total = 0.0
    for kind, most in enumerate(max_nodes(fleet)):
        now = float(fleet.nodes_on[kind])
        boot = float(fleet.boot_cost[kind])
        gain = fleet.node_cost[kind] - worth[:, kind]
        off, on = np.zeros(2), np.array([0.0, np.inf])
        for slot in range(len(gain)):
            off, on = np.minimum(off, on), np.minimum(on, off + boot) + gain[slot]
        total += float(np.array([now, most - now]) @ np.minimum(off, on))
    return total
