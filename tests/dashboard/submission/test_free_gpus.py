"""Free for a new job is what neither a reading nor a scheduler calls in use."""

from dataclasses import replace
from datetime import timedelta

import pytest
from factories import NOW, make_collected, make_job, make_samples

from dashboard.submission.job.fleet import fleet_of_store
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.fleet import Node
from data.facts.jobs import Job, JobState, SchedulerFacts
from data.store import Store


def quiet_job(gpus: int, *, minutes_ago: int = 0, model: str = "H100-SXM5-80GB") -> Job:
    """A running job that its scheduler names, and of which no reading tells."""
    seen = NOW - timedelta(minutes=minutes_ago)
    return make_job(
        "team/quiet",
        gpu_count=gpus,
        gpu_model=model,
        first_seen_at=seen - timedelta(hours=1),
        last_seen_at=seen,
        scheduler=SchedulerFacts(state=JobState.RUNNING, nodes=("node-1.example",)),
    )


@pytest.mark.parametrize(
    ("label", "used", "jobs", "free"),
    [
        ("", 0.0, (), 4),
        ("search/ranker-0", 0.5, (make_job(gpu_count=4),), 0),
        ("", 0.9, (), 0),
        ("", 0.0, (quiet_job(3),), 1),
        ("", 0.0, (quiet_job(3, model=""),), 1),
        ("", 0.0, (quiet_job(3, minutes_ago=600),), 4),
        ("", 0.9, (quiet_job(3),), 0),
    ],
)
def test_a_gpu_in_use_is_not_free(
    store: Store, label: str, used: float, jobs: tuple[Job, ...], free: int
) -> None:
    """By its readings, by its label, or by what the scheduler gave away."""
    node = Node(
        name="node-1.example", gpu_model="H100-SXM5-80GB", gpu_count=4, seen_at=NOW, source="test"
    )
    idle = {} if used else {"power_watts": 60.0, "memory_used_mib": 0.0}
    samples = make_samples(gpus=4, job_id=label, utilization_ratio=used, **idle)
    store.keep(replace(make_collected(samples, jobs), nodes=(node,)))
    fleet = fleet_of_store(store.reader, load_gpu_catalogue())
    assert [(entry.gpus, entry.free_gpus) for entry in fleet.nodes] == [(4, free)]


@pytest.mark.parametrize("held", [0, 3])
def test_a_node_without_readings_has_what_its_scheduler_did_not_give_away(
    store: Store, held: int
) -> None:
    """The only source is the scheduler."""
    node = Node(
        name="node-1.example", gpu_model="H100-SXM5-80GB", gpu_count=4, seen_at=NOW, source="test"
    )
    jobs = (quiet_job(held),) if held else ()
    store.keep(
        replace(make_collected(make_samples(node="elsewhere"), (make_job(), *jobs)), nodes=(node,))
    )
    fleet = fleet_of_store(store.reader, load_gpu_catalogue())
    assert {entry.name: entry.free_gpus for entry in fleet.nodes}["node-1.example"] == 4 - held
