"""Elastic training grows into boards that nobody else holds, wants or may have, and back again."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from factories import make_job, make_quota
from fleet_cases import BRIEF, PODS, gpu, node_of
from growth_cases import GROWS, JOB_ID, advised, demand_for, elastic, fleet, half_done, held_by
from hypothesis import example, given
from hypothesis import strategies as st
from planning_cases import AS_OF, FREE_NODES, H100, case

from dashboard.web.findings.finding_panel import effect_text
from data.facts.gpu_resources import WHOLE_GPU
from data.facts.jobs import Job, JobState
from data.facts.quotas import QuotaKind
from data.records.actions import Action
from data.records.plans import Configuration, Plan
from data.records.recommendations import Recommendation
from data.settings.fleet import Maintenance, NodeSettings, Pin, TenantSettings, TenantShare
from planner.advise import Advice, advise
from planner.advisers.growth_room import GrowthFacts
from planner.plan import build_plan
from planner.problem.planning_problem import FleetRules, PlanningProblem

HOUR = 3600.0
NO_PAUSE = (0.0, 0.0, 0.0)


def growth_of(advice: Advice, action: Action = Action.GROW) -> list[Recommendation]:
    """The recommendations that grow a job, or give boards back."""
    return [row for row in advice.recommendations if row.action is action]


def test_it_grows_into_all_boards_that_are_free_within_its_bounds() -> None:
    """It says what users get and pay: an earlier end, GPU-hours, kWh and money, as intervals."""
    (row,) = growth_of(advised(fleet(elastic())))
    assert (row.now.gpu_count, row.proposed.gpu_count) == (4, 8)
    assert row.delay_hours is not None
    assert row.delay_hours.low < row.delay_hours.central < row.delay_hours.high < 0
    for range_ in (row.savings.gpu_hours, row.savings.energy_kwh, row.savings.cost):
        assert range_ is not None
        assert range_.low < range_.central < range_.high
        assert range_.central < 0
    assert "h earlier, around 2026-01-05" in row.why
    assert "Its work may be done 4.3 (2.9–5.2) h earlier." in effect_text(row)
    assert row.confidence.startswith("weak: assumed")
    assert row.transition is not None


def test_what_it_costs_stands_beside_the_sum_of_the_plan() -> None:
    """The portfolio's parts add up with it, and name it as money that is taken."""
    advice = advised(fleet(elastic()))
    (row,) = growth_of(advice)
    assert row.savings.cost is not None
    assert advice.portfolio.growth == pytest.approx(row.savings.cost.central)
    assert advice.portfolio.together == pytest.approx(
        sum(found.savings.cost.central for found in advice.recommendations if found.savings.cost)
    )
    assert advice.portfolio.taken == pytest.approx(-row.savings.cost.central)


def test_off_is_as_before_and_on_the_plan_is_the_same() -> None:
    """Off is the default; the setting moves no job's plan."""
    off = replace(GROWS, grow_elastic_training="off")
    job = elastic()
    plans = [
        build_plan(fleet(job, planning=planning), budget_seconds=10, created_at=AS_OF)
        for planning in (off, GROWS)
    ]
    assert plans[0].plan_id == plans[1].plan_id
    assert replace(plans[0], seconds=0.0) == replace(plans[1], seconds=0.0)
    advice = advised(fleet(job, planning=off))
    assert advice.recommendations == ()
    assert list(advice.kept) == [JOB_ID]
    assert "grow" not in advice.kept[JOB_ID]


QUOTA: dict[str, Any] = {
    "kind": QuotaKind.CLUSTER_QUEUE, "queue": "research", "resource": WHOLE_GPU, "source": "test",
    "gpu_model": H100, "nominal": 8.0, "used": 4.0,
}  # fmt: skip
LOCAL = make_quota(
    **QUOTA | {"kind": QuotaKind.LOCAL_QUEUE, "queue": "ml/q", "nominal": None, "used": None,
               "parent": "research"}
)  # fmt: skip
QUEUED = {"extra": (("queue", "q"),)}


def waits(**changes: Any) -> Job:
    """A job that waits for four boards of the model."""
    facts = replace(PODS, state=JobState.PENDING)
    return make_job("ml/job/next", gpu_count=4, scheduler=facts, **changes)


@pytest.mark.parametrize(
    ("changes", "facts", "more", "why"),
    [
        ({}, {"waiting": (waits(),)}, {}, "ml/job/next waits for 4 GPUs"),
        ({}, {"waiting": (waits(gpu_model=""),)}, {}, "ml/job/next waits for 4 GPUs"),
        ({}, {}, {"groups": ()}, "q95 of what all jobs are forecast to hold"),
        ({}, {}, {"upper": 7.6}, "q95 of what all jobs are forecast to hold"),
        ({}, {}, {"upper": 9.0}, "forecast to want 1 more boards"),
        ({}, {"progress": {}}, {}, "its end is not known"),
        ({}, {"progress": {JOB_ID: half_done(0.999)}}, {}, "would not surely end earlier"),
        ({}, {"had": {JOB_ID: Configuration(gpu_model=H100, gpu_count=2)}}, {}, "grown already"),
        ({"facts": {"state": JobState.PENDING}}, {}, {}, "it does not run"),
        ({"most": 4}, {}, {}, "its bounds let it have no more"),
        ({"facts": {"managed_by": ("Helm",)}}, {}, {}, "Helm would undo it"),
        ({"extra": (("named_pods", "4"),)}, {}, {}, "fix its size"),
        ({"extra": (("bound_to", "a label"),)}, {}, {}, "all nodes of their model"),
        ({"extra": (("deadline_at", (AS_OF + timedelta(hours=9)).isoformat()),)}, {}, {},
         "its deadline may end it first"),
        (QUEUED, {}, {}, "what its queue q may hold is not known"),
        (QUEUED, {"quotas": (LOCAL, make_quota(**QUOTA | {"used": 8.0}))}, {}, "quota of cluster"),
        (QUEUED, {"quotas": (LOCAL, make_quota(**QUOTA | {"used": None}))}, {}, "quota of cluster"),
    ],
)  # fmt: skip
def test_it_does_not_grow_and_says_why(
    changes: dict[str, Any], facts: dict[str, Any], more: dict[str, Any], why: str
) -> None:
    """Others come first, bounds and quotas hold, and what is not known is not proposed."""
    advice = advised(fleet(elastic(**changes)), facts=facts, **more)
    assert growth_of(advice) == []
    assert why in advice.kept[JOB_ID]


def test_a_waiting_job_of_another_scheduler_or_model_is_not_in_its_way() -> None:
    """Slurm's queue wants no boards of Kubernetes."""
    for other in (waits(source="slurm"), waits(gpu_model="L40S-48GB")):
        assert growth_of(advised(fleet(elastic()), facts={"waiting": (other,)}))


@pytest.mark.parametrize(("used", "grown"), [(4.0, 8), (5.0, 7), (7.0, 5)])
def test_a_queue_of_kueue_is_filled_up_to_its_nominal_quota(used: float, grown: int) -> None:
    """What its cohort would lend is not borrowed to grow."""
    quota = make_quota(**QUOTA | {"used": used, "borrowing_limit": 100.0})
    (row,) = growth_of(advised(fleet(elastic(**QUEUED)), facts={"quotas": (LOCAL, quota)}))
    assert row.proposed.gpu_count == grown


@pytest.mark.parametrize(
    ("used", "parent", "grown"),
    [(3.0, "cohort", 8), (5.0, "cohort", 7), (5.0, "", 8), (None, "cohort", None)],
)
def test_what_other_queues_borrow_is_not_taken_back(
    used: float | None, parent: str, grown: int | None
) -> None:
    """A mate of the cohort that uses one board more than its own four may hold one of ours."""
    quota = make_quota(**QUOTA | {"parent": "cohort"})
    mate = make_quota(**QUOTA | {"queue": "mate", "nominal": 4.0, "used": used, "parent": parent})
    advice = advised(fleet(elastic(**QUEUED)), facts={"quotas": (LOCAL, quota, mate)})
    sizes = [row.proposed.gpu_count for row in growth_of(advice)]
    assert sizes == ([] if grown is None else [grown])


def test_a_tenant_is_filled_up_to_its_quota() -> None:
    """It may borrow above it, and does not to grow."""
    share = TenantShare(name="ml", quota=6.0, borrowable=8.0)
    rules = replace(FREE_NODES, tenants=TenantSettings(by="namespace", shares=(share,)))
    (row,) = growth_of(advised(fleet(elastic(), rules=rules)))
    assert row.proposed.gpu_count == 6


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"planning": replace(GROWS, protected_jobs="ml/*")}, "protected"),
        ({"planning": replace(GROWS, pins=(Pin(job=JOB_ID, gpu_model=H100, gpu_count=4),))},
         "pinned"),
        ({"planning": replace(GROWS, grow_elastic_training="measured")}, "was not measured"),
        ({"level": 0.45, "planning": replace(GROWS, power_cap_ratios="1")}, "busy for 45 %"),
        ({"nodes": (node_of("n1", H100, 8, schedulable=False),)}, "too few boards are free"),
        ({"rules": FleetRules(nodes=NodeSettings(maintenance=(
            Maintenance(nodes="n1", start=AS_OF + timedelta(hours=20),
                        end=AS_OF + timedelta(hours=22)),)))}, "too few boards are free"),
    ],
)  # fmt: skip
def test_settings_and_nodes_keep_it_as_it_is(changes: dict[str, Any], why: str) -> None:
    """Protected and pinned jobs, nodes that take nobody, and hours of maintenance far ahead."""
    advice = advised(fleet(elastic(), **changes))
    assert growth_of(advice) == []
    assert why in advice.kept[JOB_ID]


def test_a_pod_grows_only_where_a_node_has_room_for_all_of_it() -> None:
    """Two free boards on each of two nodes hold no pod of four."""
    job = elastic(count=4, step=4, most=2)
    nodes = (node_of("n1", H100, 6), node_of("n2", H100, 2))
    gpus = [*held_by(job, boards=6), *(gpu("n2", index, H100) for index in range(2))]
    advice = advised(fleet(job, nodes=nodes, gpus=gpus))
    assert growth_of(advice) == []
    assert "whole pods" in advice.kept[JOB_ID]
    wide = (node_of("n1", H100, 4), node_of("n2", H100, 4))
    gpus = [*held_by(job, boards=4), *(gpu("n2", index, H100) for index in range(4))]
    (row,) = growth_of(advised(fleet(job, nodes=wide, gpus=gpus)))
    assert row.proposed.gpu_count == 8


def test_a_node_that_nobody_reads_or_that_is_to_be_powered_down_is_not_grown_onto() -> None:
    """What runs on the one is not known; the other is off once its recommendation is followed."""
    job = elastic()
    nodes = (node_of("n1", H100, 4), node_of("n2", H100, 4))
    unread = fleet(job, nodes=nodes, gpus=held_by(job, boards=4))
    assert growth_of(advised(unread)) == []
    gpus = [*held_by(job, boards=4), *(gpu("n2", index, H100) for index in range(4))]
    assert growth_of(advised(fleet(job, nodes=nodes, gpus=gpus)))
    known = [replace(node, source="kubernetes bed") for node in nodes]
    job = replace(job, source="kubernetes bed")
    rules = FleetRules(nodes=NodeSettings(base_watts_per_gpu=125.0))
    advice = advised(fleet(job, nodes=known, gpus=gpus, rules=rules))
    assert [row.target for row in growth_of(advice, Action.CONSOLIDATE)] == ["n2"]
    assert growth_of(advice) == []


def test_boards_are_given_back_when_a_job_waits_for_them() -> None:
    """To what it had before it grew, for which it ends later; alone it keeps them."""
    job = elastic(count=8)
    had = {JOB_ID: Configuration(gpu_model=H100, gpu_count=4)}
    facts: dict[str, Any] = {"had": had, "waiting": (waits(),)}
    (row,) = growth_of(advised(fleet(job), upper=8.0, facts=facts), Action.GIVE_BACK)
    assert (row.now.gpu_count, row.proposed.gpu_count) == (8, 4)
    assert "ml/job/next waits for 4 GPUs" in row.why
    assert row.savings.gpu_hours is not None
    assert row.savings.gpu_hours.central > 0
    assert row.delay_hours is not None
    assert row.delay_hours.low > 0
    crowd = advised(fleet(job), upper=9.0, facts={"had": had})
    assert growth_of(crowd, Action.GIVE_BACK)
    assert growth_of(advised(fleet(job), upper=8.0, facts={"had": had}), Action.GIVE_BACK) == []
    unknown = advised(fleet(job), upper=8.0, facts=facts | {"progress": {}})
    (row,) = growth_of(unknown, Action.GIVE_BACK)
    assert (row.savings.cost, row.delay_hours) == (None, None)


@pytest.mark.parametrize(("boards", "gives"), [(12, True), (14, False)])
def test_boards_are_given_back_when_a_service_is_forecast_to_need_them(
    boards: int, gives: bool
) -> None:
    """No plan has room for it beside the grown job, and what is allocated tells nothing of that."""
    job = elastic(count=8)
    service = make_job("ml/deployment/serve", gpu_count=4, scheduler=PODS)
    problem = fleet(job, service, boards=boards, demand={service.job_id: [5.0] * 24})
    had = {JOB_ID: Configuration(gpu_model=H100, gpu_count=4)}
    rows = growth_of(advised(problem, upper=12.0, facts={"had": had}), Action.GIVE_BACK)
    assert bool(rows) is gives
    assert not rows or "ml/deployment/serve is forecast to need 5.75" in rows[0].why


def test_two_jobs_do_not_grow_into_the_same_boards() -> None:
    """The second gets what the first leaves."""
    names = ("ml/pytorchjob/a", "ml/pytorchjob/b")
    jobs = [elastic(name, 2, most=5) for name in names]
    told = {"progress": dict.fromkeys(names, half_done())}
    rows = growth_of(advised(fleet(*jobs), facts=told))
    assert [row.proposed.gpu_count for row in rows] == [4, 4]
    rows = growth_of(advised(fleet(*jobs, boards=7), facts=told))
    assert sorted(row.proposed.gpu_count for row in rows) == [3, 4]


def test_what_one_takes_is_gone_for_the_next() -> None:
    """Room for whole pods on the nodes, and a tenant's quota, count once."""
    names = ("ml/pytorchjob/a", "ml/pytorchjob/b")
    told = {"progress": dict.fromkeys(names, half_done())}
    jobs = [elastic(name, 2, most=4, step=2) for name in names]
    nodes = [node_of(f"n{number}", H100, 5) for number in range(2)]
    gpus = [
        board
        for number, job in enumerate(jobs)
        for board in held_by(job, boards=5, name=f"n{number}")
    ]
    rows = growth_of(advised(fleet(*jobs, nodes=nodes, gpus=gpus), facts=told))
    assert [row.proposed.gpu_count for row in rows] == [4, 4]
    share = TenantShare(name="ml", quota=6.0)
    rules = replace(FREE_NODES, tenants=TenantSettings(by="namespace", shares=(share,)))
    rows = growth_of(advised(fleet(*jobs, nodes=nodes, gpus=gpus, rules=rules), facts=told))
    assert [row.proposed.gpu_count for row in rows] == [4]
    larger = [elastic(name, 4, most=4, step=2) for name in names]
    nodes = [node_of(f"n{number}", H100, 7) for number in range(2)]
    gpus = [
        board
        for number, job in enumerate(larger)
        for board in held_by(job, boards=7, name=f"n{number}")
    ]
    rows = growth_of(advised(fleet(*larger, nodes=nodes, gpus=gpus), facts=told, upper=8.0))
    assert [row.proposed.gpu_count for row in rows] == [8]


def drawn(seed: int) -> PlanningProblem:
    """Nodes with services whose demand peaks, and elastic training beside them."""
    rng = np.random.default_rng(seed)
    nodes = [node_of(f"n{number}", H100, 8) for number in range(int(rng.integers(1, 4)))]
    told, boards, demand = [], [], {}
    for node in nodes:
        place = 0
        while (left := 8 - place) > 0 and rng.random() < 0.8:
            count, name = int(rng.integers(1, left + 1)), f"{node.name}-{place}"
            if rng.random() < 0.5:
                step = int(rng.choice([size for size in (1, 2, 4) if count % size == 0]))
                job = elastic(f"ml/pytorchjob/{name}", count, most=16, step=step)
                level = 0.9
            else:
                job = make_job(f"ml/deployment/{name}", gpu_count=count, scheduler=PODS)
                level = float(rng.uniform(0.2, 1.0))
                shape = rng.uniform(0.2, 1.6, 24)
                demand[job.job_id] = list(count * level * shape)
            told.append((job, level, 40_000.0, 600.0 * count))
            boards += [gpu(node.name, place + index, H100, job.job_id) for index in range(count)]
            place += count
        boards += [gpu(node.name, index, H100) for index in range(place, 8)]
    if not told:
        return drawn(seed + 20_000)
    return case(*told, gpus=boards, nodes=nodes, planning=GROWS, demand=demand)


def held_by_others(plan: Plan, grown: set[str], slot: int) -> tuple[int, dict[str, int]]:
    """Boards that the others hold in a slot of the plan, in all and by node."""
    by_node: dict[str, int] = {}
    total = 0
    for job in plan.jobs:
        if job.job_id in grown:
            continue
        total += job.steps[slot].gpu_count
        for stay in job.stays:
            if stay.start <= slot < stay.end:
                by_node[stay.node] = by_node.get(stay.node, 0) + stay.gpus
    return total, by_node


@given(st.integers(0, 10_000))
@example(18)
@example(33)
@example(53)
@BRIEF
def test_growth_never_takes_a_board_that_another_job_holds_in_any_slot(seed: int) -> None:
    """In no slot of the plan, in all and node by node, whatever peaks others have.

    The plan before knew of none: peaks that are hours away are planned and not yet proposed.
    """
    problem = drawn(seed)
    plan = build_plan(problem, budget_seconds=10, created_at=AS_OF)
    names = [job.demand.job.job_id for job in problem.jobs]
    facts = GrowthFacts(progress=dict.fromkeys(names, half_done()))
    flat = [replace(job, steps=(job.now,) * len(job.steps)) for job in plan.jobs]
    advice = advise(
        plan,
        problem,
        groups=[demand_for(H100, 0.0)],
        growth=facts,
        last=replace(plan, jobs=tuple(flat)),
        proposed_before={},
    )
    rows = {row.job_id: row for row in growth_of(advice)}
    capacity = {node.name: node.usable for node in problem.facts.nodes}
    steps = {job.demand.job.job_id: job.demand.standing.step for job in problem.jobs}
    homes = problem.facts.homes
    for slot in range(len(problem.slot_starts)):
        others, by_node = held_by_others(plan, set(rows), slot)
        grown = sum(row.proposed.gpu_count for row in rows.values())
        assert not rows or others + grown <= sum(capacity.values())
        room = {name: capacity[name] - by_node.get(name, 0) for name in capacity}
        for job_id in rows:
            for name, count in homes[job_id].boards:
                room[name] -= count
        assert not rows or min(room.values()) >= 0
        for job_id, row in sorted(rows.items(), key=lambda pair: -steps[pair[0]]):
            pods = (row.proposed.gpu_count - row.now.gpu_count) // steps[job_id]
            for _ in range(pods):
                name = max(room, key=lambda name: room[name])
                room[name] -= steps[job_id]
                assert room[name] >= 0
