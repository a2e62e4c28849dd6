"""Which nodes are on when, and what that costs."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from planner.nodes.node_runs import Stretch
from planner.problem.planning_problem import PlanningProblem
from planner.problem.slot_mapping import boot_per_board, node_cost_per_board

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def switched(problem: PlanningProblem, load: Ints) -> Bools:
    """Return which node is on: while it holds anything, and in gaps too short to switch it off.

    A node with work that no plan knows of is on.
    """
    on = load > 0
    shortest = problem.rules.nodes.min_off_minutes / problem.planning.slot_minutes
    for row in on:
        edges = np.flatnonzero(np.diff([True, *row, True]))
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            if end - start < min(shortest, len(row)):
                row[start:end] = True
    for row, node in zip(on, problem.facts.nodes, strict=True):
        row |= node.foreign or not node.seen
    return on


def node_cost(problem: PlanningProblem, on: Bools) -> float:
    """Return what nodes that are on cost, and switching them on again."""
    gpus = np.array([node.gpus for node in problem.facts.nodes], dtype=np.float64)
    if not len(gpus):
        return 0.0
    running = float(gpus @ on @ node_cost_per_board(problem))
    fired = (on[:, 1:] & ~on[:, :-1]).sum(axis=1)
    return running + float(gpus @ fired) * boot_per_board(problem)


def unplaced_cost(problem: PlanningProblem, lost: Sequence[Stretch]) -> float:
    """Return the share of nodes of jobs whose place is not known: whole nodes per pool and slot."""
    slots, pools = len(problem.slot_starts), len(problem.pools.pools)
    boards = np.zeros((pools, slots))
    for stretch in lost:
        boards[stretch.pool, stretch.start : stretch.end] += stretch.gpus
    size = np.ones(pools)
    for node, pool in zip(problem.facts.nodes, problem.pools.of_node, strict=True):
        size[pool] = max(size[pool], node.gpus)
    whole = np.ceil(boards / size[:, None]) * size[:, None]
    return float(whole.sum(axis=0) @ node_cost_per_board(problem))
