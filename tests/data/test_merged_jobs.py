"""What several sources say of one job at several times becomes one record, in whatever order."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import permutations

import pytest
from factories import H100, make_job
from fleet_cases import gpu
from hypothesis import given
from hypothesis import strategies as st

from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import ENDED_STATES, Job, JobState, JobWait, Platform, SchedulerFacts
from data.store.facts.fact_reader import with_models_held
from data.store.facts.fact_writer import merged_job

START = datetime(2026, 1, 5, 10, tzinfo=UTC)


def told(state: JobState, seen: float, *, began: float = 0.0) -> Job:
    """Return what a scheduler says, minutes after `START`."""
    at = START + timedelta(minutes=seen)
    facts = SchedulerFacts(
        state=state,
        started_at=None if state is JobState.PENDING else START + timedelta(minutes=began),
        ended_at=at if state in ENDED_STATES else None,
    )
    return make_job("slurm:7", first_seen_at=START, last_seen_at=at, scheduler=facts)


def read(seen: float) -> Job:
    """Return what telemetry says, minutes after `START`."""
    at = START + timedelta(minutes=seen)
    return make_job("slurm:7", first_seen_at=START, last_seen_at=at)


@pytest.mark.parametrize("state", sorted(ENDED_STATES))
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


def requeued(number: int, *, hours: int, gpus: int, has_started: bool = True) -> Job:
    """Return a reading of run `number`: a day after the last, it waited `hours` for GPUs."""
    came = START + timedelta(days=number)
    started_at = came + timedelta(hours=hours)
    seen_at = started_at + timedelta(minutes=5 * has_started - 1)
    facts = SchedulerFacts(submitted_at=came, started_at=started_at if has_started else None)
    return make_job(
        "slurm:7",
        platform=Platform.SLURM,
        gpu_count=gpus,
        first_seen_at=came,
        last_seen_at=seen_at,
        scheduler=facts,
    )


@given(
    runs=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 8)), min_size=2, max_size=6),
    data=st.data(),
)
def test_no_wait_is_lost_by_a_requeue(runs: list[tuple[int, int]], data: st.DataObject) -> None:
    """Whatever the order of the readings, and however often they come; of 60 days, no older one."""
    last = len(runs) - 1
    said = [
        requeued(number, hours=hours, gpus=gpus, has_started=has_started)
        for number, (hours, gpus) in enumerate(runs)
        for has_started in (False, True)
        if number < last or not has_started
    ]
    order = data.draw(st.permutations([*said, *data.draw(st.lists(st.sampled_from(said)))]))
    merged = reduce(merged_job, order)
    assert merged.scheduler is not None
    assert merged.scheduler.submitted_at == START + timedelta(days=last)
    expected = tuple(
        JobWait(
            submitted_at=START + timedelta(days=number),
            started_at=START + timedelta(days=number, hours=hours),
            gpu_count=gpus,
            gpu_model=H100,
        )
        for number, (hours, gpus) in enumerate(runs[:-1])
    )
    assert merged.scheduler.earlier_waits == expected
    later = merged_job(merged, requeued(61, hours=1, gpus=1)).scheduler
    assert later is not None
    assert later.earlier_waits == tuple(
        wait for wait in expected if wait.started_at > START + timedelta(days=1, hours=2)
    )


def test_a_workload_of_kubernetes_has_one_wait() -> None:
    """The oldest pod of a workload changes while the others run: that is no wait of them all."""
    before, after = (
        replace(requeued(number, hours=1, gpus=4), platform=Platform.KUBERNETES)
        for number in (0, 1)
    )
    assert merged_job(before, after).scheduler == after.scheduler


@pytest.mark.parametrize("told_model", ["", "a100", "A100-SXM4-80GB,H100-SXM5-80GB"])
def test_boards_tell_the_model_of_a_job_unless_they_are_of_several(told_model: str) -> None:
    """Half of 8 x H100 are none, however the boards are listed."""
    job, known = make_job("slurm:7", gpu_model=told_model), load_gpu_catalogue()
    mine = [gpu("h1", 0, H100, "slurm:7"), gpu("h1", 1, H100, "slurm:7")]
    other = gpu("a1", 0, "A100-SXM4-80GB", "slurm:7")
    assert [row.gpu_model for row in with_models_held([job], mine, known)] == [H100]
    for boards in permutations([*mine, other]):
        assert with_models_held([job], boards, known) == (job,)
