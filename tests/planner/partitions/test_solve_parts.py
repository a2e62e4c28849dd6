"""A plan in parts: always one that fits, its bound that of the whole, its parts' own when apart."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from drawn import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planning_cases import bursty_week, two_gpus_three_jobs

from benchmarks._warm_start import warmth_of
from benchmarks.exact_plan import true_cost
from benchmarks.plan_instances import make_instance
from data.base.errors import ImpossibleProblemError
from planner.partitions.solve_parts import parts_of_jobs, shares_of, solve_parts
from planner.partitions.split import split, touched
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem
from planner.slots.coupling_rows import coupling_rows
from planner.slots.plan_cost import use_of
from planner.slots.slot_problem import SlotProblem
from planner.solver.solve import solve
from planner.solver.solved_plan import Effort, SolvedPlan

QUICK = Effort(price_steps=20, dive_chunks=2, moves=300, label_room=8)
BRIEF = settings(
    max_examples=examples(15),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


def in_parts(problem: SlotProblem, part_of: np.ndarray, *, seed: int = 1) -> SolvedPlan:
    """A plan in parts of bounded work."""
    return solve_parts(problem, part_of, budget_seconds=np.inf, seed=seed, effort=QUICK)


problems = st.builds(
    lambda jobs, slots, seed, mig, binding: (
        make_instance(jobs, slots, seed=seed, mig=mig, binding=binding).problem
    ),
    st.integers(2, 40),
    st.integers(1, 30),
    st.integers(0, 10_000),
    st.booleans(),
    st.floats(0.1, 0.9),
)


@given(problems, st.integers(1, 5), st.integers(0, 99))
@BRIEF
def test_limits_hold_and_the_cost_is_what_the_paths_cost(
    problem: SlotProblem, parts: int, seed: int
) -> None:
    """However jobs are divided, no hard limit is exceeded and bound <= cost <= today's."""
    part_of = np.random.default_rng(seed).integers(0, parts, problem.size)
    plan = in_parts(problem, part_of)
    rows = coupling_rows(problem)
    assert rows.fits(use_of(problem, rows, plan.paths))
    assert plan.cost == pytest.approx(true_cost(problem, plan.paths), rel=1e-9, abs=1e-6)
    assert plan.lower_bound <= plan.cost <= plan.cost_of_now + 1e-9


@given(problems, st.integers(0, 99))
@BRIEF
def test_the_bound_is_below_what_the_whole_problem_attains(problem: SlotProblem, seed: int) -> None:
    """The bound of parts is one of the undivided problem: no plan of that is cheaper."""
    part_of = np.random.default_rng(seed).integers(0, 3, problem.size)
    whole = solve(problem, budget_seconds=np.inf, effort=QUICK)
    assert in_parts(problem, part_of).lower_bound <= whole.cost * (1 + 1e-9) + 1e-6


def test_prices_and_bound_are_those_of_the_undivided_problem() -> None:
    """With the same steps the exchange of prices certifies what one process would."""
    problem = make_instance(300, 48, seed=3).problem
    parts, whole = (
        in_parts(problem, problem.jobs.tenant),
        solve(problem, budget_seconds=np.inf, effort=QUICK),
    )
    assert parts.lower_bound == pytest.approx(whole.lower_bound, rel=1e-5)
    assert parts.cost <= 1.01 * whole.cost


def test_same_input_and_seed_give_the_same_plan() -> None:
    """Paths, cost, bound and prices are equal to the last bit."""
    problem = make_instance(60, 24, seed=5).problem
    one, other = (in_parts(problem, problem.jobs.tenant, seed=2) for _ in range(2))
    assert np.array_equal(one.paths, other.paths)
    assert (one.cost, one.lower_bound) == (other.cost, other.lower_bound)
    assert np.array_equal(one.prices.rows, other.prices.rows)


def test_one_part_is_the_undivided_plan() -> None:
    """Nothing to divide: the solver's own plan."""
    problem = make_instance(30, 24, seed=5).problem
    whole = solve(problem, budget_seconds=np.inf, effort=QUICK)
    assert np.array_equal(in_parts(problem, np.zeros(30, dtype=np.int64)).paths, whole.paths)


def apart(seed: int) -> tuple[SlotProblem, np.ndarray]:
    """A problem without power and quotas whose jobs keep to the type they are on."""
    problem = make_instance(60, 24, seed=seed).problem
    home = problem.grid.gpu_type[problem.jobs.present]
    home = np.where(home < 0, 0, home)
    cost = problem.jobs.base_cost.copy()
    kind = problem.grid.gpu_type
    foreign = (kind[None, :] >= 0) & (kind[None, :] != home[:, None])
    cost[np.broadcast_to(foreign[:, None, :], cost.shape)] = np.inf
    # A rigid job on another type only would be left with nothing: it may hold nothing, then.
    cost[:, :, 0] = np.where(np.isinf(cost).all(axis=2), 0.0, cost[:, :, 0])
    nobody = np.full(60, -1)
    jobs = replace(problem.jobs, base_cost=cost, tenant=nobody)
    return replace(problem, jobs=jobs, power=None, quotas=None), home


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_parts_that_share_nothing_are_each_solved_by_themselves(seed: int) -> None:
    """Paths are those of every part's own solve, and costs and bounds add up."""
    problem, home = apart(seed)
    rows = coupling_rows(problem)
    parts = split(problem, home)
    assert (np.stack([touched(part, rows) for part in parts]).sum(axis=0) <= 1).all()
    together = in_parts(problem, home)
    cost = bound = 0.0
    for number, part in enumerate(parts):
        fleet = part.problem.fleet
        others = np.arange(3) != number
        capacity = np.where(others[:, None], 0.0, fleet.capacity)
        nodes_on = np.where(others, 0.0, fleet.nodes_on)
        own = replace(part.problem, fleet=replace(fleet, capacity=capacity, nodes_on=nodes_on))
        moves = int(np.ceil(QUICK.moves * len(part.jobs) / problem.size))
        alone = solve(own, budget_seconds=np.inf, effort=replace(QUICK, moves=moves))
        assert np.array_equal(part.columns[alone.paths], together.paths[part.jobs])
        cost, bound = cost + alone.cost, bound + alone.lower_bound
    assert together.cost == pytest.approx(cost, rel=1e-9)
    assert together.lower_bound == pytest.approx(bound, rel=1e-9)


def test_shares_of_a_limit_add_up_to_it() -> None:
    """Whole boards, nothing given twice, nothing kept back, a zero row shared evenly."""
    problem = make_instance(40, 12, seed=1).problem
    rows = coupling_rows(problem)
    rng = np.random.default_rng(4)
    used = rng.random((3, 12, len(rows.names))) * 20
    used[:, 0] = 0.0
    touches = rng.random((3, len(rows.names))) < 0.8
    found = shares_of(used * touches[:, None, :], touches, rows, problem.fleet, integral=True)
    types = rows.types
    assert np.array_equal(found.limit[:, :, :types].sum(axis=0), rows.limit[:, :types])
    assert np.array_equal(found.limit[:, :, :types], np.round(found.limit[:, :, :types]))
    assert found.limit.sum(axis=0) == pytest.approx(
        np.where(np.arange(len(rows.names)) == types, rows.limit, np.floor(rows.limit))
    )
    assert found.floor.sum(axis=0) == pytest.approx(rows.floor)
    assert (found.free <= found.limit + 1e-9).all()


def test_a_plan_is_kept_in_parts_too() -> None:
    """Planned again from itself, no job leaves its announced path."""
    problem = make_instance(80, 24, seed=7).problem
    first = in_parts(problem, problem.jobs.tenant)
    warm = warmth_of(
        first.paths, first.prices, origin=np.arange(80), present=problem.jobs.present,
        churn_price=1e6,
    )  # fmt: skip
    again = solve_parts(
        problem, problem.jobs.tenant, budget_seconds=np.inf, effort=QUICK, warm=warm
    )
    assert np.array_equal(again.paths, first.paths)


def test_an_impossible_job_is_named() -> None:
    """A job that fits nowhere is refused as in the undivided problem, sharing or not."""
    for problem, part_of in (apart(1), (make_instance(60, 24, seed=1).problem, np.arange(60) % 3)):
        cost = problem.jobs.base_cost.copy()
        cost[7, :, 0] = np.inf
        none = replace(problem.fleet, capacity=np.zeros_like(problem.fleet.capacity))
        with pytest.raises(ImpossibleProblemError, match="'job-"):
            in_parts(
                replace(problem, fleet=none, quotas=None,
                        jobs=replace(problem.jobs, base_cost=cost,
                                     tenant=np.full(60, -1))),
                part_of,
            )  # fmt: skip


@pytest.mark.parametrize("by", ["cluster", "pool", "tenant"])
@pytest.mark.parametrize("make", [two_gpus_three_jobs, bursty_week])
def test_a_divided_fleet_has_a_plan_on_nodes(by: str, make: object) -> None:
    """`planning.partition_by` divides the jobs; the plan is bounded and no dearer than today's."""
    problem: PlanningProblem = make()  # type: ignore[operator]
    divided = replace(problem, planning=replace(problem.planning, partition_by=by))
    assert len(parts_of_jobs(divided)) == len(problem.jobs)
    plan = build_plan(divided, budget_seconds=60, created_at=NOW)
    assert plan.lower_bound <= plan.cost <= plan.cost_of_now
    whole = build_plan(problem, budget_seconds=60, created_at=NOW)
    assert plan.cost <= 1.05 * whole.cost
