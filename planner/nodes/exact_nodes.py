"""Small plans on nodes, exactly: the states of jobs, and a spot for each on nodes by name.

A spot is a node, or for a job larger than a node or on several now as many as it needs. Where a
job keeps its boards and leaves a node for another, it pays a move. Nodes are on while something is
there. Slices count as parts of boards, and a node may be off for any time: both only lower the
bound.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from data.facts.jobs import Platform
from data.records.feasible_changes import whole_fact
from planner.fleet.host_room import kept_boards, room_of
from planner.nodes.node_hours import node_cost, switched
from planner.nodes.node_plan import NodePlacement, place_plan, placement_of
from planner.nodes.node_runs import Stretch, pool_of_name, stretch_of, stretches
from planner.packing.placement import sizes_of
from planner.problem.planning_problem import PlanningProblem
from planner.problem.slot_mapping import (
    SlotMapping,
    boot_per_board,
    move_cost,
    node_cost_per_board,
)
from planner.slots.coupling_rows import coupling_rows
from planner.slots.exact_program import Program
from planner.slots.slot_problem import Floats, Indices, Path, SlotProblem, pinned_cost
from planner.solver.exact import JobColumns, job_columns, limit_rows, paths_of, states

Spot = tuple[tuple[int, int], ...]
"""Nodes by number, with GPUs on each."""
_MOST_PLACES = 4_096
"""Nodes of the parts of one job in all combinations: a job that has more is not placed exactly."""
_MOST_STATES = 2_000
"""Jobs in slots, options and spots up to which the exact program pays."""
_HALF = 0.5
_SLACK, _ALIKE = 1e-5, 1e-6
"""Share of the cost by which the program may miss the plan that it starts from, and what two
placements of one cost differ by."""


class Request(NamedTuple):
    """One job on so many boards of a pool: rows of its options, price of a move, and spots."""

    job: int
    stretch: Stretch
    boards: float
    rows: Indices
    price: float
    spots: tuple[Spot, ...]


Placed = tuple[Request, Indices]
"""A request with its columns [H, spots]."""


def exact_nodes(
    problem: PlanningProblem,
    mapping: SlotMapping,
    slots: SlotProblem,
    asked: Sequence[Request],
    *,
    below: float,
    seconds: float,
) -> tuple[Path, NodePlacement, float] | None:
    """Return the paths of the cheapest plan up to a cost, their nodes, and a bound of every plan.

    None where none was seen. `slots` is the problem in counts, with the slots that are frozen.
    """
    cost = pinned_cost(slots.jobs)
    program = Program()
    jobs = [job_columns(program, slots, cost, job) for job in range(slots.size)]
    rows = coupling_rows(slots)
    limit_rows(program, slots, rows, jobs, range(rows.types, len(rows.names)))
    placed = [(entry, _placed(program, problem, jobs[entry.job], entry)) for entry in asked]
    _node_rows(program, problem, placed)
    answer = program.solved(below=below + _SLACK * max(1.0, abs(below)), seconds=seconds)
    if answer.values is None:
        return None
    paths = paths_of(jobs, answer.values)
    return paths, _placement(problem, mapping, paths, placed, answer.values), answer.bound


def requests_of(problem: PlanningProblem, mapping: SlotMapping) -> list[Request] | None:
    """Return what jobs may ask of nodes; None where a home is not known or there is too much."""
    cost = pinned_cost(mapping.slots.jobs)
    grid, pool_of = mapping.slots.grid, pool_of_name(problem)
    requests, count = [], states(cost)
    for job, entry in enumerate(problem.jobs):
        home = problem.facts.homes.get(entry.demand.job.job_id)
        pools = {pool_of.get(name, -1) for name, _count in home.boards} if home else set()
        if pools != {int(problem.pools.of_job[job])} or entry.demand.share is not None:
            return None
        allowed = np.flatnonzero(np.isfinite(cost[job]).any(axis=0) & (grid.boards > 0))
        keys = sorted({(int(grid.gpu_type[row]), float(grid.boards[row])) for row in allowed})
        for pool, boards in keys:
            of_key = (grid.gpu_type[allowed] == pool) & (grid.boards[allowed] == boards)
            rows = allowed[of_key]
            offers = mapping.option_of[job, rows].tolist()
            where = (pool, int(rows[0]), 0, cost.shape[1])
            stretch = stretch_of(problem, pool_of, job, offers[0], where)
            price = min(move_cost(problem, entry, option) for option in offers)
            spots = _spots(problem, stretch)
            count += 0 if spots is None else len(spots) * cost.shape[1]
            if spots is None or count > _MOST_STATES:
                return None
            requests.append(Request(job, stretch, boards, rows, price, spots))
    return requests


def _spots(problem: PlanningProblem, stretch: Stretch) -> tuple[Spot, ...] | None:
    """Return where a stretch may be, None where that is too much to list."""
    nodes, home = problem.facts.nodes, dict(stretch.home)
    number = {node.name: index for index, node in enumerate(nodes)}
    stays = stretch.option == 0 or stretch.gpus <= sum(home.values())
    home_counts = kept_boards(stretch.home, stretch.gpus) if stays else ()
    if home_counts and not problem.movable(stretch.job):
        return (tuple((number[name], count) for name, count in home_counts),)
    here = [
        (index, node)
        for index, node in enumerate(nodes)
        if problem.pools.of_node[index] == stretch.pool
        and (node.open or (stays and node.name in home))
        and (stretch.only is None or node.name in stretch.only)
    ]
    sizes = _parts(problem, stretch, [count for _name, count in home_counts])
    if len(here) ** len(sizes) > _MOST_PLACES:
        return None
    places = product(dict(here), repeat=len(sizes))
    spots = {_together(zip(at, sizes, strict=True)) for at in places}
    rooms = {index: node.usable if node.open else home[node.name] for index, node in here}
    return tuple(sorted(spot for spot in spots if all(rooms[at] >= gpus for at, gpus in spot)))


def _parts(problem: PlanningProblem, stretch: Stretch, at_home: Sequence[int]) -> list[int]:
    """Return the GPUs of the parts that are on one node each: those of pods where told."""
    job = problem.jobs[stretch.job].demand.job
    each = whole_fact(job.extra, "gpus_per_pod") if job.platform is Platform.KUBERNETES else None
    if each and stretch.gpus % each == 0:
        return [each] * (stretch.gpus // each)
    in_pool = zip(problem.facts.nodes, problem.pools.of_node, strict=True)
    largest = max((node.gpus for node, pool in in_pool if pool == stretch.pool), default=0)
    return sizes_of(stretch.gpus, at_home, largest or stretch.gpus)


def _together(parts: Iterable[tuple[int, int]]) -> Spot:
    counts: dict[int, int] = {}
    for node, gpus in parts:
        counts[node] = counts.get(node, 0) + gpus
    return tuple(sorted(counts.items()))


def _placed(
    program: Program, problem: PlanningProblem, job: JobColumns, request: Request
) -> Indices:
    """Add the spots of a request in every slot [H, spots], and the moves between them."""
    nodes, stretch = problem.facts.nodes, request.stretch
    slots = len(problem.slot_starts)
    upper = np.ones((slots, len(request.spots)))
    for number, spot in enumerate(request.spots if problem.movable(request.job) else ()):
        for node, _gpus in spot:
            if nodes[node].away:
                upper[np.array(nodes[node].away), number] = 0.0
    place = program.columns(np.zeros(upper.shape), upper=upper, whole=True)
    of_rows = np.isin(job.options, request.rows)
    active = job.active[:, of_rows]
    program.rows(0.0, 0.0, (place, 1.0), (active[1:], -1.0))
    entries = job.entries[:, of_rows]
    if of_rows.sum() > 1:
        entries = program.columns(np.zeros((slots, 1)))
        program.rows(0.0, np.inf, (entries, 1.0), (active[:-1], 1.0), (active[1:], -1.0))
    program.rows(-np.inf, 1.0, (entries, 1.0), (active[:-1], 1.0))
    names = [{node for node, _gpus in spot} for spot in request.spots]
    home = {name for name, _gpus in stretch.home}
    at_home = np.array(
        [{nodes[node].name for node in nodes_of_spot} <= home for nodes_of_spot in names]
    )
    arrived = program.columns(np.zeros(upper.shape))
    program.rows(-1.0 * at_home, np.inf, (arrived[0], 1.0), (place[0], -1.0))
    for number, nodes_of_spot in enumerate(names):
        before = place[:-1, [other for other, wider in enumerate(names) if nodes_of_spot <= wider]]
        terms = (arrived[1:, number], 1.0), (place[1:, number], -1.0), (before, 1.0)
        program.rows(0.0, np.inf, *terms)
    moves = program.columns(np.full(slots, request.price))
    program.rows(0.0, np.inf, (moves, 1.0), (entries, 1.0), (arrived, -1.0))
    return place


def _node_rows(program: Program, problem: PlanningProblem, requests: Sequence[Placed]) -> None:
    """Add nodes that are on, their boots, and what they have room for."""
    nodes, slots = problem.facts.nodes, len(problem.slot_starts)
    per_board, boot = node_cost_per_board(problem), boot_per_board(problem)
    for number, node in enumerate(nodes):
        there = [
            (entry, gpus, columns[:, at])
            for entry, columns in requests
            for at, spot in enumerate(entry.spots)
            for where, gpus in spot
            if where == number
        ]
        always = float(node.foreign or not node.observed)
        on = program.columns(node.gpus * per_board, lower=always, whole=True)
        boots = program.columns(np.full(slots - 1, node.gpus * boot))
        program.rows(-np.inf, 0.0, (on[1:], 1.0), (on[:-1], -1.0), (boots, -1.0))
        for job in sorted({entry.job for entry, _gpus, _columns in there}):
            of_job = np.stack([columns for entry, _, columns in there if entry.job == job], axis=1)
            program.rows(-np.inf, 0.0, (of_job, 1.0), (on, -1.0))
        if not there:
            continue
        occupants = np.stack([columns for _entry, _gpus, columns in there], axis=1)
        boards = [
            gpus if entry.stretch.slice_ is None else entry.boards for entry, gpus, _ in there
        ]
        program.rows(-np.inf, 0.0, (occupants, boards), (on, -float(node.usable)))
        needs = np.array([entry.stretch.needs(gpus)[1:] for entry, gpus, _ in there], dtype=float)
        for need, room in zip(needs.T, room_of(node), strict=True):
            if room is not None and need.any():
                program.rows(-np.inf, 1.0, (occupants, need / max(1.0, room)))


def _placement(
    problem: PlanningProblem,
    mapping: SlotMapping,
    paths: Path,
    requests: Sequence[Placed],
    values: Floats,
) -> NodePlacement:
    """Return where a solution has its jobs.

    By the usual search where that costs no more: the program does not care who moves first. Also
    where slices leave holes on boards, which it knows nothing of.
    """
    spot_of = _latest(problem, requests, values)
    of_row = {
        (entry.job, int(row)): number
        for number, (entry, _columns) in enumerate(requests)
        for row in entry.rows
    }
    runs: list[Stretch] = []
    at: dict[int, Spot] = {}
    for run in stretches(problem, mapping, paths):
        number = of_row[run.job, run.row]
        spots = spot_of[number, run.start : run.end]
        edges = [run.start, *(np.flatnonzero(np.diff(spots)) + run.start + 1).tolist(), run.end]
        for start, end in pairwise(edges):
            spot = requests[number][0].spots[spots[start - run.start]]
            at[len(runs)] = spot
            home = problem.facts.nodes[spot[0][0]].name in dict(run.home)
            board = run.mig_board if home else ""
            runs.append(replace(run, start=start, end=end, mig_board=board))
    placed = placement_of(problem, runs, at)
    room = [node.usable for node in problem.facts.nodes]
    holes = bool((placed.load.max(axis=1) > room).any())
    natural = place_plan(problem, mapping, paths, budget_seconds=math.inf)
    dearer = natural.node_cost + natural.move_cost - placed.node_cost - placed.move_cost
    return natural if holes or (not natural.failed and dearer < _ALIKE) else placed


def _latest(
    problem: PlanningProblem, requests: Sequence[Placed], values: Floats
) -> npt.NDArray[np.int64]:
    """Return the spot of every request by slot [R, H], -1 for none, with moves as late as can be.

    The program does not care when a job leaves for a node that is on anyway.
    """
    nodes = problem.facts.nodes
    at = np.array(
        [
            np.where(values[columns].sum(axis=1) > _HALF, values[columns].argmax(axis=1), -1)
            if entry.spots
            else np.full(len(columns), -1)
            for entry, columns in requests
        ]
    ).reshape(len(requests), -1)
    room = np.array([[np.inf if part is None else part for part in (node.usable, *room_of(node))]
                     for node in nodes], dtype=np.float64)  # fmt: skip
    load = np.zeros((*room.shape, at.shape[1]))
    for number, slot in np.argwhere(at >= 0):
        _put(load, requests[number][0], at[number, slot], slot, 1)
    for slot, (number, (entry, _columns)) in product(range(at.shape[1]), enumerate(requests)):
        now = at[number, slot]
        before = at[number, slot - 1] if slot else _home_spot(problem, entry)
        if min(now, before) < 0 or now == before or _any_away(problem, entry, before, slot):
            continue
        cost = _cost_of(problem, load)
        _put(load, entry, now, slot, -1)
        _put(load, entry, before, slot, 1)
        fits = (load[:, :, slot] <= room + _ALIKE).all()
        if fits and _cost_of(problem, load) <= cost + _ALIKE:
            at[number, slot] = before
        else:
            _put(load, entry, before, slot, -1)
            _put(load, entry, now, slot, 1)
    return at


def _put(load: Floats, entry: Request, spot: int, slot: int, sign: int) -> None:
    """Add what a request needs at a spot to the load [N, 3, H], or take it off."""
    for node, gpus in entry.spots[spot]:
        _gpus, *host = entry.stretch.needs(gpus)
        boards = gpus if entry.stretch.slice_ is None else entry.boards
        load[node, :, slot] += np.array([boards, *host]) * sign


def _cost_of(problem: PlanningProblem, load: Floats) -> float:
    return node_cost(problem, switched(problem, np.ceil(load[:, 0] - _ALIKE).astype(np.int64)))


def _home_spot(problem: PlanningProblem, entry: Request) -> int:
    """Return the number of the spot where a job that keeps its boards is now, -1 for none."""
    names = {node.name: number for number, node in enumerate(problem.facts.nodes)}
    home = tuple(sorted((names[name], count) for name, count in entry.stretch.home))
    stays = problem.boards[0, entry.job] == entry.boards
    return entry.spots.index(home) if stays and home in entry.spots else -1


def _any_away(problem: PlanningProblem, entry: Request, spot: int, slot: int) -> bool:
    away = [problem.facts.nodes[node].away for node, _gpus in entry.spots[spot]]
    return any(row and row[slot] for row in away)
