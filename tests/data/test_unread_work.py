"""A job that its scheduler runs and that has no readings keeps its nodes on."""

from dataclasses import replace
from datetime import timedelta

import pytest
from factories import NOW, make_collected, make_job, make_samples

from data.records.cluster import Node
from data.records.jobs import Job, JobState, Platform, SchedulerFacts
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
        (JobState.PENDING, 0, False),
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
    assert [one.job_id for one in view.jobs] == ["search/ranker-0"]
    assert view.cluster.unread == ({"n1", "n2"} if holds else set())
