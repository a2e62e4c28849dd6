"""Jobs on a real Slurm that end: cancelled, out of memory, forgotten, finished, or never sent."""

from datetime import timedelta
from pathlib import Path

import pytest
from beds.slurm import SlurmBed
from beds.slurm_submission import followed, number_of, program, settings_of
from beds.submission import proposal_of, sent, target_of
from factories import make_collected, make_samples
from submission_cases import job_table, make_job

from dashboard.submission.job.job_file import JobFile
from dashboard.submission.submit.proposal import propose
from dashboard.submission.submit.watch import watch_all
from data.base.clock import utc_now
from data.records.submissions import SubmissionState
from data.store import Store

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
GROWING = """#!/bin/bash
# Runs out of GPU memory the first times.
echo run >> runs
if [ "$(wc -l < runs)" -lt "$ENOUGH" ]; then
    echo "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB" >&2
    exit 1
fi
"""


def test_a_cancelled_job_is_seen_to_be_cancelled(bed: SlurmBed, store: Store) -> None:
    """What scancel did stands in the submission and in the audit, and the job runs no more."""
    settings = settings_of(bed)
    submission = sent(make_job(launcher="none", command=["sleep", "600"]), settings, store)
    bed.run("scancel", number_of(submission))
    assert followed(bed, store, settings).state is SubmissionState.CANCELLED
    events = [entry.event for entry in store.reader.audit()]
    # Whether it is seen while it still ends is a matter of milliseconds.
    assert [event for event in events if event != "submission-running"] == [
        "submission-sending", "submitted", "submission-cancelled",
    ]  # fmt: skip
    assert store.reader.verify_audit() == ()


def growing(tmp_path: Path, *, enough: int, retries: int, resubmit: bool = True) -> JobFile:
    """A job that runs out of GPU memory until its so manieth run."""
    script = program(tmp_path, "grow.sh", GROWING)
    return make_job(
        launcher="none",
        command=[str(script)],
        environment={"ENOUGH": str(enough)},
        workdir=str(tmp_path),
        log=f"{tmp_path}/%j.log",
        on_out_of_memory={"resubmit": resubmit, "retries": retries},
    )


def test_a_run_out_of_memory_is_sent_again_on_more(
    bed: SlurmBed, store: Store, tmp_path: Path
) -> None:
    """CUDA's words in the stated log raise the estimate; the next attempt has more memory."""
    settings = settings_of(bed)
    submission = sent(growing(tmp_path, enough=2, retries=3), settings, store)
    first = submission.latest.plan
    ended = followed(bed, store, settings)
    assert [attempt.state for attempt in ended.attempts][:-1] == [
        SubmissionState.OUT_OF_GPU_MEMORY
    ] * (len(ended.attempts) - 1)
    assert ended.state is SubmissionState.FINISHED, [attempt.plan for attempt in ended.attempts]
    last = ended.latest
    assert last.raised > 1
    assert last.plan.needed_bytes * last.raised <= last.plan.gpu_memory_bytes
    assert first.needed_bytes * last.raised > first.gpu_memory_bytes
    assert store.reader.verify_audit() == ()


def test_retries_end_where_the_job_file_says(bed: SlurmBed, store: Store, tmp_path: Path) -> None:
    """A job that never has enough is sent once and once more, and the audit says why it ends."""
    settings = settings_of(bed)
    sent(growing(tmp_path, enough=1000, retries=1), settings, store)
    ended = followed(bed, store, settings)
    assert len(ended.attempts) == 2
    assert ended.state is SubmissionState.OUT_OF_GPU_MEMORY
    assert store.reader.audit()[-1].detail == "its 1 retries are used up"


def test_without_consent_nothing_is_sent_again(bed: SlurmBed, store: Store, tmp_path: Path) -> None:
    """The job file alone allows a second attempt."""
    settings = settings_of(bed)
    sent(growing(tmp_path, enough=1000, retries=3, resubmit=False), settings, store)
    ended = followed(bed, store, settings)
    assert len(ended.attempts) == 1
    assert store.reader.audit()[-1].detail == "the job file does not allow it"


def test_what_was_never_confirmed_is_found_by_its_mark(bed: SlurmBed, store: Store) -> None:
    """A crash between sbatch and its answer leaves no second job: the mark is found."""
    settings = settings_of(bed)
    job = make_job(name="crash", launcher="none", command=["sleep", "600"])
    proposal = proposal_of(job, settings, store)
    target = target_of(settings)
    number = target.send(proposal.manifest)
    store.keep_submission(
        proposal.submission, at=utc_now(), actor="ada", event="submission-sending", detail=""
    )
    (early,) = watch_all(store, settings, now=utc_now())
    assert early.submission.state is SubmissionState.SENDING
    (seen,) = watch_all(store, settings, now=utc_now() + timedelta(minutes=3))
    assert (seen.submission.latest.job_id, seen.error) == (number, "")
    assert seen.submission.state is SubmissionState.PENDING
    assert len(bed.run("squeue", "-h", "-n", "crash", "-o", "%i").splitlines()) == 1
    bed.run("scancel", number.removeprefix("slurm:"))


def test_what_never_arrived_is_sent_once_more_and_then_given_up(
    bed: SlurmBed, store: Store
) -> None:
    """Minutes after a lost answer the job is sent; much later nobody expects it, and it is lost."""
    settings = settings_of(bed)
    job = make_job(name="lost", launcher="none", command=["sleep", "600"])
    kept = proposal_of(job, settings, store).submission
    store.keep_submission(kept, at=utc_now(), actor="ada", event="submission-sending", detail="")
    (late,) = watch_all(store, settings, now=utc_now() + timedelta(minutes=20))
    assert late.submission.state is SubmissionState.LOST
    assert bed.run("squeue", "-h", "-n", "lost", "-o", "%i") == ""
    store.keep_submission(kept, at=utc_now(), actor="ada", event="submission-sending", detail="")
    (sent_again,) = watch_all(store, settings, now=utc_now() + timedelta(minutes=3))
    assert sent_again.submission.state is SubmissionState.PENDING
    assert len(bed.run("squeue", "-h", "-n", "lost", "-o", "%i").splitlines()) == 1


def test_accounting_tells_what_slurmctld_forgot(
    bed: SlurmBed, store: Store, tmp_path: Path
) -> None:
    """A job that slurmctld no longer knows is found in sacct with its state and exit code."""
    settings = settings_of(bed)
    submission = sent(
        make_job(launcher="none", command=["false"], workdir=str(tmp_path)), settings, store
    )
    assert followed(bed, store, settings).state is SubmissionState.FAILED
    target = target_of(settings)
    bed.until("accounting has it", lambda: target._accounted(number_of(submission))[0] == "FAILED")
    assert target._accounted(number_of(submission)) == ("FAILED", "", "1:0")
    word, reason, _code = target._accounted("999999")
    assert word is None
    assert "neither slurmctld nor accounting" in reason


def test_a_finished_run_teaches_its_family(bed: SlurmBed, store: Store, tmp_path: Path) -> None:
    """The largest memory that telemetry saw is kept once, and corrects the next estimate."""
    settings = settings_of(bed)
    # A lower estimate would let a larger micro-batch in.
    recipe = job_table()["training"] | {"micro_batch": 1, "recompute": "none"}
    job = make_job(launcher="none", command=["true"], workdir=str(tmp_path), training=recipe)
    submission = sent(job, settings, store)
    measured_mib = 0.8 * submission.latest.plan.p50_bytes / 2**20
    samples = make_samples(
        minutes=10, job_id=submission.latest.job_id, end=utc_now() + timedelta(minutes=10),
        memory_used_mib=measured_mib,
    )  # fmt: skip
    store.keep(make_collected(samples, ()))
    bed.until("it ended", lambda: bed.states()[number_of(submission)] == "COMPLETED")
    watch_all(store, settings, now=utc_now() + timedelta(minutes=15))
    ended = store.reader.submissions()[0]
    assert ended.state is SubmissionState.FINISHED
    assert ended.latest.peak_bytes == pytest.approx(measured_mib * 2**20)
    (peak,) = store.reader.measured_peaks(submission.family)
    assert peak.job_id == submission.latest.job_id
    again = propose(
        job, target_of(settings), settings=settings.submit,
        peaks=store.reader.measured_peaks(submission.family), by="ada", now=utc_now(),
    )  # fmt: skip
    estimate = again.placement.plan.estimate
    assert again.placement.plan.gpu_type == submission.latest.plan.gpu_type
    assert estimate.sample_count == 1
    assert estimate.p50_bytes < submission.latest.plan.p50_bytes
