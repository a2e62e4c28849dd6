"""Nodes that a scheduler needs for jobs without readings, or for jobs that wait, stay on."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from factories import NOW, make_collected, make_job, make_samples

from data.boards.unplanned_jobs import required_nodes_on
from data.facts.fleet import Node
from data.facts.jobs import Job, JobState, Platform, SchedulerFacts
from data.records.feasible_changes import required_nodes
from data.store import Store


def node(name: str) -> Node:
    """A node of eight boards, described now."""
    return Node(name=name, gpu_model="H100-SXM5-80GB", gpu_count=8, seen_at=NOW, source="test")


def job_on(*nodes: str, state: JobState, minutes_ago: int, platform: Platform) -> Job:
    """A job as its scheduler last told it."""
    facts = SchedulerFacts(state=state, nodes=nodes)
    seen = NOW - timedelta(minutes=minutes_ago)
    first = seen - timedelta(hours=1)
    job = make_job("team/quiet", first_seen_at=first, last_seen_at=seen, scheduler=facts)
    return replace(job, platform=platform)


@pytest.mark.parametrize("platform", [Platform.KUBERNETES, Platform.SLURM])
@pytest.mark.parametrize(
    ("state", "minutes_ago", "holds"),
    [
        (JobState.RUNNING, 0, True),
        (JobState.SUSPENDED, 0, True),
        (JobState.RUNNING, 30, True),
        (JobState.RUNNING, 600, False),
        (JobState.PENDING, 0, True),
        (JobState.CANCELLED, 0, False),
        (JobState.UNKNOWN, 0, False),
    ],
)
def test_nodes_of_jobs_without_readings_are_told(
    store: Store, platform: Platform, state: JobState, minutes_ago: int, holds: bool
) -> None:
    """A job that is not listed any more is over; one with readings is planned for itself."""
    quiet = job_on("n1", "n2", state=state, minutes_ago=minutes_ago, platform=platform)
    store.keep(
        replace(
            make_collected(make_samples(), (make_job(), quiet)),
            nodes=tuple(map(node, ("n1", "n2"))),
        )
    )
    view = store.reader.planning_view(NOW, slot_seconds=900, history_days=7)
    assert [job.job_id for job in view.jobs] == ["search/ranker-0"]
    assert view.cluster.kept_on == ({"n1", "n2"} if holds else set())


WAITING = SchedulerFacts(state=JobState.PENDING, reason="Resources")


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, {"n1", "n2"}),
        ({"gpu_model": ""}, {"n1", "n2", "other"}),
        ({"gpu_model": "A100-SXM4-80GB"}, {"other"}),
        ({"source": "elsewhere"}, set()),
        ({"namespace": "long,gpu", "platform": Platform.SLURM}, {"n2"}),
        ({"namespace": "cpu", "platform": Platform.SLURM}, set()),
        ({"last_seen_at": NOW - timedelta(hours=2)}, set()),
        ({"scheduler": replace(WAITING, reason="JobHeldUser")}, set()),
        ({"scheduler": replace(WAITING, reason="DependencyNeverSatisfied")}, set()),
    ],
)
def test_nodes_on_which_a_waiting_job_may_start(changes: dict[str, Any], kept: set[str]) -> None:
    """The job that waits is asked for its model, its scheduler and, with Slurm, its partitions."""
    nodes = [
        replace(node("n1"), partitions=("debug",)),
        replace(node("n2"), partitions=("gpu",)),
        replace(node("other"), gpu_model="A100-SXM4-80GB", partitions=("debug",)),
    ]
    if changes.get("platform") is not Platform.SLURM:
        nodes = [replace(entry, partitions=()) for entry in nodes]
    job = replace(make_job("team/waits", scheduler=WAITING), **changes)
    assert required_nodes_on([job], set(), nodes) == kept


@pytest.mark.parametrize("state", ["idle+planned", "reserved+idle", "idle+reservation-ahead"])
def test_a_node_that_its_scheduler_has_promised(state: str) -> None:
    """Free as it looks, somebody will come."""
    assert required_nodes_on([], set(), [node("n1"), replace(node("n2"), state=state)]) == {"n2"}


@pytest.mark.parametrize("platform", [Platform.KUBERNETES, Platform.SLURM])
def test_a_job_that_waits_for_named_nodes_keeps_no_others_on(platform: Platform) -> None:
    """The nodes that it named, or that the rules of its pods admit."""
    waits = job_on(state=JobState.PENDING, minutes_ago=0, platform=platform)
    assert waits.scheduler is not None
    named = replace(waits.scheduler, extra=(("required_nodes", "n2"),))
    nodes = [node("n1"), node("n2")]
    assert required_nodes_on([waits], (), nodes) == {"n1", "n2"}
    assert required_nodes_on([replace(waits, scheduler=named)], (), nodes) == {"n2"}


@pytest.mark.parametrize("platform", [Platform.KUBERNETES, Platform.SLURM])
def test_the_names_of_a_job_are_read_once_whatever_the_nodes(
    monkeypatch: pytest.MonkeyPatch, platform: Platform
) -> None:
    """Read for each node, those of a job that names 1,500 took 0.7 s, at every planning view."""
    read: Counter[str] = Counter()

    def counted(job: Job) -> frozenset[str]:
        read[job.job_id] += 1
        return required_nodes(job)

    monkeypatch.setattr("data.boards.unplanned_jobs.required_nodes", counted)
    waits = job_on(state=JobState.PENDING, minutes_ago=0, platform=platform)
    assert waits.scheduler is not None
    names = [f"n{number}" for number in range(1500)]
    named = replace(waits.scheduler, extra=(("required_nodes", ",".join(names[1:])),))
    assert required_nodes_on([replace(waits, scheduler=named)], (), map(node, names)) == {
        *names[1:]
    }
    assert read == {waits.job_id: 1}


@pytest.mark.parametrize("slot_seconds", [300, 900, 3600])
@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.SUSPENDED])
@pytest.mark.parametrize(("quiet_hours", "holds"), [(0, False), (1, False), (4, True), (40, True)])
def test_a_job_whose_readings_ended_holds_what_its_scheduler_says(
    store: Store, state: JobState, quiet_hours: int, holds: bool, slot_seconds: int
) -> None:
    """It has no forecast and is in no plan: its boards were free, its node could be put off."""
    quiet = job_on("n1", state=state, minutes_ago=0, platform=Platform.SLURM)
    end = NOW - timedelta(hours=quiet_hours)
    old = make_samples(job_id=quiet.job_id, gpu_uuid="GPU-q", end=end)
    store.keep(
        replace(make_collected(make_samples(), (make_job(),)), nodes=(node("n1"),)),
        make_collected(old, (quiet,)),
    )
    view = store.reader.planning_view(NOW, slot_seconds=slot_seconds, history_days=7)
    assert view.cluster.kept_on == ({"n1"} if holds else set())
    held = {("n1", quiet.gpu_model): quiet.gpu_count} if holds else {}
    assert view.cluster.occupied == held
    assert (quiet.job_id in view.read) is not holds
