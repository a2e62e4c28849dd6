"""Following submitted jobs: their state, the peak that they reached, and a second attempt.

Memory that ran out raises the estimate; the job is sent again only when its author allowed it,
within the number of retries stated, and while submission is switched on.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from dashboard.submission.job.job_file import JobFile
from dashboard.submission.job.manifest import JobOrder, Manifest
from dashboard.submission.submit.proposal import AttemptFactors, propose
from dashboard.submission.submit.submit import deliver, keep_latest, submission_refusal, submit
from dashboard.submission.submit.waiting_jobs import waiting_jobs
from dashboard.submission.targets.choose_target import target_of
from dashboard.submission.targets.target import SubmissionTarget
from data.base.errors import TrimtabError, scrub
from data.base.units import BYTES_PER_MIB, SLOT_SECONDS
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.submissions import Attempt, MeasuredPeak, Submission, SubmissionState
from data.settings.all_settings import Settings
from data.store import Store, StoreReader
from data.store.engine.record_json import from_json

ACTOR = "trimtab"
_SENDING = timedelta(minutes=2)
_RESEND_AFTER = timedelta(minutes=12)
_LOST_AFTER = timedelta(minutes=5)
_MIN_SAMPLES = 3
_STEP = 1.1
_EXCESS_FACTOR = 1.05
_MAX_FACTOR = 3.0
"""A run that fails although three times its need was there did not fail for its own memory."""
_HOST_STEP = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionLook:
    """Result of one look at a submission; `error` when its cluster did not tell."""

    submission: Submission
    changed: bool
    error: str = ""


def watch_all(
    store: Store,
    settings: Settings,
    *,
    now: datetime,
    targets: Callable[[str], SubmissionTarget] | None = None,
) -> tuple[SubmissionLook, ...]:
    """Look at every submission that is open; a cluster that does not answer is no error."""
    give = targets or (lambda name: target_of(settings, name, clock=lambda: now))
    looks = []
    for submission in store.reader.submissions():
        if not submission.state.is_open:
            continue
        try:
            latest = watch_attempt(
                submission, give(submission.target), store, settings=settings, now=now
            )
            looks.append(SubmissionLook(submission=latest, changed=latest != submission))
        except TrimtabError as error:
            looks.append(
                SubmissionLook(submission=submission, changed=False, error=scrub(str(error)))
            )
    return tuple(looks)


def watch_attempt(
    submission: Submission,
    target: SubmissionTarget,
    store: Store,
    *,
    settings: Settings,
    now: datetime,
) -> Submission:
    """Ask where the latest attempt stands, keep what is new, and send again where allowed.

    Errors: CollectorError when the cluster does not answer.
    """
    job = job_of(submission)
    if submission.state is SubmissionState.SENDING:
        return _confirm(submission, target, store, settings=settings, now=now)
    attempt = submission.latest
    standing = target.standing(attempt, job)
    if standing.state is SubmissionState.LOST and now - attempt.sent_at < _LOST_AFTER:
        return submission  # its cluster may only be slow to show it
    if standing.state is attempt.state and standing.reason == attempt.reason:
        return submission
    peak = measured_peak(store.reader, attempt, until=now)
    attempt_now = replace(
        attempt,
        state=standing.state,
        reason=standing.reason,
        ended_at=attempt.ended_at if standing.state.is_open else now,
        peak_bytes=attempt.peak_bytes if peak is None else peak,
    )
    event = f"submission-{attempt_now.state}"
    detail = f"{attempt.job_id}: {attempt_now.reason or attempt_now.state}"
    latest = keep_latest(store, submission, attempt_now, event, detail, by=ACTOR, now=now)
    _learn(store, latest, now)
    return _again(latest, job, target, store, settings=settings, now=now)


def job_of(submission: Submission) -> JobFile:
    """Return the job file of a submission."""
    return from_json(JobFile, submission.job)


def measured_peak(reader: StoreReader, attempt: Attempt, *, until: datetime) -> float | None:
    """Return largest memory in bytes that telemetry saw on a GPU of the attempt, None if none."""
    if not attempt.job_id:
        return None
    history = reader.job_history(
        attempt.job_id, start=attempt.sent_at, end=until, slot_seconds=SLOT_SECONDS
    )
    largest = history["memory_used_mib"].max()
    if history["sample_count"].sum() < _MIN_SAMPLES or largest != largest:
        return None
    return float(largest) * BYTES_PER_MIB


def _confirm(
    submission: Submission,
    target: SubmissionTarget,
    store: Store,
    *,
    settings: Settings,
    now: datetime,
) -> Submission:
    """Find out about a job that was written down but never confirmed.

    The first minutes are left to whoever is sending it. Then its mark is looked for; what is not
    there is sent again, and after twelve given up, because nobody expects it any more.
    """
    attempt = submission.latest
    age = now - attempt.sent_at
    if age < _SENDING:
        return submission
    manifest = _manifest_of(submission)
    job_id = target.find(manifest)
    if not job_id and age < _RESEND_AFTER and not submission_refusal(settings):
        return deliver(submission, manifest, target, store, by=ACTOR, now=now)
    if job_id:
        attempt_now = replace(attempt, state=SubmissionState.PENDING, job_id=job_id, reason="")
        event, detail = "submitted", f"{submission.name} as {job_id}, found by its mark"
    else:
        detail = attempt.reason or "the cluster never confirmed it"
        attempt_now = replace(attempt, state=SubmissionState.LOST, reason=detail, ended_at=now)
        event = "submission-lost"
    return keep_latest(store, submission, attempt_now, event, detail, by=ACTOR, now=now)


def _manifest_of(submission: Submission) -> Manifest:
    """Return the manifest that was written down."""
    attempt = submission.latest
    order = JobOrder(submission_id=submission.submission_id, attempt=attempt.number)
    on_slurm = submission.target == "slurm"
    return Manifest(
        target=submission.target,
        name=submission.name if on_slurm else order.name_for(submission.name),
        text=attempt.manifest,
        launch="",
        mark=order.mark,
    )


def _learn(store: Store, submission: Submission, now: datetime) -> None:
    """Keep what a finished attempt measured, for the estimates of its family."""
    attempt = submission.latest
    if attempt.state is SubmissionState.FINISHED and attempt.peak_bytes:
        store.keep_measured_peak(
            MeasuredPeak(
                family=submission.family,
                job_id=attempt.job_id,
                static_bytes=attempt.plan.static_bytes,
                dynamic_bytes=attempt.plan.dynamic_bytes,
                measured_bytes=attempt.peak_bytes,
                measured_at=now,
            )
        )


def factors_of_attempt(submission: Submission) -> AttemptFactors | str:
    """Return the lessons of an attempt that ran out of memory, or the reason not to repeat it."""
    attempt, job = submission.latest, job_of(submission)
    if not job.resubmit_on_oom:
        return "the job file does not allow it"
    if attempt.number > job.oom_retries:
        return f"its {job.oom_retries} retries are used up"
    if attempt.state is SubmissionState.OUT_OF_HOST_MEMORY:
        if job.memory_mib_per_gpu is None:
            return "the job file states no host memory that could be raised"
        return AttemptFactors(raised=attempt.raised, host_raised=attempt.host_raised * _HOST_STEP)
    above = _EXCESS_FACTOR * attempt.plan.gpu_memory_bytes / attempt.plan.needed_bytes
    if above > _MAX_FACTOR * attempt.raised:
        return "the GPU had three times the memory that the job needs: look for another cause"
    return AttemptFactors(
        raised=max(_STEP * attempt.raised, above), host_raised=attempt.host_raised
    )


def _again(
    submission: Submission,
    job: JobFile,
    target: SubmissionTarget,
    store: Store,
    *,
    settings: Settings,
    now: datetime,
) -> Submission:
    """Send the job again after memory ran out, or say in the audit why not."""
    if submission.state not in (
        SubmissionState.OUT_OF_GPU_MEMORY,
        SubmissionState.OUT_OF_HOST_MEMORY,
    ):
        return submission
    lessons = submission_refusal(settings) or factors_of_attempt(submission)
    if isinstance(lessons, str):
        return _not_again(store, submission, lessons, now)
    try:
        proposal = propose(
            job,
            target,
            settings=settings.submit,
            peaks=store.reader.measured_peaks(submission.family),
            waiting=waiting_jobs(store.reader, load_gpu_catalogue()),
            by=submission.submitted_by,
            now=now,
            earlier=submission,
            lessons=lessons,
        )
        return submit(proposal, target, store, settings=settings, by=ACTOR, now=now)
    except TrimtabError as error:
        latest = store.reader.submission(submission.submission_id)
        return _not_again(store, latest, scrub(str(error)), now)


def _not_again(store: Store, submission: Submission, reason: str, now: datetime) -> Submission:
    store.append_audit(
        at=now,
        actor=ACTOR,
        event="submission-not-repeated",
        digest=submission.digest,
        detail=reason,
    )
    return submission
