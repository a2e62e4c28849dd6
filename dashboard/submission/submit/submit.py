"""Sending a proposal: written down first, then sent, then confirmed; every step in the audit."""

from dataclasses import replace
from datetime import datetime

from dashboard.submission.job.manifest import Manifest
from dashboard.submission.submit.proposal import SubmissionProposal
from dashboard.submission.targets.target import SubmissionTarget
from data.base.counts import count_text
from data.base.errors import ApplyError, ChangeRefusedError, CollectorError, TrimtabError, scrub
from data.records.submissions import Attempt, Submission, SubmissionState
from data.settings.all_settings import Settings
from data.store import Store


def why_not(settings: Settings) -> str:
    """Return the reason that nothing can be submitted, '' for none."""
    if settings.submit.enabled:
        return ""
    return "Submission is switched off: set submit.enabled in trimtab.toml."


def submit(
    proposal: SubmissionProposal,
    target: SubmissionTarget,
    store: Store,
    *,
    settings: Settings,
    by: str,
    now: datetime,
) -> Submission:
    """Send exactly what was shown, and give the submission as kept.

    Errors: ApplyError when submission is off, StoreError for a job that is open already,
    ChangeRefusedError when the cluster refuses, CollectorError when it does not answer: then the
    submission stays in the state `sending`, and the next look finds out by its mark.
    """
    reason = why_not(settings)
    if reason:
        raise ApplyError("the job was not submitted", reason)
    if not by.strip():
        raise ChangeRefusedError("a submission needs the name of who makes it", "Give --by NAME.")
    attempt = replace(proposal.submission.latest, sent_at=now)
    written = with_latest(proposal.submission, attempt)
    store.keep_submission(
        written,
        at=now,
        actor=by,
        event="submission-sending",
        detail=_what(proposal),
        new=attempt.number == 1,
    )
    return deliver(written, proposal.manifest, target, store, by=by, now=now)


def deliver(
    submission: Submission,
    manifest: Manifest,
    target: SubmissionTarget,
    store: Store,
    *,
    by: str,
    now: datetime,
) -> Submission:
    """Send what is written down, and keep what the cluster answered."""
    try:
        job_id = target.send(manifest)
    except ChangeRefusedError as error:
        _keep_failure(store, submission, SubmissionState.REFUSED, error, by=by, now=now)
        raise
    except CollectorError as error:
        _keep_failure(store, submission, SubmissionState.SENDING, error, by=by, now=now)
        raise
    sent = with_latest(
        submission, replace(submission.latest, state=SubmissionState.PENDING, job_id=job_id)
    )
    store.keep_submission(
        sent, at=now, actor=by, event="submitted", detail=f"{sent.name} as {job_id}"
    )
    return sent


def with_latest(submission: Submission, attempt: Attempt) -> Submission:
    """Return the submission with its latest attempt replaced."""
    return replace(submission, attempts=(*submission.attempts[:-1], attempt))


def _keep_failure(
    store: Store,
    submission: Submission,
    state: SubmissionState,
    error: TrimtabError,
    *,
    by: str,
    now: datetime,
) -> None:
    reason = scrub(str(error))
    latest = replace(
        submission.latest,
        state=state,
        reason=reason,
        ended_at=None if state.is_open else now,
    )
    event = "submission-unconfirmed" if state.is_open else "submission-refused"
    store.keep_submission(
        with_latest(submission, latest), at=now, actor=by, event=event, detail=reason
    )


def _what(proposal: SubmissionProposal) -> str:
    plan = proposal.submission.latest.plan
    return (
        f"{proposal.job.name}, attempt {proposal.submission.latest.number}: {plan.gpus} x "
        f"{plan.gpu_type} on {count_text(plan.nodes, 'node')} of {proposal.submission.target}"
    )
