"""What several sources say of one job at several times becomes one record, in whatever order."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import permutations

import pytest
from factories import make_job

from data.records.jobs import OVER, Job, JobState, SchedulerFacts
from data.store.facts import merged_job

START = datetime(2026, 1, 5, 10, tzinfo=UTC)


def told(state: JobState, seen: float, *, began: float = 0.0) -> Job:
    """Return what a scheduler says, minutes after `START`."""
    at = START + timedelta(minutes=seen)
    facts = SchedulerFacts(
        state=state,
        started_at=None if state is JobState.PENDING else START + timedelta(minutes=began),
        ended_at=at if state in OVER else None,
    )
    return make_job("slurm:7", first_seen_at=START, last_seen_at=at, scheduler=facts)


def read(seen: float) -> Job:
    """Return what telemetry says, minutes after `START`."""
    at = START + timedelta(minutes=seen)
    return make_job("slurm:7", first_seen_at=START, last_seen_at=at)


@pytest.mark.parametrize("state", sorted(OVER))
def test_a_run_that_ended_does_not_run_for_being_read_a_little_longer(state: JobState) -> None:
    """Telemetry names a job until its last reading is stale, minutes after its end."""
    said = (told(JobState.RUNNING, 10), read(15), told(state, 13))
    for order in permutations(said):
        merged = reduce(merged_job, order)
        assert merged.scheduler is not None
        assert merged.scheduler.state is state
        assert merged.last_seen_at == START + timedelta(minutes=15)


def test_a_run_after_a_requeue_is_the_one_that_counts() -> None:
    """An earlier stretch that ended says nothing of the one that began after it."""
    before, after = told(JobState.CANCELLED, 13), told(JobState.RUNNING, 20, began=18)
    waits = told(JobState.PENDING, 15)
    for order in permutations((before, waits, after)):
        merged = reduce(merged_job, order)
        assert merged.scheduler == after.scheduler
    assert merged_job(before, waits).scheduler == waits.scheduler


def test_the_word_of_a_scheduler_counts_before_telemetry() -> None:
    """However much later telemetry read the job; what the scheduler leaves out is taken from it."""
    named = replace(read(50), owner="ada")
    said = replace(told(JobState.SUSPENDED, 10), owner="")
    for one, other in permutations((named, said)):
        merged = merged_job(one, other)
        assert (merged.owner, merged.scheduler) == ("ada", said.scheduler)
