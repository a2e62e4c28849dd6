"""Hours of running nodes, and their cost."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from data.records.feasible_changes import nodes_apart
from planner.nodes.node_runs import Stretch, nodes_of_parts
from planner.problem.planning_problem import PlanningProblem
from planner.problem.slot_mapping import boot_per_board, node_cost_per_board
from planner.slots.slot_problem import SlotFleet

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
_MIN_RENT_SHARE = 0.01
"""A share of the dearest rent: what a board on a node in doubt costs at least."""


def switched(problem: PlanningProblem, load: Ints) -> Bools:
    """Return a mask of running nodes: in use, or in gaps too short or too cheap to switch them off.

    A node with work that no plan knows of is on.
    """
    on = load > 0
    shortest = problem.rules.nodes.min_off_minutes / problem.planning.slot_minutes
    spent = np.concatenate([[0.0], np.cumsum(node_cost_per_board(problem))])
    boot = boot_per_board(problem)
    for row in on:
        edges = np.flatnonzero(np.diff([True, *row, True]))
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            booted = end < len(row) and spent[end] - spent[start] <= boot
            if booted or end - start < min(shortest, len(row)):
                row[start:end] = True
    for row, node in zip(on, problem.facts.nodes, strict=True):
        row |= node.unsure
    return on


def node_cost(problem: PlanningProblem, on: Bools) -> float:
    """Return the cost of running nodes, and of switching them on again."""
    gpus = np.array([node.gpus for node in problem.facts.nodes], dtype=np.float64)
    if not len(gpus):
        return 0.0
    running = float(gpus @ on @ node_cost_per_board(problem))
    fired = (on[:, 1:] & ~on[:, :-1]).sum(axis=1)
    return running + float(gpus @ fired) * boot_per_board(problem)


def unsure_prices(problem: PlanningProblem) -> dict[int, Floats]:
    """Return the price of a board away from home in each slot [H], by number of a node in doubt.

    It is the cost of running and booting the largest node, so that no job moves there to let
    another node be off, plus a small share of rent for nodes that cost nothing. A pool whose open
    nodes are all in doubt offers no better choice and has no price.
    """
    nodes, pools = problem.facts.nodes, problem.pools.of_node.tolist()
    sure = {pool for node, pool in zip(nodes, pools, strict=True) if node.open and not node.unsure}
    doubtful = [n for n, node in enumerate(nodes) if node.unsure and pools[n] in sure]
    if not doubtful:
        return {}
    per_gpu = node_cost_per_board(problem) + boot_per_board(problem)
    rents = [
        model.price_per_hour for model in map(problem.catalogue.find, problem.gpu_models) if model
    ]
    trifle = _MIN_RENT_SHARE * problem.planning.slot_minutes / 60 * max(rents, default=1.0)
    return dict.fromkeys(doubtful, max(node.gpus for node in nodes) * per_gpu + trifle)


def unsure_cost(
    problem: PlanningProblem, runs: Sequence[Stretch], at: Mapping[int, Sequence[tuple[int, int]]]
) -> float:
    """Return the price of the boards away from home on nodes in doubt, of stretches by number."""
    prices, nodes, total = unsure_prices(problem), problem.facts.nodes, 0.0
    for number, where in at.items() if prices else ():
        run = runs[number]
        home = problem.facts.homes.get(problem.jobs[run.job].demand.job.job_id)
        boards = dict(home.boards) if home else {}
        for node, count in where:
            more = max(0, count - boards.get(nodes[node].name, 0))
            if more and node in prices:
                total += more * float(prices[node][run.start : run.end].sum())
    return total


def unplaced_cost(problem: PlanningProblem, lost: Sequence[Stretch]) -> float:
    """Return the node cost of jobs without a known place: whole nodes per pool, and boots."""
    slots, pools = len(problem.slot_starts), len(problem.pools.pools)
    boards = np.zeros((pools, slots))
    for stretch in lost:
        boards[stretch.pool, stretch.start : stretch.end] += stretch.gpus
    size = np.ones(pools)
    for node, pool in zip(problem.facts.nodes, problem.pools.of_node, strict=True):
        size[pool] = max(size[pool], node.gpus)
    nodes = np.ceil(boards / size[:, None]) * size[:, None]
    booted = float(np.maximum(np.diff(nodes, axis=1, prepend=0.0), 0.0).sum())
    running = float(nodes.sum(axis=0) @ node_cost_per_board(problem))
    return running + booted * boot_per_board(problem)


def spanning_cost(problem: PlanningProblem, fleet: SlotFleet) -> float:
    """Return the excess cost of nodes counted by pool over the needed ones.

    All boards of a job count in one pool, also those that it holds now, or may hold as equal parts,
    on nodes of others. For these a pool needs so many nodes less, each on from the first slot and
    booted once at most.
    """
    elsewhere = np.zeros(len(problem.pools.pools))
    at = {
        node.name: int(pool)
        for node, pool in zip(problem.facts.nodes, problem.pools.of_node, strict=True)
    }
    for column, (job, mine) in enumerate(zip(problem.jobs, problem.pools.of_job, strict=True)):
        home = problem.facts.homes.get(job.demand.job.job_id)
        boards = home.boards if home else ()
        most = np.zeros_like(elsewhere)
        most[mine] = sum(count for name, count in boards if at.get(name, mine) != mine)
        parted = nodes_apart(job.demand.job, job.options[0].configuration) > 1
        for number, option in enumerate(job.options if parted else ()):
            for pool in problem.pools.open_to(job.demand.job, option.configuration.gpu_model):
                names = nodes_of_parts(problem, column, number, pool) or ()
                if option.boards <= fleet.capacity[pool].max() and {at[n] for n in names} - {pool}:
                    most[pool] = max(most[pool], option.boards)
        elsewhere += most
    nodes = np.ceil(elsewhere / fleet.boards_per_node)
    return float(nodes @ (fleet.node_cost.sum(axis=1) + fleet.boot_cost))
