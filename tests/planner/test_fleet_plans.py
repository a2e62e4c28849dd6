"""Plans on nodes: within every limit, never above today, bounds below, moves where they pay."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import numpy as np
import pytest
from drawn import examples
from factories import make_job
from fleet_cases import KUBERNETES, PODS, fleet_case, gpu, load_of, node_of, pods_job
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import A100, AS_OF, H100, L40S, case

from benchmarks.exact_plan import exact_model, solve_with_cp_sat, true_cost
from benchmarks.plan_heuristics import clipped, kept, per_job, per_slot
from data.errors import ImpossibleProblemError, SettingsError
from data.fleet_settings import (
    Maintenance,
    NodeSettings,
    Pin,
    PowerDomain,
    PowerSettings,
    TenantSettings,
    TenantShare,
)
from data.records.cluster import Cluster
from data.records.jobs import SchedulerFacts, WorkloadKind
from data.records.plans import Plan
from data.settings import PlanningSettings
from planner.nodes.node_plan import place_plan
from planner.plan import build_plan
from planner.problem.fleet import fleet_facts
from planner.problem.planning_problem import FleetRules, PlanningProblem
from planner.problem.slot_mapping import as_slot_problem
from planner.solver.coupling_rows import coupling_rows
from planner.solver.plan_cost import cost_of_jobs, use_of
from planner.solver.solve import solve

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
BRIEF = settings(max_examples=examples(10), deadline=None, derandomize=True)


def plan_of(problem: PlanningProblem) -> Plan:
    """The plan, with time to spare."""
    return build_plan(problem, budget_seconds=60, created_at=NOW)


seeds = st.integers(0, 10_000)


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


def test_the_worked_example_of_the_documents() -> None:
    """docs/planner.md: a service that shrinks by night, a job that moves, a node that is off."""
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
    assert [node.on for node in plan.nodes] == [(True,) * 12, (False,) * 12]
    assert plan.cost == pytest.approx(124.55, abs=0.01)
    assert plan.cost_of_now == pytest.approx(157.39, abs=0.01)
    assert plan.lower_bound == pytest.approx(124.13, abs=0.01)


def test_jobs_that_are_kept_stay_where_they_are() -> None:
    """A protected job is moved by nobody."""
    problem = fleet_case(3, planning=PlanningSettings(slot_minutes=60, horizon_slots=6,
                                                      protected_jobs="*"))  # fmt: skip
    plan = plan_of(problem)
    assert plan.moves == 0
    assert all(set(job.steps) == {job.now} for job in plan.jobs)
    assert all("protected" in job.keep_reason for job in problem.jobs)


def test_maintenance_empties_a_node_for_its_slots_only() -> None:
    """A job leaves when its node goes away, not before, and others take no room there."""
    window = Maintenance(
        nodes="n0", start=AS_OF + timedelta(hours=3), end=AS_OF + timedelta(hours=5)
    )
    rules = FleetRules(nodes=NodeSettings(maintenance=(window,), base_watts_per_gpu=0.0))
    job = pods_job("x", gpu_count=4)
    boards = [
        gpu(f"n{n}", i, H100, job.job_id if n == 0 and i < 4 else "")
        for n in range(2)
        for i in range(8)
    ]
    problem = case(
        (job, 0.95, 70_000.0, None),
        gpus=boards,
        nodes=[node_of(f"n{n}", H100, source=KUBERNETES) for n in range(2)],
        rules=rules,
        planning=PlanningSettings(slot_minutes=60, horizon_slots=8),
    )
    plan = plan_of(problem)
    (planned,) = plan.jobs
    assert not any(stay.node == "n0" and stay.start < 4 and stay.end > 2 for stay in planned.stays)
    assert planned.stays[0].node == "n0"
    assert planned.stays[0].end == 2
    assert plan.moves >= 1
    assert plan.violations == ()


def test_jobs_that_maintenance_cannot_spare_are_named() -> None:
    """Two full nodes and one goes away: the plan says which boards are missing, and when."""
    window = Maintenance(nodes="n0", start=AS_OF, end=AS_OF + timedelta(hours=3))
    rules = FleetRules(nodes=NodeSettings(maintenance=(window,)))
    jobs = [pods_job(f"w{n}", gpu_count=8) for n in range(2)]
    boards = [gpu(f"n{n}", i, H100, jobs[n].job_id) for n in range(2) for i in range(8)]
    problem = case(
        *((job, 0.95, 70_000.0, None) for job in jobs),
        gpus=boards,
        nodes=[node_of(f"n{n}", H100, source=KUBERNETES) for n in range(2)],
        rules=rules,
        planning=PlanningSettings(slot_minutes=60, horizon_slots=4),
    )
    plan = plan_of(problem)
    assert any(
        "maintenance" in violation and "slot 0" in violation for violation in plan.violations
    )
    assert [bool(job.unplaced) for job in plan.jobs].count(True) == 1


def test_a_job_that_nobody_may_move_stays_through_maintenance_and_is_named() -> None:
    """A plan that moved it would promise what no applier makes."""
    window = Maintenance(nodes="n0", start=AS_OF, end=AS_OF + timedelta(hours=3))
    job = pods_job("x", gpu_count=4)
    boards = [
        gpu(f"n{n}", i, H100, job.job_id if n == 0 and i < 4 else "")
        for n in range(2)
        for i in range(8)
    ]
    problem = case(
        (job, 0.95, 70_000.0, None),
        gpus=boards,
        nodes=[node_of(f"n{n}", H100, source=KUBERNETES) for n in range(2)],
        rules=FleetRules(nodes=NodeSettings(maintenance=(window,))),
        planning=PlanningSettings(slot_minutes=60, horizon_slots=4, protected_jobs="*"),
    )
    plan = plan_of(problem)
    assert {stay.node for stay in plan.jobs[0].stays} == {"n0"}
    assert plan.moves == 0
    assert plan.violations == (f"maintenance: {job.job_id} on n0 cannot be moved",)


def test_a_cordoned_node_keeps_its_jobs_and_takes_no_other() -> None:
    """The boards that are free on it are no capacity."""
    boards = tuple(gpu("n0", i, L40S, "a/x" if i < 2 else "") for i in range(8))
    boards += tuple(gpu("n1", i, H100, "a/y" if i < 1 else "") for i in range(8))
    facts = fleet_facts(
        Cluster(
            as_of=AS_OF,
            gpus=boards,
            nodes=(node_of("n0", L40S, schedulable=False, state="DRAINING"),),
        ),
        [make_job("a/x", gpu_model=L40S, gpu_count=2), make_job("a/y")],
        {"a/x": 2.0, "a/y": 1.0},
        slot_starts=[AS_OF],
        slot=timedelta(hours=1),
        maintenance=(),
    )
    assert {node.name: node.usable for node in facts.nodes} == {"n0": 2, "n1": 8}


def test_boards_that_jobs_hold_beyond_what_is_seen_are_kept() -> None:
    """A job of 12 GPUs where telemetry has 8: the rest stands on a node of its own."""
    facts = fleet_facts(
        Cluster(as_of=AS_OF, gpus=tuple(gpu("n0", i, H100, "a/x") for i in range(8))),
        [make_job("a/x", gpu_count=12)],
        {"a/x": 12.0},
        slot_starts=[AS_OF],
        slot=timedelta(hours=1),
        maintenance=(),
    )
    assert [(node.gpus, node.seen) for node in facts.nodes] == [(8, True), (4, False)]


def test_nodes_come_from_schedulers_and_from_telemetry() -> None:
    """A described node without a sample counts, as does a seen one that nobody described."""
    described = (node_of("quiet.example", A100), node_of("node-0.example", H100, cpus=64))
    problem = fleet_case(1, nodes=1, described=described)
    assert {node.name: node.gpus for node in problem.facts.nodes} == {
        "quiet.example": 8,
        "node-0": 8,
    }
    assert {node.name: node.cpus for node in problem.facts.nodes}["node-0"] == 64


power = st.floats(1.0, 12.0)


@given(seeds, power)
@BRIEF
def test_a_rack_stays_within_its_power_or_the_plan_names_it(seed: int, limit: float) -> None:
    """What jobs and idle boards of the rack draw is below its limit, else the row is named."""
    rack = PowerDomain(name="rack a", nodes="node-0", limit_kw=limit)
    rules = FleetRules(power=PowerSettings(domains=(rack,)))
    problem = fleet_case(seed, nodes=3, rules=rules)
    mapping = as_slot_problem(problem)
    plan = plan_of(problem)
    assert mapping.slots.power is not None
    broken = {
        int(violation.rsplit(" ", 1)[1]) for violation in plan.violations if "rack a" in violation
    }
    homes = {node.node: n for n, node in enumerate(plan.nodes)}
    for slot in range(len(plan.slot_starts)):
        drawn = 0.0
        for column, job in enumerate(plan.jobs):
            nodes = [stay.node for stay in job.stays if stay.start <= slot < stay.end]
            if "node-0" in nodes and homes:
                options = [entry.configuration for entry in problem.jobs[column].options]
                option = options.index(job.steps[slot])
                rows = np.flatnonzero(mapping.option_of[column] == option)
                drawn += float(mapping.slots.jobs.power_kw[column, rows].max())
        assert drawn <= mapping.slots.power.limit_kw[0, slot] + 1e-4 or slot in broken


def test_demand_response_lowers_a_limit_for_its_hours() -> None:
    """Hours past midnight too."""
    night = PowerDomain(name="site", limit_kw=100, reduced_kw=60, from_hour=22, until_hour=2)
    at = datetime(2026, 1, 5, tzinfo=UTC)
    limits = [night.limit_at(at + timedelta(hours=hour)) for hour in (0, 1, 2, 21, 22, 23)]
    assert limits == [60, 60, 100, 100, 60, 60]


@given(seeds, st.floats(2, 12), st.floats(0, 6))
@BRIEF
def test_a_tenant_stays_within_quota_and_what_it_may_borrow(
    seed: int, quota: float, borrowable: float
) -> None:
    """Above that the plan names the tenant and the slot; lending never exceeds borrowing."""
    shares = (
        TenantShare(name="t0", quota=quota, borrowable=borrowable),
        TenantShare(name="*", quota=30),
    )
    rules = FleetRules(tenants=TenantSettings(shares=shares))
    plan = plan_of(fleet_case(seed, nodes=3, rules=rules))
    tenant = plan.tenants[0]
    for slot, used in enumerate(tenant.used):
        named = any(
            "t0" in violation and violation.endswith(f"slot {slot}")
            for violation in plan.violations
        )
        assert used <= quota + borrowable + 1e-6 or named
        lent = sum(entry.lent[slot] for entry in plan.tenants)
        borrowed = sum(entry.borrowed[slot] for entry in plan.tenants)
        assert lent <= borrowed + 1e-3


def test_without_a_quota_a_tenant_has_its_fair_share() -> None:
    """24 boards, 6 of them stated: the rest goes two to one."""
    shares = (
        TenantShare(name="t0", quota=6),
        TenantShare(name="t1", weight=2),
        TenantShare(name="t2", weight=1),
    )
    problem = fleet_case(1, nodes=3, rules=FleetRules(tenants=TenantSettings(shares=shares)))
    assert [share.quota for share in problem.tenants.shares] == [6, 12, 6]


def test_more_guarantees_than_boards_are_refused() -> None:
    """The error names the tenants and the slot."""
    shares = (TenantShare(name="t0", quota=20, guaranteed=20), TenantShare(name="t1", guaranteed=9))
    problem = fleet_case(1, nodes=3, rules=FleetRules(tenants=TenantSettings(shares=shares)))
    with pytest.raises(ImpossibleProblemError, match=r"t0 20, t1 9.* has 24 in slot 0"):
        plan_of(problem)
    with pytest.raises(SettingsError, match="guaranteed of t0"):
        TenantShare(name="t0", quota=2, guaranteed=3)


def test_contradicting_pins_are_refused() -> None:
    """Two pins for one job, and a pin to what the job cannot take, name the job."""
    model = fleet_case(1).jobs[0].demand.job.gpu_model

    def pinned(*pins: Pin) -> PlanningProblem:
        planning = PlanningSettings(slot_minutes=60, horizon_slots=6, pins=pins)
        return fleet_case(1, planning=planning)

    one = Pin(job="*", gpu_model=model, gpu_count=1)
    with pytest.raises(ImpossibleProblemError, match="is pinned in all slots to each of"):
        pinned(one, replace(one, gpu_count=2))
    with pytest.raises(ImpossibleProblemError, match=r"job '.*' is pinned .* none of its options"):
        pinned(replace(one, gpu_count=500))


def test_a_pin_holds_in_every_slot() -> None:
    """The pinned job has exactly that, whatever it costs."""
    free = fleet_case(1)
    job = next(entry for entry in free.jobs if len(entry.options) > 1)
    wanted = next(
        o.configuration
        for o in job.options[1:]
        if o.configuration.gpu_count and not o.configuration.power_cap_watts
    )
    pin = Pin(
        job=job.demand.job.job_id,
        gpu_model=wanted.gpu_model,
        gpu_count=wanted.gpu_count,
        mig_profile=wanted.mig_profile,
    )
    planning = PlanningSettings(slot_minutes=60, horizon_slots=6, pins=(pin,))
    plan = plan_of(fleet_case(1, planning=planning))
    planned = next(entry for entry in plan.jobs if entry.job_id == pin.job)
    assert set(planned.steps) == {wanted}


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
