"""Approve, reject, apply, roll back, keep: what a person decides, recorded before anything follows.

Nothing here touches a cluster. Apply and rollback are commands that the apply worker carries out;
where no applier is switched on, the change becomes a file. A decision needs the right to it, and is
bound to exactly one digest. None of these functions calls the planner.
"""

from datetime import datetime
from pathlib import Path
from typing import Unpack

from dashboard.apply import applier_for
from dashboard.apply.contract.applier import Applier, ChangeText
from dashboard.apply.contract.wording import is_forward
from dashboard.apply.worker.change_file import change_for, write_change
from dashboard.decisions.checks import DecisionContext, allowed, allowed_now, log_decision
from dashboard.decisions.decision_table import DECISIONS, WishKind
from dashboard.decisions.findings import event_about
from data.base.errors import ApprovalMissingError, ChangeRefusedError, StalePlanError
from data.facts.fleet import Gpu
from data.facts.identifiers import SHORT_ID_LENGTH
from data.records.commands import AuditEntry, Command, CommandKind, Person, Work
from data.records.findings import DismissalReason, FindingEventKind, number_of
from data.records.lifecycle import STANDING_STATES, State
from data.records.recommendations import Approval, Decision, Recommendation
from data.store import Store, StoredRecommendation, StoreReader
from data.store.record.commands import CommandRequest


def approve(
    store: Store,
    id_or_digest: str,
    *,
    comment: str = "",
    change_digest: str = "",
    **who: Unpack[DecisionContext],
) -> Approval:
    """Record that somebody approves this very recommendation, and the change if one was shown.

    One that a newer plan proposes again is approved as that plan has it, unless a change of the
    older one was shown. Errors: StalePlanError, ChangeRefusedError without the right, StoreError.
    """
    stored, person = allowed_now(store, id_or_digest, WishKind.APPROVE, **who)
    digest = stored.recommendation.digest
    if stored.recommendation.is_advice:
        raise ChangeRefusedError(
            f"{stored.reference} is advice: no applier makes it, so there is nothing to approve",
            f"By hand: {stored.recommendation.summary}. Dismiss it if you do not want it.",
        )
    if change_digest and number_of(id_or_digest):
        raise StalePlanError(
            f"{stored.reference} names a finding, and the change that was shown is that of one of "
            "its recommendations",
            "Send the recommendation_id of the preview instead; that of the newest is "
            f"{stored.recommendation.recommendation_id}.",
        )
    if change_digest and not digest.startswith(id_or_digest.strip().lower()):
        raise StalePlanError(
            f"recommendation {id_or_digest[:SHORT_ID_LENGTH]} is superseded by "
            f"{stored.recommendation.recommendation_id}, which proposes the same",
            "The change that was shown is the older one's: look at the target again.",
        )
    now = who["now"]
    _decide(store, stored, Decision.APPROVED, person, now, comment, change_digest=change_digest)
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
    comment: str = "",
    reason: DismissalReason | None = None,
    **who: Unpack[DecisionContext],
) -> AuditEntry:
    """Record that somebody rejects this recommendation, and why its finding is dismissed.

    Errors: StalePlanError, StoreError.
    """
    stored, person = allowed_now(store, id_or_digest, WishKind.REJECT, **who)
    return _decide(store, stored, Decision.REJECTED, person, who["now"], comment, reason=reason)


def keep(
    store: Store, id_or_digest: str, *, comment: str = "", **who: Unpack[DecisionContext]
) -> AuditEntry:
    """Record that an applied change is to stay. Errors: StalePlanError, StoreError."""
    stored, person = allowed_now(store, id_or_digest, WishKind.KEEP, **who)
    return _decide(store, stored, Decision.KEPT, person, who["now"], comment)


def _decide(
    store: Store,
    stored: StoredRecommendation,
    decision: Decision,
    person: Person,
    now: datetime,
    comment: str = "",
    *,
    change_digest: str = "",
    reason: DismissalReason | None = None,
) -> AuditEntry:
    kind = FindingEventKind.DISMISSED
    entry = store.append_decision(
        digest=stored.recommendation.digest,
        decision=decision,
        by=person.name,
        at=now,
        comment=comment,
        change_digest=change_digest,
        person=person,
        about=None
        if reason is None
        else event_about(stored, kind, by=person, at=now, comment=comment, reason=reason),
    )
    words = {Decision.WRITTEN: "change file written"}
    why = "" if reason is None else f" ({reason})"
    log_decision(f"{words.get(decision, decision)}{why}", stored, person, comment)
    return entry


def ask_to_apply(
    store: Store,
    id_or_digest: str,
    *,
    appliers: tuple[Applier, ...],
    approval: Approval | None = None,
    **who: Unpack[DecisionContext],
) -> CommandRequest:
    """Write the command that applies an approved recommendation; a second time gives the first.

    `approval` is one of the same transaction, which no reader sees yet.

    Errors: ApprovalMissingError, StalePlanError when expired or superseded, ChangeRefusedError
    without the right or an applier.
    """
    stored, person = allowed(store, id_or_digest, WishKind.APPLY, **who)
    recommendation = stored.recommendation
    digest = recommendation.digest
    if not any(entry.command.kind is CommandKind.APPLY for entry in store.reader.commands(digest)):
        if approval is None:
            _require_approved(stored)
        if applier_for(appliers, recommendation) is None:
            raise ChangeRefusedError(
                f"no applier that is switched on makes a {recommendation.action} change",
                "Set apply.enabled and the `enabled` of the target's section, or write the "
                "change file.",
            )
    row = approval or store.reader.approval_row(digest)
    command = store.commands.ask(
        kind=CommandKind.APPLY,
        digest=digest,
        subject=digest,
        target=recommendation.job_id,
        change_digest=(row.change_digest or "") if row else "",
        person=person,
        at=who["now"],
    )
    log_decision("apply asked for", stored, person)
    return command


def ask_to_roll_back(
    store: Store, id_or_digest: str, *, again: bool = False, **who: Unpack[DecisionContext]
) -> CommandRequest:
    """Write the command that goes back to what was there before the apply, from every state of it.

    An apply under way ends with it. `again`: undo the rollback instead, which makes the change
    again. Errors: StalePlanError when nothing was applied, when it is rolled back already, or
    with `again` when it is not.
    """
    wish = WishKind.MAKE_AGAIN if again else WishKind.ROLL_BACK
    stored, person = allowed_now(store, id_or_digest, wish, **who)
    if stored.recommendation.cancels_job and stored.state in STANDING_STATES:
        raise StalePlanError(
            f"{stored.recommendation.target} was cancelled: Slurm brings no cancelled job back",
            "Submit it again.",
        )
    digest = stored.recommendation.digest
    command = store.commands.ask(
        kind=CommandKind.ROLLBACK,
        digest=digest,
        subject=_undone_by_rollback(store.reader, digest, State(stored.state)),
        target=stored.recommendation.job_id,
        person=person,
        at=who["now"],
    )
    log_decision("rollback asked for", stored, person)
    return command


def _undone_by_rollback(reader: StoreReader, digest: str, state: State) -> str:
    """Return the subject of a rollback: the command to undo and the attempt.

    That is the apply, whose change holds the original, whatever attempts came after it. Of what is
    rolled back it is the rollback: undoing that applies again.
    """
    commands = [entry.command for entry in reader.commands(digest)]
    attempts = len(commands) - 1
    last = commands[-1]
    if state is State.ROLLING_BACK and not _applies_again(reader, commands):
        return last.subject
    if state is not State.ROLLED_BACK:
        return f"{commands[0].command_id}:{attempts}"
    sent = {row.command_id for row in reader.journal(digest=digest, events=(str(Work.SENDING),))}
    since = max(
        number for number, command in enumerate(commands) if is_forward(command, commands[0])
    )
    undone = [command.command_id for command in commands[since + 1 :] if command.command_id in sent]
    if len(undone) != 1:
        raise StalePlanError(
            f"going back took {len(undone)} attempts that sent something: only one can be undone",
            "Run a new cycle and approve its recommendation.",
        )
    return f"{undone[0]}:{attempts}"


def _applies_again(reader: StoreReader, commands: list[Command]) -> bool:
    """Return whether the last command undoes a rollback and has begun: a second click has not."""
    last = commands[-1]
    begun = reader.journal(command_id=last.command_id, events=(str(Work.SENDING),))
    return bool(begun) and is_forward(last, commands[0])


def _require_approved(stored: StoredRecommendation) -> None:
    name = stored.recommendation.recommendation_id
    if stored.state in (State.EXPIRED, State.SUPERSEDED):
        raise StalePlanError(
            f"recommendation {name} is {stored.state}",
            "Run a new cycle and approve its recommendation.",
        )
    if stored.state not in DECISIONS[WishKind.APPLY].states:
        raise ApprovalMissingError(
            f"recommendation {name} is {stored.state}, not approved",
            f"Approve it first: trimtab findings approve {name} --by NAME.",
        )


def gpus_of(reader: StoreReader, job_id: str) -> tuple[Gpu, ...]:
    """Return the GPUs and MIG instances that the job holds now."""
    return tuple(gpu for gpu in reader.gpus() if job_id in gpu.holders)


def require_unchanged(reader: StoreReader, recommendation: Recommendation) -> None:
    """Refuse (StalePlanError) when the job no longer runs on what the plan saw.

    Of a node the store does not tell: the change file says what to look at.
    """
    if recommendation.action.spec.of_node:
        return
    job = reader.job(recommendation.job_id)
    plan = recommendation.now
    if job is None:
        raise StalePlanError(
            f"job {recommendation.job_id!r} is not known any more", "Run a new cycle."
        )
    if (job.gpu_model, job.gpu_count, job.mig_profile) != (
        plan.gpu_model,
        plan.gpu_count,
        plan.mig_profile,
    ):
        raise StalePlanError(
            f"job {recommendation.job_id!r} now has {job.gpu_count} × {job.gpu_model}"
            f" {job.mig_profile}, the plan saw {plan.describe()}",
            "Run a new cycle and approve its recommendation.",
        )


def preview(reader: StoreReader, recommendation: Recommendation) -> ChangeText:
    """Return the exact text that `write_approved` would write."""
    job_id = recommendation.job_id
    return change_for(recommendation, gpus_of(reader, job_id), reader.job(job_id))


def write_approved(
    store: Store, id_or_digest: str, *, folder: Path, **who: Unpack[DecisionContext]
) -> Path:
    """Write the change file of an approved recommendation and record it; give its path.

    Errors: ApprovalMissingError without an approval, StalePlanError when expired, superseded or
    changed since, ChangeRefusedError when the change cannot be expressed, ApplyError on disk
    trouble. Writing twice gives the same file and no second record.
    """
    stored, person = allowed(store, id_or_digest, WishKind.WRITE, **who)
    recommendation = stored.recommendation
    _require_approved(stored)
    change = preview(store.reader, recommendation)
    require_unchanged(store.reader, recommendation)
    path = write_change(change, folder)
    if stored.state == State.APPROVED:
        _decide(store, stored, Decision.WRITTEN, person, who["now"], change.file_name)
    return path
