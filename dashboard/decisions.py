"""Approve, reject, apply, roll back, keep: what a person decides, recorded before anything follows.

Nothing here touches a cluster. Apply and rollback are commands that the apply worker carries out;
where no applier is switched on, the change becomes a file. A decision needs the right to it, and is
bound to exactly one digest. None of these functions calls the planner.
"""

import logging
from datetime import datetime
from pathlib import Path

from dashboard.apply import applier_for
from dashboard.apply.base import Applier, ChangeText
from dashboard.apply.change_file import change_for, write_change
from dashboard.apply.wording import goes_forward
from dashboard.proposed_again import as_proposed_now
from dashboard.recording import require_live
from dashboard.rights import owns, require_right, role_of
from data.access_settings import AccessSettings
from data.errors import ApprovalMissingError, ChangeRefusedError, StalePlanError
from data.records.cluster import Gpu
from data.records.commands import Command, CommandKind, Person, Work
from data.records.decisions import Approval, AuditEntry, Decision, Recommendation
from data.records.identifiers import SHORT_ID_LENGTH
from data.records.lifecycle import REVERSIBLE, STANDING, State
from data.store import Store, StoredRecommendation, StoreReader
from data.store.commands import Asked
from data.store.reader import unknown_recommendation

logger = logging.getLogger(__name__)
_LOCAL = AccessSettings()


def _require_person(by: str | Person) -> Person:
    person = Person(name=by) if isinstance(by, str) else by
    # A signed-in name is who it is, to the character; what was typed is tidied.
    signed_in = person.via in ("proxy", "oidc")
    name = person.name if signed_in else " ".join(person.name.split())
    if not name.strip():
        raise ChangeRefusedError("a decision needs the name of who makes it", "Give --by NAME.")
    return Person(name=name, groups=person.groups, via=person.via)


def _log(what: str, stored: StoredRecommendation, person: Person, comment: str = "") -> None:
    one = stored.recommendation
    said = f": {comment}" if comment else ""
    logger.info(
        "%s by %s: %s of %s (recommendation %s)%s",
        what,
        person.name,
        one.action,
        one.target,
        one.recommendation_id,
        said,
    )


def _allowed(
    store: Store,
    id_or_digest: str,
    by: str | Person,
    now: datetime,
    access: AccessSettings,
    *,
    approving: bool = False,
) -> tuple[StoredRecommendation, Person]:
    """Return the recommendation and the person, who has the right to decide about it."""
    stored = as_proposed_now(store, id_or_digest, now)
    person = _require_person(by)
    recommendation = stored.recommendation
    job = store.reader.job(recommendation.job_id)
    if role_of(person, access) == "owner" and not owns(person, recommendation, job):
        # What belongs to others is answered like what does not exist.
        raise unknown_recommendation(id_or_digest)
    require_right(person, access, recommendation, job, approving=approving)
    require_live(store.reader)
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

    One that a newer plan proposes again is approved as that plan has it, unless a change of the
    older one was shown. Errors: StalePlanError, ChangeRefusedError without the right, StoreError.
    """
    stored, person = _allowed(store, id_or_digest, by, now, access, approving=True)
    _require_state(
        stored,
        frozenset({State.PROPOSED}),
        "Only a proposed one can be approved; see `trimtab recommendations list`.",
    )
    digest = stored.recommendation.digest
    if change_digest and not digest.startswith(id_or_digest.strip().lower()):
        raise StalePlanError(
            f"recommendation {id_or_digest[:SHORT_ID_LENGTH]} is superseded by "
            f"{stored.recommendation.recommendation_id}, which proposes the same",
            "The change that was shown is the older one's: look at the target again.",
        )
    store.append_decision(
        digest=digest,
        decision=Decision.APPROVED,
        by=person.name,
        at=now,
        comment=comment,
        change_digest=change_digest,
        person=person,
    )
    _log("approved", stored, person, comment)
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
    entry = store.append_decision(
        digest=stored.recommendation.digest,
        decision=Decision.REJECTED,
        by=person.name,
        at=now,
        comment=comment,
        person=person,
    )
    _log("rejected", stored, person, comment)
    return entry


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
    entry = store.append_decision(
        digest=stored.recommendation.digest,
        decision=Decision.KEPT,
        by=person.name,
        at=now,
        comment=comment,
        person=person,
    )
    _log("kept", stored, person, comment)
    return entry


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
    if not any(asked.command.kind is CommandKind.APPLY for asked in store.reader.commands(digest)):
        _require_approved(stored)
        if applier_for(appliers, recommendation) is None:
            raise ChangeRefusedError(
                f"no applier that is switched on makes a {recommendation.action} change",
                "Set apply.enabled and the `enabled` of the target's section, or write the "
                "change file.",
            )
    approval = store.reader.approval_row(digest)
    asked = store.commands.ask(
        kind=CommandKind.APPLY,
        digest=digest,
        subject=digest,
        target=recommendation.job_id,
        change_digest=(approval.change_digest or "") if approval else "",
        person=person,
        at=now,
    )
    _log("apply asked for", stored, person)
    return asked


def ask_to_roll_back(
    store: Store,
    id_or_digest: str,
    *,
    by: str | Person,
    now: datetime,
    access: AccessSettings = _LOCAL,
    again: bool = False,
) -> Asked:
    """Write the command that goes back to what was there before the apply, from every state of it.

    An apply under way ends with it. `again`: undo the rollback instead, which makes the change
    again. Errors: StalePlanError when nothing was applied, when it is rolled back already, or
    with `again` when it is not.
    """
    stored, person = _allowed(store, id_or_digest, by, now, access)
    _require_wanted_way(stored, again=again)
    _require_state(
        stored,
        REVERSIBLE,
        "Only a change that was applied or rolled back can be undone.",
    )
    if stored.recommendation.cancels_job and stored.state in STANDING:
        raise StalePlanError(
            f"{stored.recommendation.target} was cancelled: Slurm brings no cancelled job back",
            "Submit it again.",
        )
    digest = stored.recommendation.digest
    asked = store.commands.ask(
        kind=CommandKind.ROLLBACK,
        digest=digest,
        subject=_undone_by_rollback(store.reader, digest, State(stored.state)),
        target=stored.recommendation.job_id,
        person=person,
        at=now,
    )
    _log("rollback asked for", stored, person)
    return asked


def _require_wanted_way(stored: StoredRecommendation, *, again: bool) -> None:
    """Refuse to make a change again for who wants it undone, and the other way round."""
    name = stored.recommendation.recommendation_id
    if stored.state == State.ROLLED_BACK and not again:
        raise StalePlanError(
            f"recommendation {name} is rolled back already",
            "Nothing to do. To make the change again: "
            f"trimtab recommendations rollback {name} --undo --by NAME.",
        )
    if again and stored.state not in (State.ROLLED_BACK, State.ROLLING_BACK):
        raise StalePlanError(
            f"recommendation {name} is {stored.state}: there is no rollback to undo", "Look again."
        )


def _undone_by_rollback(reader: StoreReader, digest: str, state: State) -> str:
    """Return the subject of a rollback: the command to undo and the attempt.

    That is the apply, whose change holds the original, whatever attempts came after it. Of what is
    rolled back it is the rollback: undoing that applies again.
    """
    commands = [asked.command for asked in reader.commands(digest)]
    attempts = len(commands) - 1
    last = commands[-1]
    if state is State.ROLLING_BACK and not _applies_again(reader, commands):
        return last.subject
    if state is not State.ROLLED_BACK:
        return f"{commands[0].command_id}:{attempts}"
    sent = {row.command_id for row in reader.journal(digest=digest, events=(str(Work.SENDING),))}
    since = max(number for number, one in enumerate(commands) if goes_forward(one, commands[0]))
    undone = [command.command_id for command in commands[since + 1 :] if command.command_id in sent]
    if len(undone) != 1:
        raise StalePlanError(
            f"going back took {len(undone)} attempts that sent something: only one can be undone",
            "Run a new cycle and approve its recommendation.",
        )
    return f"{undone[0]}:{attempts}"


def _applies_again(reader: StoreReader, commands: list[Command]) -> bool:
    """Tell whether the last command undoes a rollback and has begun: a second click has not."""
    last = commands[-1]
    begun = reader.journal(command_id=last.command_id, events=(str(Work.SENDING),))
    return bool(begun) and goes_forward(last, commands[0])


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
    """Return the GPUs and MIG instances that the job holds now."""
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
    """Return the exact text that `write_approved` would write."""
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
    _log("change file written", stored, person)
    return path
