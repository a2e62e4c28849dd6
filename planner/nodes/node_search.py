"""Nodes off for some or all of the slots: their units go where they cost least.

What up to three nodes hold in some slots is placed anew, at the exact cost of nodes, boots and
moves. A job moves only where its stretches begin: in the first slot or where its boards change.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from planner.fleet.fleet_nodes import FleetNode
from planner.fleet.host_room import room_of
from planner.nodes.node_runs import Places, Stretch, Unit
from planner.nodes.node_search_kernel import (
    NodeArrays,
    NodePrices,
    SearchEffort,
    UnitArrays,
    search_nodes,
)
from planner.packing.random_kernel import random_state
from planner.problem.planning_problem import PlanningProblem
from planner.problem.slot_mapping import boot_per_board, node_cost_per_board

_GAIN_FACTOR = 1.5
"""The node's cost has to be so many times that of the moves."""
_MAX_NODES = 1_000
"""Nodes tried whole."""
_ROUNDS_PER_UNIT, _MIN_ROUNDS = 20, 2_000
_MAX_CELLS, _CELLS_PER_UNIT = 30_000_000, 250_000
"""Nodes looked at for those tried whole, and slots of nodes looked at in rounds: as many at least,
and more where many units may move."""
_AWAY_PRICE = 1e-6
"""Price of a board and slot away from where a job is now, where its start elsewhere is free."""


def searched(
    problem: PlanningProblem,
    runs: Sequence[Stretch],
    units: Sequence[Unit],
    places: Places,
    *,
    seed: int,
) -> Places:
    """Return places of the units [U] whose nodes and moves cost no more.

    Units on several nodes, those that may not move and those on nodes that are left alone stay.
    """
    numbers = _movable_units(problem, runs, units, places)
    if not numbers:
        return places
    movable = [units[number] for number in numbers]
    at = np.array([places[number][0][0] for number in numbers])
    nodes = node_arrays(problem, units, places)
    prices = NodePrices(
        per_board=node_cost_per_board(problem),
        boot=boot_per_board(problem),
        min_off=problem.rules.nodes.min_off_minutes / problem.planning.slot_minutes,
        clearly=_GAIN_FACTOR,
    )
    arrays = _arrays(problem, runs, movable)
    emptied = np.argsort(nodes.load[:, 0].sum(axis=1), kind="stable")
    emptied = emptied[np.isin(emptied, at)][:_MAX_NODES]
    effort = SearchEffort(
        emptied_cells=_MAX_CELLS,
        rounds=max(_MIN_ROUNDS, _ROUNDS_PER_UNIT * len(movable)),
        round_cells=max(_MAX_CELLS, _CELLS_PER_UNIT * len(movable)),
    )
    search_nodes(arrays, nodes, prices, at, emptied, effort, random_state(seed))
    moved = zip(numbers, movable, at.tolist(), strict=True)
    return places | {number: ((node, unit.gpus),) for number, unit, node in moved}


def _movable_units(
    problem: PlanningProblem, runs: Sequence[Stretch], units: Sequence[Unit], places: Places
) -> list[int]:
    """Return the numbers of the units on one node that may be on another.

    A stretch that maintenance cut in two is left alone: one half moves with the other.
    """
    stays = {number for number, unit in enumerate(units) if len(unit.home) > 1 or not unit.may_move}
    for number, (unit, other) in enumerate(pairwise(units)):
        goes_on = unit.group == other.group and unit.end == other.start
        if goes_on and runs[unit.stretch].option == runs[other.stretch].option:
            stays |= {number, number + 1}
    alone = [_is_left_alone(node) for node in problem.facts.nodes]
    return [
        number
        for number, where in sorted(places.items())
        if len(where) == 1 and number not in stays and not alone[where[0][0]]
    ]


def _arrays(problem: PlanningProblem, runs: Sequence[Stretch], units: Sequence[Unit]) -> UnitArrays:
    names = {node.name: number for number, node in enumerate(problem.facts.nodes)}
    return UnitArrays(
        start=np.array([unit.start for unit in units]),
        end=np.array([unit.end for unit in units]),
        pool=np.array([unit.pool for unit in units]),
        needs=np.array([unit.needs(unit.gpus) for unit in units], dtype=np.float64),
        home=np.array([_home(runs, unit, names) for unit in units]),
        move_cost=np.array([_move_cost(problem, runs, unit) for unit in units]),
    )


def _home(runs: Sequence[Stretch], unit: Unit, names: Mapping[str, int]) -> int:
    """Return the node where a unit is now, of one that grows where its job is; -1 for none."""
    home = unit.home or (runs[unit.stretch].home if unit.stretch >= 0 else ())
    return names[home[0][0]] if home else -1


def _move_cost(problem: PlanningProblem, runs: Sequence[Stretch], unit: Unit) -> float:
    """Return the cost of a start away from home beyond the start that the plan has anyway."""
    paid = 0.0
    if unit.stretch >= 0 and (unit.start or runs[unit.stretch].option):
        paid = float(problem.enter_cost[runs[unit.stretch].option, runs[unit.stretch].job])
    return max(unit.move_cost - paid, _AWAY_PRICE * unit.gpus * (unit.end - unit.start))


def node_arrays(problem: PlanningProblem, units: Sequence[Unit], places: Places) -> NodeArrays:
    """Return the nodes with the load of placed units [N, 3, H]: boards, milli-CPUs and bytes."""
    nodes = problem.facts.nodes
    load = np.zeros((len(nodes), 3, len(problem.slot_starts)))
    for number, where in places.items():
        unit = units[number]
        for node, count in where:
            load[node, :, unit.start : unit.end] += np.array(unit.needs(count))[:, None]
    pools = zip(nodes, problem.pools.of_node.tolist(), strict=True)
    return NodeArrays(
        room=np.array([_room(node) for node in nodes]),
        load=load,
        pool=np.array([-1 if _is_left_alone(node) else pool for node, pool in pools]),
        boards=np.array([node.gpus for node in nodes], dtype=np.float64),
    )


def _room(node: FleetNode) -> tuple[float, float, float]:
    cpu, memory = room_of(node)
    return (
        float(node.usable),
        np.inf if cpu is None else float(cpu),
        np.inf if memory is None else float(memory),
    )


def _is_left_alone(node: FleetNode) -> bool:
    """Return whether a node is closed, away, not seen, or has work that is not explained."""
    return not node.open or bool(node.away) or node.unsure
