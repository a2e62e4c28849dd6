"""A planning problem in the solver's arrays, and the solver's rows as options of jobs.

A row of the solver's grid is a pool, a number of boards and, where a job has several options of
both (a power cap), which of them. An option of a model with several pools has a row in each.
"""

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from planner.costs.cost import move_costs, rent_per_hour
from planner.costs.energy import power_under
from planner.fleet.pools import feeds
from planner.fleet.tenants import with_quotas
from planner.jobs.expected_value import mean_of
from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import FORBIDDEN, PlanningProblem
from planner.slots.broken_limits import WhenText, broken, clock_text
from planner.slots.slot_problem import (
    NOTHING,
    ConfigurationGrid,
    PlannedJobs,
    PowerDomains,
    SlotFleet,
    SlotProblem,
)

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]

_CHANGE_CHARGE_HOURS = 0.01
"""A change that costs nothing is charged so much rent: caps would flap from slot to slot."""
_WATTS = 1000.0
_MINUTES_PER_DAY = 1440


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotMapping:
    """The problem for the solver; options [J, S] of its rows (-1: none); soft limits given up.

    `home_row` [J, C] is the row of an option in the job's own pool, or in the first that has one.
    `without_maintenance` [P, H] are the boards if no node was away.
    """

    slots: SlotProblem
    option_of: Indices
    home_row: Indices
    given_up: tuple[str, ...]
    without_maintenance: Floats

    def ignoring_maintenance(self) -> "SlotMapping":
        """Return the problem in which the boards of nodes in maintenance count.

        Where jobs cannot do without them: nodes then show which of the jobs have no place.
        """
        fleet = replace(self.slots.fleet, capacity=self.without_maintenance)
        return replace(self, slots=replace(self.slots, fleet=fleet))


def as_slot_problem(problem: PlanningProblem) -> SlotMapping:
    """Return the problem in the solver's arrays."""
    rows, option_of, home_row = _rows(problem)
    jobs, slots, size = len(problem.jobs), len(problem.slot_starts), len(rows)
    base = np.full((jobs, slots, size), np.inf, dtype=np.float32)
    enter = np.zeros((jobs, size), dtype=np.float32)
    for job, row in np.argwhere(option_of != NOTHING):
        option = option_of[job, row]
        cost = problem.slot_cost[:, option, job]
        base[job, :, row] = np.where(cost >= FORBIDDEN, np.inf, cost)
        enter[job, row] = problem.enter_cost[option, job]
    leave = _free_changes_within_home(option_of, problem, enter)
    keys = list(rows)
    grid = ConfigurationGrid(
        names=tuple(
            f"{boards:g} of {problem.pools.pools[pool].name if pool >= 0 else 'nothing'}, {number}"
            for pool, boards, number in keys
        ),
        gpu_type=np.array([pool for pool, _boards, _number in keys]),
        boards=np.array([boards for _pool, boards, _number in keys]),
        layout=np.array([max(pool, -1) + 1 for pool, _boards, _number in keys]),
        layout_change=_layout_changes(problem),
    )
    pinned = _pins(problem, home_row)
    capacity, lasting, given_up = _capacity(problem, grid, base, pinned)
    slot_problem = SlotProblem(
        grid=grid,
        jobs=PlannedJobs(
            names=tuple(entry.demand.job.job_id for entry in problem.jobs),
            base_cost=base,
            power_kw=_power(problem, option_of),
            leave_cost=leave,
            enter_cost=enter,
            layout_cost=_moving_costs(problem),
            present=home_row[:, 0],
            tenant=np.full(jobs, NOTHING),
            work=np.zeros(jobs),
            rate=np.zeros_like(enter),
            deadline=np.full(jobs, slots),
            unfinished_price=np.zeros(jobs),
            required=pinned,
        ),
        fleet=_fleet(problem, capacity),
        power=_power_domains(problem),
        max_changes=problem.planning.max_changes_per_day,
        change_window=_MINUTES_PER_DAY // problem.planning.slot_minutes,
    )
    hours = problem.planning.slot_minutes / 60
    limited = with_quotas(slot_problem, problem.tenants, problem.rules.tenants, hours)
    return SlotMapping(
        slots=limited,
        option_of=option_of,
        home_row=home_row,
        given_up=given_up,
        without_maintenance=lasting,
    )


def _free_changes_within_home(
    option_of: Indices, problem: PlanningProblem, enter: Singles
) -> Singles:
    """Return leave costs [J, S] of jobs that change for nothing on their present boards (a cap).

    Entering such an option is free only from these boards: whoever is elsewhere pays for coming
    back when leaving there. On them a change costs a trifle, so that it comes only where it lasts.
    """
    leave = np.zeros_like(enter)
    for job, entry in enumerate(problem.jobs):
        now = entry.options[0]
        home = [
            number
            for number, option in enumerate(entry.options)
            if option.configuration.gpu_model == now.configuration.gpu_model
            and option.boards == now.boards
        ]
        if len(home) < 2 or problem.enter_cost[home[1:], job].any():
            continue
        rows = np.flatnonzero(option_of[job] != NOTHING)
        here = np.isin(option_of[job, rows], home)
        leave[job, rows[~here]] = problem.enter_cost[0, job]
        enter[job, rows[here]] = rent_per_hour(now, problem.terms) * _CHANGE_CHARGE_HOURS
    return leave


def _rows(problem: PlanningProblem) -> tuple[dict[tuple[int, float, int], int], Indices, Indices]:
    """Return the rows of the grid by (pool, boards, number), and who has which option there."""
    options, jobs = problem.boards.shape
    home_row = np.full((jobs, options), NOTHING, dtype=np.int64)
    rows: dict[tuple[int, float, int], int] = {}
    owned: list[tuple[int, int, int]] = []
    for column, job in enumerate(problem.jobs):
        last: dict[tuple[int, float], int] = {}
        for option in range(len(job.options)):
            boards = float(problem.boards[option, column])
            for pool in _pools_of(problem, column, option):
                number = last[pool, boards] = last.get((pool, boards), -1) + 1
                row = rows.setdefault((pool, boards, number), len(rows))
                owned.append((column, row, option))
                if home_row[column, option] == NOTHING:
                    home_row[column, option] = row
    option_of = np.full((jobs, len(rows)), NOTHING, dtype=np.int64)
    for column, row, option in owned:
        option_of[column, row] = option
    return rows, option_of, home_row


def _pools_of(problem: PlanningProblem, column: int, option: int) -> tuple[int, ...]:
    """Return the pools of an option, the job's own one first; -1 for holding nothing."""
    model = int(problem.model_of[option, column])
    if model < 0:
        return (NOTHING,)
    name, home = problem.gpu_models[model], int(problem.pools.of_job[column])
    others = problem.pools.open_to(problem.jobs[column].demand.job, name)
    mine = (home,) if problem.pools.pools[home].gpu_model == name else ()
    if mine and not problem.movable(column):
        return mine
    return (*mine, *(number for number in others if number != home))


def _layout_changes(problem: PlanningProblem) -> Floats:
    """Return the table of changes between pools: 1 between pools of one model.

    A change of model is entering another option, which has its own cost; layout 0 is nothing.
    """
    models = [None, *(pool.gpu_model for pool in problem.pools.pools)]
    return np.array(
        [
            [
                float(model is not None and model == other and a != b)
                for b, other in enumerate(models)
            ]
            for a, model in enumerate(models)
        ]
    )


def _moving_costs(problem: PlanningProblem) -> Singles:
    """Return the cost of a job's move to other nodes [J]: a restart of its present configuration.

    A move enters the same option once more, which the solver charges already where it has a cost.
    """
    costs = [
        max(0.0, move_cost(problem, job) - float(problem.enter_cost[0, column]))
        for column, job in enumerate(problem.jobs)
    ]
    return np.array(costs, dtype=np.float32)


def times_of(problem: PlanningProblem) -> WhenText:
    """Return a function that names slots of the problem by their times."""
    return clock_text(problem.slot_starts, timedelta(minutes=problem.planning.slot_minutes))


def move_cost(problem: PlanningProblem, job: JobProblem, option: int = 0) -> float:
    """Return the promised cost of a job's start elsewhere: its mean, with its wait."""
    costs = move_costs(job.demand, job.options[option], problem.terms)
    return mean_of(*costs.cost) + costs.price


def _pins(problem: PlanningProblem, home_row: Indices) -> npt.NDArray[np.int16]:
    """Return the pinned rows [J, H], -1 where free."""
    pinned = np.full((len(problem.jobs), len(problem.slot_starts)), NOTHING, dtype=np.int16)
    for column, job in enumerate(problem.jobs):
        if job.pinned is not None:
            pinned[column] = home_row[column, job.pinned]
    return pinned


def _capacity(
    problem: PlanningProblem, grid: ConfigurationGrid, base: Singles, pinned: npt.NDArray[np.int16]
) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Return the boards per pool and slot [P, H], with maintenance and without, and why raised.

    What jobs hold now is always there, but for maintenance; in maintenance what jobs cannot leave
    is.
    """
    slots = len(problem.slot_starts)
    usable = np.zeros((len(problem.pools.pools), slots))
    every = np.zeros_like(usable)
    touched = np.zeros_like(usable, dtype=np.bool_)
    stuck = _stuck(problem)
    for node, pool in zip(problem.facts.nodes, problem.pools.of_node, strict=True):
        gone = np.array(node.away or (False,) * slots)
        boards_here = sum(stuck.get(node.name, {}).values())
        usable[pool] += np.where(gone, min(boards_here, node.usable), node.usable)
        every[pool] += node.usable
        touched[pool] |= gone
    boards = np.bincount(problem.pools.of_job, weights=problem.boards[0], minlength=len(usable))[
        :, None
    ]
    capacity = np.where(touched, usable, np.maximum(usable, boards))
    forced, when = _forced(grid, base, pinned, len(usable)), times_of(problem)
    given_up = tuple(
        f"maintenance: {', '.join(sorted(stuck[node.name]))} on {node.name} cannot be moved"
        for node in problem.facts.nodes
        if node.away and node.name in stuck
    ) + tuple(
        line
        for pool, lacks in zip(problem.pools.pools, forced - capacity, strict=True)
        for line in broken(
            f"maintenance: {pool.name}", lacks, "GPUs missing that jobs cannot leave", when
        )
    )
    lasting = np.maximum(np.maximum(every, boards), forced)
    return np.maximum(capacity, forced), lasting, given_up


def _stuck(problem: PlanningProblem) -> dict[str, dict[str, int]]:
    """Return the boards by node and job of the jobs that no plan may move."""
    stuck: dict[str, dict[str, int]] = defaultdict(dict)
    for job, entry in enumerate(problem.jobs):
        job_id = entry.demand.job.job_id
        if job_id in problem.facts.homes and not problem.movable(job):
            for name, boards in problem.facts.homes[job_id].counted:
                stuck[name][job_id] = boards
    return stuck


def _forced(
    grid: ConfigurationGrid, base: Singles, pinned: npt.NDArray[np.int16], pools: int
) -> Floats:
    """Return the boards per pool and slot [P, H] of jobs that have nowhere else to go."""
    forced = np.zeros((pools, base.shape[1]))
    allowed = np.isfinite(base[:, 0])
    for job in range(len(base)):
        rows = np.flatnonzero(allowed[job])
        if pinned[job, 0] >= 0:
            rows = rows[rows == pinned[job, 0]]
        kinds = np.unique(grid.gpu_type[rows])
        if len(kinds) == 1 and kinds[0] >= 0:
            forced[kinds[0]] += grid.boards[rows].min()
    return forced


def _power(problem: PlanningProblem, option_of: Indices) -> Singles:
    """Return the power of jobs in kW above idle boards [J, S], with their share of the nodes.

    The largest q90 of the forecast; the TDP of all boards where power was never reported.
    """
    power = np.zeros(option_of.shape, dtype=np.float32)
    if not problem.rules.power.domains:
        return power
    base = problem.rules.nodes.base_watts_per_gpu
    for column, row in np.argwhere(option_of != NOTHING):
        job = problem.jobs[column]
        option = job.options[option_of[column, row]]
        model = problem.catalogue.find(option.configuration.gpu_model)
        if model is None or not option.boards:
            power[column, row] = option.boards * base / _WATTS
            continue
        watts = option.boards * model.tdp_watts
        if job.demand.power_q90 is not None and problem.catalogue.find(job.demand.job.gpu_model):
            estimate = power_under(
                job.demand.power_q90,
                job.options[0],
                option,
                problem.terms,
                job.demand.power_curve,
            )
            watts = min(watts, float(estimate.central.max()))
        above = max(0.0, watts - option.boards * model.idle_watts)
        power[column, row] = (above + option.boards * base) / _WATTS
    return power


def _power_domains(problem: PlanningProblem) -> PowerDomains | None:
    """Return the limits less what idle boards draw in any case."""
    domains = problem.rules.power.domains
    if not domains:
        return None
    members = feeds(problem.pools, problem.facts.nodes, domains)
    idle = np.zeros(len(problem.pools.pools))
    for node, pool in zip(problem.facts.nodes, problem.pools.of_node, strict=True):
        model = problem.catalogue.find(node.gpu_model)
        idle[pool] += node.gpus * (model.idle_watts if model else 0.0) / _WATTS
    limits = np.array([[domain.limit_at(at) for at in problem.slot_starts] for domain in domains])
    hours = problem.planning.slot_minutes / 60
    price = problem.rules.power.over_limit_penalty_per_kwh * hours
    return PowerDomains(
        names=tuple(domain.name for domain in domains),
        members=members,
        limit_kw=np.maximum(limits - (members @ idle)[:, None], 0.0),
        over_penalty=np.full(len(domains), price or np.inf),
    )


def node_cost_per_board(problem: PlanningProblem) -> Floats:
    """Return the cost of a board's share of a running node in each slot [H].

    The node without its boards: what these draw idle is part of the jobs' own slot costs, also
    where a job has freed them, so switching a node off is credited with less than it saves. Where
    electricity costs less than nothing, no node is kept on to be paid for it.
    """
    hours = problem.planning.slot_minutes / 60
    kilowatts = problem.rules.nodes.base_watts_per_gpu / _WATTS
    prices = np.maximum(problem.tariff.per_kwh, 0.0)
    return np.asarray(kilowatts * hours * problem.energy.pue * prices)


def boot_per_board(problem: PlanningProblem) -> float:
    """Return the cost per board of switching a node on: its draw until it works."""
    slots = problem.rules.nodes.boot_minutes * 60 / (problem.planning.slot_minutes * 60)
    return float(node_cost_per_board(problem).mean() * slots)


def _fleet(problem: PlanningProblem, capacity: Floats) -> SlotFleet:
    """Return capacities and nodes.

    The nodes of a pool count as so many of their greatest common size, which no set of real nodes
    with as many boards undercuts: their cost is proportional to their boards.
    """
    sizes = np.array([node.gpus for node in problem.facts.nodes], dtype=np.int64)
    pools = range(len(capacity))
    members = [problem.pools.of_node == pool for pool in pools]
    common = [float(np.gcd.reduce(sizes[boards])) if boards.any() else 1.0 for boards in members]
    on = [sizes[boards].sum() / size for boards, size in zip(members, common, strict=True)]
    per_board = node_cost_per_board(problem)
    return SlotFleet(
        gpu_types=tuple(pool.name for pool in problem.pools.pools),
        capacity=capacity,
        boards_per_node=np.array(common),
        node_cost=np.outer(common, per_board),
        boot_cost=np.array(common) * boot_per_board(problem),
        nodes_on=np.array(on),
    )
