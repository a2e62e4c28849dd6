"""The node of every job in every slot, the running nodes, and their cost.

Jobs that keep what they have now stay where they are. The others are placed into the room that is
left (`planner.packing.placement`); when one finds none, jobs that may move join them. Then
nodes that hold little are emptied where that pays for the moves (`node_search.py`), and empty nodes
are off. Where an exact program says who is where (`exact_nodes.py`), slices find their places.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from data.records.feasible_changes import NO_NODE, required_nodes
from data.records.plans import Stay
from planner.fleet.fleet_nodes import FleetNode
from planner.fleet.host_room import kept_boards, memory_bytes, milli_cpus, room_of
from planner.fleet.mig_placement import CutBoard, Slice, pack_slices
from planner.nodes.node_hours import node_cost, switched, unplaced_cost, unsure_cost
from planner.nodes.node_runs import (
    Places,
    Stretch,
    Unit,
    nodes_of_parts,
    pool_of_name,
    stretches,
)
from planner.nodes.node_search import node_arrays, searched
from planner.packing.placement import PlacementNode, Run, place_on_nodes
from planner.problem.planning_problem import PlanningProblem
from planner.problem.slot_mapping import SlotMapping, move_cost

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_SHOWN = 8
"""Required nodes that are named at most."""
_HOLDS = 4
"""How often units are held at home that others took the place of; each time more of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlacement:
    """Stays of every job [J], why a stretch has no place, and the nodes.

    `load` [N, H] are GPUs in use; `on` [N, H]; `parts` are (pool, GPUs, start, end) of everything
    placed. `failed` are stretches that the plan must not ask for. `node_cost` includes the price of
    doubt (`node_hours.unsure_prices`).
    """

    stays: tuple[tuple[Stay, ...], ...]
    unplaced: dict[int, str]
    failed: tuple[Stretch, ...]
    load: Ints
    on: Bools
    parts: tuple[tuple[int, int, int, int], ...]
    moves: int
    move_cost: float
    node_cost: float


def place_plan(
    problem: PlanningProblem,
    mapping: SlotMapping,
    paths: npt.NDArray[np.int16],
    *,
    budget_seconds: float,
    seed: int = 1,
    consolidate: bool = True,
) -> NodePlacement:
    """Place a plan [J, H] on the nodes; no node is over its GPUs, CPUs or memory in any slot.

    Without `consolidate` no job moves that need not.
    """
    runs = stretches(problem, mapping, paths)
    boards, slices = _cut_boards(runs, mapping.slots.slots)
    units = _units(problem, runs, mapping.slots.slots)
    units = _binding_units(problem, [*units, *_board_units(boards, runs, slices)])
    places = _placed(problem, units, budget_seconds, seed)
    if consolidate:
        places = searched(problem, runs, units, places, seed=seed)
    return _answer(problem, runs, units, places, slices)


def placed_as(
    problem: PlanningProblem,
    mapping: SlotMapping,
    paths: npt.NDArray[np.int16],
    boards: Ints,
) -> NodePlacement | None:
    """Return the placement of a plan [J, H] with these boards [J, H, N] of its jobs on the nodes.

    None where a node has too little room for it: slices may find no legal position there.
    """
    slots = mapping.slots.slots
    runs = [
        part
        for run in stretches(problem, mapping, paths)
        for part in _parts_by_place(run, boards[run.job])
    ]
    at = [_nonzero(boards[run.job, run.start]) for run in runs]
    for early_first in (False, True):
        cut, slices = _cut_boards(
            runs, slots, [where[0][0] for where in at], early_first=early_first
        )
        uncut = _units(problem, runs, slots)
        units = [
            *uncut,
            *(
                replace(
                    unit,
                    pool=(pool := int(problem.pools.of_node[unit.pool])),
                    pools=frozenset((pool,)),
                    cpus=None,
                    memory_mib=None,
                )
                for unit in _board_units(cut, runs, slices)
            ),
        ]
        places = {number: at[unit.stretch] for number, unit in enumerate(uncut)}
        places |= {len(uncut) + number: ((board.pool, 1),) for number, board in enumerate(cut)}
        nodes = node_arrays(problem, units, places)
        for number in slices:
            run = runs[number]
            need = milli_cpus(run.cpus or 0.0), memory_bytes(run.memory_mib or 0.0)
            nodes.load[at[number][0][0], 1:, run.start : run.end] += np.array(need)[:, None]
        if (nodes.load <= nodes.room[:, :, None]).all():
            return _answer(problem, runs, units, places, slices)
    return None


def _nonzero(boards: Ints) -> tuple[tuple[int, int], ...]:
    numbers = np.flatnonzero(boards)
    return tuple(zip(numbers.tolist(), boards[numbers].tolist(), strict=True))


def _parts_by_place(run: Stretch, boards: Ints) -> Iterator[Stretch]:
    """Yield the parts of a stretch between changes of its boards [H, N] on the nodes."""
    there = boards[run.start : run.end]
    edges = np.flatnonzero((there[1:] != there[:-1]).any(axis=1)) + run.start + 1
    for start, end in pairwise([run.start, *edges.tolist(), run.end]):
        yield replace(run, start=start, end=end)


def _cut_boards(
    runs: Sequence[Stretch],
    slots: int,
    pools: Sequence[int] | None = None,
    *,
    early_first: bool = False,
) -> tuple[tuple[CutBoard, ...], dict[int, tuple[int, int]]]:
    """Return the boards cut by MIG, and the board and position of every slice by its stretch.

    Slices of one of the `pools` share boards, by default those of a pool of the plan.
    """
    numbers = [number for number, stretch in enumerate(runs) if stretch.slice_ is not None]
    slices = [
        Slice(
            pool=stretch.pool if pools is None else pools[number],
            start=stretch.start,
            end=stretch.end,
            placement=stretch.slice_,
            board=f"{stretch.mig_board} {stretch.home[0][0]}" if stretch.mig_board else "",
        )
        for number, stretch in ((number, runs[number]) for number in numbers)
        if stretch.slice_ is not None
    ]
    boards, places = pack_slices(slices, slots, early_first=early_first)
    return boards, dict(zip(numbers, places, strict=True))


def _units(problem: PlanningProblem, runs: Sequence[Stretch], slots: int) -> list[Unit]:
    units, pool_of = [], pool_of_name(problem)
    for number, stretch in enumerate(runs):
        if stretch.slice_ is not None or (stretch.shared and not stretch.gpus):
            continue
        at_home = sum(dict(stretch.home).values())
        stays = stretch.option == 0 or stretch.gpus <= at_home
        apart = stretch.apart if stretch.gpus < at_home else 0
        home = kept_boards(stretch.home, stretch.gpus, apart) if stays else ()
        nodes = nodes_of_parts(problem, stretch.job, stretch.option, stretch.pool)
        nodes = None if nodes is None else nodes | dict(home).keys()
        units.append(
            Unit(
                name=f"stretch {number}",
                group=problem.jobs[stretch.job].demand.job.job_id,
                pool=stretch.pool,
                pools=frozenset((stretch.pool, *(pool_of[name] for name in nodes or dict(home)))),
                start=stretch.start,
                end=stretch.end,
                gpus=stretch.gpus,
                home=home,
                may_move=problem.movable(stretch.job)
                or (not stretch.home and stretch.only is None),
                settled=(stretch.start, stretch.end) == (0, slots)
                and sum(dict(home).values()) >= stretch.gpus,
                cpus=stretch.cpus,
                memory_mib=stretch.memory_mib,
                move_cost=move_cost(problem, problem.jobs[stretch.job], stretch.option),
                stretch=number,
                must=stretch.needs_a_place,
                only=stretch.only if nodes is None else nodes & (stretch.only or nodes),
                apart=stretch.apart,
            )
        )
    return units


def _board_units(
    boards: Sequence[CutBoard], runs: Sequence[Stretch], slices: dict[int, tuple[int, int]]
) -> Iterator[Unit]:
    """Yield a unit for each cut board, with the most that its slices ask for at a time."""
    on_board: dict[int, list[Stretch]] = defaultdict(list)
    for stretch, (index, _position) in slices.items():
        on_board[index].append(runs[stretch])
    for number, board in enumerate(boards):
        node = board.name.partition(" ")[2]
        at_once = [
            [part for part in on_board[number] if part.start <= first.start < part.end]
            for first in on_board[number]
        ]
        yield Unit(
            name=f"board {number}",
            group=f"board {number}",
            pool=board.pool,
            pools=frozenset((board.pool,)),
            start=board.start,
            end=board.end,
            gpus=1,
            home=((node, 1),) if node else (),
            may_move=not node,
            settled=bool(node),
            cpus=max(sum(part.cpus or 0.0 for part in there) for there in at_once),
            memory_mib=max(sum(part.memory_mib or 0.0 for part in there) for there in at_once),
        )


def _binding_units(problem: PlanningProblem, units: Sequence[Unit]) -> list[Unit]:
    """Return the units without CPUs and memory in pools where GPUs run out first on every node."""
    most: dict[int, Floats] = defaultdict(lambda: np.zeros(2))
    for unit in units:
        each = np.array(unit.needs(unit.gpus)[1:]) / unit.gpus
        for pool in unit.pools:
            most[pool] = np.maximum(most[pool], each)
    binds = {
        pool
        for node, pool in zip(problem.facts.nodes, problem.pools.of_node.tolist(), strict=True)
        for each, room in zip(most[pool], room_of(node), strict=True)
        # The share of each GPU is rounded up.
        if room is not None and each and (each + 1) * node.usable > room
    }
    return [
        unit if unit.pools & binds else replace(unit, cpus=None, memory_mib=None) for unit in units
    ]


def _placed(
    problem: PlanningProblem, units: Sequence[Unit], budget_seconds: float, seed: int
) -> Places:
    """Place all units; those at home stay unless another finds no room."""
    number = {node.name: index for index, node in enumerate(problem.facts.nodes)}
    fixed: Places = {
        index: tuple((number[name], count) for name, count in unit.home)
        for index, unit in enumerate(units)
        if unit.settled
    }
    fixed = _within(problem.facts.nodes, units, fixed)
    doubtful = any(node.open and node.unsure for node in problem.facts.nodes)
    places = _search(problem, units, fixed, budget_seconds / 2, seed, sure=doubtful)
    if doubtful and len(places) < len(units):
        places = _search(problem, units, fixed, budget_seconds / 2, seed)
    missing = [n for n, unit in enumerate(units) if n not in places and unit.must]
    if missing and any(units[n].may_move for n in fixed):
        pools = frozenset[int]().union(*(units[n].pools for n in missing))
        pinned = {
            n: at for n, at in fixed.items() if not units[n].may_move or not units[n].pools & pools
        }
        other = _search(problem, units, pinned, budget_seconds / 2, seed)
        still = [n for n, unit in enumerate(units) if n not in other and unit.must]
        displaced = any(units[n].settled for n in still)
        places = other if len(still) < len(missing) and not displaced else places
    return _repinned(problem, units, fixed, places, budget_seconds / 2, seed)


def _repinned(
    problem: PlanningProblem,
    units: Sequence[Unit],
    fixed: Places,
    places: Places,
    budget: float,
    seed: int,
) -> Places:
    """Return units that stay what they are their places back, however others are placed then.

    They fit all together, as they do now. Others can be planned anew without what finds no room.
    """
    for _ in range(_HOLDS):
        lost = {
            n for n, unit in enumerate(units) if unit.home and n not in places and n not in fixed
        }
        if not lost:
            break
        units = [
            replace(unit, may_move=unit.may_move and n not in lost) for n, unit in enumerate(units)
        ]
        places = _search(problem, units, fixed, budget, seed)
    return places


def _within(nodes: Sequence[FleetNode], units: Sequence[Unit], fixed: Places) -> Places:
    """Drop settled units beyond what their node has: telemetry and schedulers may disagree."""
    rooms = ((node.gpus, *room_of(node)) for node in nodes)
    free = np.array([[np.inf if room is None else room for room in row] for row in rooms])
    places: Places = {}
    for number, at in sorted(fixed.items(), key=lambda item: (units[item[0]].may_move, item[0])):
        needs = {node: np.array(units[number].needs(count)) for node, count in at}
        if all((free[node] >= need).all() for node, need in needs.items()):
            places[number] = at
            for node, need in needs.items():
                free[node] -= need
    return places


def _search(
    problem: PlanningProblem,
    units: Sequence[Unit],
    fixed: Places,
    budget: float,
    seed: int,
    *,
    sure: bool = False,
) -> Places:
    """Place the units that are not fixed into the room that these leave.

    Where only `sure` room counts, nobody comes to nodes with work that is not explained.
    """
    nodes, pools = problem.facts.nodes, problem.pools.of_node
    used = np.zeros((len(nodes), 3))
    for number, at in fixed.items():
        for node, count in at:
            used[node] += units[number].needs(count)
    targets = [
        _target(node, int(pool), used[index], open_=node.open and not (sure and node.unsure))
        for index, (node, pool) in enumerate(zip(nodes, pools, strict=True))
    ]
    waiting = [number for number in range(len(units)) if number not in fixed]
    runs = [_run(units[number]) for number in waiting]
    blockers = [
        run for node, target in zip(nodes, targets, strict=True) for run in _blockers(node, target)
    ]
    answers = place_on_nodes([*runs, *blockers], targets, budget_seconds=budget, seed=seed)
    rows = zip(waiting, answers, strict=False)
    return fixed | {number: tuple(parts.items()) for number, parts in rows if parts}


def _target(node: FleetNode, pool: int, used: Floats, *, open_: bool) -> PlacementNode:
    """Return a node with the room that is left on it."""
    cpu, memory = room_of(node)
    return PlacementNode(
        name=node.name,
        gpus=max(0, node.usable - int(used[0])),
        gpu_model=str(pool),
        total=node.gpus,
        open=open_,
        cpu_milli=None if cpu is None else max(0, cpu - int(used[1])),
        memory_bytes=None if memory is None else max(0, memory - int(used[2])),
    )


def _run(unit: Unit) -> Run:
    return Run(
        run_id=unit.name,
        job_id=unit.group,
        start=unit.start,
        end=unit.end,
        gpus=unit.gpus,
        gpu_model="" if unit.apart > 1 else str(unit.pool),
        cpu_milli=None if unit.cpus is None else milli_cpus(unit.cpus),
        memory_bytes=None if unit.memory_mib is None else memory_bytes(unit.memory_mib),
        current_nodes=tuple(name for name, _count in unit.home),
        current_gpus=tuple(count for _name, count in unit.home),
        fixed=bool(unit.home) and not unit.may_move,
        only=unit.only,
        apart=unit.apart,
    )


def _blockers(node: FleetNode, target: PlacementNode) -> list[Run]:
    """Return runs that keep a node empty while it is away."""
    if not node.away or not target.gpus:
        return []
    edges = np.flatnonzero(np.diff([False, *node.away, False]))
    return [
        Run(
            run_id=f"away {node.name} {start}",
            job_id=f"away {node.name}",
            start=int(start),
            end=int(end),
            gpus=target.gpus,
            gpu_model=target.gpu_model,
            current_nodes=(node.name,),
            current_gpus=(target.gpus,),
            fixed=True,
        )
        for start, end in zip(edges[::2], edges[1::2], strict=True)
    ]


def _answer(
    problem: PlanningProblem,
    runs: Sequence[Stretch],
    units: Sequence[Unit],
    places: Places,
    slices: dict[int, tuple[int, int]],
) -> NodePlacement:
    nodes, slots = problem.facts.nodes, len(problem.slot_starts)
    load = np.zeros((len(nodes), slots), dtype=np.int64)
    parts = []
    at: dict[int, tuple[tuple[int, int], ...]] = {}
    board_at: dict[int, tuple[tuple[int, int], ...]] = {}
    boards = 0
    for number, unit in enumerate(units):
        where = places.get(number, ())
        if unit.stretch >= 0:
            at[unit.stretch] = where
        else:
            board_at[boards] = where
            boards += 1
        for node, count in where:
            load[node, unit.start : unit.end] += count
            parts.append((int(problem.pools.of_node[node]), count, unit.start, unit.end))
    for stretch, (board, _position) in slices.items():
        at[stretch] = board_at[board]
    names = {node.name: index for index, node in enumerate(nodes)}
    at |= {
        number: tuple((names[name], count) for name, count in stretch.shared)
        for number, stretch in enumerate(runs)
        if stretch.shared
    }
    stays, moves, moved_cost = stays_of(problem, runs, at, slices)
    lost = [number for number in range(len(runs)) if not at.get(number)]
    on = switched(problem, load)
    return NodePlacement(
        stays=stays,
        unplaced={runs[n].job: _reason(problem, runs[n]) for n in lost},
        failed=tuple(runs[n] for n in lost if runs[n].needs_a_place),
        load=load,
        on=on,
        parts=tuple(parts),
        moves=moves,
        move_cost=moved_cost,
        node_cost=node_cost(problem, on)
        + unplaced_cost(problem, [runs[n] for n in lost])
        + unsure_cost(problem, runs, at),
    )


def _reason(problem: PlanningProblem, stretch: Stretch) -> str:
    pool = problem.pools.pools[stretch.pool].name
    prefix = "" if stretch.needs_a_place else "its present nodes are not known and "
    slots = f"{stretch.start}-{stretch.end - 1}"
    if stretch.only is not None:
        required = required_nodes(problem.jobs[stretch.job].demand.job)
        if NO_NODE in required:
            return "no node here is admitted by its nodeSelector and affinity"
        names = ", ".join(sorted(required)[:_SHOWN]) + ", …" * (len(required) > _SHOWN)
        return f"no required node ({names}) has room for {stretch.gpus} GPUs in slots {slots}"
    nodes = f"{stretch.apart} nodes of {pool} have" if stretch.apart > 1 else f"node of {pool} has"
    return f"{prefix}no {nodes} room for {stretch.gpus} GPUs in slots {slots}"


def stays_of(
    problem: PlanningProblem,
    runs: Sequence[Stretch],
    at: dict[int, tuple[tuple[int, int], ...]],
    slices: dict[int, tuple[int, int]],
) -> tuple[tuple[tuple[Stay, ...], ...], int, float]:
    """Return the stays of all jobs, and how many moves they force at which cost."""
    nodes = problem.facts.nodes
    by_job: dict[int, list[Stay]] = defaultdict(list)
    before: dict[int, tuple[int, int, dict[str, int]]] = {}
    moves, cost = 0, 0.0
    for number, stretch in enumerate(runs):
        where = at.get(number, ())
        here = {nodes[node].name: count for node, count in where}
        if stretch.job not in before and stretch.start == 0:
            home = problem.facts.homes.get(problem.jobs[stretch.job].demand.job.job_id)
            before[stretch.job] = (0, 0, dict(home.boards) if home else {})
        last_end, last_option, there = before.get(stretch.job, (-1, -1, dict[str, int]()))
        # A power cap restarts nothing: a job that gets one elsewhere has moved.
        last, present = (
            (option.gpu_model, option.gpu_count, option.mig_profile)
            for number in (last_option, stretch.option)
            for option in (problem.jobs[stretch.job].options[number].configuration,)
        )
        same = last_end == stretch.start and last == present
        grown = any(count > there.get(name, 0) for name, count in here.items())
        moved = same and bool(there) and grown
        if moved:
            moves += 1
            cost += move_cost(problem, problem.jobs[stretch.job], stretch.option)
        before[stretch.job] = (stretch.end, stretch.option, here)
        board = slices.get(number)
        by_job[stretch.job] += [
            Stay(
                node=nodes[node].name,
                gpus=count,
                start=stretch.start,
                end=stretch.end,
                moved=moved,
                mig_board=board[0] if board else None,
                mig_position=board[1] if board else None,
            )
            for node, count in where
        ]
    return tuple(_joined(by_job[job]) for job in range(len(problem.jobs))), moves, cost


def _joined(stays: list[Stay]) -> tuple[Stay, ...]:
    """Join stays that go on where another ends."""
    joined: list[Stay] = []
    for stay in stays:
        last = next((n for n, other in enumerate(joined) if _goes_on(other, stay)), None)
        if last is None:
            joined.append(stay)
        else:
            joined[last] = replace(joined[last], end=stay.end)
    return tuple(joined)


def _goes_on(one: Stay, other: Stay) -> bool:
    """Return whether a stay is the continuation of another."""
    alike = replace(one, start=other.start, end=other.end, moved=False) == other
    return alike and one.end == other.start
