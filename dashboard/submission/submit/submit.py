"""Sending a proposal: written down first, then sent, then confirmed; every step in the audit."""

from dataclasses import replace
from datetime import datetime

from dashboard.submission.job.manifest import Manifest
from dashboard.submission.submit.proposal import SubmissionProposal
from dashboard.submission.targets.target import SubmissionTarget
from data.base.counts import count_text
from data.base.errors import ApplyError, ChangeRefusedError, CollectorError, scrub
from data.records.submissions import Attempt, Submission, SubmissionState
from data.settings.all_settings import Settings
from data.store import Store


def submission_refusal(settings: Settings) -> str:
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
    reason = submission_refusal(settings)
    if reason:
        raise ApplyError("the job was not submitted", reason)
    if not by.strip():
        raise ChangeRefusedError("a submission needs the name of who makes it", "Give --by NAME.")
    attempt = replace(proposal.submission.latest, sent_at=now)
    written = keep_latest(
        store, proposal.submission, attempt, "submission-sending", _what(proposal), by=by, now=now
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
    except (ChangeRefusedError, CollectorError) as error:
        reason, event = scrub(str(error)), "submission-unconfirmed"
        attempt = replace(submission.latest, state=SubmissionState.SENDING, reason=reason)
        if isinstance(error, ChangeRefusedError):
            event = "submission-refused"
            attempt = replace(attempt, state=SubmissionState.REFUSED, ended_at=now)
        keep_latest(store, submission, attempt, event, reason, by=by, now=now)
        raise
    attempt = replace(submission.latest, state=SubmissionState.PENDING, job_id=job_id)
    detail = f"{submission.name} as {job_id}"
    return keep_latest(store, submission, attempt, "submitted", detail, by=by, now=now)


def keep_latest(
    store: Store,
    submission: Submission,
    attempt: Attempt,
    event: str,
    detail: str,
    *,
    by: str,
    now: datetime,
) -> Submission:
    """Keep a submission with its latest attempt replaced, and return it."""
    latest = replace(submission, attempts=(*submission.attempts[:-1], attempt))
    new = event == "submission-sending" and attempt.number == 1
    store.keep_submission(latest, at=now, actor=by, event=event, detail=detail, new=new)
    return latest


def _what(proposal: SubmissionProposal) -> str:
    plan = proposal.submission.latest.plan
    return (
        f"{proposal.job.name}, attempt {proposal.submission.latest.number}: {plan.gpus} x "
        f"{plan.gpu_type} on {count_text(plan.nodes, 'node')} of {proposal.submission.target}"
    )
