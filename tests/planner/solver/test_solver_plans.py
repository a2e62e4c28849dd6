"""What holds for every plan, whatever the problem."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.exact_plan import exact_model, solve_with_cp_sat, solve_with_highs, true_cost
from benchmarks.plan_heuristics import clipped, per_job, per_slot, reactive, static
from benchmarks.plan_instances import make_instance
from planner.slots.coupling_rows import coupling_rows
from planner.slots.slot_problem import SlotProblem
from planner.solver.bounds import BY_LABELS
from planner.solver.exact import states
from planner.solver.solve import solve
from planner.solver.solved_plan import Effort, SolvedPlan

FEW_STATES = 300
"""Up to which an exact program is solved: those of more take up to 40 s (test_exact_plans.py)."""
QUICK = Effort(price_steps=20, dive_chunks=2, moves=300, label_room=8)
BRIEF = settings(
    max_examples=examples(15),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def quick(problem: SlotProblem, *, seed: int = 1) -> SolvedPlan:
    """A plan of bounded work, of an exact program or of the search."""
    effort = replace(QUICK, exact=states(problem.jobs.base_cost) <= FEW_STATES)
    return solve(problem, budget_seconds=np.inf, seed=seed, effort=effort)


problems = st.builds(
    lambda jobs, slots, seed, mig, binding: (
        make_instance(jobs, slots, seed=seed, mig=mig, binding=binding).problem
    ),
    st.integers(1, 40),
    st.integers(1, 30),
    st.integers(0, 10_000),
    st.booleans(),
    st.floats(0.1, 0.9),
)


@given(problems)
@BRIEF
def test_no_limit_is_exceeded_in_any_slot(problem: SlotProblem) -> None:
    """Capacity, power and quota with what may be borrowed hold in every slot of every plan."""
    plan = quick(problem)
    boards = problem.grid.boards[plan.paths]
    kind = problem.grid.gpu_type[plan.paths]
    power = np.take_along_axis(problem.jobs.power_kw, plan.paths.astype(np.int64), axis=1)
    assert problem.power is not None
    assert problem.quotas is not None
    for number in range(3):
        assert (
            np.where(kind == number, boards, 0).sum(0) <= problem.fleet.capacity[number] + 1e-5
        ).all()
    assert (np.where(kind >= 0, power, 0).sum(0) <= problem.power.limit_kw[0] + 1e-4).all()
    for tenant in range(8):
        own = boards[problem.jobs.tenant == tenant].sum(axis=0)
        most = problem.quotas.quota[tenant] + problem.quotas.borrowable[tenant]
        assert (own <= most + 1e-5).all()


@given(problems)
@BRIEF
def test_the_stated_cost_is_what_the_paths_cost(problem: SlotProblem) -> None:
    """An independent sum over jobs, nodes, quotas and power gives the plan's cost."""
    plan = quick(problem)
    assert plan.cost == pytest.approx(true_cost(problem, plan.paths), rel=1e-9, abs=1e-6)


@given(problems)
@BRIEF
def test_bound_cost_and_today_are_in_order(problem: SlotProblem) -> None:
    """The lower bound is at most the cost, and the cost at most today's."""
    plan = quick(problem)
    assert plan.lower_bound <= plan.cost <= plan.cost_of_now + 1e-9
    assert plan.gap >= 0


@given(st.integers(0, 10_000))
@settings(max_examples=examples(12), deadline=None, derandomize=True)
def test_the_bound_is_below_every_joint_path(seed: int) -> None:
    """On two jobs and three slots, no combination of paths costs less than the bound."""
    problem = make_instance(2, 3, seed=seed).problem
    plan = quick(problem)
    allowed = [
        [np.flatnonzero(np.isfinite(slot))[:3] for slot in job] for job in problem.jobs.base_cost
    ]
    own = [list(itertools.product(*job)) for job in allowed]
    best = min(
        true_cost(problem, np.array(paths, dtype=np.int16)) for paths in itertools.product(*own)
    )
    assert plan.lower_bound <= best + 1e-5 * abs(best)


def tiny(seed: int) -> SlotProblem:
    """Two jobs, three slots, three configurations, one type of four boards."""
    problem = make_instance(2, 3, seed=seed, training=seed % 2 == 0).problem
    kept = np.array([0, 1, 3])
    cost = np.full_like(problem.jobs.base_cost, np.inf)
    rng = np.random.default_rng(seed)
    cost[:, :, kept] = rng.uniform(0.0, 10.0, (2, 3, 3)).astype(np.float32)
    jobs = replace(problem.jobs, base_cost=cost, present=np.array([0, 1]))
    fleet = replace(problem.fleet, capacity=np.full((3, 3), 4.0), nodes_on=np.ones(3))
    jobs = replace(jobs, tenant=np.full(2, -1))
    return replace(problem, jobs=jobs, fleet=fleet, power=None, quotas=None)


@pytest.mark.parametrize("seed", range(12))
def test_the_plan_is_the_best_joint_path_of_a_tiny_case(seed: int) -> None:
    """All 729 joint paths of two jobs are tried; the plan costs as much as the best."""
    problem = tiny(seed)
    paths = list(itertools.product((0, 1, 3), repeat=3))
    best = min(
        true_cost(problem, np.array(pair, dtype=np.int16))
        for pair in itertools.product(paths, repeat=2)
    )
    plan = solve(problem, budget_seconds=np.inf, effort=replace(QUICK, moves=6000))
    assert plan.cost == pytest.approx(best, rel=1e-6)
    assert plan.lower_bound <= best + 1e-6 * abs(best)


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "slots", "seed"), [(3, 6, 1), (4, 8, 2), (6, 10, 3), (5, 8, 6)])
def test_bound_and_plan_enclose_the_proven_optimum(jobs: int, slots: int, seed: int) -> None:
    """CP-SAT and HiGHS prove the same optimum; it lies between bound and cost, within 1 %."""
    problem = make_instance(jobs, slots, seed=seed, mig=seed % 2 == 0).problem
    model = exact_model(problem)
    exact, other = solve_with_highs(model, 20.0), solve_with_cp_sat(model, 20.0, workers=1)
    assert exact.status == other.status == "optimal"
    assert other.cost == pytest.approx(exact.cost, rel=1e-3)
    plan = solve(problem, budget_seconds=np.inf, effort=replace(QUICK, moves=4000))
    assert plan.lower_bound <= exact.cost * (1 + 1e-6)
    assert exact.cost * (1 - 1e-6) <= plan.cost <= exact.cost * 1.01


def test_a_hundred_jobs_are_certified_within_one_and_a_half_percent() -> None:
    """The gap of 100 jobs x 168 slots is below 1.5 % after 3,000 moves, labels included."""
    problem = make_instance(100, 168, seed=1).problem
    plan = solve(problem, budget_seconds=np.inf, effort=replace(QUICK, price_steps=40, moves=3000))
    assert plan.gap < 0.015
    assert plan.bound_name == BY_LABELS


def test_soft_limits_that_are_broken_are_named() -> None:
    """A guarantee that costs more than its price is broken, counted and named."""
    problem = make_instance(12, 8, seed=3).problem
    assert problem.quotas is not None
    floor = np.minimum(problem.quotas.guaranteed + 40.0, 50.0)
    quotas = replace(
        problem.quotas,
        guaranteed=np.full_like(floor, 1.0),
        quota=np.maximum(problem.quotas.quota, 2.0),
        guarantee_price=np.full(8, 1e-3),
    )
    problem = replace(
        problem, quotas=quotas, fleet=replace(problem.fleet, capacity=problem.fleet.capacity + 64)
    )
    plan = quick(problem)
    assert any("below its guarantee" in name and "tenant-" in name for name in plan.violated)
    assert plan.cost == pytest.approx(true_cost(problem, plan.paths), rel=1e-9)


def test_today_that_breaks_a_limit_is_repaired_and_said_so() -> None:
    """With half the boards away, the plan to beat is a repaired one that fits."""
    problem = make_instance(40, 12, seed=5).problem
    fleet = replace(problem.fleet, capacity=np.floor(problem.fleet.capacity / 2))
    plan = quick(replace(problem, fleet=fleet))
    assert not plan.now_fits
    assert coupling_rows(replace(problem, fleet=fleet)).fits(plan.used)
    assert np.isfinite(plan.cost_of_now)


def test_today_that_fits_is_the_plan_to_beat() -> None:
    """With room for everything, today's cost is that of keeping every job as it is."""
    problem = make_instance(20, 6, seed=2).problem
    roomy = replace(
        problem,
        fleet=replace(problem.fleet, capacity=np.full((3, 6), 1e4)),
        power=None,
        quotas=None,
        jobs=replace(problem.jobs, tenant=np.full(20, -1)),
    )
    plan = quick(roomy)
    present = np.repeat(roomy.jobs.present[:, None], 6, axis=1)
    kept = np.take_along_axis(roomy.jobs.base_cost, present[:, :, None], axis=2)[:, :, 0]
    paths = np.where(np.isfinite(kept), present, roomy.jobs.base_cost.argmin(axis=2))
    assert plan.now_fits
    assert plan.cost_of_now == pytest.approx(true_cost(roomy, paths.astype(np.int16)))


@pytest.mark.parametrize("seed", [1, 2])
def test_no_rule_is_cheaper_than_the_plan(seed: int) -> None:
    """Bound <= plan <= static, reactive, per-slot and per-job rules on the same problem."""
    instance = make_instance(30, 48, seed=seed, mig=True)
    problem = instance.problem
    plan = quick(problem)
    rules = (
        clipped(problem, per_job(problem)),
        clipped(problem, static(instance, peak=False)),
        clipped(problem, static(instance, peak=True)),
        clipped(problem, reactive(instance, instance.demand)),
        per_slot(problem),
    )
    assert plan.lower_bound <= plan.cost
    for paths in rules:
        assert plan.cost <= true_cost(problem, paths) < np.inf


def test_power_above_a_soft_limit_is_paid_for_and_named() -> None:
    """A rack's soft limit of half its use is broken where that is cheaper; the site's is not."""
    problem = make_instance(30, 12, seed=8).problem
    assert problem.power is not None
    power = replace(
        problem.power,
        names=("rack-1", "the site"),
        members=np.array([[True, False, False], [True, True, True]]),
        limit_kw=np.vstack([problem.power.limit_kw * 0.1, problem.power.limit_kw]),
        over_penalty=np.array([0.5, np.inf]),
    )
    problem = replace(problem, power=power)
    plan = quick(problem)
    assert any("power of rack-1" in name for name in plan.violated)
    assert not any("the site" in name for name in plan.violated)
    assert plan.cost == pytest.approx(true_cost(problem, plan.paths), rel=1e-9)
    assert plan.lower_bound <= plan.cost


def test_protected_jobs_stay_as_they_are() -> None:
    """Jobs pinned to what they hold keep it in every slot while the others are planned."""
    problem = make_instance(30, 12, seed=9, binding=0.1).problem
    jobs = problem.jobs
    present = np.repeat(jobs.present[:, None], 12, axis=1)
    kept = np.take_along_axis(jobs.base_cost, present[:, :, None], axis=2)[:, :, 0]
    protected = np.flatnonzero(np.isfinite(kept).all(axis=1) & (jobs.work == 0))[:5]
    required = np.full((30, 12), -1, dtype=np.int16)
    required[protected] = jobs.present[protected][:, None]
    plan = quick(replace(problem, jobs=replace(jobs, required=required)))
    assert len(protected) == 5
    assert (plan.paths[protected] == jobs.present[protected][:, None]).all()
    assert len(plan.changed)
