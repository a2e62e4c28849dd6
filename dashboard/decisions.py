"""Approve, reject, write the change: what a person decides, recorded before anything follows.

A change needs an approval of exactly this digest, a recommendation that has not expired, and a
job that still runs on what the plan saw. None of these functions calls the planner.
"""

from datetime import datetime
from pathlib import Path

from dashboard.apply.base import ChangeText
from dashboard.apply.change_file import change_for, write_change
from data.errors import ApprovalMissingError, ChangeRefusedError, StalePlanError
from data.records.cluster import Gpu
from data.records.decisions import Approval, AuditEntry, Decision, Recommendation
from data.store import Store, StoreReader

_OPEN_STATES = ("proposed",)


def _require_person(by: str) -> str:
    name = " ".join(by.split())
    if not name:
        raise ChangeRefusedError("a decision needs the name of who makes it", "Give --by NAME.")
    return name


def approve(
    store: Store, id_or_digest: str, *, by: str, now: datetime, comment: str = ""
) -> Approval:
    """Record that `by` approves exactly this recommendation. Errors: StalePlanError, StoreError."""
    stored = store.reader.recommendation(id_or_digest, now=now)
    if stored.state not in _OPEN_STATES:
        raise StalePlanError(
            f"recommendation {stored.recommendation.recommendation_id} is {stored.state}",
            "Only a proposed one can be approved; see `trimtab recommendations list`.",
        )
    name = _require_person(by)
    store.append_decision(
        digest=stored.recommendation.digest,
        decision=Decision.APPROVED,
        by=name,
        at=now,
        comment=comment,
    )
    return Approval(
        digest=stored.recommendation.digest, approved_by=name, approved_at=now, comment=comment
    )


def reject(
    store: Store, id_or_digest: str, *, by: str, now: datetime, comment: str = ""
) -> AuditEntry:
    """Record that `by` rejects this recommendation. Errors: StalePlanError, StoreError."""
    stored = store.reader.recommendation(id_or_digest, now=now)
    if stored.state not in (*_OPEN_STATES, "approved"):
        raise StalePlanError(
            f"recommendation {stored.recommendation.recommendation_id} is {stored.state}",
            "Only a proposed or approved one can be rejected.",
        )
    return store.append_decision(
        digest=stored.recommendation.digest,
        decision=Decision.REJECTED,
        by=_require_person(by),
        at=now,
        comment=comment,
    )


def gpus_of(reader: StoreReader, job_id: str) -> tuple[Gpu, ...]:
    """Give the GPUs and MIG instances that the job holds now."""
    return tuple(gpu for gpu in reader.gpus() if gpu.job_id == job_id)


def require_unchanged(reader: StoreReader, recommendation: Recommendation) -> None:
    """Refuse (StalePlanError) when the job no longer runs on what the plan saw."""
    job = reader.job(recommendation.job_id)
    seen = recommendation.now
    if job is None:
        raise StalePlanError(
            f"job {recommendation.job_id!r} is not known any more", "Run a new cycle."
        )
    if (job.gpu_model, job.gpu_count, job.mig_profile) != (
        seen.gpu_model,
        seen.gpu_count,
        seen.mig_profile,
    ):
        raise StalePlanError(
            f"job {recommendation.job_id!r} now has {job.gpu_count} × {job.gpu_model}"
            f" {job.mig_profile}, the plan saw {seen.describe()}",
            "Run a new cycle and approve its recommendation.",
        )


def preview(store: Store, recommendation: Recommendation) -> ChangeText:
    """Give the exact text that `write_approved` would write."""
    job_id = recommendation.job_id
    return change_for(recommendation, gpus_of(store.reader, job_id), store.reader.job(job_id))


def write_approved(
    store: Store, id_or_digest: str, *, by: str, now: datetime, folder: Path
) -> Path:
    """Write the change file of an approved recommendation and record it; give its path.

    Errors: ApprovalMissingError without an approval, StalePlanError when expired, superseded or
    changed since, ChangeRefusedError when the change cannot be expressed, ApplyError on disk
    trouble. Writing twice gives the same file and no second record.
    """
    stored = store.reader.recommendation(id_or_digest, now=now)
    recommendation = stored.recommendation
    name = recommendation.recommendation_id
    if stored.state in ("expired", "superseded"):
        raise StalePlanError(
            f"recommendation {name} is {stored.state}",
            "Run a new cycle and approve its recommendation.",
        )
    if stored.state not in ("approved", "written"):
        raise ApprovalMissingError(
            f"recommendation {name} is {stored.state}, not approved",
            f"Approve it first: trimtab recommendations approve {name} --by NAME.",
        )
    person = _require_person(by)
    require_unchanged(store.reader, recommendation)
    change = preview(store, recommendation)
    path = write_change(change, folder)
    if stored.state == "approved":
        store.append_decision(
            digest=recommendation.digest,
            decision=Decision.WRITTEN,
            by=person,
            at=now,
            comment=change.file_name,
        )
    return path
