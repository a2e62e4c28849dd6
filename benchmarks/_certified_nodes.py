"""Plans on nodes held to an exact model of docs/internals/planner.md.

`exact_fleet` states what that page defines, sums and constraints alike, for HiGHS: jobs, options,
nodes by name, boots, moves, quotas, maintenance, pins and the limit on changes. It takes from the
product what an option costs in a slot and to enter, and nothing of the solver: no pools, no counts,
no rows.

`cost_as_published` adds up what a plan says of itself: steps, stays and nodes that are on.

Not in the model: power limits, guarantees, several schedulers or partitions, CPUs and memory.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from benchmarks._certified import COMPARED, IMPOSSIBLE, NO_PLACE, ROUNDED, Judged, timed
from benchmarks._certified_fleet import AS_OF, FleetFeatures, problem_of
from benchmarks.exact_plan import ExactModel, Program, solve_with_highs
from data.base.errors import ImpossibleProblemError
from data.catalogue.gpu_catalogue import MigPlacement
from data.facts.jobs import WorkloadKind
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
SECONDS = 600.0
"""HiGHS may take so long for one problem, on a busy machine too."""


def exact_fleet(problem: PlanningProblem) -> ExactModel:
    """Return the mixed integer program of docs/internals/planner.md, "Definition on nodes"."""
    program = Program()
    nodes, slots = problem.facts.nodes, len(problem.slot_starts)
    on = _node_columns(program, problem)
    in_use: list[list[Columns]] = [[] for _ in nodes]
    sliced: list[list[tuple[MigPlacement, Columns]]] = [[] for _ in nodes]
    tenants: dict[int, list[list[tuple[int, float]]]] = {}
    for column in range(len(problem.jobs)):
        chosen = _choices(program, problem, column)
        placed, slices = _places(program, problem, column, chosen)
        for node, columns in placed.items():
            in_use[node].append(columns)
        for node, placement, columns in slices:
            sliced[node].append((placement, columns))
        owner = int(problem.tenants.of_job[column])
        used = tenants.setdefault(owner, [[] for _ in range(slots)])
        for slot in range(slots):
            for option, boards in enumerate(problem.boards[: chosen.shape[1], column]):
                used[slot].append((int(chosen[slot, option]), float(boards)))
    for number, node in enumerate(nodes):
        if sliced[number]:
            in_use[number].append(_cut_boards(program, problem, node, sliced[number]))
        if in_use[number]:
            held = np.stack(in_use[number], axis=1)
            room = np.array([[_room_on(problem, node, slot)] for slot in range(slots)])
            program.rows_of([(held, 1.0), (on[number][:, None], -room)], -np.inf, 0.0)
    if problem.tenants.limiting:
        _quota_rows(program, problem, tenants)
    return program.model()


def _cut_boards(
    program: Program,
    problem: PlanningProblem,
    node: FleetNode,
    slices: Sequence[tuple[MigPlacement, Columns]],
) -> Columns:
    """Add the boards of a node that are cut [T]: room for all slices, and for each at its starts.

    Whoever needs the first half of a board, or all of it, excludes others from there.
    """
    cut = program.add(np.zeros(len(problem.slot_starts)), float(node.gpus), whole=True)
    memory = problem.catalogue.get(node.gpu_model).memory_slices
    for first in range(memory):
        for last in range(first, memory):
            inside = [
                (columns, _least_inside(placement, first, last)) for placement, columns in slices
            ]
            parts = [(columns, float(least)) for columns, least in inside if least]
            if parts:
                held = np.stack([columns for columns, _least in parts], axis=1)
                least = np.array([[least for _columns, least in parts]])
                terms = [(held, least), (cut[:, None], first - last - 1.0)]
                program.rows_of(terms, -np.inf, 0.0)
    return cut


def _least_inside(placement: MigPlacement, first: int, last: int) -> int:
    """Return the memory slices from first to last that an instance takes wherever it starts."""
    return min(
        max(0, min(last + 1, start + placement.memory_slices) - max(first, start))
        for start in placement.starts
    )


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
    _shortest_off(program, on, rules.min_off_minutes / problem.planning.slot_minutes)
    always = [n for n, node in enumerate(problem.facts.nodes) if node.unsure]
    if always:
        program.rows_of([(on[always].reshape(-1, 1), 1.0)], 1.0, 1.0)
    return on


def _shortest_off(program: Program, on: Columns, shortest: float) -> None:
    """Forbid every time off that is too short, but for a node that is off in all slots."""
    slots = on.shape[1]
    for first in range(slots):
        for end in range(first + 1, slots + 1):
            if end - first >= min(shortest, slots):
                continue
            # Of a time off [first, end) one slot is on, or its neighbour before or after is off.
            edges = [on[:, slot] for slot in (first - 1, end) if 0 <= slot < slots]
            inside = [on[:, slot] for slot in range(first, end)]
            factors = np.array([[1.0] * len(inside) + [-1.0] * len(edges)])
            columns = np.stack([*inside, *edges], axis=1)
            program.rows_of([(columns, factors)], 1.0 - len(edges), np.inf)


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
    enter, leave = (np.repeat(part[None], slots, axis=0) for part in _change_costs(problem, column))
    entered = program.add(enter, 1.0, whole=True)
    left = program.add(leave, 1.0, whole=True)
    present = (np.arange(options) == 0).astype(np.float64)
    for slot in range(slots):
        now, into = chosen[slot][:, None], entered[slot][:, None]
        if slot:
            before = chosen[slot - 1][:, None]
            program.rows_of([(now, 1.0), (before, -1.0), (into, -1.0)], -np.inf, 0)
            out = left[slot][:, None]
            program.rows_of([(before, 1.0), (now, -1.0), (out, -1.0)], -np.inf, 0)
        else:
            # Whoever leaves what it has now pays on entering.
            program.rows_of([(now, 1.0), (into, -1.0)], -np.inf, present)
    window = 1440 // problem.planning.slot_minutes
    limit = problem.planning.max_changes_per_day
    for first in range(slots if limit else 0):
        program.rows_of([(entered[first : first + window].reshape(1, -1), 1.0)], 0, float(limit))
    return chosen


def _change_costs(problem: PlanningProblem, column: int) -> tuple[Floats, Floats]:
    """Return the costs of entering and of leaving each option of a job [C].

    Caps on the present boards cost a hundredth of an hour's rent, back as well; whoever comes back
    to these boards pays for it on leaving the others.
    """
    job = problem.jobs[column]
    options = len(job.options)
    enter, leave = problem.enter_cost[:options, column].copy(), np.zeros(options)
    home = np.array([_same_boards(job.options[0], option) for option in job.options])
    if home.sum() > 1 and not enter[home][1:].any():
        model = problem.catalogue.find(job.options[0].configuration.gpu_model)
        leave[~home] = enter[0]
        enter[home] = 0.01 * job.options[0].boards * (model.price_per_hour if model else 0.0)
    return enter, leave


def _same_boards(one: Option, other: Option) -> bool:
    """Return whether options differ in their power cap alone, if at all."""
    cap = one.configuration.power_cap_watts
    return replace(other.configuration, power_cap_watts=cap) == one.configuration


def _places(
    program: Program, problem: PlanningProblem, column: int, chosen: Columns
) -> tuple[dict[int, Columns], list[tuple[int, MigPlacement, Columns]]]:
    """Add a job's whole boards by node [T], its slices by node and profile, and its moves."""
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
        placed[number] = program.add(np.zeros(slots), room, whole=True)
        used[number] = program.add(np.zeros(slots), 1.0, whole=True)
        pair = np.stack([placed[number], used[number]], axis=1)
        program.rows_of([(pair, np.array([[1.0, -room]]))], -np.inf, 0.0)
    slices = _slices(program, problem, column, chosen, used)
    for model in sorted({*model_of} - {-1}):
        whole = [
            option
            for option in options
            if model_of[option] == model and _placement_of(problem, column, option) is None
        ]
        boards = problem.boards[whole, column][None, :]
        terms = [(chosen[:, whole], boards)]
        own = [n for n in placed if nodes[n].gpu_model == problem.gpu_models[model]]
        if own:
            terms.append((np.stack([placed[n] for n in own], axis=1), -1.0))
        program.rows_of(terms, 0.0, 0.0)
    for number, columns in used.items():
        here = [placed[number], *(part for node, _placement, part in slices if node == number)]
        held = np.stack(here, axis=1)
        program.rows_of([(columns[:, None], 1.0), (held, -1.0)], -np.inf, 0.0)
    _together(program, problem, column, chosen, used)
    _moves(program, problem, column, chosen, placed, slices)
    for number in used:
        # Boards beyond those at home have a price where not all work is known.
        if (price := _price_of_doubt(problem, nodes[number])) is not None:
            here = [placed[number], *(part for node, _placement, part in slices if node == number)]
            more = program.add(price, np.inf, whole=False)
            terms = [(np.stack(here, axis=1), 1.0), (more[:, None], -1.0)]
            program.rows_of(terms, -np.inf, float(home.get(nodes[number].name, 0)))
    return placed, slices


def _price_of_doubt(problem: PlanningProblem, node: FleetNode) -> Floats | None:
    """Return what a board that is not at home costs more in each slot [T], None where nothing.

    The largest node's base power and boot, and a hundredth of the dearest rent, where a node of the
    model without unknown work could be taken instead.
    """
    nodes, rules = problem.facts.nodes, problem.rules.nodes
    others = [other for other in nodes if other.gpu_model == node.gpu_model]
    if not node.unsure or not any(other.open and not other.unsure for other in others):
        return None
    hours = problem.planning.slot_minutes / 60
    price = problem.energy.pue * problem.tariff.per_kwh
    kilowatts = max(other.gpus for other in nodes) * rules.base_watts_per_gpu / 1000
    boot = rules.boot_minutes / 60 * price.mean()
    rents = [problem.catalogue.get(model).price_per_hour for model in problem.gpu_models]
    return kilowatts * (price * hours + boot) + 0.01 * hours * max(rents)


def _slices(
    program: Program,
    problem: PlanningProblem,
    column: int,
    chosen: Columns,
    used: dict[int, Columns],
) -> list[tuple[int, MigPlacement, Columns]]:
    """Add a job's slices by node and profile [T]: a slice is on one node that the job uses."""
    nodes, slots = problem.facts.nodes, len(problem.slot_starts)
    slices = []
    for option in range(chosen.shape[1]):
        placement = _placement_of(problem, column, option)
        model = problem.jobs[column].options[option].configuration.gpu_model
        own = [number for number in used if nodes[number].gpu_model == model]
        if placement is None or not own:
            continue
        columns = program.add(np.zeros((slots, len(own))), 1.0, whole=True)
        program.rows_of([(chosen[:, [option]], 1.0), (columns, -1.0)], 0.0, 0.0)
        for position, number in enumerate(own):
            slices.append((number, placement, columns[:, position]))
            pair = np.stack([columns[:, position], used[number]], axis=1)
            program.rows_of([(pair, np.array([[1.0, -1.0]]))], -np.inf, 0.0)
    return slices


def _together(
    program: Program,
    problem: PlanningProblem,
    column: int,
    chosen: Columns,
    used: dict[int, Columns],
) -> None:
    """Keep a job on one node: slices, and training that fits one; replicas may be apart."""
    job = problem.jobs[column]
    largest: dict[str, float] = {}
    for node in problem.facts.nodes:
        largest[node.gpu_model] = max(largest.get(node.gpu_model, 0.0), float(node.gpus))
    apart = []
    for entry in job.options:
        wide = entry.boards > largest.get(entry.configuration.gpu_model, 0.0)
        serves = job.demand.job.kind is WorkloadKind.INFERENCE
        apart.append(not entry.configuration.mig_profile and (wide or serves))
    if used and not all(apart):
        on = np.stack([*used.values()], axis=1)
        free = chosen[:, np.flatnonzero(apart)]
        program.rows_of([(on, 1.0), (free, 1.0 - len(used))], -np.inf, 1.0)
    held = sum(dict(problem.facts.homes[job.demand.job.job_id].boards).values())
    grown = np.flatnonzero([entry.boards > held for entry in job.options])
    for number, columns in used.items():
        closed = not problem.facts.nodes[number].open
        if closed and len(grown) and job.demand.job.kind is WorkloadKind.TRAINING:
            # It begins anew, and a closed node takes nobody.
            terms = [(columns[:, None], 1.0), (chosen[:, grown], 1.0)]
            program.rows_of(terms, -np.inf, 1.0)


def _placement_of(problem: PlanningProblem, column: int, option: int) -> MigPlacement | None:
    """Return the memory slices and legal starts of an option, None of whole boards."""
    configuration = problem.jobs[column].options[option].configuration
    model = problem.catalogue.find(configuration.gpu_model)
    profile = model.mig_profile(configuration.mig_profile) if model else None
    return model.mig_placement(profile) if model and profile else None


def _moves(
    program: Program,
    problem: PlanningProblem,
    column: int,
    chosen: Columns,
    placed: dict[int, Columns],
    slices: Sequence[tuple[int, MigPlacement, Columns]],
) -> None:
    """Add a restart for whoever has more on a node than before, and the same boards in all.

    A power cap restarts nothing, so that whoever gets one elsewhere has moved.
    """
    nodes, slots = problem.facts.nodes, len(problem.slot_starts)
    job = problem.jobs[column]
    home = dict(problem.facts.homes[job.demand.job.job_id].boards)
    for first, option in enumerate(job.options):
        alike = [n for n, other in enumerate(job.options) if _same_boards(option, other)]
        model = problem.catalogue.find(option.configuration.gpu_model)
        if alike[0] < first or model is None or model.price_per_hour * option.boards <= 0:
            continue
        moved = program.add(np.full(slots, _move_price(problem, column, option)), 1.0, whole=True)
        placement = _placement_of(problem, column, first)
        held = [*placed.items()]
        if placement is not None:
            held = [(node, part) for node, kind, part in slices if kind == placement]
        for slot in range(slots):
            for number, columns in held:
                here = nodes[number]
                room = 1.0 if placement else float(max(here.usable, home.get(here.name, 0)))
                terms = [(columns[slot], 1.0), (moved[slot], -room)]
                terms += [(chosen[slot, other], room) for other in alike]
                known = 2 * room
                if slot:
                    terms += [(chosen[slot - 1, other], room) for other in alike]
                    terms.append((columns[slot - 1], -1.0))
                elif first == 0:
                    known = room + home.get(here.name, 0)
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
    node_of = {node.name: node for node in problem.facts.nodes}
    for column, (job, planned) in enumerate(zip(problem.jobs, plan.jobs, strict=True)):
        before = 0
        enter, leave = _change_costs(problem, column)
        held = boards_of.setdefault(
            int(problem.tenants.of_job[column]), np.zeros(len(problem.slot_starts))
        )
        for slot, step in enumerate(planned.steps):
            now = _option_of(problem, column, slot, before, job.options, step)
            total += float(problem.slot_cost[slot, now, column])
            total += float(leave[before] + enter[now]) if now != before else 0.0
            held[slot] += float(problem.boards[now, column])
            before = now
        for start in {stay.start for stay in planned.stays if stay.moved}:
            options = problem.jobs[column].options
            step = planned.steps[start]
            held_option = next(option for option in options if option.configuration == step)
            total += _move_price(problem, column, held_option)
        home = dict(problem.facts.homes[job.demand.job.job_id].boards)
        for stay in planned.stays:
            doubt = _price_of_doubt(problem, node_of[stay.node])
            if doubt is not None:
                more = max(0, stay.gpus - home.get(stay.node, 0))
                total += more * float(doubt[stay.start : stay.end].sum())
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
    exact, exact_seconds = timed(lambda: solve_with_highs(exact_fleet(problem), SECONDS))
    try:
        plan, seconds = timed(lambda: build_plan(problem, budget_seconds=np.inf, created_at=AS_OF))
    except ImpossibleProblemError as error:
        broken = f"{error}, and yet {exact.cost} is possible" if exact.status == "optimal" else ""
        return Judged(kind=IMPOSSIBLE, broken=broken)
    if any("no node of" in text or "GPUs missing" in text for text in plan.violations):
        possible = f"{plan.violations}, and yet {exact.cost} is possible"
        return Judged(kind=NO_PLACE, broken=possible if exact.status == "optimal" else "")
    if exact.status != "optimal":
        return Judged(kind=COMPARED, broken=f"the oracle ended {exact.status}")
    found = Judged(
        kind=COMPARED,
        cost=plan.cost,
        bound=plan.lower_bound,
        optimum=exact.cost,
        seconds=seconds,
        exact_seconds=exact_seconds,
    )
    published = cost_as_published(problem, plan)
    if abs(published - plan.cost) > ROUNDED * max(1.0, abs(plan.cost)):
        return replace(found, broken=f"stated cost {plan.cost}, its record costs {published}")
    if full := overfull(problem, plan):
        return replace(found, broken=full)
    return found.checked(plan.bounds[0].name, SINGLE)
