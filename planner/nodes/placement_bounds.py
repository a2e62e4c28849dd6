"""Lower bounds on the nodes that a plan's GPUs need, whichever nodes take them.

Every moment is a plain bin packing problem of the parts that run then, with the largest node of
the pool as the bin: volume, Martello and Toth's L2, dual feasible functions
(`planner.packing.run_bounds`). They hold with any number of moves.
"""

import numpy as np
import numpy.typing as npt

from data.records.plans import PlanBound
from planner.nodes.node_plan import NodePlacement
from planner.packing.run_bounds import dual_feasible_bound, l2_bound, volume_bound
from planner.problem.planning_problem import PlanningProblem

Ints = npt.NDArray[np.int64]
PER_SLOT, L2, BY_FUNCTIONS = "per-slot load", "L2 on maximal cliques", "node placement"


def placement_bounds(problem: PlanningProblem, placed: NodePlacement) -> tuple[PlanBound, ...]:
    """Return the three bounds beside what the placement attains."""
    slots = len(problem.slot_starts)
    hours = problem.planning.slot_minutes / 60
    volume, l2, functions = (np.zeros(slots, dtype=np.int64) for _ in range(3))
    for pool in range(len(problem.pools.pools)):
        largest = max(
            (
                node.gpus
                for node, other in zip(problem.facts.nodes, problem.pools.of_node, strict=True)
                if other == pool
            ),
            default=0,
        )
        parts = [part for part in placed.parts if part[0] == pool]
        if not parts or not largest:
            continue
        counts, sizes = _active(parts, slots)
        volume += volume_bound(counts, sizes, largest)
        l2 += l2_bound(counts, sizes, largest)
        functions += dual_feasible_bound(counts, sizes, largest)
    used = (placed.load > 0).sum(axis=0)
    busy = float(used.sum()) * hours
    return (
        PlanBound(name=PER_SLOT, value=float(volume.sum()) * hours, attained=busy, unit="node-h"),
        PlanBound(
            name=L2,
            value=float(l2.max(initial=0)),
            attained=float(used.max(initial=0)),
            unit="nodes at once",
        ),
        PlanBound(
            name=BY_FUNCTIONS, value=float(functions.sum()) * hours, attained=busy, unit="node-h"
        ),
    )


def _active(parts: list[tuple[int, int, int, int]], slots: int) -> tuple[Ints, Ints]:
    """Return the number of active parts by size [slots, sizes], and the sizes, ascending."""
    table = np.array(parts, dtype=np.int64)
    sizes, kind = np.unique(table[:, 1], return_inverse=True)
    change = np.zeros((slots + 1, len(sizes)), dtype=np.int64)
    np.add.at(change, (table[:, 2], kind), 1)
    np.add.at(change, (table[:, 3], kind), -1)
    return np.cumsum(change, axis=0)[:-1], sizes
