"""TS-DPBP: plan over slots so that every job has what it needs at least cost.

The planning problem in the solver's arrays (`planner.solver`), and its plan in configurations.
Today's allocation is feasible, so there is always a plan, and no plan costs more than today's.
"""

import math
from collections.abc import Callable
from datetime import datetime

import numpy as np

from data.records.identifiers import digest_of
from data.records.plans import JobPlan, Plan
from planner.problem import FORBIDDEN, PlanningProblem
from planner.solver.slot_problem import (
    NOTHING,
    ConfigurationGrid,
    Fleet,
    Indices,
    PlannedJobs,
    Singles,
    SlotProblem,
)
from planner.solver.solve import solve
from planner.solver.solved_plan import Effort
from planner.solver.warm_up import warm_up

_BOARDS_PER_NODE = 8.0
_MOVES_PER_JOB, _MOST_MOVES = 100, 100_000


def build_plan(
    problem: PlanningProblem,
    *,
    budget_seconds: float,
    created_at: datetime,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Give a feasible plan with its certified lower bound.

    The work is bounded by counts, so the same problem gives the same plan; a budget that is too
    short for them ends the improvement early. Compiling, once per machine, is not part of it.
    """
    show = progress or (lambda _done, _total: None)
    show(0, 2)
    if not problem.jobs:
        return _plan(problem, np.zeros((0, 0), dtype=np.int64), created_at, (0.0, 0.0, 0.0), 0.0)
    warm_up()
    show(1, 2)
    slot_problem, row_of = as_slot_problem(problem)
    moves = min(_MOST_MOVES, _MOVES_PER_JOB * len(problem.jobs))
    found = solve(slot_problem, budget_seconds=budget_seconds, effort=Effort(moves=moves))
    show(2, 2)
    option_of = {
        (column, int(row)): option
        for (option, column), row in np.ndenumerate(row_of)
        if row != NOTHING
    }
    path = np.array(
        [
            [option_of[column, int(row)] for row in found.paths[column]]
            for column in range(len(problem.jobs))
        ]
    )
    costs = (found.cost, found.cost_of_now, found.lower_bound)
    return _plan(problem, path, created_at, costs, found.seconds)


def as_slot_problem(problem: PlanningProblem) -> tuple[SlotProblem, Indices]:
    """Give the problem in the solver's arrays, and the row of its grid for each option [C, J].

    A row of the grid is a GPU model, a number of boards and, where a job has several options of
    both (a power cap), which of them; -1 marks options that a job does not have.
    """
    options, jobs = problem.boards.shape
    row_of = np.full((options, jobs), NOTHING, dtype=np.int64)
    rows: dict[tuple[int, float, int], int] = {}
    for column, one in enumerate(problem.jobs):
        taken: dict[tuple[int, float], int] = {}
        for option in range(len(one.options)):
            held = (int(problem.model_of[option, column]), float(problem.boards[option, column]))
            number = taken[held] = taken.get(held, -1) + 1
            row_of[option, column] = rows.setdefault((*held, number), len(rows))
    slots, size = len(problem.slot_starts), len(rows)
    base = np.full((jobs, slots, size), np.inf, dtype=np.float32)
    enter = np.zeros((jobs, size), dtype=np.float32)
    for (option, column), row in np.ndenumerate(row_of):
        if row != NOTHING:
            cost = problem.slot_cost[:, option, column]
            base[column, :, row] = np.where(cost >= FORBIDDEN, np.inf, cost)
            enter[column, row] = problem.enter_cost[option, column]
    grid = ConfigurationGrid(
        names=tuple(f"{boards:g} of model {model}, {number}" for model, boards, number in rows),
        gpu_type=np.array([model for model, _boards, _number in rows]),
        boards=np.array([boards for _model, boards, _number in rows]),
        layout=np.zeros(size, dtype=np.int64),
        layout_change=np.zeros((1, 1)),
    )
    return (
        SlotProblem(grid=grid, jobs=_jobs(problem, base, enter, row_of[0]), fleet=_fleet(problem)),
        row_of,
    )


def _jobs(problem: PlanningProblem, base: Singles, enter: Singles, present: Indices) -> PlannedJobs:
    jobs = len(problem.jobs)
    return PlannedJobs(
        names=tuple(one.demand.job.job_id for one in problem.jobs),
        base_cost=base,
        power_kw=np.zeros_like(enter),
        leave_cost=np.zeros_like(enter),
        enter_cost=enter,
        layout_cost=np.zeros(jobs, dtype=np.float32),
        present=present,
        tenant=np.full(jobs, NOTHING),
        work=np.zeros(jobs),
        rate=np.zeros_like(enter),
        deadline=np.full(jobs, len(problem.slot_starts)),
        unfinished_price=np.zeros(jobs),
    )


def _fleet(problem: PlanningProblem) -> Fleet:
    models, slots = len(problem.gpu_models), len(problem.slot_starts)
    return Fleet(
        gpu_types=problem.gpu_models,
        capacity=np.repeat(problem.capacity[:, None], slots, axis=1),
        boards_per_node=np.full(models, _BOARDS_PER_NODE),
        node_cost=np.zeros((models, slots)),
        fire_up_cost=np.zeros(models),
        nodes_on=np.zeros(models),
    )


def _plan(
    problem: PlanningProblem,
    path: Indices,
    created_at: datetime,
    costs: tuple[float, float, float],
    seconds: float,
) -> Plan:
    """Give the plan of option numbers [J, T]; costs are its own, today's and the lower bound."""
    cost, cost_of_now, lower_bound = costs
    job_plans = tuple(
        JobPlan(
            job_id=one.demand.job.job_id,
            now=one.options[0].configuration,
            steps=tuple(one.options[option].configuration for option in path[column]),
        )
        for column, one in enumerate(problem.jobs)
    )
    return Plan(
        plan_id=digest_of([created_at, problem.slot_starts, job_plans]),
        created_at=created_at,
        slot_starts=problem.slot_starts,
        slot_seconds=problem.planning.slot_minutes * 60,
        jobs=job_plans,
        cost=cost,
        cost_of_now=cost_of_now,
        lower_bound=min(lower_bound, cost) if math.isfinite(lower_bound) else 0.0,
        currency=problem.energy.currency,
        seconds=seconds,
    )
