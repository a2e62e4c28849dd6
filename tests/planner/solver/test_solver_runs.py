"""Budgets, seeds and warm starts: what a caller may rely on besides the plan itself."""

from dataclasses import fields, replace

import numpy as np
import pytest

from benchmarks._certified_fleet import FleetFeatures, problem_of
from benchmarks._warm_start import warmth_of
from benchmarks.exact_plan import true_cost
from benchmarks.plan_instances import make_instance
from data.base.errors import PlanningError
from planner.problem.slot_mapping import as_slot_problem
from planner.slots.coupling_rows import coupling_rows
from planner.slots.dp_kernel import price_blocks
from planner.slots.slot_problem import SlotProblem
from planner.slots.survey_kernel import scan
from planner.solver.bound_kernel import job_values
from planner.solver.ejection_kernel import eject
from planner.solver.replan import frozen
from planner.solver.ruin_recreate_kernel import ruin_and_recreate, settle
from planner.solver.solve import solve
from planner.solver.solved_plan import Effort, SolvedPlan
from planner.solver.warm_up import warm_up
from planner.solver.work_kernel import insert_best_path

SMALL = Effort(price_steps=30, dive_chunks=4, moves=1500, label_room=8)


@pytest.fixture(scope="module")
def problem() -> SlotProblem:
    """Sixty jobs over two days."""
    return make_instance(60, 48, seed=4).problem


@pytest.fixture(scope="module")
def plan(problem: SlotProblem) -> SolvedPlan:
    """Its plan."""
    return solve(problem, budget_seconds=np.inf, effort=SMALL)


def again(
    problem: SlotProblem, plan: SolvedPlan, *, churn: float, reconsidered: list[int] | None = None
) -> SolvedPlan:
    """Plan the same jobs once more, warm."""
    marked = np.zeros(problem.size, dtype=np.bool_)
    marked[reconsidered or []] = True
    warm = warmth_of(
        plan.paths,
        plan.prices,
        origin=np.arange(problem.size),
        present=problem.jobs.present,
        reconsidered=marked,
        churn_price=churn,
    )
    return solve(problem, budget_seconds=np.inf, effort=replace(SMALL, moves=400), warm=warm)


def test_the_same_seed_and_effort_give_the_same_plan(
    problem: SlotProblem, plan: SolvedPlan
) -> None:
    """Paths, cost and bound repeat to the last bit."""
    other = solve(problem, budget_seconds=np.inf, effort=SMALL)
    assert (other.paths == plan.paths).all()
    assert (other.cost, other.lower_bound) == (plan.cost, plan.lower_bound)


def test_another_seed_gives_another_plan_of_nearly_the_same_cost(
    problem: SlotProblem, plan: SolvedPlan
) -> None:
    """Seeds matter for the paths and hardly for the cost."""
    other = solve(problem, budget_seconds=np.inf, seed=2, effort=SMALL)
    assert (other.paths != plan.paths).any()
    assert other.cost == pytest.approx(plan.cost, rel=0.02)


def test_no_time_at_all_gives_todays_plan_with_a_bound(problem: SlotProblem) -> None:
    """With 0 s the plan is today's (or its repair), certified by one round of programs."""
    plan = solve(problem, budget_seconds=0.0)
    assert plan.cost == plan.cost_of_now
    assert 0 < plan.lower_bound < plan.cost
    assert plan.cost == pytest.approx(true_cost(problem, plan.paths), rel=1e-9)


def test_the_budget_is_kept(problem: SlotProblem, plan: SolvedPlan) -> None:
    """A second of budget is not passed by more than half a second, and improves on nothing."""
    assert plan.moves > 0
    timed = solve(problem, budget_seconds=1.0)
    assert timed.seconds < 1.5
    assert timed.cost < timed.cost_of_now


def test_costs_fall_and_bounds_rise_over_the_history(plan: SolvedPlan) -> None:
    """The history is ordered in time, cost and bound."""
    history = np.array(plan.history)
    assert (np.diff(history[:, 0]) >= 0).all()
    assert (np.diff(history[:, 1]) <= 1e-6).all()
    assert (np.diff(history[:, 2]) >= -1e-3).all()


def test_planning_the_same_again_changes_nothing(problem: SlotProblem, plan: SolvedPlan) -> None:
    """With a churn price above what is left to gain, an unchanged problem keeps every path."""
    other = again(problem, plan, churn=plan.cost)
    assert len(other.changed) == 0
    assert other.cost == pytest.approx(plan.cost)


def test_a_churn_price_keeps_more_paths(problem: SlotProblem) -> None:
    """Of a plan that can be improved, fewer jobs change when every change must save something."""
    rough = solve(problem, budget_seconds=np.inf, effort=replace(SMALL, moves=50))
    free, priced = again(problem, rough, churn=0.0), again(problem, rough, churn=2.0)
    assert len(priced.changed) < len(free.changed)
    assert priced.cost <= rough.cost + 1e-6


def test_only_the_changed_jobs_are_planned_anew(problem: SlotProblem, plan: SolvedPlan) -> None:
    """Doubled demand of two jobs changes their paths; the plan still costs what it says."""
    changed = [3, 17]
    cost = problem.jobs.base_cost.copy()
    cost[changed] *= 2
    other = replace(problem, jobs=replace(problem.jobs, base_cost=cost))
    found = again(other, plan, churn=1e9, reconsidered=changed)
    assert set(found.changed.tolist()) <= set(changed)
    assert found.cost == pytest.approx(true_cost(other, found.paths), rel=1e-9)


def test_frozen_slots_keep_the_announced_configuration(
    problem: SlotProblem, plan: SolvedPlan
) -> None:
    """The first three slots of every job are as announced."""
    pinned = frozen(problem, plan.paths, 3)
    found = solve(pinned, budget_seconds=np.inf, seed=5, effort=SMALL)
    assert (found.paths[:, :3] == plan.paths[:, :3]).all()


def test_warmth_of_another_shape_is_refused(problem: SlotProblem, plan: SolvedPlan) -> None:
    """Prices of 48 slots are of no use to 24."""
    shorter = make_instance(60, 24, seed=4).problem
    warm = warmth_of(plan.paths, plan.prices, origin=np.arange(60), present=problem.jobs.present)
    with pytest.raises(PlanningError, match="without warm_start"):
        solve(shorter, budget_seconds=0.0, warm=warm)


def test_prices_and_paths_shift_with_time(problem: SlotProblem, plan: SolvedPlan) -> None:
    """After two slots, slot 0 is what slot 2 was and the last slot repeats."""
    origin = np.arange(60)
    origin[5] = -1
    warm = warmth_of(
        plan.paths, plan.prices, origin=origin, present=problem.jobs.present, elapsed=2
    )
    assert (warm.announced[0, :-2] == plan.paths[0, 2:]).all()
    assert (warm.announced[0, -2:] == plan.paths[0, -1]).all()
    assert (warm.announced[5] == problem.jobs.present[5]).all()
    assert (warm.prices.rows[0] == plan.prices.rows[2]).all()
    assert not warm.kept[5]


def test_no_jobs_give_an_empty_plan(problem: SlotProblem) -> None:
    """A fleet without jobs costs nothing and has nothing to change."""
    empty = make_instance(1, 4, seed=1).problem
    fields = (
        "base_cost", "power_kw", "leave_cost", "enter_cost", "layout_cost", "present", "tenant",
        "work", "rate", "deadline", "unfinished_price",
    )  # fmt: skip
    jobs = replace(empty.jobs, names=(), **{name: getattr(empty.jobs, name)[:0] for name in fields})
    quotas = replace(empty.quotas, guaranteed=np.zeros((8, 4)))
    plan = solve(replace(empty, jobs=jobs, quotas=quotas), budget_seconds=1.0)
    assert plan.paths.shape == (0, 4)
    assert plan.cost == plan.lower_bound == plan.gap == 0


def test_after_the_warm_up_nothing_is_left_to_compile(problem: SlotProblem) -> None:
    """A plan of any problem uses the compiled signatures that the warm-up made."""
    kernels = (price_blocks, insert_best_path, settle, ruin_and_recreate, eject, job_values, scan)
    warm_up()
    before = [len(kernel.signatures) for kernel in kernels]
    plan = solve(problem, budget_seconds=np.inf, effort=SMALL)
    again(problem, plan, churn=1.0)
    assert [len(kernel.signatures) for kernel in kernels] == before
    assert min(before) == max(before) == 1


def test_rows_are_laid_out_as_compiled_code_has_them() -> None:
    """Another order of the same values would be compiled anew: many seconds in the first plan."""
    problem = problem_of(FleetFeatures(nodes=1, quotas=True))
    rows = coupling_rows(as_slot_problem(problem).slots)
    arrays = [getattr(rows, field.name) for field in fields(rows)]
    assert all(array.flags.c_contiguous for array in arrays if isinstance(array, np.ndarray))
