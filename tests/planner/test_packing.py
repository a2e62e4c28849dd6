"""The planner: exact per job, never over capacity, never above today, bound below optimum."""

import itertools
from datetime import UTC, datetime

import numpy as np
import pytest
from factories import make_job
from planning_cases import (
    H100,
    boards,
    bursty_week,
    case,
    path_costs,
    two_gpus_three_jobs,
    usage_of,
)

from data.records.forecasts import ForecastSkipped
from data.records.plans import Plan
from data.settings.all_settings import PlanningSettings
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem
from planner.problem.slot_mapping import as_slot_problem
from planner.slots.slot_problem import NOTHING

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


def plan_of(problem: PlanningProblem) -> Plan:
    """The plan, with time to spare."""
    return build_plan(problem, budget_seconds=60, created_at=NOW)


def path_of(problem: PlanningProblem, plan: Plan) -> np.ndarray:
    """The option numbers [T, J] of a plan."""
    return np.array(
        [
            [[option.configuration for option in job.options].index(step) for step in steps.steps]
            for job, steps in zip(problem.jobs, plan.jobs, strict=True)
        ]
    ).T


def test_bound_is_below_and_plan_above_the_joint_optimum() -> None:
    """Three jobs, two cheap boards: every joint path is tried."""
    problem = two_gpus_three_jobs()
    slots = len(problem.slot_starts)
    constant = itertools.product(range(problem.slot_cost.shape[1]), repeat=len(problem.jobs))
    optimum = np.inf
    for choice in constant:
        path = np.tile(np.array(choice), (slots, 1))
        cost = path_costs(problem, path).sum()
        if cost < optimum and (usage_of(problem, path) <= problem.capacity + 1e-9).all():
            optimum = cost
    plan = plan_of(problem)
    assert plan.lower_bound <= optimum * (1 + 1e-6)
    assert plan.cost <= optimum * (1 + 1e-6), (
        "costs are constant over time, so a constant path is best"
    )
    moved = [job.steps[0].gpu_model for job in plan.jobs].count("L40S-48GB")
    assert moved == 2, "two boards for three jobs"


@pytest.mark.parametrize("problem", [two_gpus_three_jobs(), bursty_week()])
def test_plan_is_feasible_bounded_and_repeatable(problem: PlanningProblem) -> None:
    """Capacity holds in every slot, no plan costs more than today's, same input same plan."""
    plan = plan_of(problem)
    assert (usage_of(problem, path_of(problem, plan)) <= problem.capacity + 1e-9).all()
    path = path_of(problem, plan)
    assert plan.cost == pytest.approx(path_costs(problem, path).sum(), rel=1e-6)
    assert plan.cost_of_now == pytest.approx(path_costs(problem, 0 * path).sum(), rel=1e-6)
    assert plan.lower_bound <= plan.cost <= plan.cost_of_now
    assert 0 <= plan.gap_ratio < 0.05
    again = plan_of(problem)
    assert (again.plan_id, again.cost, again.lower_bound) == (
        plan.plan_id,
        plan.cost,
        plan.lower_bound,
    )


def test_options_keep_their_place_in_the_solver() -> None:
    """Every option of a job has a row with its boards and its model, costs and entering costs."""
    problem = bursty_week()
    mapping = as_slot_problem(problem)
    found, row_of = mapping.slots, mapping.home_row
    for (column, option), row in np.ndenumerate(row_of):
        if option >= len(problem.jobs[column].options):
            assert row == NOTHING
            continue
        assert mapping.option_of[column, row] == option
        assert found.grid.boards[row] == problem.boards[option, column]
        assert found.grid.gpu_type[row] == problem.model_of[option, column]
        assert found.jobs.enter_cost[column, row] == np.float32(problem.enter_cost[option, column])
        wanted = problem.slot_cost[:, option, column].astype(np.float32)
        assert (found.jobs.base_cost[column, :, row] == wanted).all()
    used = np.unique(row_of[row_of != NOTHING])
    assert (used == np.arange(len(found.grid.names))).all()


def test_a_cap_and_the_uncapped_board_are_two_options() -> None:
    """The same boards at two powers do not fall together."""
    planning = PlanningSettings(slot_minutes=60, horizon_slots=4, power_cap_ratios="0.7")
    job = make_job("a/hot")
    problem = case((job, 0.95, 70_000.0, 690.0), gpus=boards(H100, 1), planning=planning)
    assert [option.configuration.power_cap_watts for option in problem.jobs[0].options] == [
        None,
        490.0,
    ]
    row_of = as_slot_problem(problem).home_row
    assert row_of[0, 0] != row_of[0, 1]
    plan = plan_of(problem)
    assert {step.gpu_count for step in plan.jobs[0].steps} == {1}


def test_a_spent_budget_still_gives_a_plan() -> None:
    """Today's allocation is a plan; the budget only ends the improvement."""
    plan = build_plan(bursty_week(), budget_seconds=0, created_at=NOW)
    assert plan.cost <= plan.cost_of_now


def test_nothing_to_plan_is_an_empty_plan() -> None:
    """A fleet without running jobs costs nothing and has no gap."""
    gone = make_job("a/gone")
    problem = case(
        (gone, 0.3, 10_000.0, None),
        gpus=boards(H100, 1),
        forecasts=[
            ForecastSkipped(
                job_id="a/gone", reason="ended: h", samples=1, history_slots=1, known_slots=1
            )
        ],
    )
    plan = plan_of(problem)
    assert (plan.jobs, plan.cost, plan.gap_ratio) == ((), 0.0, 0.0)
