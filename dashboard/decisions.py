"""Approve, reject, apply, roll back, keep: what a person decides, recorded before anything follows.

Nothing here touches a cluster. Apply and rollback are commands that the apply worker carries out;
where no applier is switched on, the change becomes a file. A decision needs the right to it, and is
bound to exactly one digest. None of these functions calls the planner.
"""

from datetime import datetime
from pathlib import Path

from dashboard.apply import applier_for
from dashboard.apply.base import Applier, ChangeText
from dashboard.apply.change_file import change_for, write_change
from dashboard.rights import owns, require_right, role_of
from data.access_settings import AccessSettings
from data.errors import ApprovalMissingError, ChangeRefusedError, StalePlanError
from data.records.cluster import Gpu
from data.records.commands import CommandKind, Person
from data.records.decisions import Approval, AuditEntry, Decision, Recommendation
from data.records.lifecycle import STANDING, State
from data.store import Store, StoredRecommendation, StoreReader
from data.store.commands import Asked
from data.store.reader import unknown_recommendation

_LOCAL = AccessSettings()


def _require_person(by: str | Person) -> Person:
    person = Person(name=by) if isinstance(by, str) else by
    name = " ".join(person.name.split())
    if not name:
        raise ChangeRefusedError("a decision needs the name of who makes it", "Give --by NAME.")
    return Person(name=name, groups=person.groups, via=person.via)


def _allowed(
    store: Store,
    id_or_digest: str,
    by: str | Person,
    now: datetime,
    access: AccessSettings,
    *,
    approving: bool = False,
) -> tuple[StoredRecommendation, Person]:
    """Give the recommendation and the person, who has the right to decide about it."""
    stored = store.reader.recommendation(id_or_digest, now=now)
    person = _require_person(by)
    recommendation = stored.recommendation
    job = store.reader.job(recommendation.job_id)
    if role_of(person, access) == "owner" and not owns(person, recommendation, job):
        # What belongs to others is answered like what does not exist.
        raise unknown_recommendation(id_or_digest)
    require_right(person, access, recommendation, job, approving=approving)
    return stored, person


def _require_state(stored: StoredRecommendation, allowed: frozenset[State], hint: str) -> None:
    if stored.state not in allowed:
        raise StalePlanError(
            f"recommendation {stored.recommendation.recommendation_id} is {stored.state}", hint
        )


def approve(
    store: Store,
    id_or_digest: str,
    *,
    by: str | Person,
    now: datetime,
    comment: str = "",
    change_digest: str = "",
    access: AccessSettings = _LOCAL,
) -> Approval:
    """Record that `by` approves exactly this recommendation, and this change when one was shown.

    Errors: StalePlanError, ChangeRefusedError without the right, StoreError.
    """
    stored, person = _allowed(store, id_or_digest, by, now, access, approving=True)
    _require_state(
        stored,
        frozenset({State.PROPOSED}),
        "Only a proposed one can be approved; see `trimtab recommendations list`.",
    )
    digest = stored.recommendation.digest
    store.append_decision(
        digest=digest,
        decision=Decision.APPROVED,
        by=person.name,
        at=now,
        comment=comment,
        change_digest=change_digest,
        person=person,
    )
    return Approval(
        digest=digest,
        approved_by=person.name,
        approved_at=now,
        comment=comment,
        change_digest=change_digest,
    )


def reject(
    store: Store,
    id_or_digest: str,
    *,
    by: str | Person,
    now: datetime,
    comment: str = "",
    access: AccessSettings = _LOCAL,
) -> AuditEntry:
    """Record that `by` rejects this recommendation. Errors: StalePlanError, StoreError."""
    stored, person = _allowed(store, id_or_digest, by, now, access)
    _require_state(
        stored,
        frozenset({State.PROPOSED, State.APPROVED}),
        "Only a proposed or approved one can be rejected.",
    )
    return store.append_decision(
        digest=stored.recommendation.digest,
        decision=Decision.REJECTED,
        by=person.name,
        at=now,
        comment=comment,
        person=person,
    )


def keep(
    store: Store,
    id_or_digest: str,
    *,
    by: str | Person,
    now: datetime,
    comment: str = "",
    access: AccessSettings = _LOCAL,
) -> AuditEntry:
    """Record that an applied change is to stay. Errors: StalePlanError, StoreError."""
    stored, person = _allowed(store, id_or_digest, by, now, access)
    _require_state(stored, STANDING, "Only an applied change can be kept.")
    return store.append_decision(
        digest=stored.recommendation.digest,
        decision=Decision.KEPT,
        by=person.name,
        at=now,
        comment=comment,
        person=person,
    )


def ask_to_apply(
    store: Store,
    id_or_digest: str,
    *,
    by: str | Person,
    now: datetime,
    appliers: tuple[Applier, ...],
    access: AccessSettings = _LOCAL,
) -> Asked:
    """Write the command that applies an approved recommendation; a second time gives the first.

    Errors: ApprovalMissingError, StalePlanError when expired or superseded, ChangeRefusedError
    without the right or an applier.
    """
    stored, person = _allowed(store, id_or_digest, by, now, access)
    recommendation = stored.recommendation
    digest = recommendation.digest
    if not any(one.command.kind is CommandKind.APPLY for one in store.reader.commands(digest)):
        _require_approved(stored)
        if applier_for(appliers, recommendation) is None:
            raise ChangeRefusedError(
                f"no applier that is switched on makes a {recommendation.action} change",
                "Set apply.enabled and the `enabled` of the target's section, or write the "
                "change file.",
            )
    approval = store.reader.approval_row(digest)
    return store.commands.ask(
        kind=CommandKind.APPLY,
        digest=digest,
        subject=digest,
        target=recommendation.job_id,
        change_digest=(approval.change_digest or "") if approval else "",
        person=person,
        at=now,
    )


def ask_to_roll_back(
    store: Store,
    id_or_digest: str,
    *,
    by: str | Person,
    now: datetime,
    access: AccessSettings = _LOCAL,
) -> Asked:
    """Write the command that undoes the last change; a rollback is undone by another one.

    Errors: StalePlanError when nothing is applied or a command is under way.
    """
    stored, person = _allowed(store, id_or_digest, by, now, access)
    _require_state(
        stored,
        STANDING | {State.ROLLED_BACK, State.ROLLING_BACK},
        "Only a change that was applied or rolled back can be undone.",
    )
    digest = stored.recommendation.digest
    commands = store.reader.commands(digest)
    under_way = stored.state == State.ROLLING_BACK
    refused = [] if under_way else _refused_last(store, digest)
    last = next(one.command for one in reversed(commands) if one.command.command_id not in refused)
    subject = last.subject if under_way else f"{last.command_id}:{len(refused)}"
    return store.commands.ask(
        kind=CommandKind.ROLLBACK,
        digest=digest,
        subject=subject,
        target=stored.recommendation.job_id,
        person=person,
        at=now,
    )


def _refused_last(store: Store, digest: str) -> list[str]:
    """Give the rollbacks that were refused: what they meant to undo still stands."""
    refused = store.reader.journal(digest=digest, events=("rollback-refused",))
    return [row.command_id for row in refused]


def _require_approved(stored: StoredRecommendation) -> None:
    name = stored.recommendation.recommendation_id
    if stored.state in (State.EXPIRED, State.SUPERSEDED):
        raise StalePlanError(
            f"recommendation {name} is {stored.state}",
            "Run a new cycle and approve its recommendation.",
        )
    if stored.state not in (State.APPROVED, State.WRITTEN):
        raise ApprovalMissingError(
            f"recommendation {name} is {stored.state}, not approved",
            f"Approve it first: trimtab recommendations approve {name} --by NAME.",
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
    store: Store,
    id_or_digest: str,
    *,
    by: str | Person,
    now: datetime,
    folder: Path,
    access: AccessSettings = _LOCAL,
) -> Path:
    """Write the change file of an approved recommendation and record it; give its path.

    Errors: ApprovalMissingError without an approval, StalePlanError when expired, superseded or
    changed since, ChangeRefusedError when the change cannot be expressed, ApplyError on disk
    trouble. Writing twice gives the same file and no second record.
    """
    stored, person = _allowed(store, id_or_digest, by, now, access)
    recommendation = stored.recommendation
    _require_approved(stored)
    require_unchanged(store.reader, recommendation)
    change = preview(store, recommendation)
    path = write_change(change, folder)
    if stored.state == State.APPROVED:
        store.append_decision(
            digest=recommendation.digest,
            decision=Decision.WRITTEN,
            by=person.name,
            at=now,
            comment=change.file_name,
            person=person,
        )
    return path
