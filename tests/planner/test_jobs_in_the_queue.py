"""A job that waits for its start: what a change of it takes, and where a plan seats it."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from drawn import examples
from fleet_cases import KUBERNETES, SLURM, gpu, node_of, plan_of, pods_job, slurm_job
from hypothesis import example, given, settings
from hypothesis import strategies as st
from planning_cases import AS_OF, H100, L40S, advised, boards, case

from data.facts.jobs import Job, JobState
from data.facts.queue_waits import QueueWait
from data.records.feasible_changes import NO_NODE
from data.records.recommendations import Recommendation
from data.settings.fleet import PowerDomain, PowerSettings
from planner.costs.cost import change_costs
from planner.jobs.job_end import likely_waits, remaining_of
from planner.problem.planning_problem import FleetRules, PlanningProblem


def waiting(job: Job, **facts: object) -> Job:
    """The same job before its start."""
    assert job.scheduler is not None
    return replace(
        job,
        scheduler=replace(job.scheduler, state=JobState.PENDING, **facts),  # type: ignore[arg-type]
    )


def problem_of(job: Job) -> PlanningProblem:
    """One job that needs a part of its boards; others of it and of a cheaper model are free."""
    return case((job, 0.2, 10_000.0, 300.0), gpus=[*boards(H100, 8), *boards(L40S, 8)])


JOBS = {
    "slurm": slurm_job(1, gpu_count=4),
    "job": pods_job("train", "job", gpu_count=4),
    "elastic": pods_job(
        "train",
        "pytorchjob",
        gpu_count=4,
        extra=(("min_replicas", "1"), ("max_replicas", "8"), ("gpus_per_unit", "1")),
    ),
    "service": pods_job("chat", gpu_count=4),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_change_in_the_queue_takes_a_second_and_holds_nothing(name: str) -> None:
    """Nothing is checkpointed, done again or started again, whatever the job and the option."""
    problem = problem_of(waiting(JOBS[name]))
    (job,) = problem.jobs
    changed = [option for option in job.options[1:] if option.boards]
    assert changed
    for option in job.options:
        taken = change_costs(job.demand, job.options[0], option, problem.terms)
        assert {what for what, _seconds in taken.parts} <= {"change its request in the queue"}
        assert taken.seconds[2] <= 10
        assert (taken.gpu_hours, taken.cost) == ((0.0,) * 3, (0.0,) * 3)
        assert taken.wait_price == 0
    assert any(
        change_costs(job.demand, job.options[0], option, problem.terms).seconds[1] == 1
        for option in changed
    )


def test_fewer_gpus_of_a_waiting_job_are_told_as_a_change_of_its_request() -> None:
    """The same job, running, writes a checkpoint and does work again."""
    (found,) = advised(problem_of(waiting(JOBS["slurm"]))).recommendations
    assert found.proposed.gpu_count < found.now.gpu_count
    assert found.transition is not None
    assert found.transition.parts == (("change its request in the queue", 1.0),)
    assert found.transition.gpu_hours == 0


@given(
    st.sampled_from([["h3"], ["h1"], ["h2", "h3"], []]),
    st.sampled_from(["", "partition", "feed"]),
    st.sampled_from([1, 2, 4]),
)
@settings(max_examples=examples(40), deadline=None)
@example(required=["h3"], apart="", size=4)
@example(required=["h3"], apart="", size=2)
@example(required=["h3"], apart="partition", size=2)
@example(required=["h3"], apart="feed", size=2)
def test_a_waiting_job_is_seated_on_the_nodes_that_it_requires(
    required: list[str], apart: str, size: int
) -> None:
    """Or, while others hold them, on none, whatever is free elsewhere and sets h3 apart."""
    asked = {"requeue": "no", "gres_per": "node", "nodes_requested": "1"}
    names = {"required_nodes": ",".join(required)}
    queued = waiting(slurm_job(1, gpu_count=size, extra=asked | names))
    runs = slurm_job(2, gpu_count=6, extra=asked)
    fed = PowerSettings(domains=(PowerDomain(name="row", nodes="h3*", limit_kw=99.0),))
    wide = {"h3.site": ("gpu", "x")} if apart == "partition" else {}
    hosts = ("h1.site", "h2.site", "h3.site")
    problem = case(
        (queued, 0.97, 60_000.0, None),
        (runs, 0.97, 60_000.0, None),
        gpus=[
            gpu(host, number, H100, runs.job_id if host == "h3.site" and number < 6 else "")
            for host in hosts
            for number in range(8)
        ],
        nodes=[
            node_of(host, H100, source=SLURM, partitions=wide.get(host, ("gpu",))) for host in hosts
        ],
        rules=FleetRules(power=fed) if apart == "feed" else FleetRules(),
    )
    planned = plan_of(problem).jobs[0]
    at = {stay.node.partition(".")[0] for stay in planned.stays}
    if required == ["h3"] and size > 2:
        assert not at
        assert "no required node (h3) has room for 4 GPUs" in planned.unplaced
    else:
        assert at
        assert at <= set(required or ("h1", "h2", "h3"))


@pytest.mark.parametrize(("named", "place"), [("h2", {"h2"}), ("h1,h2", {"h2"}), (NO_NODE, set())])
def test_waiting_pods_are_seated_on_the_nodes_that_their_rules_admit(
    named: str, place: set[str]
) -> None:
    """Others hold h1, h3 is free and not theirs."""
    queued = waiting(
        pods_job("train", "job", gpu_count=4, extra=(("required_nodes", named),)), nodes=()
    )
    runs = pods_job("other", gpu_count=8)
    problem = case(
        (queued, 0.97, 60_000.0, None),
        (runs, 0.97, 60_000.0, None),
        gpus=[
            gpu(host, number, H100, runs.job_id if host == "h1" else "")
            for host in ("h1", "h2", "h3")
            for number in range(8)
        ],
        nodes=[node_of(host, H100, source=KUBERNETES) for host in ("h1", "h2", "h3")],
    )
    planned = plan_of(problem).jobs[0]
    assert {stay.node for stay in planned.stays} == place
    why = "no node here is admitted by its nodeSelector and affinity"
    assert (why in planned.unplaced) is (not place)


def promised(wait: QueueWait | None) -> Recommendation | None:
    """What is proposed of a waiting job of four GPUs that needs one."""
    queued = waiting(JOBS["slurm"])
    waits = {} if wait is None else {queued.job_id: wait}
    problem = case((queued, 0.2, 10_000.0, 300.0), gpus=boards(H100, 8), queue_waits=waits)
    return next(iter(advised(problem).recommendations), None)


def expected_hours(wait: QueueWait) -> float:
    """Hours of the day ahead that a job without an end has, over its likely starts."""
    starts = likely_waits(wait) / 3600 - 1  # the first slot begins an hour after the readings
    return float(np.mean(np.clip(24.0 - starts, 0.0, 24.0)))


@given(st.floats(0.1, 40.0), st.floats(1.0, 4.0))
@settings(max_examples=examples(20), deadline=None)
@example(median=6.0, spread=1.0)
def test_what_a_waiting_job_saves_counts_from_its_expected_start(
    median: float, spread: float
) -> None:
    """Hour by hour over its likely starts: three GPUs less for the rest of the day."""
    wait = QueueWait(
        low=3600 * median / spread, median=3600 * median, high=3600 * median * spread,
        mean=3600 * median, starts=20, days=7,
    )  # fmt: skip
    hours = expected_hours(wait)
    found = promised(wait)
    if found is None:
        assert hours < 4
        return
    assert found.savings.horizon_hours == pytest.approx(hours)
    assert found.savings.gpu_hours is not None
    assert found.savings.gpu_hours.central <= 3 * hours + 1e-6
    assert found.savings.gpu_hours.central == pytest.approx(3 * hours, rel=0.35)
    assert (
        f"{AS_OF + timedelta(seconds=wait.median):%Y-%m-%d %H:%M}"
        in (dict(found.evidence.factors)["end"])
    )


@pytest.mark.parametrize("wait", [None, QueueWait(days=7)])
def test_of_a_start_that_nobody_knows_the_saving_is_a_bound(wait: QueueWait | None) -> None:
    """It counts from the first slot on, may be nothing, and the evidence says so."""
    found, known = promised(wait), promised(QueueWait(starts=20, days=7))
    assert found is not None
    assert known is not None
    for saved, bound in (
        (found.savings.gpu_hours, known.savings.gpu_hours),
        (found.savings.cost, known.savings.cost),
    ):
        assert saved is not None
        assert bound is not None
        assert (saved.low, saved.high) == (0.0, pytest.approx(bound.high, rel=1e-3))
    assert "unknown" in dict(found.evidence.factors)["start"]
    assert not any("not measured here" in note for note in found.evidence.fallbacks)
    assert "start" not in dict(known.evidence.factors)


@given(st.floats(0.0, 20.0), st.floats(0.5, 30.0), st.sampled_from([15, 60]))
@settings(max_examples=examples(40), deadline=None)
def test_a_waiting_job_has_what_lies_between_its_start_and_its_deadline(
    starts: float, ends: float, minutes: int
) -> None:
    """Three quarters of it on average, as where a deadline alone is known; nothing before."""
    first, slot = AS_OF + timedelta(minutes=minutes), timedelta(minutes=minutes)
    slots = [first + slot * number for number in range(40 * 60 // minutes)]
    deadline = AS_OF + timedelta(hours=ends)
    job = waiting(slurm_job(1, extra={"deadline_at": deadline.isoformat()}))
    seconds = starts * 3600
    wait = QueueWait(low=seconds, median=seconds, high=seconds, mean=seconds, starts=9, days=7)
    found = remaining_of(job, slots, slot, as_of=AS_OF, wait=wait)
    begins, hour = AS_OF + timedelta(hours=starts), minutes / 60
    early = [share for at, share in zip(slots, found.high, strict=True) if at + slot <= begins]
    late = [share for at, share in zip(slots, found.high, strict=True) if at >= deadline]
    assert max([*early, *late, 0.0]) == 0
    if starts >= hour:
        assert found.hours(hour) == pytest.approx(0.75 * max(0.0, ends - starts), abs=1e-6)
    assert (found.low <= found.central).all()
    assert (found.central <= found.high).all()


@pytest.mark.parametrize("nodes", [(), ("n1",)])
def test_pods_that_are_bound_hold_their_boards_while_kubernetes_calls_them_pending(
    nodes: tuple[str, ...],
) -> None:
    """An image that does not come, a first container that loads a model: their boards are gone."""
    problem = problem_of(waiting(JOBS["service"], nodes=nodes))
    assert problem.jobs[0].held_boards == (4.0 if nodes else 0.0)
