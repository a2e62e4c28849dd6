"""Small problems on nodes, exactly: jobs, their nodes and the nodes that are on in one program.

The jobs and their shared limits are those of the exact program in counts. Boards of a pool are then
on nodes by name: a job on one node where one has so many, else, and where its pods may be apart, on
any. A slice takes its share of a board of its node; its position is found afterwards.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.catalogue.gpu_catalogue import MigPlacement
from data.records.feasible_changes import nodes_apart
from planner.fleet.fleet_nodes import FleetNode
from planner.fleet.host_room import memory_bytes, milli_cpus, room_of
from planner.nodes.node_hours import unsure_prices
from planner.nodes.node_runs import Stretch, pool_of_name, stretch_of
from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import PlanningProblem
from planner.problem.slot_mapping import SlotMapping, boot_per_board, move_cost, node_cost_per_board
from planner.slots.coupling_rows import coupling_rows
from planner.slots.exact_program import Program
from planner.slots.slot_problem import Floats, Indices, Path, SlotProblem, pinned_cost
from planner.solver.exact import JobColumns, columns_of_jobs, paths_of, states

Ints = npt.NDArray[np.int64]
_PLACES = 1_500
"""Jobs in slots, configurations and nodes up to which there is a program, which no clock ends. Of
2,000 and more some took 3 to 9 s of CPU time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesAnswer:
    """Paths [J, H] with boards [J, H, N] of each job, None for none below the limit; a bound."""

    paths: Path | None
    boards: Ints | None
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """A job with equal boards of a pool: its nodes, and columns of these slots [H, n].

    `at` says that the job is on a node, `boards` how many boards it has there, `each` a constant.
    """

    stretch: Stretch
    nodes: Indices
    at: Indices
    boards: Indices
    each: float

    def elsewhere(self, problem: PlanningProblem) -> Indices:
        """Return the columns of boards on nodes where the job is not now; none if it is nowhere."""
        home = dict(self.stretch.home)
        away = [problem.facts.nodes[node].name not in home for node in self.nodes]
        return self.boards[:, away if home else []].ravel()


def can_be_exact(problem: PlanningProblem, slots: SlotProblem) -> bool:
    """Return whether a problem is small, and all of it is in the program.

    Boards that several jobs share, slices that are there now, jobs at unknown places, over several
    pools or in equal parts on nodes apart are not.
    """
    places = states(pinned_cost(slots.jobs)) * len(problem.facts.nodes)
    return places <= _PLACES and all(_is_whole(problem, job) for job in problem.jobs)


def _is_whole(problem: PlanningProblem, job: JobProblem) -> bool:
    home = problem.facts.homes.get(job.demand.job.job_id)
    if home is None or home.mig_board or job.demand.share is not None:
        return False
    pool_of = pool_of_name(problem)
    parts = (nodes_apart(job.demand.job, option.configuration) for option in job.options)
    return len({pool_of.get(name) for name, _count in home.boards}) < 2 and max(parts) < 2


def exact_on_nodes(
    problem: PlanningProblem,
    mapping: SlotMapping,
    slots: SlotProblem,
    *,
    announced: Path,
    churn: Floats,
    below: float,
) -> NodesAnswer:
    """Return the best plan on nodes below a cost, both with the price `churn` of leaving a path.

    The bound is of every plan of these `slots`, that of nodes and moves included. It ends by counts
    alone, however busy the machine is: the same problem has the same plan.
    """
    program, rows = Program(), coupling_rows(slots)
    jobs = columns_of_jobs(
        program, slots, rows, pinned_cost(slots.jobs), announced=announced, churn=churn
    )
    groups = [
        list(_groups(program, problem, mapping, slots, number, columns))
        for number, columns in enumerate(jobs)
    ]
    _node_rows(program, problem, groups)
    # The same paths at the same cost are had with moves sooner or later: none is early for nothing.
    answer = program.solved(
        below=below,
        seconds=np.inf,
        fixed=[columns.active for columns in jobs],
        least=[group.elsewhere(problem) for members in groups for group in members],
    )
    if answer.values is None:
        return NodesAnswer(paths=None, boards=None, bound=answer.bound)
    boards = np.zeros((len(jobs), slots.slots, len(problem.facts.nodes)), dtype=np.int64)
    for number, group in ((n, group) for n, members in enumerate(groups) for group in members):
        counts = np.rint(group.each * answer.values[group.boards]).astype(np.int64)
        boards[number, :, group.nodes] += counts.T
    return NodesAnswer(paths=paths_of(jobs, answer.values), boards=boards, bound=answer.bound)


def _groups(
    program: Program,
    problem: PlanningProblem,
    mapping: SlotMapping,
    slots: SlotProblem,
    job: int,
    columns: JobColumns,
) -> Iterator[_Group]:
    """Add the nodes of a job for each pool and number of boards that it may have, and its moves."""
    grid = slots.grid
    pool_of = pool_of_name(problem)
    alike: dict[tuple[int, float, str], list[int]] = defaultdict(list)
    for position, row in enumerate(columns.options.tolist()):
        option = int(mapping.option_of[job, row])
        profile = problem.jobs[job].options[option].configuration.mig_profile
        alike[int(grid.gpu_type[row]), float(grid.boards[row]), profile].append(position)
    for (kind, _boards, _profile), inside in alike.items():
        if kind < 0:
            continue
        row = int(columns.options[inside[0]])
        option = int(mapping.option_of[job, row])
        stretch = stretch_of(problem, pool_of, job, option, (kind, row, 0, slots.slots))
        yield _group(program, problem, stretch, columns, inside)


def _group(
    program: Program,
    problem: PlanningProblem,
    stretch: Stretch,
    columns: JobColumns,
    inside: list[int],
) -> _Group:
    allowed, most = _where(problem, stretch)
    nodes = np.flatnonzero(allowed.any(axis=0))
    allowed, most = allowed[:, nodes], most[nodes]
    active = columns.active[1:, inside]
    at = program.columns(np.zeros(allowed.shape), upper=allowed, whole=True)
    boards, each = at, _apart(problem, stretch)
    if each < stretch.gpus:
        most = most // each
        boards = program.columns(np.zeros(at.shape), upper=allowed * most, whole=True)
        program.rows(0.0, 0.0, (boards, float(each)), (active, -float(stretch.gpus)))
        cells = (boards.reshape(-1, 1), at.reshape(-1, 1))
        width = np.broadcast_to(most, at.shape).reshape(-1, 1)
        program.rows(-np.inf, 0.0, (cells[0], 1.0), (cells[1], -width))
        program.rows(0.0, np.inf, (cells[0], 1.0), (cells[1], -1.0))
    else:
        program.rows(0.0, 0.0, (at, 1.0), (active, -1.0))
    group = _Group(stretch=stretch, nodes=nodes, at=at, boards=boards, each=float(each))
    room = most if each < stretch.gpus else np.ones_like(most)
    _moves(program, problem, group, columns, inside, room)
    _doubts(program, problem, group)
    return group


def _doubts(program: Program, problem: PlanningProblem, group: _Group) -> None:
    """Add the price of boards away from home on nodes in doubt."""
    home = problem.facts.homes[problem.jobs[group.stretch.job].demand.job.job_id]
    prices = unsure_prices(problem)
    for column, node in enumerate(group.nodes.tolist()):
        if node in prices:
            count = dict(home.boards).get(problem.facts.nodes[node].name, 0)
            here = group.boards[:, [column]]
            more = program.columns(prices[node][: len(here)], upper=np.inf)
            program.rows(-np.inf, float(count), (here, group.each), (more[:, None], -1.0))


def _where(problem: PlanningProblem, stretch: Stretch) -> tuple[npt.NDArray[np.bool_], Ints]:
    """Return the nodes that a job may be on [H, N], and its most boards there [N]."""
    nodes, pools = problem.facts.nodes, problem.pools.of_node
    home = dict(stretch.home)
    stays = stretch.option == 0 or stretch.gpus <= sum(home.values())
    may_move = problem.movable(stretch.job) or (not home and stretch.only is None)
    fixed = stays and bool(home) and not may_move
    # Copies stay where no new ones may begin.
    copies = problem.jobs[stretch.job].demand.standing.is_of_copies
    allowed = np.zeros((stretch.end, len(nodes)), dtype=np.bool_)
    most = np.zeros(len(nodes), dtype=np.int64)
    for number, (node, pool) in enumerate(zip(nodes, pools.tolist(), strict=True)):
        here = node.name in home and (stays or copies)
        open_ = (node.open and (stretch.only is None or node.name in stretch.only)) or here
        if pool != stretch.pool or not (here if fixed else open_):
            continue
        grows = here and not (stays or node.open)
        most[number] = home[node.name] if fixed or grows else node.usable
        if most[number] >= _apart(problem, stretch):
            allowed[:, number] = True
            if node.away and not fixed:
                allowed[:, number] = ~np.array(node.away)
    return allowed, np.minimum(most, stretch.gpus)


def _apart(problem: PlanningProblem, stretch: Stretch) -> int:
    """Return the boards of a job that have to be on one node: those of a copy, or all of them.

    A job of more boards than any node, or on several nodes now, may have them anywhere.
    """
    job = problem.jobs[stretch.job].demand
    sizes = (
        node.gpus
        for node, pool in zip(problem.facts.nodes, problem.pools.of_node, strict=True)
        if pool == stretch.pool
    )
    if stretch.slice_ is not None:
        return stretch.gpus
    if len(stretch.home) > 1 or stretch.gpus > max(sizes, default=0):
        return 1
    copy = job.standing.step if job.standing.is_of_copies else stretch.gpus
    return copy if copy and stretch.gpus % copy == 0 else stretch.gpus


def _moves(
    program: Program,
    problem: PlanningProblem,
    group: _Group,
    columns: JobColumns,
    inside: list[int],
    room: Ints,
) -> None:
    """Add a restart for whoever has more on a node than a slot before, and enters nothing.

    `room` [n] is the most that a group has on each of its nodes.
    """
    stretch, nodes, boards = group.stretch, group.nodes, group.boards
    price = min(
        move_cost(problem, problem.jobs[stretch.job], option)
        for option in _options(problem, stretch)
    )
    names = [problem.facts.nodes[node].name for node in nodes]
    home = np.array([name in dict(stretch.home) for name in names])
    if price <= 0 or not len(nodes) or (len(nodes) == 1 and (home.all() or stretch.option)):
        return
    slots = len(boards)
    active, entries = columns.active[:, inside], columns.entries[:, inside]
    moved = program.columns(np.full(slots, price), whole=bool((room > 1).any()))
    begun = program.columns(np.zeros(slots))
    # Whoever had these boards before enters nothing: a move it is.
    program.rows(-np.inf, 1.0, (begun[:, None], 1.0), (active[:-1], 1.0))
    program.rows(0.0, np.inf, (entries, 1.0), (begun[:, None], -1.0))
    # Before the first slot the job is at home.
    count = np.array([dict(stretch.home).get(name, 0) for name in names], dtype=np.float64)
    now = np.minimum(count / group.each, room) * (stretch.option == 0)
    before = program.columns(np.zeros(len(nodes)), lower=now, upper=now)
    earlier = np.vstack([before, boards[:-1]]).reshape(-1, 1)
    width = np.broadcast_to(room, boards.shape).reshape(-1, 1)
    each = (np.repeat(part, len(nodes))[:, None] for part in (moved, begun))
    terms = [(part, -width) for part in each]
    program.rows(-np.inf, 0.0, (boards.reshape(-1, 1), 1.0), (earlier, -1.0), *terms)


def _options(problem: PlanningProblem, stretch: Stretch) -> list[int]:
    """Return the options of a job with the boards of a stretch: power caps differ in price."""
    options = problem.jobs[stretch.job].options
    now = options[stretch.option].configuration
    alike = now.gpu_model, now.gpu_count, now.mig_profile
    return [
        number
        for number, option in enumerate(options)
        for other in (option.configuration,)
        if (other.gpu_model, other.gpu_count, other.mig_profile) == alike
    ]


def _node_rows(
    program: Program, problem: PlanningProblem, groups: Sequence[Sequence[_Group]]
) -> None:
    """Add the nodes: whether they are on, their boots, and their boards, CPUs and memory."""
    per_board, boot = node_cost_per_board(problem), boot_per_board(problem)
    shortest = problem.rules.nodes.min_off_minutes / problem.planning.slot_minutes
    for number, node in enumerate(problem.facts.nodes):
        on = program.columns(node.gpus * per_board, lower=float(node.unsure), whole=True)
        _switched(program, on, node.gpus * boot, shortest)
        here = [
            [
                (group, int(np.flatnonzero(group.nodes == number)[0]))
                for group in members
                if (group.nodes == number).any()
            ]
            for members in groups
        ]
        for members in here:
            if members:
                at = np.column_stack([group.at[:, index] for group, index in members])
                program.rows(-np.inf, 0.0, (at, 1.0), (on[:, None], -1.0))
        _room_rows(program, problem, node, on, [entry for members in here for entry in members])


def _switched(program: Program, on: Indices, boot: float, shortest: float) -> None:
    """Add the boots of a node, and that it is off for the shortest time at least, or never."""
    slots = len(on)
    if boot > 0 and slots > 1:
        boots = program.columns(np.full(slots - 1, boot))
        terms = ((on[1:, None], 1.0), (on[:-1, None], -1.0), (boots[:, None], -1.0))
        program.rows(-np.inf, 0.0, *terms)
    least = int(min(np.ceil(shortest), slots))
    for step in range(1, least):
        # Off from a slot on means off so many slots later; the horizon ends with nodes on.
        first, later = on[: slots - step], on[step:]
        earlier = on[: slots - step - 1]
        program.rows(-np.inf, 0.0, (later[:1, None], 1.0), (first[:1, None], -1.0))
        terms = ((earlier[:, None], 1.0), (first[1:, None], -1.0), (later[1:, None], 1.0))
        program.rows(-np.inf, 1.0, *terms)
        program.rows(
            -np.inf, 0.0, (on[[slots - step - 1], None], 1.0), (on[[slots - step], None], -1.0)
        )


def _room_rows(
    program: Program,
    problem: PlanningProblem,
    node: FleetNode,
    on: Indices,
    here: Sequence[tuple[_Group, int]],
) -> None:
    """Add that the jobs on a node have room there."""
    uncut = [(group, index) for group, index in here if group.stretch.slice_ is None]
    terms: list[tuple[Indices, npt.ArrayLike]] = [
        (group.boards[:, [index]], group.each) for group, index in uncut
    ]
    if len(uncut) < len(here):
        cut = program.columns(np.zeros(len(on)), upper=node.usable, whole=True)
        terms.append((cut[:, None], 1.0))
        slices = [
            (group.stretch.slice_, group.at[:, [index]])
            for group, index in here
            if group.stretch.slice_ is not None
        ]
        kinds = [*dict.fromkeys(slice_ for slice_, _at in slices)]
        for needs, width in _rooms(kinds, problem.catalogue.get(node.gpu_model).memory_slices):
            least = dict(zip(kinds, needs, strict=True))
            takers = [(at, float(least[slice_])) for slice_, at in slices if least[slice_]]
            program.rows(-np.inf, 0.0, *takers, (cut[:, None], -float(width)))
    if terms:
        stuck = sum(float(group.stretch.gpus) for group, _index in uncut)
        room = np.where(node.away or (False,) * len(on), stuck, float(node.usable))
        program.rows(-np.inf, 0.0, *terms, (on[:, None], -room[:, None]))
    for resource, limit in enumerate(room_of(node)):
        shares = [
            (group.boards[:, [index]], group.each * _need(group.stretch)[resource])
            for group, index in here
        ]
        if limit is not None and any(share for _columns, share in shares):
            program.rows(-np.inf, float(limit), *shares)


def _rooms(kinds: Sequence[MigPlacement], memory: int) -> list[tuple[tuple[int, ...], int]]:
    """Return the memory slices that an instance of each kind takes of some of a board, and these.

    In any stretch of them: what begins at legal places only may leave others of no use.
    """
    room: dict[tuple[int, ...], int] = {}
    for size in range(1, memory + 1):
        for first in range(memory - size + 1):
            least = tuple(
                min(
                    max(0, min(first + size, at + kind.memory_slices) - max(first, at))
                    for at in kind.starts
                )
                for kind in kinds
            )
            if any(least):
                room.setdefault(least, size)
    return [*room.items()]


def _need(stretch: Stretch) -> tuple[float, float]:
    """Return the milli-CPUs and bytes that a job asks for beside each of its boards."""
    return (
        milli_cpus(stretch.cpus or 0.0) / stretch.gpus,
        memory_bytes(stretch.memory_mib or 0.0) / stretch.gpus,
    )
