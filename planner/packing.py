"""TS-DPBP: plan over slots so that every job has what it needs at least cost.

Per-job dynamic programs coupled by capacity prices (`packing_bounds`), made feasible one job after
the other from today's allocation, then improved by ruin and recreate. Today's allocation is
feasible, so there is always a plan, and no plan costs more than today's.
"""

import time
from collections.abc import Callable
from datetime import datetime

import numpy as np
import numpy.typing as npt

from data.records.identifiers import digest_of
from data.records.plans import JobPlan, Plan
from planner.job_paths import best_paths, path_costs
from planner.packing_bounds import Prices, capacity_prices, priced_cost, usage_of
from planner.problem import FORBIDDEN, PlanningProblem

Values = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
_SEED = 1
_MOVES_PER_JOB = 4
_MOST_MOVES = 2000
_SLACK = 1e-9


def build_plan(
    problem: PlanningProblem,
    *,
    budget_seconds: float,
    created_at: datetime,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Give a feasible plan with its certified lower bound.

    The work is bounded by counts, so the same problem gives the same plan; a budget that is too
    short for them ends the improvement early.
    """
    started = time.monotonic()
    show = progress or (lambda _done, _total: None)
    show(0, 3)
    prices = capacity_prices(problem)
    show(1, 3)
    slots, jobs = len(problem.slot_starts), len(problem.jobs)
    today = np.zeros((slots, jobs), dtype=np.int64)
    path = _feasible(problem, prices, today)
    show(2, 3)
    path = _improved(problem, path, deadline=started + budget_seconds)
    costs = path_costs(problem.slot_cost, problem.enter_cost, path)
    costs_today = path_costs(problem.slot_cost, problem.enter_cost, today)
    if costs.sum() > costs_today.sum():
        path, costs = today, costs_today
    show(3, 3)
    job_plans = tuple(
        JobPlan(
            job_id=one.demand.job.job_id,
            now=one.options[0].configuration,
            steps=tuple(one.options[option].configuration for option in path[:, column]),
        )
        for column, one in enumerate(problem.jobs)
    )
    cost = float(costs.sum())
    return Plan(
        plan_id=digest_of([created_at, problem.slot_starts, job_plans]),
        created_at=created_at,
        slot_starts=problem.slot_starts,
        slot_seconds=problem.planning.slot_minutes * 60,
        jobs=job_plans,
        cost=cost,
        cost_of_now=float(costs_today.sum()),
        lower_bound=min(prices.lower_bound, cost),
        currency=problem.energy.currency,
        seconds=time.monotonic() - started,
    )


def _fits(problem: PlanningProblem, used: Values) -> bool:
    return bool((used <= problem.capacity + _SLACK).all())


def _feasible(problem: PlanningProblem, prices: Prices, today: Indices) -> Indices:
    """Give the priced paths when they fit, else today's with one job after the other moved."""
    if _fits(problem, usage_of(problem, prices.path)):
        return prices.path
    path = today.copy()
    order = np.random.default_rng(_SEED).permutation(len(problem.jobs))
    charged = priced_cost(problem, prices.prices)
    for cost in (charged, problem.slot_cost):
        for column in order:
            path[:, column] = _replanned(problem, path, int(column), cost)
    return path


def _replanned(problem: PlanningProblem, path: Indices, column: int, cost: Values) -> Indices:
    """Give the best path of one job on the capacity that the others leave."""
    used = usage_of(problem, path) - usage_of_one(problem, path, column)
    residual = np.hstack([problem.capacity - used, np.full((len(path), 1), np.inf)])
    room = residual[:, problem.model_of[:, column]] + _SLACK >= problem.boards[:, column]
    own = np.where(room, cost[:, :, column], FORBIDDEN)
    return best_paths(own[:, :, None], problem.enter_cost[:, [column]])[1][:, 0]


def usage_of_one(problem: PlanningProblem, path: Indices, column: int) -> Values:
    """Give the boards that one job uses [T, G]."""
    used = np.zeros((len(path), len(problem.gpu_models)))
    models = problem.model_of[path[:, column], column]
    boards = problem.boards[path[:, column], column]
    rows = np.flatnonzero(models >= 0)
    used[rows, models[rows]] = boards[rows]
    return used


def _improved(problem: PlanningProblem, path: Indices, *, deadline: float) -> Indices:
    """Give the path after ruin and recreate: a few jobs go back to today's, then plan anew."""
    rng = np.random.default_rng(_SEED)
    jobs = len(problem.jobs)
    scarce = (usage_of(problem, path) >= problem.capacity - _SLACK) & (problem.capacity > 0)
    if jobs < 2 or not scarce.any():
        return path
    best = path
    best_cost = path_costs(problem.slot_cost, problem.enter_cost, best).sum()
    movable = np.flatnonzero([len(one.options) > 1 for one in problem.jobs])
    for _move in range(min(_MOST_MOVES, _MOVES_PER_JOB * jobs)):
        if time.monotonic() > deadline or len(movable) < 2:
            break
        chosen = rng.choice(movable, size=min(len(movable), int(rng.integers(2, 4))), replace=False)
        trial = best.copy()
        trial[:, chosen] = 0
        if not _fits(problem, usage_of(problem, trial)):
            continue
        for column in chosen:
            trial[:, column] = _replanned(problem, trial, int(column), problem.slot_cost)
        cost = path_costs(problem.slot_cost, problem.enter_cost, trial).sum()
        if cost < best_cost - _SLACK:
            best, best_cost = trial, cost
    return best
