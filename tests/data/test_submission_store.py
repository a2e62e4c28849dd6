"""Submissions in the store: kept whole, found by prefix, never sent twice while open."""

from dataclasses import replace
from datetime import timedelta

import pytest
from factories import H100, NOW

from data.base.errors import StoreError
from data.records.submissions import (
    Attempt,
    MeasuredPeak,
    Submission,
    SubmissionState,
    SubmittedPlan,
)
from data.store import Store

PLAN = SubmittedPlan(
    gpu_type=H100, gpus=2, nodes=1, gpus_per_node=2, data=2, tensor=1, pipeline=1, sharding="zero1",
    micro_batch=4, gradient_accumulation=8, recompute="none", p50_bytes=6e10, p99_bytes=8e10,
    needed_bytes=6.1e10, static_bytes=2e10, dynamic_bytes=4e10, gpu_memory_bytes=8.5e10, tier="A",
)  # fmt: skip


def make_submission(*, job: str = "{}", minutes: int = 0) -> Submission:
    """A submission whose first attempt is being sent."""
    at = NOW + timedelta(minutes=minutes)
    attempt = Attempt(
        number=1, plan=PLAN, manifest="text", state=SubmissionState.SENDING, sent_at=at
    )
    return Submission(
        name="run", target="slurm", job=job, family="f", submitted_by="ada", created_at=at,
        attempts=(attempt,),
    )  # fmt: skip


def keep(store: Store, one: Submission, *, new: bool = False) -> None:
    """Keep it with an audit entry."""
    store.keep_submission(one, at=NOW, actor="ada", event="test", detail="", new=new)


def in_state(one: Submission, state: SubmissionState) -> Submission:
    """The submission with its latest attempt in a state."""
    return replace(one, attempts=(replace(one.latest, state=state, job_id="slurm:1"),))


def test_what_is_read_is_what_was_kept(store: Store) -> None:
    """A submission survives the store, its later state replaces the earlier, in its old place."""
    first, second = make_submission(), make_submission(job='{"a":1}', minutes=1)
    keep(store, first, new=True)
    keep(store, second, new=True)
    ended = in_state(first, SubmissionState.FINISHED)
    keep(store, ended)
    assert store.reader.submissions() == (second, ended)
    assert store.reader.submission(first.submission_id[:7]) == ended
    assert len(store.reader.audit()) == 3
    assert store.reader.verify_audit() == ()


@pytest.mark.parametrize("wanted", ["", "abc", "zzzzzzzz", "%%%%%%%%"])
def test_an_id_that_names_none_is_an_error(store: Store, wanted: str) -> None:
    """Too short, unknown, or a pattern: none of them finds a submission."""
    keep(store, make_submission(), new=True)
    with pytest.raises(StoreError, match="no submission"):
        store.reader.submission(wanted)


def test_an_open_job_is_not_written_a_second_time(store: Store) -> None:
    """The same job later is refused while the first is open, and nothing of it is kept."""
    keep(store, make_submission(), new=True)
    with pytest.raises(StoreError, match="already submitted"):
        keep(store, make_submission(minutes=5), new=True)
    assert (len(store.reader.submissions()), len(store.reader.audit())) == (1, 1)


def test_a_job_that_ended_may_be_sent_again_but_not_by_the_same_click(store: Store) -> None:
    """Once it ended the same job is welcome as a new submission; the very same one never is."""
    first = make_submission()
    keep(store, first, new=True)
    keep(store, in_state(first, SubmissionState.FAILED))
    with pytest.raises(StoreError, match="already submitted"):
        keep(store, first, new=True)
    keep(store, make_submission(minutes=5), new=True)
    assert len(store.reader.submissions()) == 2


def test_a_job_teaches_once(store: Store) -> None:
    """A second peak of the same job changes nothing; peaks of other families are apart."""
    peak = MeasuredPeak(
        family="f", job_id="slurm:1", static_bytes=1.0, dynamic_bytes=2.0, measured_bytes=3.0,
        measured_at=NOW,
    )  # fmt: skip
    assert store.keep_measured_peak(peak)
    assert not store.keep_measured_peak(replace(peak, measured_bytes=9.0))
    assert store.keep_measured_peak(replace(peak, family="other"))
    assert store.reader.measured_peaks("f") == (peak,)


def test_a_submission_without_an_attempt_is_none() -> None:
    """There is always one attempt to look at."""
    with pytest.raises(ValueError, match="no attempt"):
        replace(make_submission(), attempts=())
