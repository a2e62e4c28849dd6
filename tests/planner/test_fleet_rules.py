"""Plans over nodes keep the rules of a fleet: maintenance, cordons, power, tenants, pins."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from factories import make_job
from fleet_cases import BRIEF, KUBERNETES, fleet_case, gpu, node_of, plan_of, pods_job, seeds
from hypothesis import given
from hypothesis import strategies as st
from planning_cases import A100, AS_OF, H100, L40S, case

from data.base.errors import SettingsError
from data.facts.fleet import Cluster
from data.records.plans import Plan
from data.settings.all_settings import PlanningSettings
from data.settings.fleet import (
    Maintenance,
    NodeSettings,
    Pin,
    PowerDomain,
    PowerSettings,
    TenantSettings,
    TenantShare,
)
from planner.fleet.fleet import fleet_facts
from planner.problem.planning_problem import FleetRules, PlanningProblem
from planner.problem.slot_mapping import as_slot_problem


def slots_named(plan: Plan, name: str) -> set[int]:
    """The slots in which a plan breaks a limit, by the times that it names."""
    slots: set[int] = set()
    for text in plan.violations:
        if name in text and (times := re.search(r"from (\S+ \S+) to (\S+ \S+) UTC$", text)):
            start, end = (datetime.fromisoformat(at).replace(tzinfo=UTC) for at in times.groups())
            slots |= {slot for slot, at in enumerate(plan.slot_starts) if start <= at < end}
    return slots


def test_jobs_that_are_kept_stay_where_they_are() -> None:
    """A protected job is moved by nobody."""
    problem = fleet_case(3, planning=PlanningSettings(slot_minutes=60, horizon_slots=6,
                                                      protected_jobs="*"))  # fmt: skip
    plan = plan_of(problem)
    assert plan.moves == 0
    assert all(set(job.steps) == {job.now} for job in plan.jobs)
    assert all("protected" in job.keep_reason for job in problem.jobs)


def maintained(utilization: float) -> Plan:
    """The plan of a job of 4 GPUs on the first of two nodes, which is away in slots 2 and 3."""
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
        (job, utilization, 70_000.0, None),
        gpus=boards,
        nodes=[node_of(f"n{n}", H100, source=KUBERNETES) for n in range(2)],
        rules=rules,
        planning=PlanningSettings(slot_minutes=60, horizon_slots=8),
    )
    plan = plan_of(problem)
    assert plan.violations == ()
    return plan


def test_maintenance_empties_a_node_for_its_slots_only() -> None:
    """A job leaves when its node goes away, not before, and others take no room there."""
    plan = maintained(0.7)
    (planned,) = plan.jobs
    assert [(stay.node, stay.start, stay.end) for stay in planned.stays] == [
        ("n0", 0, 2),
        ("n1", 2, 8),
    ]
    assert plan.moves == 1


def test_a_job_that_starts_anew_before_maintenance_begins_where_it_can_stay() -> None:
    """It needs a fifth GPU now: one restart instead of two."""
    plan = maintained(0.95)
    (planned,) = plan.jobs
    assert [(stay.node, stay.gpus, stay.start, stay.end) for stay in planned.stays] == [
        ("n1", 5, 0, 8)
    ]
    assert plan.moves == 0


def test_jobs_that_maintenance_cannot_spare_are_named() -> None:
    """Two full nodes and one goes away: the plan says which boards are missing, and when."""
    window = Maintenance(nodes="n0", start=AS_OF, end=AS_OF + timedelta(hours=3))
    rules = FleetRules(nodes=NodeSettings(maintenance=(window,)))
    jobs = [pods_job(f"w{n}", "statefulset", gpu_count=8) for n in range(2)]
    boards = [gpu(f"n{n}", i, H100, jobs[n].job_id) for n in range(2) for i in range(8)]
    problem = case(
        *((job, 0.95, 70_000.0, None) for job in jobs),
        gpus=boards,
        nodes=[node_of(f"n{n}", H100, source=KUBERNETES) for n in range(2)],
        rules=rules,
        planning=PlanningSettings(slot_minutes=60, horizon_slots=4),
    )
    plan = plan_of(problem)
    (named,) = (text for text in plan.violations if "maintenance" in text)
    assert "8 GPUs missing that jobs cannot leave" in named
    away = {slot for slot, at in enumerate(plan.slot_starts) if at < window.end}
    assert slots_named(plan, "maintenance") == away
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
    assert [(node.gpus, node.observed) for node in facts.nodes] == [(8, True), (4, False)]


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
    broken = slots_named(plan, "rack a")
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
    broken = slots_named(plan, "t0")
    for slot, used in enumerate(tenant.used):
        assert (used > quota + borrowable + 1e-6) == (slot in broken)
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


def test_more_guarantees_than_boards_are_charged_and_named() -> None:
    """While a node is away a tenant has less than its guarantee: there is a plan all the same."""
    window = Maintenance(
        nodes="n0", start=AS_OF + timedelta(hours=3), end=AS_OF + timedelta(hours=5)
    )
    rules = FleetRules(
        nodes=NodeSettings(maintenance=(window,)),
        tenants=TenantSettings(shares=(TenantShare(name="*", quota=16.0, guaranteed=16.0),)),
    )
    jobs = [pods_job(name, gpu_count=8) for name in ("x", "y")]
    problem = case(
        *((job, 0.95, 70_000.0, None) for job in jobs),
        gpus=[gpu(f"n{n}", i, H100, jobs[n].job_id) for n in range(2) for i in range(8)],
        nodes=[node_of(f"n{n}", H100, source=KUBERNETES) for n in range(2)],
        rules=rules,
        planning=PlanningSettings(slot_minutes=60, horizon_slots=8),
    )
    plan = plan_of(problem)
    assert len(plan.jobs) == 2
    assert plan.lower_bound <= plan.cost
    with pytest.raises(SettingsError, match="guaranteed of t0"):
        TenantShare(name="t0", quota=2, guaranteed=3)


def test_a_job_whose_pins_cannot_hold_is_kept_and_the_others_are_planned() -> None:
    """Two pins for one job, a pin to what the job cannot take: the reason names what to mend."""
    model = fleet_case(1).jobs[0].demand.job.gpu_model

    def pinned(*pins: Pin) -> PlanningProblem:
        planning = PlanningSettings(slot_minutes=60, horizon_slots=6, pins=pins)
        return fleet_case(1, planning=planning)

    one = Pin(job="*", gpu_model=model, gpu_count=1)
    name = fleet_case(1).jobs[0].demand.job.job_id
    for pins, reason in (
        ((one, replace(one, gpu_count=2)), f"to 1 × {model} and to 2 × {model}, at once"),
        ((replace(one, gpu_count=500),), f"to 500 × {model}, which is none of what it can have"),
        ((replace(one, gpu_model="L4-24G"),), "to 1 × L4-24G, which is none of what it can have"),
    ):
        problem = pinned(*(replace(pin, job=name) for pin in pins))
        kept = {job.demand.job.job_id: job for job in problem.jobs if job.keep_reason}
        assert reason in kept[name].keep_reason
        assert "planning.pins" in kept[name].keep_reason
        assert len(kept[name].options) == 1
        assert len(kept) < len(problem.jobs)
        plan_of(problem)


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
