"""A job before it is sent and those that were, as the command line and the HTTP API show them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from dashboard.submission.estimates.decision_notes import DecisionDocument, decision_document
from dashboard.submission.job.feasible_plans import family_of
from dashboard.submission.job.job_file import JobFile
from dashboard.submission.submit.proposal import SubmissionProposal, propose
from dashboard.submission.submit.waiting_jobs import waiting_jobs
from dashboard.submission.targets.target import SubmissionTarget
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.identifiers import digest_of
from data.records.submissions import Submission, SubmittedPlan
from data.settings.all_settings import Settings
from data.store import StoreReader


def proposal_now(
    job: JobFile,
    target: SubmissionTarget,
    reader: StoreReader,
    settings: Settings,
    *,
    by: str,
    now: datetime,
) -> SubmissionProposal:
    """Return the place of the job: asks the cluster, sends nothing. Errors: as `propose`."""
    return propose(
        job,
        target,
        settings=settings.submit,
        peaks=reader.measured_peaks(family_of(job.training_job)),
        by=by,
        now=now,
        waiting=waiting_jobs(reader, load_gpu_catalogue()),
    )


def shown_digest(proposal: SubmissionProposal) -> str:
    """Return the digest of what is shown: the job, its cluster and the manifest.

    The number of the submission, which every proposal makes anew, is left out.
    """
    submission = proposal.submission
    text = proposal.manifest.text.replace(submission.submission_id, "")
    return digest_of([submission.job_digest, text])


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalDocument:
    """A job before it is sent: its plan and place, and exactly what would be sent."""

    id: str
    name: str
    target: str
    plan: SubmittedPlan
    nodes_now: list[str]
    waits: bool
    misses_deadline: bool
    decision: DecisionDocument | None
    launch: str
    manifest: str
    cluster_says: str
    warnings: list[str]
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewDocument(ProposalDocument):
    """A proposal with the digest under which it may be sent."""

    digest: str


Document = TypeVar("Document", bound=ProposalDocument)


def proposal_document(
    kind: type[Document], proposal: SubmissionProposal, **columns: Any
) -> Document:
    """Return a proposal as one object for programs, with these columns beside."""
    placement = proposal.placement
    fields: dict[str, Any] = {
        "id": proposal.submission.submission_id,
        "name": proposal.job.name,
        "target": proposal.submission.target,
        "plan": proposal.submission.latest.plan,
        "nodes_now": list(placement.nodes),
        "waits": placement.waits,
        "misses_deadline": placement.misses_deadline,
        "decision": placement.decision and decision_document(placement.decision),
        "launch": proposal.manifest.launch,
        "manifest": proposal.manifest.text,
        "warnings": list(proposal.warnings),
        "notes": list(proposal.notes),
    }
    return kind(**fields, **columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionRow:
    """A submitted job, and where its latest attempt stands."""

    id: str
    name: str
    state: str
    target: str
    job: str
    gpus: int
    gpu: str
    attempts: int
    by: str
    created: datetime
    reason: str


def submission_row(submission: Submission) -> SubmissionRow:
    """Return the row of a submission."""
    latest = submission.latest
    return SubmissionRow(
        id=submission.submission_id,
        name=submission.name,
        state=str(submission.state),
        target=submission.target,
        job=latest.job_id,
        gpus=latest.plan.gpus,
        gpu=latest.plan.gpu_type,
        attempts=len(submission.attempts),
        by=submission.submitted_by,
        created=submission.created_at,
        reason=latest.reason,
    )
