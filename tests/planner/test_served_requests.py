"""A service whose engines tell its requests keeps what they need, whatever its GPUs show."""

from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawn import examples
from factories import make_job
from fleet_cases import gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import AS_OF, H100, L40S, SLOT_LENGTHS, boards, case, day_in_slots, history_of

from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.columns import HISTORY, check_frame
from data.facts.fleet import Gpu
from data.facts.jobs import Job, JobState, SchedulerFacts, WorkloadKind
from data.records.actions import Action
from data.records.plans import IdleCause
from data.records.recommendations import Recommendation
from data.records.serving import ServiceOutlook
from data.settings.all_settings import PlanningSettings
from data.settings.fleet import NodeSettings
from planner.advise import advise
from planner.advisers.admission import AdmissionRoom
from planner.plan import build_plan
from planner.problem.planning_problem import FleetRules, PlanningProblem
from planner.proposals.proposal import steady_proposal

DAY, NIGHT = range(8, 16), 2
"""Hours after the plan's start in which requests need more replicas; at other times so many."""


def outlook(
    job: Job, peak_load_ratio: float | None, replicas: int = 1, **changes: Any
) -> ServiceOutlook:
    """What is foreseen of a service that was read up to the plan's start."""
    return ServiceOutlook(
        job_id=job.job_id,
        namespace=job.namespace,
        service=job.name,
        engine="vllm",
        model="m",
        read_until=AS_OF,
        replicas=replicas,
        running_requests=1.0,
        waiting_requests=0.0,
        requests_per_second=1.0,
        peak_load_ratio=peak_load_ratio,
        **changes,
    )


def autoscaled(count: int, *, low: int = 1, high: int = 8, step: int = 1) -> Job:
    """A Deployment under an autoscaler with these bounds, in replicas of `step` GPUs."""
    extra = (
        ("gpus_per_unit", str(step)), ("fixed_gpus", "0"), ("wanted_gpus", str(count)),
        ("min_replicas", str(low)), ("max_replicas", str(high)),
    )  # fmt: skip
    facts = SchedulerFacts(
        state=JobState.RUNNING,
        workload="Deployment/ranker",
        managed_by=("HorizontalPodAutoscaler",),
        extra=extra,
    )
    return make_job("search/deployment/ranker", gpu_count=count, scheduler=facts)


def by_hour(day: int) -> tuple[int, ...]:
    """The replicas of each hour of a day that needs so many in DAY."""
    return tuple(day if hour in DAY else NIGHT for hour in range(24))


def proposed(
    job: Job, level: float, peak_load_ratio: float | None, slot_minutes: int = 60
) -> Recommendation | None:
    """What is proposed for a service at a level of activity and a peak of its requests."""
    gpus = [*boards(H100, 8, cut=True), *boards(L40S, 8)]
    problem = case(
        (job, level, 5_000.0, 150.0 * job.gpu_count),
        gpus=gpus,
        planning=day_in_slots(slot_minutes),
        serving=[outlook(job, peak_load_ratio)],
    )
    advice = advise(build_plan(problem, budget_seconds=30, created_at=AS_OF), problem)
    found = [entry for entry in advice.recommendations if entry.job_id]
    return found[0] if found else None


@settings(max_examples=examples(25), deadline=None)
@given(
    count=st.sampled_from([1, 2, 4, 8]),
    level=st.floats(0.02, 1.0),
    load=st.floats(0.0, 3.0),
    slot_minutes=st.sampled_from(SLOT_LENGTHS),
)
def test_nothing_is_proposed_that_carries_less_than_the_peak_of_its_requests(
    count: int, level: float, load: float, slot_minutes: int
) -> None:
    """By the catalogue's speed of what is proposed; what shows less never adds boards."""
    job = make_job(gpu_count=count)
    found = proposed(job, level, load, slot_minutes)
    alone = proposed(job, level, None, slot_minutes)
    if found is None:
        return
    speed = {entry.name: entry.relative_speed for entry in load_gpu_catalogue()}
    to = found.proposed
    carried = to.gpu_count * speed[to.gpu_model] / speed[H100]
    if to.mig_profile:
        profile = load_gpu_catalogue().get(to.gpu_model).mig_profile(to.mig_profile)
        assert profile is not None
        carried *= profile.compute_fraction
    assert carried >= count * min(load, 1 / 1.15) - 1e-9
    if found.action is Action.SCALE_OUT:
        assert alone is not None
        assert alone.action is Action.SCALE_OUT


@pytest.mark.parametrize(("load", "count"), [(None, 2), (0.1, 2), (0.4, 4), (0.9, None), (2, None)])
def test_a_service_that_shows_little_keeps_what_its_requests_take(
    load: float | None, count: int | None
) -> None:
    """A fifth of eight boards is busy. Two are enough unless requests take more of them."""
    found = proposed(make_job(gpu_count=8), 0.19, load)
    assert (None if found is None else found.proposed.gpu_count) == count
    if found is not None:
        assert ("its requests take" in found.why) == (load is not None)


def test_a_service_that_answers_requests_is_not_reclaimed() -> None:
    """Two days without activity, and one request in a thousand of what it carries."""
    job = make_job(gpu_count=2)
    idle = proposed(job, 0.0, None)
    assert idle is not None
    assert idle.action is Action.RECLAIM
    answering = proposed(job, 0.0, 0.001)
    assert answering is None or answering.proposed.gpu_count
    silent = proposed(job, 0.0, 0.0)
    assert silent is not None
    assert silent.action is Action.RECLAIM


@settings(max_examples=examples(25), deadline=None)
@given(
    now=st.sampled_from([1, 2, 4]),
    day=st.integers(2, 9),
    low=st.integers(0, 2),
    high=st.integers(3, 8),
    step=st.sampled_from([1, 2]),
    slot_minutes=st.sampled_from(SLOT_LENGTHS),
)
def test_the_plan_holds_what_an_autoscaler_is_foreseen_to_hold(
    now: int, day: int, low: int, high: int, step: int, slot_minutes: int
) -> None:
    """By slot, within its bounds and the fleet; and nobody is asked to do what it does."""
    job = autoscaled(now * step, low=low, high=high, step=step)
    problem = case(
        (job, 0.3, 5_000.0, 150.0 * job.gpu_count),
        gpus=boards(H100, 16),
        planning=day_in_slots(slot_minutes),
        serving=[outlook(job, 0.3, now, hourly_replicas=by_hour(day))],
    )
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    (planned,) = plan.jobs
    for start, held in zip(plan.slot_starts, planned.steps, strict=True):
        hours = {(start - AS_OF) // timedelta(hours=1)}
        hours.add((start - AS_OF + timedelta(minutes=slot_minutes - 1)) // timedelta(hours=1))
        replicas = max(by_hour(day)[hour % 24] for hour in hours)
        wanted = min(max(replicas, low, 1), high) * step
        assert held.gpu_count >= wanted
        assert held.gpu_count <= max(day, now, low, 1) * step
    assert plan.cost_of_now == pytest.approx(plan.cost)  # it alone does anything
    advice = advise(plan, problem)
    assert not [row for row in advice.recommendations if row.job_id == job.job_id]
    assert "HorizontalPodAutoscaler scales it" in advice.kept[job.job_id]


@pytest.mark.parametrize("day", [2, 6])
def test_training_leaves_boards_to_the_replicas_of_the_day(day: int) -> None:
    """Eight boards, two of them a service's and six an elastic training's."""
    bounds = (("gpus_per_unit", "1"), ("min_replicas", "1"), ("max_replicas", "6"))
    job, train = (
        autoscaled(2),
        make_job(
            "ml/pytorchjob/train",
            kind=WorkloadKind.TRAINING,
            gpu_model=H100,
            gpu_count=6,
            scheduler=SchedulerFacts(state=JobState.RUNNING, extra=bounds),
        ),
    )
    problem = case(
        (job, 0.9, 5_000.0, 600.0),
        (train, 0.5, 5_000.0, 3_000.0),
        gpus=boards(H100, 8),
        serving=[outlook(job, 0.9, 2, hourly_replicas=by_hour(day))],
    )
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    held = {row.job_id: [step.gpu_count for step in row.steps] for row in plan.jobs}
    for slot, start in enumerate(plan.slot_starts):
        wanted = by_hour(day)[(start - AS_OF) // timedelta(hours=1) % 24]
        assert held[job.job_id][slot] >= wanted
        assert held[job.job_id][slot] + held[train.job_id][slot] <= 8
    assert max(held[train.job_id]) >= 4


def held_by(job: Job, *, boards: int, name: str) -> list[Gpu]:
    """The boards of one node, the first of them with the job."""
    owners = [job.job_id] * job.gpu_count + [""] * (boards - job.gpu_count)
    return [gpu(name, index, job.gpu_model, owner) for index, owner in enumerate(owners)]


def spread(job: Job, day: int, **changes: Any) -> PlanningProblem:
    """The service on one of four nodes of four boards; the others are free."""
    gpus = held_by(job, boards=4, name="n0")
    gpus += [gpu(f"n{node}", board, H100, "") for node in (1, 2, 3) for board in range(4)]
    service = outlook(job, 0.9, changes.pop("read", 2), hourly_replicas=by_hour(day))
    return case((job, 0.9, 5_000.0, 600.0), gpus=gpus, serving=[service], **changes)


@pytest.mark.parametrize("protected", ["", "search/*"])
def test_nodes_are_on_for_the_replicas_of_the_day(protected: str) -> None:
    """Nine of them fit on three nodes; protected or not, their autoscaler starts them."""
    planning = PlanningSettings(slot_minutes=60, horizon_slots=24, protected_jobs=protected)
    rules = FleetRules(nodes=NodeSettings(base_watts_per_gpu=100.0))
    problem = spread(autoscaled(2, high=12), 9, planning=planning, rules=rules)
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    assert [node.on.count(True) for node in plan.nodes] == [24, 8, 8, 0]
    assert (plan.jobs[0].scaled_by, plan.changes_per_job_day) == ("HorizontalPodAutoscaler", 0)
    assert not any(map(plan.jobs[0].is_asked, plan.jobs[0].steps))
    assert plan.jobs[0].describe(plan.jobs[0].steps[8]).endswith("by its HorizontalPodAutoscaler")
    off = {row.target for row in advise(plan, problem).recommendations if not row.job_id}
    assert off <= {"n3"}


def test_replicas_that_are_not_read_keep_their_boards() -> None:
    """The engines of two of four pods are read: no size below four is planned."""
    problem = spread(autoscaled(4), 2, read=2)
    assert [option.boards for option in problem.jobs[0].options if option.autoscaled] == []
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    assert {step.gpu_count for step in plan.jobs[0].steps} == {4}


@pytest.mark.parametrize(("day", "has_room"), [(2, True), (9, False)])
def test_a_proposal_takes_no_board_that_replicas_of_the_day_take(day: int, has_room: bool) -> None:
    """Another service would have six boards more, of the twelve that are free by night."""
    job, other = autoscaled(2, high=12), make_job("ml/other", gpu_count=2)
    problem = case(
        (job, 0.9, 5_000.0, 600.0),
        (other, 0.9, 5_000.0, 600.0),
        gpus=boards(H100, 16),
        serving=[outlook(job, 0.9, 2, hourly_replicas=by_hour(day))],
        demand={other.job_id: [8.0] * 24},
    )
    asked = problem.jobs[1]
    grown = [number for number, option in enumerate(asked.options) if option.boards == 4]
    assert len(grown) == 1
    room = AdmissionRoom(problem)
    for _ in range(3):  # as three jobs of its kind
        proposal = steady_proposal(asked, (0,) * 24, grown[0], 1.0)
        why_not = room.take(proposal)
    assert (not why_not) == has_room


def test_an_autoscaled_service_without_requests_told_stays_as_it_is() -> None:
    """Nothing tells what it will need."""
    job = autoscaled(4)
    problem = case((job, 0.3, 5_000.0, 600.0), gpus=boards(H100, 8))
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    assert {step.gpu_count for step in plan.jobs[0].steps} == {4}


def test_what_is_ordered_and_what_was_there_a_day_before_are_foreseen() -> None:
    """The larger of both where both are known; the day before alone beyond the orders."""
    starts = tuple(AS_OF + timedelta(minutes=10 * slot) for slot in range(36))
    service = outlook(
        autoscaled(2), None, 2, slot_starts=starts, required_replicas=(3,) * 35 + (9,),
        hourly_replicas=(4, None, *by_hour(6)[2:]),
    )  # fmt: skip

    def at(hours: float, minutes: float = 15) -> int | None:
        start = AS_OF + timedelta(hours=hours)
        return service.foreseen_between(start, start + timedelta(minutes=minutes))

    assert (at(0), at(1), at(1.5, 60), at(2)) == (4, 3, 3, 3)
    assert (at(5.75), at(6), at(7.75), at(7.9), at(24), at(25), at(32)) == (9, 2, 2, 6, 4, None, 6)


def history_by_hour(job: Job, slot_minutes: int, days: float, works: range) -> pd.DataFrame:
    """A history that works in these hours before now, and in no others."""
    slot = timedelta(minutes=slot_minutes)
    day = history_of(job, 0.0, 5_000.0, 300.0, slot).iloc[:1]
    frame = day.loc[day.index.repeat(round(timedelta(days=days) / slot))].reset_index(drop=True)
    frame["slot_start"] = pd.date_range(end=AS_OF - slot, periods=len(frame), freq=slot).as_unit(
        "us"
    )
    ago = (AS_OF - frame["slot_start"]).dt.total_seconds() // 3600
    level = np.where(ago.isin(list(works)), 0.3, 0.0)
    frame[["utilization_ratio", "utilization_max_ratio"]] = np.column_stack([level, level])
    frame["effective_gpus"] = level * job.gpu_count
    return check_frame(frame, HISTORY)


def idle_service(frame: pd.DataFrame, job: Job, **changes: Any) -> PlanningProblem:
    """A problem of a service with such a history and nothing else."""
    slot_minutes = round(frame["slot_start"].diff().min() / timedelta(minutes=1))
    return case(
        (job, 0.0, 5_000.0, 300.0),
        gpus=boards(H100, 8),
        planning=day_in_slots(slot_minutes, **changes),
        history=frame,
    )


def may_be_reclaimed(problem: PlanningProblem) -> bool:
    """Whether the first job may be left without GPUs."""
    return 0 in [option.configuration.gpu_count for option in problem.jobs[0].options]


NEVER = range(0)
BY_DAY = range(5, 15)


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
@pytest.mark.parametrize(
    ("kind", "days", "works", "reclaimed"),
    [
        (WorkloadKind.INFERENCE, 2, BY_DAY, False),
        (WorkloadKind.INFERENCE, 8, range(60, 70), False),
        (WorkloadKind.INFERENCE, 10, range(7 * 24 + 2, 7 * 24 + 10), True),
        (WorkloadKind.INFERENCE, 2, NEVER, True),
        (WorkloadKind.INFERENCE, 0.5, NEVER, False),
        (WorkloadKind.TRAINING, 2, BY_DAY, False),
        (WorkloadKind.TRAINING, 2, NEVER, True),
    ],
)
def test_a_quiet_night_or_weekend_of_a_service_is_no_reason_to_stop_it(
    slot_minutes: int, kind: WorkloadKind, days: float, works: range, reclaimed: bool
) -> None:
    """Idle for five hours after its day, since Friday, for a week, always, since this morning.

    Nor is a rest of training that was shorter than one it has come back from.
    """
    job = make_job(gpu_count=2, kind=kind)
    problem = idle_service(history_by_hour(job, slot_minutes, days, works), job)
    assert may_be_reclaimed(problem) == reclaimed


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
@pytest.mark.parametrize("begins", [0, 50])
@pytest.mark.parametrize(("minutes", "reclaimed"), [(15, True), (150, False)])
def test_a_restart_is_no_work_of_a_service(
    slot_minutes: int, begins: int, minutes: int, reclaimed: bool
) -> None:
    """Three days ago weights were loaded for a quarter of an hour, or requests answered."""
    job = make_job(gpu_count=2, kind=WorkloadKind.INFERENCE)
    frame = history_by_hour(job, slot_minutes, 8, NEVER)
    start = AS_OF - timedelta(hours=72) + timedelta(minutes=begins)
    touched = frame["slot_start"] + timedelta(minutes=slot_minutes) > start
    touched &= frame["slot_start"] < start + timedelta(minutes=minutes)
    frame.loc[touched, "utilization_max_ratio"] = 0.3
    problem = idle_service(frame, job)
    assert may_be_reclaimed(problem) == reclaimed


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
@pytest.mark.parametrize("missing", ["none", "first", "middle"])
@pytest.mark.parametrize(("hours", "reclaimed"), [(36, True), (12, False)])
def test_a_service_is_known_for_a_day_of_the_one_that_is_asked_for(
    slot_minutes: int, missing: str, hours: int, reclaimed: bool
) -> None:
    """A slot without readings does not keep it for good."""
    job = make_job(gpu_count=2, kind=WorkloadKind.INFERENCE)
    frame = history_by_hour(job, slot_minutes, hours / 24, NEVER)
    gone = {"none": [], "first": [0], "middle": [len(frame) // 2]}[missing]
    problem = idle_service(frame.drop(index=gone), job, history_days=1)
    assert may_be_reclaimed(problem) == reclaimed


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
@pytest.mark.parametrize(
    ("kind", "limit", "told"),
    [
        (WorkloadKind.INFERENCE, 4.0, True),
        (WorkloadKind.INFERENCE, 100.0, False),
        (WorkloadKind.TRAINING, 100.0, False),
    ],
)
def test_why_an_idle_service_is_kept_for_now(
    slot_minutes: int, kind: WorkloadKind, limit: float, told: bool
) -> None:
    """It has been idle since its last work: nothing said that its present size costs least."""
    job = make_job(kind=kind)
    frame = history_by_hour(job, slot_minutes, 8, range(70, 80))
    problem = idle_service(frame, job, reclaim_idle_hours=limit)
    found = advise(build_plan(problem, budget_seconds=0.1, created_at=AS_OF), problem)
    reason = dict(found.kept).get(job.job_id, "")
    reason += "".join(one.why for one in found.recommendations if one.job_id == job.job_id)
    hours = 70 - slot_minutes / 60
    words = f"it has been idle for {hours:.1f} h; a service is reclaimed after a week without work"
    assert (words in reason) == told
    # It is advised to start on demand, with that reason.
    idle = found.idle[job.job_id]
    assert idle.cause is not IdleCause.HELD_BACK
    assert (idle.change == Action.SCALE_TO_ZERO.spec.title) == told
