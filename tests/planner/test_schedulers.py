"""Several schedulers in one fleet: each keeps its jobs, and what none explains stays as it is."""

from datetime import timedelta

import pytest
from drawn import examples
from factories import NOW
from fleet_cases import (
    KUBERNETES,
    SLURM,
    foreign_job,
    gpu,
    mixed_fleet,
    node_of,
    pods_job,
    slurm_job,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import A100, AS_OF, H100, case

from data.facts.fleet import Cluster
from data.facts.jobs import Job, Platform
from data.records.actions import Action
from data.records.plans import Plan
from data.settings.all_settings import PlanningSettings
from planner.advise import advise
from planner.fleet.fleet import UNSEEN
from planner.plan import build_plan
from planner.problem.planning_problem import FleetRules, PlanningProblem

SLOTS = (5, 15, 30, 60)


def planning(slot_minutes: int, hours: int = 12) -> PlanningSettings:
    """So many hours in slots of this length."""
    return PlanningSettings(slot_minutes=slot_minutes, horizon_slots=hours * 60 // slot_minutes)


def plan_of(problem: PlanningProblem) -> Plan:
    """The plan, with time to spare."""
    return build_plan(problem, budget_seconds=60, created_at=NOW)


def owners_of(problem: PlanningProblem) -> dict[str, tuple[str, ...]]:
    """The schedulers of every node that was seen."""
    return {node.name: node.schedulers for node in problem.facts.nodes if node.observed}


def runs_on(problem: PlanningProblem) -> dict[str, set[str]]:
    """The jobs of the plan by the node that they are on now."""
    found: dict[str, set[str]] = {}
    for job_id, home in problem.facts.homes.items():
        for name, _count in home.boards:
            found.setdefault(name, set()).add(job_id)
    return found


def explained(job: Job, owners: tuple[str, ...]) -> bool:
    """Whether a scheduler of the node says that it runs the job."""
    return job.scheduler is not None and job.source in owners


@given(st.integers(0, 10_000), st.sampled_from(SLOTS))
@settings(max_examples=examples(40), deadline=None, derandomize=True)
def test_every_scheduler_keeps_its_own(seed: int, slot_minutes: int) -> None:
    """Jobs stay within their scheduler; rigid and foreign ones do not move at all."""
    problem = mixed_fleet(seed, planning=planning(slot_minutes, hours=3))
    owners, plan = owners_of(problem), plan_of(problem)
    for entry, planned in zip(problem.jobs, plan.jobs, strict=True):
        job = entry.demand.job
        if job.job_id not in problem.facts.homes:
            continue
        home = {name for name, _count in problem.facts.homes[job.job_id].boards}
        for stay in planned.stays:
            if stay.node in home or stay.node.startswith(UNSEEN):
                continue
            assert explained(job, owners[stay.node]), (job.job_id, stay.node)
            assert entry.demand.standing.may_restart
        if not entry.demand.standing.may_restart or job.scheduler is None:
            assert not any(stay.moved for stay in planned.stays)


@given(st.integers(0, 10_000), st.sampled_from(SLOTS))
@settings(max_examples=examples(40), deadline=None, derandomize=True)
def test_only_a_node_that_one_scheduler_explains_is_powered_down(
    seed: int, slot_minutes: int
) -> None:
    """Foreign jobs, labels without a job and nodes of nobody or of two keep a node as it is."""
    problem = mixed_fleet(seed, planning=planning(slot_minutes, hours=3))
    owners, plan = owners_of(problem), plan_of(problem)
    jobs = {job.demand.job.job_id: job.demand.job for job in problem.jobs}
    foreign = {
        name
        for name, ids in runs_on(problem).items()
        if not all(explained(jobs[job_id], owners[name]) for job_id in ids)
    }
    for node in plan.nodes:
        assert all(node.on) or node.node not in foreign, node.node
    platforms = {SLURM: Platform.SLURM, KUBERNETES: Platform.KUBERNETES}
    for recommendation in advise(plan, problem).recommendations:
        if recommendation.action is Action.CONSOLIDATE:
            name = f"{recommendation.target}.example"
            assert name not in foreign
            assert len(owners[name]) == 1
            assert recommendation.platform is platforms[owners[name][0]]
            assert dict(recommendation.details)["node"] == recommendation.target, (
                "as its scheduler calls it"
            )


@pytest.mark.parametrize("slot_minutes", SLOTS)
def test_a_node_with_a_job_of_a_scheduler_not_connected_stays_on(slot_minutes: int) -> None:
    """Kubernetes is connected; the A100 node beside it runs a job that only its label names."""
    boards = [gpu("k", i, H100, "ml/deployment/x" if i < 2 else "") for i in range(8)]
    boards += [gpu("a100-01", i, A100, "slurm:916" if i < 4 else "") for i in range(8)]
    boards += [gpu("idle", i, A100) for i in range(8)]
    problem = case(
        (pods_job("x", gpu_count=2), 0.9, 60_000.0, 1200.0),
        (foreign_job(16, gpu_model=A100, gpu_count=4), 0.8, 60_000.0, 1400.0),
        gpus=boards,
        nodes=[node_of("k", H100, source=KUBERNETES), node_of("idle", A100, source=KUBERNETES)],
        rules=FleetRules(),
        planning=planning(slot_minutes),
    )
    plan = plan_of(problem)
    found = {
        recommendation.target: recommendation.platform
        for recommendation in advise(plan, problem).recommendations
    }
    assert {node.node: any(node.on) for node in plan.nodes}["a100-01"]
    assert "a100-01" not in found
    assert found["idle"] is Platform.KUBERNETES


@pytest.mark.parametrize("state", ["mixed", "allocated+cloud", "idle"])
def test_a_node_that_slurm_calls_busy_holds_work_that_is_not_seen(state: str) -> None:
    """Jobs of other users may be hidden from the account that reads."""
    problem = case(
        (slurm_job(1), 0.9, 60_000.0, 600.0),
        gpus=[gpu("s0", i, H100, "slurm:1" if i == 0 else "") for i in range(8)],
        nodes=[
            node_of(name, H100, source=SLURM, partitions=("gpu",), state=state)
            for name in ("s0", "s1")
        ],
        rules=FleetRules(),
        planning=planning(15),
    )
    off = {node.node for node in plan_of(problem).nodes if not any(node.on)}
    assert off == (set() if state != "idle" else {"s1"})


@given(st.integers(0, 10_000), st.sampled_from(SLOTS), st.sets(st.integers(0, 4), min_size=1))
@settings(max_examples=examples(30), deadline=None, derandomize=True)
def test_a_node_with_work_without_a_label_stays_on(
    seed: int, slot_minutes: int, where: set[int]
) -> None:
    """Whoever describes the node, and whatever it says of it."""
    names = {f"n{number}.example" for number in where}
    problem = mixed_fleet(seed, planning=planning(slot_minutes, hours=3), nameless=names)
    has_it = {node.name for node in problem.facts.nodes if node.foreign}
    plan = plan_of(problem)
    kept = {node.node for node in plan.nodes if node.node.partition(" ")[0] in names}
    assert kept <= has_it
    assert all(all(node.on) for node in plan.nodes if node.node in kept)
    assert not kept & {
        f"{recommendation.target}.example"
        for recommendation in advise(plan, problem).recommendations
        if recommendation.action is Action.CONSOLIDATE
    }


@pytest.mark.parametrize("source", [SLURM, KUBERNETES])
@pytest.mark.parametrize(
    ("minutes_ago", "stays"), [(0, True), (50, True), (70, False), (None, False)]
)
def test_an_idle_looking_node_with_a_busy_board_is_not_powered_down(
    source: str, minutes_ago: int | None, stays: bool
) -> None:
    """The board belongs to no job and to no label; an hour after its work the node may go."""
    at = None if minutes_ago is None else AS_OF - timedelta(minutes=minutes_ago)
    job = slurm_job(1) if source == SLURM else pods_job("x")
    problem = case(
        (job, 0.9, 60_000.0, 600.0),
        gpus=[
            *(gpu("s0", i, H100, job.job_id if i == 0 else "") for i in range(8)),
            *(gpu("s1", i, H100, unexplained_at=at if i == 3 else None) for i in range(8)),
        ],
        nodes=[
            node_of(name, H100, source=source, partitions=("gpu",), state=state)
            for name, state in (("s0", "mixed"), ("s1", "idle"))
        ],
        rules=FleetRules(),
        planning=planning(15),
    )
    plan = plan_of(problem)
    off = {node.node for node in plan.nodes if not any(node.on)}
    assert off == (set() if stays else {"s1"})
    targets = {recommendation.target for recommendation in advise(plan, problem).recommendations}
    assert ("s1" in targets) is not stays


@pytest.mark.parametrize("source", [SLURM, KUBERNETES])
@pytest.mark.parametrize(("what", "proposed"), [("read", True), ("unread", False), ("runs", False)])
def test_a_node_of_which_too_little_is_known_is_not_powered_down(
    source: str, what: str, proposed: bool
) -> None:
    """No reading of its boards, or a running job without readings."""
    job = slurm_job(1) if source == SLURM else pods_job("x")
    boards = [gpu("s0", i, H100, job.job_id if i == 0 else "") for i in range(8)]
    if what != "unread":
        boards += [gpu("s1", i, H100) for i in range(8)]
    problem = case(
        (job, 0.9, 60_000.0, 600.0),
        gpus=boards,
        nodes=[
            node_of(name, H100, source=source, partitions=("gpu",), state=state)
            for name, state in (("s0", "mixed"), ("s1", "idle"))
        ],
        kept_on=frozenset({"s1.example"} if what == "runs" else ()),
        rules=FleetRules(),
        planning=planning(15),
    )
    plan = plan_of(problem)
    targets = {recommendation.target for recommendation in advise(plan, problem).recommendations}
    assert ("s1" in targets) is proposed


def test_a_mixed_fleet_has_a_pool_for_each_scheduler() -> None:
    """H100 of Slurm are not those of Kubernetes, and a job sees its own only."""
    boards = [gpu(n, i, model) for n, model in (("s", H100), ("k", A100)) for i in range(8)]
    problem = case(
        (slurm_job(1, gpu_count=8), 0.1, 5_000.0, 800.0),
        (pods_job("x", gpu_count=8), 0.1, 5_000.0, 800.0),
        gpus=boards,
        nodes=[
            node_of("s", H100, source=SLURM, partitions=("gpu",)),
            node_of("k", A100, source=KUBERNETES),
            node_of("k2", H100, source=KUBERNETES),
        ],
        planning=planning(60),
    )
    names = {pool.name for pool in problem.pools.pools}
    assert f"{H100} (slurm; partition gpu)" in names or f"{H100} (slurm)" in names
    assert f"{H100} (kubernetes prod)" in names
    models = [{o.configuration.gpu_model for o in job.options} for job in problem.jobs]
    assert models == [{H100}, {H100, A100}]


def test_a_scheduler_that_was_taken_away_owns_nothing_after_a_day() -> None:
    """The store keeps its nodes; their last description is older than the newest sample."""
    old = node_of("n0", H100, source=SLURM, seen_at=AS_OF.replace(day=3))
    problem = case(
        (foreign_job(1), 0.5, 20_000.0, 300.0),
        gpus=[gpu("n0", i, H100, "slurm:91" if i == 0 else "") for i in range(8)],
        nodes=[old],
        planning=planning(60),
    )
    assert [node.schedulers for node in problem.facts.nodes] == [()]
    assert Cluster(as_of=AS_OF, gpus=(), nodes=(old,)).nodes[0].platform is Platform.SLURM
