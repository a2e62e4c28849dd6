"""What waits in the queue is read from the store: whole GPUs, fresh, with how long they run."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from factories import H100, NOW, make_collected, make_job

from dashboard.submission.submit.waiting_jobs import waiting_jobs
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import Job, JobState, Platform, SchedulerFacts
from data.store import Store, open_store

CATALOGUE = load_gpu_catalogue()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    with open_store(f"duckdb:///{tmp_path}/store.duckdb") as opened:
        yield opened


def queued(number: int, **changes: Any) -> Job:
    """A Slurm job that waits for two H100."""
    facts = {"state": JobState.PENDING} | changes.pop("facts", {})
    values: dict[str, Any] = {
        "name": f"run-{number}",
        "namespace": "gpu",
        "platform": Platform.SLURM,
        "gpu_count": 2,
        "scheduler": SchedulerFacts(**facts),
    }
    return make_job(f"slurm:{number}", **(values | changes))


def found_in(store: Store, *jobs: Job) -> dict[str, Any]:
    """The waiting jobs of a store that knows these."""
    store.keep(make_collected(jobs=jobs))
    return {job.name: job for job in waiting_jobs(store.reader, CATALOGUE)}


def test_an_empty_store_knows_of_no_queue(store: Store) -> None:
    """Nothing is known, so nothing is weighed."""
    assert waiting_jobs(store.reader, CATALOGUE) == ()


def test_only_fresh_jobs_that_wait_for_whole_gpus_count(store: Store) -> None:
    """Running, sliced and long unseen ones are left out."""
    found = found_in(
        store,
        queued(1),
        queued(2, facts={"state": JobState.RUNNING}),
        queued(3, mig_profile="1g.10gb"),
        queued(4, last_seen_at=NOW - timedelta(hours=3)),
    )
    assert set(found) == {"slurm:1"}
    assert (found["slurm:1"].gpus, found["slurm:1"].speeds) == (2, {H100: 1.0})


def test_a_job_without_a_type_may_run_on_all(store: Store) -> None:
    """As fast as the catalogue says of each."""
    found = found_in(store, queued(1, gpu_model=""))["slurm:1"]
    assert set(found.speeds) == {entry.name for entry in CATALOGUE}


def test_earlier_runs_say_how_long_then_the_limit_then_two_hours(store: Store) -> None:
    """The median of finished runs of the same name; else what it asks for."""
    ended = SchedulerFacts(
        state=JobState.FINISHED, started_at=NOW - timedelta(hours=5), ended_at=NOW
    )
    past = [replace(queued(10 + index, name="nightly"), scheduler=ended) for index in range(3)]
    limited = {"time_limit_seconds": 10_800.0}
    found = found_in(
        store, *past, queued(1, name="nightly", facts=limited), queued(2, facts=limited), queued(3)
    )
    assert {name: text.hours for name, text in found.items()} == {
        "slurm:1": 5.0,
        "slurm:2": 3.0,
        "slurm:3": 2.0,
    }
