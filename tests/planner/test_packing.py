"""The planner: exact per job, never over capacity, never above today, bound below optimum."""

import itertools
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import bursty_week, two_gpus_three_jobs

from data.records.plans import Plan
from planner.job_paths import best_paths, path_costs
from planner.packing import build_plan
from planner.packing_bounds import capacity_prices, usage_of
from planner.problem import PlanningProblem

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


def plan_of(problem: PlanningProblem) -> Plan:
    """The plan, with time to spare."""
    return build_plan(problem, budget_seconds=60, created_at=NOW)


def path_of(problem: PlanningProblem, plan: Plan) -> np.ndarray:
    """The option numbers [T, J] of a plan."""
    return np.array(
        [
            [[one.configuration for one in job.options].index(step) for step in steps.steps]
            for job, steps in zip(problem.jobs, plan.jobs, strict=True)
        ]
    ).T


@settings(max_examples=60, deadline=None)
@given(
    slots=st.integers(1, 5),
    options=st.integers(1, 4),
    seed=st.integers(0, 10_000),
)
def test_the_separable_program_is_exact(slots: int, options: int, seed: int) -> None:
    """O(options) per slot gives what trying every path gives."""
    rng = np.random.default_rng(seed)
    cost = rng.uniform(0, 10, (slots, options, 1))
    enter = rng.uniform(0, 5, (options, 1))
    value, path = best_paths(cost, enter)
    every = [
        float(path_costs(cost, enter, np.array(choice)[:, None])[0])
        for choice in itertools.product(range(options), repeat=slots)
    ]
    assert value[0] == pytest.approx(min(every))
    assert path_costs(cost, enter, path)[0] == pytest.approx(min(every))


def test_bound_is_below_and_plan_above_the_joint_optimum() -> None:
    """Three jobs, two cheap boards: every joint path is tried."""
    problem = two_gpus_three_jobs()
    slots = len(problem.slot_starts)
    constant = itertools.product(range(problem.slot_cost.shape[1]), repeat=len(problem.jobs))
    optimum = np.inf
    for choice in constant:
        path = np.tile(np.array(choice), (slots, 1))
        cost = path_costs(problem.slot_cost, problem.enter_cost, path).sum()
        if cost < optimum and (usage_of(problem, path) <= problem.capacity + 1e-9).all():
            optimum = cost
    plan = plan_of(problem)
    assert plan.lower_bound <= optimum + 1e-9
    assert plan.cost <= optimum + 1e-9, "costs are constant over time, so a constant path is best"
    moved = [job.steps[0].gpu_model for job in plan.jobs].count("L40S-48GB")
    assert moved == 2, "two boards for three jobs"


@pytest.mark.parametrize("problem", [two_gpus_three_jobs(), bursty_week()])
def test_plan_is_feasible_bounded_and_repeatable(problem: PlanningProblem) -> None:
    """Capacity holds in every slot, no plan costs more than today's, same input same plan."""
    plan = plan_of(problem)
    assert (usage_of(problem, path_of(problem, plan)) <= problem.capacity + 1e-9).all()
    assert plan.lower_bound <= plan.cost <= plan.cost_of_now
    assert 0 <= plan.gap_ratio < 0.05
    again = plan_of(problem)
    assert (again.plan_id, again.cost, again.lower_bound) == (
        plan.plan_id,
        plan.cost,
        plan.lower_bound,
    )


def test_scarce_boards_have_a_price_and_plenty_has_none() -> None:
    """Prices appear where more jobs want a model than it has boards."""
    problem = two_gpus_three_jobs()
    prices = capacity_prices(problem).prices
    scarce = problem.gpu_models.index("L40S-48GB")
    assert prices[:, scarce].max() > 0
    assert prices[:, 1 - scarce].max() == 0


def test_a_spent_budget_still_gives_a_plan() -> None:
    """Today's allocation is a plan; the budget only ends the improvement."""
    plan = build_plan(bursty_week(), budget_seconds=0, created_at=NOW)
    assert plan.cost <= plan.cost_of_now
