"""Plans on nodes: within every limit, never above today, bounds below, moves where they pay."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from factories import make_job
from fleet_cases import BRIEF, PODS, fleet_case, gpu, load_of, node_of, plan_of, seeds
from hypothesis import given
from hypothesis import strategies as st
from planning_cases import H100, case

from benchmarks.exact_plan import exact_model, solve_with_cp_sat, true_cost
from benchmarks.plan_heuristics import clipped, kept, per_job, per_slot
from data.base.errors import ImpossibleProblemError
from data.facts.jobs import SchedulerFacts, WorkloadKind
from data.settings.all_settings import PlanningSettings
from data.settings.fleet import (
    NodeSettings,
    PowerDomain,
    PowerSettings,
    TenantSettings,
    TenantShare,
)
from planner.nodes.node_plan import place_plan
from planner.problem.planning_problem import FleetRules, PlanningProblem
from planner.problem.slot_mapping import as_slot_problem
from planner.slots.coupling_rows import coupling_rows
from planner.slots.plan_cost import cost_of_jobs, use_of
from planner.solver.solve import solve


@given(seeds, st.integers(1, 5), st.floats(0.2, 1.0))
@BRIEF
def test_a_plan_keeps_within_its_nodes(seed: int, nodes: int, busy: float) -> None:
    """No node is over its GPUs, jobs have the GPUs of their configuration, off nodes are empty."""
    problem = fleet_case(seed, nodes=nodes, busy=busy)
    plan = plan_of(problem)
    used, size = load_of(plan), {entry.node: entry.gpus for entry in plan.nodes}
    assert all(count <= size[name] for (name, _slot), count in used.items())
    for node in plan.nodes:
        assert all(on or not used.get((node.node, t)) for t, on in enumerate(node.on))
    for job in plan.jobs:
        assert job.unplaced == ""
        for slot, step in enumerate(job.steps):
            held = sum(stay.gpus for stay in job.stays if stay.start <= slot < stay.end)
            assert held == step.gpu_count


@given(seeds, st.integers(1, 5))
@BRIEF
def test_bound_plan_and_today_are_in_order(seed: int, nodes: int) -> None:
    """Every bound is at most what the plan attains, and the plan costs at most today's."""
    plan = plan_of(fleet_case(seed, nodes=nodes))
    assert plan.lower_bound <= plan.cost <= plan.cost_of_now + 1e-9
    for bound in plan.bounds:
        assert bound.value <= bound.attained + 1e-6


@given(seeds)
@BRIEF
def test_the_same_problem_gives_the_same_plan(seed: int) -> None:
    """Work is bounded by counts."""
    one, other = (plan_of(fleet_case(seed)) for _ in range(2))
    assert replace(one, seconds=0) == replace(other, seconds=0)


def brute_force(problem: PlanningProblem) -> float:
    """The least cost of all joint constant choices of options that nodes can hold."""
    mapping = as_slot_problem(problem)
    rows = [np.unique(entry[entry >= 0]) for entry in mapping.home_row]
    best = np.inf
    for choice in product(*rows):
        column = np.array(choice, dtype=np.int16)[:, None]
        paths = np.repeat(column, mapping.slots.slots, axis=1)
        placed = place_plan(problem, mapping, paths, budget_seconds=5)
        if not placed.unplaced:
            cost = cost_of_jobs(mapping.slots, paths) + placed.node_cost + placed.move_cost
            best = min(best, cost)
    return float(best)


@pytest.mark.parametrize("seed", range(4))
def test_a_tiny_fleet_is_planned_as_well_as_by_trying_everything(seed: int) -> None:
    """One slot, so that constant choices are all there are: the plan is no dearer than the best."""
    problem = fleet_case(seed, nodes=2, slots=1, busy=0.4)
    plan = plan_of(problem)
    best = brute_force(problem)
    assert plan.lower_bound <= best * (1 + 1e-6)
    assert plan.cost == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_slot_plan_of_a_fleet_is_what_cp_sat_proves(seed: int) -> None:
    """Nodes, racks and quotas in the problem: the optimum lies between bound and cost, near both.

    Rules on the same problem are no cheaper.
    """
    rules = FleetRules(
        power=PowerSettings(domains=(PowerDomain(name="rack a", nodes="node-0", limit_kw=4.0),)),
        tenants=TenantSettings(shares=(TenantShare(name="t0", quota=4, borrowable=2),)),
    )
    problem = as_slot_problem(fleet_case(seed, nodes=2, slots=4, rules=rules, busy=0.6)).slots
    exact = solve_with_cp_sat(exact_model(problem), 20.0, workers=1)
    assert exact.status == "optimal"
    plan = solve(problem, budget_seconds=np.inf)
    assert plan.cost == pytest.approx(true_cost(problem, plan.paths), rel=1e-6)
    assert plan.lower_bound <= exact.cost * (1 + 1e-4)
    assert plan.cost == pytest.approx(exact.cost, rel=2e-3)
    for paths in (clipped(problem, per_job(problem)), per_slot(problem), kept(problem)):
        assert plan.cost <= true_cost(problem, paths) * (1 + 1e-9)


@given(seeds)
@BRIEF
def test_the_arithmetic_of_a_plan_is_that_of_the_benchmarks(seed: int) -> None:
    """Jobs, changes and soft limits add up to what independent code says, nodes apart."""
    rules = FleetRules(
        nodes=NodeSettings(base_watts_per_gpu=0.0),
        power=PowerSettings(domains=(PowerDomain(name="site", limit_kw=6.0),)),
        tenants=TenantSettings(shares=(TenantShare(name="t0", quota=2, borrowable=1),)),
    )
    problem = replace(as_slot_problem(fleet_case(seed, rules=rules)).slots, max_changes=0)
    rng = np.random.default_rng(seed)
    allowed = np.isfinite(problem.jobs.base_cost[:, 0])
    paths = np.array(
        [rng.choice(np.flatnonzero(entry), problem.slots) for entry in allowed], dtype=np.int16
    )
    rows = coupling_rows(problem)
    soft = rows.cost_of_use(use_of(problem, rows, paths)).sum()
    assert cost_of_jobs(problem, paths) + soft == pytest.approx(true_cost(problem, paths), rel=1e-6)


def test_a_node_that_holds_little_is_emptied_where_that_pays() -> None:
    """Two jobs on two nodes fit on one; over a day the saved node pays for the move."""
    jobs = [
        make_job(f"a/job/{name}", kind=WorkloadKind.TRAINING, scheduler=SchedulerFacts())
        for name in "xy"
    ]
    boards = [gpu(f"n{n}", i, H100) for n in range(2) for i in range(8)]
    boards[0] = gpu("n0", 0, H100, "a/job/x")
    boards[8] = gpu("n1", 0, H100, "a/job/y")
    given_jobs = [(job, 0.95, 70_000.0, None) for job in jobs]
    nodes = [node_of("n0", H100), node_of("n1", H100)]
    on = case(*given_jobs, gpus=boards, nodes=nodes, rules=FleetRules())
    plan = plan_of(on)
    assert [all(node.on) for node in plan.nodes].count(True) == 1
    assert plan.moves == 1
    moved = [stay for job in plan.jobs for stay in job.stays if stay.moved]
    assert len(moved) == 1
    free = case(*given_jobs, gpus=boards, nodes=nodes)
    assert plan_of(free).moves == 0, "a node that costs nothing is no reason to move"


def test_a_small_plan_by_hand() -> None:
    """A service shrinks by night and moves, and a node is off."""
    serve, evaluate = "web/deployment/serve", "lab/job/eval"
    held = {("h0", index): serve for index in range(4)} | {("h1", 0): evaluate}
    training = make_job(evaluate, kind=WorkloadKind.TRAINING, scheduler=SchedulerFacts())
    problem = case(
        (make_job(serve, gpu_count=4, scheduler=PODS), 0.3, 30_000.0, None),
        (training, 0.9, 70_000.0, None),
        gpus=[gpu(n, i, H100, held.get((n, i), "")) for n in ("h0", "h1") for i in range(8)],
        nodes=[node_of("h0", H100), node_of("h1", H100)],
        rules=FleetRules(),
        planning=PlanningSettings(slot_minutes=60, horizon_slots=12),
        demand={serve: [3.3] * 3 + [1.2] * 6 + [3.3] * 3},
    )
    plan = plan_of(problem)
    assert [step.gpu_count for step in plan.jobs[0].steps] == [4] * 3 + [2] * 6 + [4] * 3
    assert [node.on for node in plan.nodes] == [(False,) * 12, (True,) * 12]
    assert plan.cost == pytest.approx(124.42, abs=0.01)
    assert plan.cost_of_now == pytest.approx(157.39, abs=0.01)
    assert plan.lower_bound == pytest.approx(124.42, abs=0.01)


def test_a_demand_below_zero_is_refused() -> None:
    """The error names the job, the quantile and the slot."""
    job = make_job("a/x")
    with pytest.raises(ImpossibleProblemError, match=r"job 'a/x' has a demand q10 of -1 in slot 2"):
        case(
            (job, 0.5, 1000.0, None),
            gpus=[gpu("n0", 0, H100, "a/x")],
            demand={"a/x": [1.0, 1.0, -1.0, *[1.0] * 21]},
        )


def test_a_forecast_of_another_length_is_refused() -> None:
    """The error names the job and both lengths."""
    job = make_job("a/x")
    with pytest.raises(ImpossibleProblemError, match=r"forecast of 3 slots, 24 are planned"):
        case(
            (job, 0.5, 1000.0, None),
            gpus=[gpu("n0", 0, H100, "a/x")],
            demand={"a/x": [1.0] * 3},
        )
