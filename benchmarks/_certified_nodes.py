"""Plans on nodes held to an exact model of docs/internals/planner.md.

`exact_fleet` states what that page defines, sums and constraints alike, for HiGHS: jobs, options,
nodes by name, boots, moves, quotas, maintenance, pins and the limit on changes. It takes from the
product what an option costs in a slot and to enter, and nothing of the solver: no pools, no counts,
no rows. Where the page leaves more freedom to a plan than the product takes (a job may be spread
over any nodes, a slice may be anywhere on a node), so does the model.

`cost_as_published` adds up what a plan says of itself: steps, stays and nodes that are on.

Not in the model: power limits, guarantees, several schedulers or partitions, power caps.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from benchmarks._certified import COMPARED, IMPOSSIBLE, NO_PLACE, ROUNDED, Judged
from benchmarks._certified_fleet import AS_OF, FleetFeatures, problem_of
from benchmarks.exact_plan import ExactModel, Program, solve_with_highs
from data.base.errors import ImpossibleProblemError
from data.records.plans import Plan
from data.settings.fleet import BORROW_PRICE
from planner.costs.configurations import Option
from planner.fleet.fleet_nodes import FleetNode
from planner.jobs.elasticity import Elasticity
from planner.plan import build_plan
from planner.problem.planning_problem import FORBIDDEN, PlanningProblem

Floats = npt.NDArray[np.float64]
Columns = npt.NDArray[np.int64]
SINGLE = 1e-5
"""Share of the cost: the product hands costs to its solver in single precision."""
_START, _CHECKPOINT, _LOST = (15, 62, 250), (5, 30, 120), (0, 300, 1800)
MOVE_SECONDS = {
    Elasticity.SERVICE: (_START,),
    Elasticity.ELASTIC: (_CHECKPOINT, _START),
    Elasticity.RESTARTABLE: (_CHECKPOINT, _LOST, _START),
    Elasticity.RIGID: (_CHECKPOINT, _LOST, _START),
}
"""What a move takes, low, central and high (docs/recommendations.md, "What a change costs")."""
SECONDS = 60.0
"""HiGHS may take so long for one problem."""


def exact_fleet(problem: PlanningProblem) -> ExactModel:
    """Return the mixed integer program of docs/internals/planner.md, "Definition on nodes"."""
    program = Program()
    nodes, slots = problem.facts.nodes, len(problem.slot_starts)
    on = _node_columns(program, problem)
    in_use: list[list[list[int]]] = [[[] for _ in range(slots)] for _ in nodes]
    tenants: dict[int, list[list[tuple[int, float]]]] = {}
    for column in range(len(problem.jobs)):
        chosen = _choices(program, problem, column)
        placed = _places(program, problem, column, chosen)
        for node, columns in placed.items():
            for slot in range(slots):
                in_use[node][slot].append(int(columns[slot]))
        owner = int(problem.tenants.of_job[column])
        used = tenants.setdefault(owner, [[] for _ in range(slots)])
        for slot in range(slots):
            for option, boards in enumerate(problem.boards[: chosen.shape[1], column]):
                used[slot].append((int(chosen[slot, option]), float(boards)))
    for number, node in enumerate(nodes):
        for slot in range(slots):
            if in_use[number][slot]:
                held = np.array([in_use[number][slot]])
                room = _room_on(problem, node, slot)
                program.rows_of([(held, 1.0), (on[number, slot].reshape(1, 1), -room)], -np.inf, 0)
    if problem.tenants.limiting:
        _quota_rows(program, problem, tenants)
    return program.model()


def _room_on(problem: PlanningProblem, node: FleetNode, slot: int) -> float:
    """Return the boards of a node in a slot: in maintenance those of jobs that nobody may move."""
    if not (node.away and node.away[slot]):
        return float(node.usable)
    stuck = 0
    for column, job in enumerate(problem.jobs):
        if not problem.movable(column):
            stuck += dict(problem.facts.homes[job.demand.job.job_id].boards).get(node.name, 0)
    return float(stuck)


def _node_columns(program: Program, problem: PlanningProblem) -> Columns:
    """Add nodes [N, T] that are on, and their boots; all are on before the first slot."""
    hours = problem.planning.slot_minutes / 60
    rules = problem.rules.nodes
    price = problem.energy.pue * problem.tariff.per_kwh
    gpus = np.array([node.gpus for node in problem.facts.nodes], dtype=np.float64)
    kilowatts = gpus * rules.base_watts_per_gpu / 1000
    on = program.add(np.outer(kilowatts, price * hours), 1.0, whole=True)
    boot = kilowatts * rules.boot_minutes / 60 * price.mean()
    boots = program.add(np.repeat(boot[:, None], on.shape[1], axis=1), 1.0, whole=True)
    for slot in range(1, on.shape[1]):
        terms = [on[:, slot], on[:, slot - 1], boots[:, slot]]
        columns = np.stack(terms, axis=1)
        program.rows_of([(columns, np.array([[1.0, -1.0, -1.0]]))], -np.inf, 0.0)
    always = [n for n, node in enumerate(problem.facts.nodes) if node.foreign or not node.observed]
    if always:
        program.rows_of([(on[always].reshape(-1, 1), 1.0)], 1.0, 1.0)
    return on


def _choices(program: Program, problem: PlanningProblem, column: int) -> Columns:
    """Add what option a job has in each slot [T, C], and its changes."""
    job = problem.jobs[column]
    options, slots = len(job.options), len(problem.slot_starts)
    cost = problem.slot_cost[:, :options, column]
    allowed = cost < FORBIDDEN
    chosen = program.add(np.where(allowed, cost, 0.0), 1.0, whole=True)
    program.rows_of([(chosen, 1.0)], 1.0, 1.0)
    if (~allowed).any():
        program.rows_of([(chosen[~allowed][:, None], 1.0)], 0.0, 0.0)
    if job.pinned is not None:
        program.rows_of([(chosen[:, [job.pinned]], 1.0)], 1.0, 1.0)
    enter = np.repeat(problem.enter_cost[None, :options, column], slots, axis=0)
    entered = program.add(enter, 1.0, whole=True)
    present = (np.arange(options) == 0).astype(np.float64)
    for slot in range(slots):
        now, into = chosen[slot][:, None], entered[slot][:, None]
        if slot:
            program.rows_of(
                [(now, 1.0), (chosen[slot - 1][:, None], -1.0), (into, -1.0)], -np.inf, 0
            )
        else:
            program.rows_of([(now, 1.0), (into, -1.0)], -np.inf, present)
    window = 1440 // problem.planning.slot_minutes
    limit = problem.planning.max_changes_per_day
    for first in range(slots if limit else 0):
        program.rows_of([(entered[first : first + window].reshape(1, -1), 1.0)], 0, float(limit))
    return chosen


def _places(
    program: Program, problem: PlanningProblem, column: int, chosen: Columns
) -> dict[int, Columns]:
    """Add the boards of a job on each node that it may be on, by node [T], and its moves."""
    nodes, slots = problem.facts.nodes, len(problem.slot_starts)
    job_id = problem.jobs[column].demand.job.job_id
    home = dict(problem.facts.homes[job_id].boards)
    options = range(chosen.shape[1])
    model_of = [int(problem.model_of[option, column]) for option in options]
    models = {problem.gpu_models[model] for model in model_of if model >= 0}
    movable = problem.movable(column)
    placed: dict[int, Columns] = {}
    used: dict[int, Columns] = {}
    for number, node in enumerate(nodes):
        elsewhere = node.name not in home
        stays = not movable and node.gpu_model == problem.jobs[column].demand.job.gpu_model
        if node.gpu_model not in models or (elsewhere and (stays or not node.open)):
            continue
        room = float(node.usable if node.open else home[node.name])
        placed[number] = program.add(np.zeros(slots), room, whole=False)
        used[number] = program.add(np.zeros(slots), 1.0, whole=True)
        pair = np.stack([placed[number], used[number]], axis=1)
        program.rows_of([(pair, np.array([[1.0, -room]]))], -np.inf, 0.0)
    for slot in range(slots):
        for model in sorted({*model_of} - {-1}):
            of_model = [option for option in options if model_of[option] == model]
            room = np.array([[_room_of(problem, column, option) for option in of_model]])
            terms = [(chosen[slot, of_model][None, :], room)]
            own = [n for n in placed if nodes[n].gpu_model == problem.gpu_models[model]]
            if own:
                columns = np.array([[int(placed[n][slot]) for n in own]])
                terms.append((columns, np.array([[-1.0]])))
            program.rows_of(terms, 0.0, 0.0)
    _moves(program, problem, column, chosen, used)
    return placed


def _room_of(problem: PlanningProblem, column: int, option: int) -> float:
    """Return the room of an option on boards: of a slice its memory slices, of eight or four."""
    configuration = problem.jobs[column].options[option].configuration
    model = problem.catalogue.find(configuration.gpu_model)
    profile = model.mig_profile(configuration.mig_profile) if model else None
    placement = model.mig_placement(profile) if model and profile else None
    if model is None or placement is None:
        return float(problem.boards[option, column])
    return placement.memory_slices / model.memory_slices


def _moves(
    program: Program,
    problem: PlanningProblem,
    column: int,
    chosen: Columns,
    used: dict[int, Columns],
) -> None:
    """Add a restart for whoever takes up a node and changes nothing else."""
    nodes, slots = problem.facts.nodes, len(problem.slot_starts)
    job = problem.jobs[column]
    home = dict(problem.facts.homes[job.demand.job.job_id].boards)
    for option in range(chosen.shape[1]):
        model = problem.catalogue.find(job.options[option].configuration.gpu_model)
        if model is None or model.price_per_hour * job.options[option].boards <= 0:
            continue
        price = _move_price(problem, column, job.options[option])
        moved = program.add(np.full(slots, price), 1.0, whole=True)
        for slot in range(slots):
            for number, columns in used.items():
                terms = [(chosen[slot, option], 1.0), (columns[slot], 1.0), (moved[slot], -1.0)]
                known = 2.0
                if slot:
                    terms += [(chosen[slot - 1, option], 1.0), (columns[slot - 1], -1.0)]
                elif option == 0:
                    known = 1.0 + float(nodes[number].name in home)
                else:
                    continue
                numbers = np.array([[int(at) for at, _factor in terms]])
                factors = np.array([[factor for _at, factor in terms]])
                program.rows_of([(numbers, factors)], -np.inf, known)


def _quota_rows(
    program: Program,
    problem: PlanningProblem,
    tenants: dict[int, list[list[tuple[int, float]]]],
) -> None:
    """Add the price of boards above a quota, and above what may be borrowed."""
    settings, hours = problem.rules.tenants, problem.planning.slot_minutes / 60
    for owner, used in tenants.items():
        if owner < 0:
            continue
        share = problem.tenants.shares[owner]
        for entries in used:
            numbers = np.array([[at for at, _boards in entries]])
            boards = np.array([[boards for _at, boards in entries]])
            borrowed = np.array([[BORROW_PRICE * hours]])
            beyond = np.array([[settings.over_quota_penalty * hours]])
            terms = [
                (numbers, boards),
                (program.add(borrowed, share.borrowable, whole=False), -1.0),
                (program.add(beyond, np.inf, whole=False), -1.0),
            ]
            program.rows_of(terms, -np.inf, share.quota)


def cost_as_published(problem: PlanningProblem, plan: Plan) -> float:
    """Return what a plan costs by its own record: steps, stays with moves, nodes that are on.

    Where two options of a job have one configuration, the cheaper one counts.
    """
    hours, rules = problem.planning.slot_minutes / 60, problem.rules.nodes
    price = problem.energy.pue * problem.tariff.per_kwh
    total = 0.0
    boards_of: dict[int, Floats] = {}
    for column, (job, planned) in enumerate(zip(problem.jobs, plan.jobs, strict=True)):
        before = 0
        held = boards_of.setdefault(
            int(problem.tenants.of_job[column]), np.zeros(len(problem.slot_starts))
        )
        for slot, step in enumerate(planned.steps):
            now = _option_of(problem, column, slot, before, job.options, step)
            total += float(problem.slot_cost[slot, now, column])
            total += float(problem.enter_cost[now, column]) if now != before else 0.0
            held[slot] += float(problem.boards[now, column])
            before = now
        for start in {stay.start for stay in planned.stays if stay.moved}:
            options = problem.jobs[column].options
            step = planned.steps[start]
            held_option = next(option for option in options if option.configuration == step)
            total += _move_price(problem, column, held_option)
    for node in plan.nodes:
        kilowatts = node.gpus * rules.base_watts_per_gpu / 1000
        on = np.array(node.on, dtype=np.float64)
        boots = np.clip(np.diff(on), 0.0, None).sum()
        total += kilowatts * float(on @ price) * hours
        total += kilowatts * boots * rules.boot_minutes / 60 * float(price.mean())
    if problem.tenants.limiting:
        settings = problem.rules.tenants
        for owner, held in boards_of.items():
            if owner >= 0:
                share = problem.tenants.shares[owner]
                over = np.clip(held - share.quota, 0.0, None)
                beyond = np.clip(over - share.borrowable, 0.0, None)
                total += float((over - beyond).sum()) * BORROW_PRICE * hours
                total += float(beyond.sum()) * settings.over_quota_penalty * hours
    return total


def _option_of(
    problem: PlanningProblem, column: int, slot: int, before: int, options: Sequence, step: object
) -> int:
    fitting = [n for n, option in enumerate(options) if option.configuration == step]
    if before in fitting:
        return before
    return min(fitting, key=lambda option: float(problem.slot_cost[slot, option, column]))


def _move_price(problem: PlanningProblem, column: int, option: Option) -> float:
    """Return rent of a move's mean time, and its power beyond idle at the mean price of a kWh."""
    demand = problem.jobs[column].demand
    model = problem.catalogue.get(option.configuration.gpu_model)
    parts = np.array(MOVE_SECONDS[demand.standing.elasticity], dtype=np.float64)
    hours = float((parts @ [0.3, 0.4, 0.3]).sum()) / 3_600
    watts = 0.0 if demand.power_q50 is None else float(demand.power_q50.mean())
    beyond_idle = max(0.0, watts - option.boards * model.idle_watts) / 1000 * problem.energy.pue
    per_kwh = float(problem.tariff.per_kwh.mean())
    return hours * (option.boards * model.price_per_hour + beyond_idle * per_kwh)


def overfull(problem: PlanningProblem, plan: Plan) -> str:
    """Return which node of a plan holds more boards than it has, '' where none does."""
    nodes = {node.name: node for node in problem.facts.nodes}
    used = {name: np.zeros(len(problem.slot_starts)) for name in nodes}
    cut: set[tuple[str, int | None, int]] = set()
    for planned in plan.jobs:
        for stay in planned.stays:
            for slot in range(stay.start, stay.end):
                board = (stay.node, stay.mig_board, slot)
                if stay.mig_board is None or board not in cut:
                    used[stay.node][slot] += stay.gpus
                cut.add(board)
    for name, boards in used.items():
        room = [_room_on(problem, nodes[name], slot) for slot in range(len(boards))]
        over = np.flatnonzero(boards > np.array(room))
        if len(over):
            return f"{name} holds {boards[over[0]]:g} boards in slot {over[0]}"
    return ""


def judged(features: FleetFeatures) -> Judged:
    """Return what the plan of this fleet gets wrong: bound <= optimum <= plan, and its record."""
    problem = problem_of(features)
    exact = solve_with_highs(exact_fleet(problem), SECONDS)
    try:
        plan = build_plan(problem, budget_seconds=np.inf, created_at=AS_OF)
    except ImpossibleProblemError as error:
        broken = f"{error}, and yet {exact.cost} is possible" if exact.status == "optimal" else ""
        return Judged(kind=IMPOSSIBLE, broken=broken)
    if any("no node of" in text or "GPUs missing" in text for text in plan.violations):
        return Judged(kind=NO_PLACE)
    if exact.status != "optimal":
        return Judged(kind=COMPARED, broken=f"the oracle ended {exact.status}")
    found = Judged(kind=COMPARED, cost=plan.cost, bound=plan.lower_bound, optimum=exact.cost)
    published = cost_as_published(problem, plan)
    if abs(published - plan.cost) > ROUNDED * max(1.0, abs(plan.cost)):
        return replace(found, broken=f"stated cost {plan.cost}, its record costs {published}")
    if full := overfull(problem, plan):
        return replace(found, broken=full)
    return found.checked(plan.bounds[0].name, SINGLE)
