"""What needs boards that another change frees names that change, which is to be applied first."""

from dataclasses import replace
from datetime import timedelta

import pytest
from factories import make_job, make_quota
from fleet_cases import KUBERNETES, SLURM, gpu, node_of, pods_job, slurm_job
from planning_cases import AS_OF, FREE_NODES, H100, boards, case

from data.facts.gpu_resources import WHOLE_GPU
from data.facts.jobs import Job, WorkloadKind
from data.facts.quotas import Quota, QuotaKind
from data.records.actions import Action
from data.records.plans import NodePlan
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings
from data.settings.fleet import NodeSettings
from planner.advise import advise
from planner.plan import build_plan
from planner.problem.planning_problem import FleetRules

BUSY, ALSO = "shop/deployment/chat", "shop/deployment/rank"


def idle(name: str, gpus: int) -> Job:
    """Training that holds boards and has not worked for two days."""
    return make_job(
        f"shop/job/{name}", gpu_count=gpus, kind=WorkloadKind.TRAINING,
        first_seen_at=AS_OF - timedelta(days=3),
    )  # fmt: skip


def advised(
    idle_jobs: list[Job],
    free: int,
    *,
    quotas: tuple[Quota, ...] = (),
    slot_minutes: int = 60,
    services: tuple[str, ...] = (BUSY,),
) -> dict[str, Recommendation]:
    """What is recommended by job, of services on two boards that need some four each."""
    served = [make_job(name, gpu_count=2) for name in services]
    held = sum(job.gpu_count for job in (*idle_jobs, *served))
    slots = 24 * 60 // slot_minutes
    problem = case(
        *((job, 0.0, 9_000.0, 70.0 * job.gpu_count) for job in idle_jobs),
        *((job, 0.9, 60_000.0, 900.0) for job in served),
        gpus=boards(H100, held + free),
        planning=PlanningSettings(slot_minutes=slot_minutes, horizon_slots=slots),
        rules=replace(FREE_NODES, quotas=quotas),
        demand={job.job_id: [3.4] * slots for job in served},
    )
    plan = build_plan(problem, budget_seconds=10, created_at=AS_OF)
    return {row.job_id: row for row in advise(plan, problem).recommendations}


def first(row: Recommendation) -> str:
    """What it says is to be applied first."""
    return dict(row.evidence.factors).get("apply first", "")


@pytest.mark.parametrize("slot_minutes", [15, 60])
@pytest.mark.parametrize(
    ("free", "needed"), [(0, "shop/job/a (reclaim)"), (1, "shop/job/a (reclaim)"), (2, "")]
)
def test_growth_into_boards_that_a_reclaim_frees_names_it(
    slot_minutes: int, free: int, needed: str
) -> None:
    """In its reason and in its factors; with room beside it nothing is to come first."""
    rows = advised([idle("a", 2)], free, slot_minutes=slot_minutes)
    assert rows["shop/job/a"].action is Action.RECLAIM
    assert first(rows["shop/job/a"]) == ""
    grown = rows[BUSY]
    assert (grown.action, grown.proposed.gpu_count) == (Action.SCALE_OUT, 4)
    assert first(grown) == needed
    assert (f"Apply {needed} first" in grown.why) is bool(needed)


def test_as_many_are_named_as_are_needed() -> None:
    """Two idle jobs of one board each for two boards; of three, the third is not needed."""
    rows = advised([idle("a", 1), idle("b", 1)], 0)
    assert first(rows[BUSY]) == "shop/job/a (reclaim), shop/job/b (reclaim)"
    rows = advised([idle(name, 1) for name in "abc"], 0)
    assert first(rows[BUSY]).count("reclaim") == 2


def test_two_that_grow_do_not_count_on_the_same_free_boards() -> None:
    """One of them takes what is free, and the other waits for what is given up."""
    rows = advised([idle("a", 2)], 2, services=(BUSY, ALSO))
    assert sorted(first(rows[name]) for name in (BUSY, ALSO)) == ["", "shop/job/a (reclaim)"]


def test_devices_of_a_quota_are_given_up_as_boards_are() -> None:
    """Boards are free, and the quota is full until another job of the namespace ends."""
    quota = make_quota(
        "shop/gpus", kind=QuotaKind.RESOURCE_QUOTA, resource=WHOLE_GPU, nominal=6.0, used=6.0
    )
    rows = advised([idle("a", 2)], 8, quotas=(replace(quota, used=4.0),))
    assert (rows[BUSY].proposed.gpu_count, first(rows[BUSY])) == (4, "")
    assert BUSY not in advised([idle("a", 2)], 8, quotas=(replace(quota, nominal=4.0, used=4.0),))


@pytest.mark.parametrize("holds", ["b", "a"])
def test_a_node_that_a_reclaim_empties_names_it(holds: str) -> None:
    """Of the jobs that hold boards there; what changes on other nodes need not come first."""
    stays = pods_job("chat", gpu_count=2)
    gone = pods_job("a", "job", gpu_count=2, first_seen_at=AS_OF - timedelta(days=3))
    owner = {("a", 0): stays, ("a", 1): stays, (holds, 4): gone, (holds, 5): gone}
    problem = case(
        (stays, 0.9, 60_000.0, 1_200.0),
        (gone, 0.0, 9_000.0, 140.0),
        gpus=[
            gpu(name, index, H100, job.job_id if (job := owner.get((name, index))) else "")
            for name in "ab"
            for index in range(8)
        ],
        rules=FleetRules(nodes=NodeSettings()),
        nodes=[node_of(name, H100, gpus=8, source=KUBERNETES) for name in "ab"],
        planning=PlanningSettings(slot_minutes=60, horizon_slots=24, power_cap_ratios=""),
    )
    plan = build_plan(problem, budget_seconds=10, created_at=AS_OF)
    off = tuple(
        NodePlan(node=name, gpu_model=H100, gpus=8, on=(name == "a",) * 24) for name in "ab"
    )
    found = advise(replace(plan, nodes=off), problem).recommendations
    (node,) = (row for row in found if row.action is Action.CONSOLIDATE)
    assert first(node) == "ml/job/a (reclaim)" * (holds == "b")


@pytest.mark.parametrize("slot_minutes", [15, 60])
@pytest.mark.parametrize(
    ("source", "each", "stays_on", "names"),
    [
        (SLURM, 4, 4, "b (consolidate)"),
        (SLURM, 4, 6, "b (consolidate), slurm:2 (reclaim)"),
        (KUBERNETES, 4, 4, "b (consolidate)"),
        (KUBERNETES, 1, 4, ""),
        (KUBERNETES, 1, 6, ""),
    ],
)
def test_a_job_that_starts_again_is_to_find_its_node_closed(
    slot_minutes: int, source: str, each: int, stays_on: int, names: str
) -> None:
    """Else it may start there again, and the node is no longer free; it needs room elsewhere.

    Pods of `each` GPUs: where fewer of them stay, none starts again.
    """
    stays, rests, again = (
        slurm_job(number, gpu_count=count, gpu_model=H100, first_seen_at=AS_OF - timedelta(days=3))
        if source == SLURM
        else pods_job(
            f"j{number}", "deployment", gpu_count=count, gpu_model=H100,
            first_seen_at=AS_OF - timedelta(days=3),
            extra=(("gpus_per_pod", str(each)), ("pods", str(count // each))),
        )
        for number, count in ((1, stays_on), (2, 2), (3, 4))
    )  # fmt: skip
    held = {
        "a": [stays.job_id] * stays_on + [rests.job_id] * 2 + [""] * (6 - stays_on),
        "b": [again.job_id] * 4 + [""] * 4,
    }
    slots = 24 * 60 // slot_minutes
    problem = case(
        (stays, 0.9, 60_000.0, 600.0 * stays_on),
        (rests, 0.0, 9_000.0, 140.0),
        (again, 0.2, 10_000.0, 800.0),
        gpus=[
            gpu(name, index, H100, job)
            for name, jobs in held.items()
            for index, job in enumerate(jobs)
        ],
        rules=FleetRules(nodes=NodeSettings()),
        nodes=[
            node_of(name, H100, source=source, partitions=("gpu",) * (source == SLURM))
            for name in held
        ],
        planning=PlanningSettings(
            slot_minutes=slot_minutes, horizon_slots=slots, power_cap_ratios=""
        ),
    )
    plan = build_plan(problem, budget_seconds=10, created_at=AS_OF)
    off = tuple(
        NodePlan(node=name, gpu_model=H100, gpus=8, on=(name == "a",) * slots) for name in held
    )
    found = advise(replace(plan, nodes=off), problem).recommendations
    (node,) = (row for row in found if row.action is Action.CONSOLIDATE)
    (fewer,) = (row for row in found if row.job_id == again.job_id)
    assert fewer.action is Action.FEWER_GPUS
    assert first(node) == ("" if names else f"{again.job_id} (fewer-gpus)")
    assert first(fewer) == names
    assert (f"Apply {names} first: it starts again" in fewer.why) is bool(names)
