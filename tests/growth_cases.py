"""Elastic training jobs beside free boards, and what their growth is judged by."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from factories import make_job
from fleet_cases import PODS, gpu, node_of
from planning_cases import AS_OF, H100, case

from data.base.clock import utc_now
from data.facts.fleet import Gpu
from data.facts.jobs import Job, JobState, Platform, SchedulerFacts, WorkloadKind
from data.facts.progress import ProgressReport
from data.records.actions import Action
from data.records.forecasts import GroupForecast, GroupKind, QuantilePath, Quantity
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings
from planner.advise import Advice, advise
from planner.advisers.growth_room import GrowthFacts
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem

GROWS = PlanningSettings(slot_minutes=60, horizon_slots=24, grow_elastic_training="assumed")
JOB_ID = "ml/pytorchjob/train"
STARTED = AS_OF - timedelta(hours=10)


def elastic(
    job_id: str = JOB_ID, count: int = 4, *, most: int = 8, step: int = 1, **changes: Any
) -> Job:
    """A running PyTorchJob whose elastic policy allows so many workers of `step` GPUs."""
    extra = (
        ("gpus_per_unit", str(step)), ("fixed_gpus", "0"), ("wanted_gpus", str(count)),
        ("min_replicas", "1"), ("max_replicas", str(most)),
        *changes.pop("extra", ()),
    )  # fmt: skip
    told = {"state": JobState.RUNNING, "started_at": STARTED} | changes.pop("facts", {})
    facts = SchedulerFacts(extra=extra, **told)
    values: dict[str, Any] = {
        "kind": WorkloadKind.TRAINING, "platform": Platform.KUBERNETES, "gpu_model": H100,
        "gpu_count": count, "scheduler": facts,
    }  # fmt: skip
    return make_job(job_id, **(values | changes))


def half_done(done: float = 0.5) -> tuple[ProgressReport, ...]:
    """Reports of a run that went evenly since its start."""
    hours = [float(hour) for hour in range(1, 11)]
    return tuple(
        ProgressReport(reported_at=STARTED + timedelta(hours=hour), done_ratio=done * hour / 10)
        for hour in hours
    )


def held_by(*jobs: Job, boards: int = 8, name: str = "n1") -> list[Gpu]:
    """The boards of one node, the first of them with the jobs."""
    owners = [job.job_id for job in jobs for _ in range(job.gpu_count)]
    owners += [""] * (boards - len(owners))
    return [gpu(name, index, jobs[0].gpu_model, owner) for index, owner in enumerate(owners)]


def demand_for(model: str, *boards: float) -> GroupForecast:
    """A forecast of what all jobs hold of a model: so many boards in the hours ahead, surely."""
    row = tuple(boards) if len(boards) > 1 else boards * 24
    path = QuantilePath(
        quantity=Quantity.ALLOCATED_GPUS, model="mix", q10=row, q50=row, q90=row, backtest=None
    )
    starts: list[datetime] = [AS_OF + timedelta(hours=1 + hour) for hour in range(len(row))]
    return GroupForecast(
        kind=GroupKind.GPU_MODEL, name=model, slot_starts=tuple(starts), paths=(path,),
        known_slots=1000,
    )  # fmt: skip


def fleet(
    *jobs: Job, boards: int = 8, planning: PlanningSettings = GROWS, **more: Any
) -> PlanningProblem:
    """Busy jobs on one node of H100 that one scheduler describes."""
    level = more.pop("level", 0.9)
    told = [(job, level, 40_000.0, 600.0 * job.gpu_count) for job in jobs]
    nodes = more.pop("nodes", (node_of("n1", jobs[0].gpu_model, boards),))
    gpus = more.pop("gpus", held_by(*jobs, boards=boards))
    return case(*told, gpus=gpus, nodes=nodes, planning=planning, **more)


def advised(problem: PlanningProblem, *, upper: float = 4.0, **more: Any) -> Advice:
    """The advice of a plan; the reports of the job tell its end unless told otherwise."""
    facts: dict[str, Any] = {"progress": {JOB_ID: half_done()}} | more.pop("facts", {})
    rules = replace(problem.rules, quotas=facts.pop("quotas", ()))
    problem = replace(problem, rules=rules)
    plan = build_plan(problem, budget_seconds=10, created_at=AS_OF)
    on = problem.planning.grow_elastic_training != "off"
    groups = more.pop("groups", [demand_for(H100, upper)])
    growth = GrowthFacts(**facts) if on else None
    return advise(plan, problem, groups=groups, growth=growth, **more)


def grown_and_given_back(job: Job, size: int) -> tuple[Recommendation, Recommendation]:
    """What is proposed for a job with as many free boards beside it, and once another job waits.

    Both made after everything that a test makes meanwhile.
    """
    told = {"progress": {job.job_id: half_done()}}
    upper = float(job.gpu_count)
    (grown,) = advised(fleet(job, boards=size), upper=upper, facts=told).recommendations
    assert grown.action is Action.GROW
    extra = dict((job.scheduler or SchedulerFacts()).extra) | {"wanted_gpus": str(size)}
    facts = replace(job.scheduler or SchedulerFacts(), extra=tuple(extra.items()))
    larger = replace(job, gpu_count=size, scheduler=facts)
    told |= {"had": {job.job_id: grown.now}, "waiting": (make_job("ml/job/next", scheduler=PODS),)}
    (back,) = advised(fleet(larger, boards=size), upper=float(size), facts=told).recommendations
    assert back.action is Action.GIVE_BACK
    planned_at = utc_now() + timedelta(hours=1)
    made = {"created_at": planned_at, "expires_at": planned_at + timedelta(hours=24)}
    return replace(grown, **made), replace(back, **made)
