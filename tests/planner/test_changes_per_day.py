"""A plan changes a job no more often within any 24 h than `planning.max_changes_per_day` says."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from factories import make_job
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import AS_OF, H100, L40S, boards, case

from benchmarks._warm_start import warmth_of
from benchmarks.exact_plan import exact_model, solve_with_highs
from benchmarks.plan_instances import make_instance
from data.records.plans import Plan
from data.settings.all_settings import PlanningSettings
from planner.nodes import rolling_plan
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem
from planner.slots.slot_problem import Path, SlotProblem
from planner.solver.solve import solve
from planner.solver.solved_plan import Effort

QUICK = Effort(price_steps=20, dive_chunks=2, moves=200, label_room=4)


def busiest(present: int, path: Path, window: int) -> int:
    """Return the largest number of changes within any `window` slots of a path."""
    held = [present, *path.tolist()]
    changed = [int(before != after) for before, after in itertools.pairwise(held)]
    return max(sum(changed[first : first + window]) for first in range(len(changed)))


def limited(
    seed: int, jobs: int, slots: int, most: int, window: int, *, training: bool = False
) -> SlotProblem:
    """Return a drawn problem whose changes are cheap and limited."""
    problem = make_instance(jobs, slots, seed=seed, training=training).problem
    cheap = replace(
        problem.jobs,
        leave_cost=problem.jobs.leave_cost * np.float32(0.05),
        enter_cost=problem.jobs.enter_cost * np.float32(0.05),
    )
    return replace(problem, jobs=cheap, max_changes=most, change_window=window)


def check_limit(problem: SlotProblem, paths: Path) -> None:
    """Check every path of a plan."""
    for present, path in zip(problem.jobs.present, paths, strict=True):
        assert busiest(int(present), path, problem.change_window) <= problem.max_changes


@given(
    st.integers(0, 10_000),
    st.integers(1, 12),
    st.integers(1, 40),
    st.integers(1, 3),
    st.integers(2, 50),
    st.booleans(),
)
@settings(max_examples=examples(25), deadline=None)
def test_every_path_keeps_the_limit(
    seed: int, jobs: int, slots: int, most: int, window: int, training: bool
) -> None:
    """In windows shorter and longer than the horizon, planned once and planned again."""
    problem = limited(seed, jobs, slots, most, window, training=training)
    plan = solve(problem, budget_seconds=np.inf, effort=QUICK)
    check_limit(problem, plan.paths)
    assert plan.lower_bound <= plan.cost <= plan.cost_of_now + 1e-6
    often = solve(replace(problem, max_changes=0), budget_seconds=np.inf, effort=QUICK)
    warm = warmth_of(
        often.paths, often.prices, origin=np.arange(jobs), present=problem.jobs.present
    )
    check_limit(problem, solve(problem, budget_seconds=np.inf, effort=QUICK, warm=warm).paths)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("most", [1, 2])
def test_one_job_alone_gets_the_best_path_within_the_limit(seed: int, most: int) -> None:
    """The program over changes left is exact where the window covers the horizon."""
    problem = limited(seed, 1, 10, most, 24)
    plan = solve(problem, budget_seconds=np.inf, effort=QUICK)
    exact = solve_with_highs(exact_model(problem), 60.0)
    assert exact.status == "optimal"
    assert plan.cost == pytest.approx(exact.cost, rel=1e-5)
    assert plan.lower_bound <= exact.cost + 1e-6 * abs(exact.cost)


def bursts(slot_minutes: int, hours: int = 24, **changes: object) -> PlanningProblem:
    """Return two services whose demand comes and goes every two hours, and idle cheaper boards."""
    slots = hours * 60 // slot_minutes
    planning = PlanningSettings(slot_minutes=slot_minutes, horizon_slots=slots, **changes)  # type: ignore[arg-type]
    high = (np.arange(slots) * slot_minutes // 120) % 2
    return case(
        (make_job("a/deployment/x", gpu_count=4), 0.5, 10_000.0, None),
        (make_job("a/deployment/y", gpu_count=8), 0.5, 10_000.0, None),
        gpus=[*boards(H100, 12), *boards(L40S, 12)],
        planning=planning,
        demand={
            "a/deployment/x": (0.3 + 3.0 * high).tolist(),
            "a/deployment/y": (6.5 - 6.0 * high).tolist(),
        },
    )


def changes_in_a_day(plan: Plan, slot_minutes: int) -> int:
    """Return the largest number of changes that a plan gives one job within any 24 h."""
    found = 0
    for job in plan.jobs:
        number = {
            fromkey: index for index, fromkey in enumerate(dict.fromkeys([job.now, *job.steps]))
        }
        path = np.array([number[step] for step in job.steps], dtype=np.int16)
        found = max(found, busiest(number[job.now], path, 1440 // slot_minutes))
    return found


@pytest.mark.parametrize("slot_minutes", [5, 15, 30, 60])
def test_a_service_of_bursts_is_changed_twice_a_day(slot_minutes: int) -> None:
    """Without the limit it would be changed at every burst; the plan still saves."""
    often = bursts(slot_minutes, max_changes_per_day=0)
    plan = build_plan(often, budget_seconds=60, created_at=AS_OF)
    assert changes_in_a_day(plan, slot_minutes) > 2
    problem = bursts(slot_minutes)
    plan = build_plan(problem, budget_seconds=60, created_at=AS_OF)
    assert changes_in_a_day(plan, slot_minutes) <= 2
    assert plan.cost <= plan.cost_of_now
    again = build_plan(problem, budget_seconds=60, created_at=AS_OF, last=plan)
    assert changes_in_a_day(again, slot_minutes) <= 2


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_plan_of_three_days_keeps_the_limit_on_every_day(limit: int) -> None:
    """Any 24 h count, not days of the calendar, and later days are planned too."""
    problem = bursts(60, hours=72, max_changes_per_day=limit)
    plan = build_plan(problem, budget_seconds=60, created_at=AS_OF)
    assert changes_in_a_day(plan, 60) <= limit
    assert plan.cost <= plan.cost_of_now


def test_a_lower_limit_takes_effect_on_the_announced_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the last plan announced and froze gives way where it changes a job too often."""
    last = build_plan(bursts(60, max_changes_per_day=0), budget_seconds=60, created_at=AS_OF)
    monkeypatch.setattr(rolling_plan, "FROZEN_MINUTES", 720)
    problem = bursts(60, max_changes_per_day=1)
    plan = build_plan(problem, budget_seconds=60, created_at=AS_OF, last=last)
    assert changes_in_a_day(plan, 60) <= 1
