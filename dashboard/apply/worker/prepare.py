"""Path from a command to the exact change: all conditions again, then look, steps, rehearsal."""

from dataclasses import replace
from datetime import timedelta
from zoneinfo import ZoneInfo

from dashboard.apply.contract.applier import Applier
from dashboard.apply.worker.guards import CommandHold, apply_hold, require_within_limits
from dashboard.apply.worker.progress import progress_of
from dashboard.apply.worker.task import Task
from dashboard.common.rights import RULE, require_right
from data.base.errors import (
    ApprovalMissingError,
    ChangeRefusedError,
    NotKnownError,
    StalePlanError,
)
from data.records.changes import Change, Rehearsal
from data.records.commands import CommandKind, Person
from data.records.lifecycle import STANDING_STATES, State
from data.records.recommendations import Recommendation
from data.settings.apply import change_windows, next_opening
from data.store import StoreReader
from data.store.engine.record_json import from_json

_DAY, _PAUSE = timedelta(hours=24), timedelta(seconds=15)


def command_hold(task: Task, *, prepared: bool) -> CommandHold | None:
    """Return the hold of the command for now; nothing holds back what has expired.

    Only the window holds back what is prepared: it may have closed since.
    """
    if task.command.kind is not CommandKind.APPLY or has_expired(task):
        return None
    outside, limits = _outside_window(task), task.settings().apply
    if outside is not None or prepared:
        return outside
    return _earlier_change(task) or apply_hold(
        task.store.reader, task.command, limits, task.clock()
    )


def _earlier_change(task: Task) -> CommandHold | None:
    """Return the hold until what is to be applied first is over, where somebody asked for it."""
    reader, recommendation, now = task.store.reader, task.recommendation, task.clock()
    first = recommendation.applied_first
    for digest, state in reader.states().items() if first else ():
        if state is not State.APPLYING or digest == recommendation.digest:
            continue
        try:
            stored = reader.recommendation(digest, now=now)
        except NotKnownError:  # edited, or no longer kept: its own command says so
            continue
        other = stored.recommendation
        if other.name_in_order in first and recommendation.name_in_order not in other.applied_first:
            reason = f"waits for {stored.reference}, which is to be applied first"
            return CommandHold(reason=reason, until=now + _PAUSE)
    return None


def _outside_window(task: Task) -> CommandHold | None:
    """Return the hold until `apply.window` opens, or the recommendation expires."""
    settings, expires_at = task.settings(), task.recommendation.expires_at
    zone = ZoneInfo(settings.report.timezone)
    opens_at = next_opening(change_windows(settings.apply.window), task.clock(), zone)
    if opens_at is None:
        return None
    late = ""
    if opens_at >= expires_at:
        late = f", after the recommendation expires ({expires_at.astimezone(zone):%a %H:%M})"
    return CommandHold(
        reason=f"changes begin in apply.window alone ({settings.apply.window}); it opens on "
        f"{opens_at.astimezone(zone):%a %Y-%m-%d %H:%M %Z}{late}",
        until=min(opens_at, expires_at),
    )


def has_expired(task: Task) -> bool:
    """Return whether an apply waited too long."""
    apply = task.command.kind is CommandKind.APPLY
    return apply and task.clock() >= task.recommendation.expires_at


def prepare(task: Task) -> Change:
    """Return the change of a command. Errors: ApplyError and its kinds; nothing was sent."""
    if has_expired(task):
        raise StalePlanError(
            f"the recommendation expired at {task.recommendation.expires_at:%Y-%m-%d %H:%M} UTC",
            "Run a new cycle and approve its recommendation.",
        )
    if task.recommendation.digest != task.command.digest:
        raise StalePlanError(
            "the recommendation that is kept is not the one that was approved",
            "It was edited, or made by another version of Trimtab: run a new cycle.",
        )
    _require_rights(task)
    applier = task.applier()
    if task.command.kind is CommandKind.APPLY:
        change = _forward(task, applier)
    else:
        change = _back(task, applier)
    rehearsal = applier.rehearse(change)
    require_accepted(rehearsal)
    if task.command.kind is not CommandKind.APPLY:
        change = replace(change, notes=(*change.notes, *rehearsal.warnings))
    return change


def change_of(applier: Applier, recommendation: Recommendation, reader: StoreReader) -> Change:
    """Return the change as it would be made now; also what a person previews."""
    job = reader.job(recommendation.job_id)
    gpus = tuple(gpu for gpu in reader.gpus() if recommendation.job_id in gpu.holders)
    return applier.change_for(recommendation, applier.look(recommendation, job=job, gpus=gpus))


def _require_rights(task: Task) -> None:
    access, reader = task.settings().access, task.store.reader
    recommendation = task.recommendation
    job = reader.job(recommendation.job_id)
    person = task.command.person
    if person == RULE:
        if not task.settings().apply.auto_rollback:
            raise ChangeRefusedError(
                "automatic rollback was switched off since", "Roll back by hand where needed."
            )
        return
    require_right(person, access, recommendation, job)
    if task.command.kind is CommandKind.APPLY:
        approval = reader.approval_row(task.command.digest)
        if approval is None:
            raise ApprovalMissingError("nobody approved this digest", "Approve it first.")
        approver = (
            from_json(Person, approval.person)
            if approval.person
            else Person(name=approval.decided_by)
        )
        require_right(approver, access, recommendation, job, approving=True)


def _forward(task: Task, applier: Applier) -> Change:
    reader, recommendation = task.store.reader, task.recommendation
    require_within_limits(reader, recommendation, _recent(task), task.settings().apply)
    change = change_of(applier, recommendation, reader)
    approval = reader.approval_row(task.command.digest)
    approved = {task.command.change_digest, approval.change_digest or ""} - {""}
    if approved - {change.digest}:
        raise StalePlanError(
            "the change is no longer the one that was previewed and approved",
            "Its target or its steps differ now: run a new cycle and approve its recommendation.",
        )
    return change


def _back(task: Task, applier: Applier) -> Change:
    undone = progress_of(task.undone_journal()).change
    if undone is None:
        raise ChangeRefusedError("nothing was changed, so nothing can be undone", "")
    try:
        target = applier.look_again(undone)
    except StalePlanError:
        # An earlier way back may have given it another identity, as a requeue does.
        earlier = [progress_of(journal) for journal in task.earlier_journals()]
        sent = [progress.change for progress in earlier if progress.change and progress.sent]
        if not sent or sent[-1] == undone:
            raise
        target = applier.look_again(sent[-1])
    return applier.change_back(undone, target)


def _recent(task: Task) -> tuple[Recommendation, ...]:
    reader, now = task.store.reader, task.clock()
    states = reader.states()
    digests = {
        command.digest
        for command, _at in reader.prepared_since(now - _DAY, CommandKind.APPLY)
        if states.get(command.digest) in STANDING_STATES | {State.APPLYING, State.ROLLING_BACK}
        and command.digest != task.command.digest
    }
    stored = reader.recommendations_of(digests, now=now)
    return tuple(stored[digest].recommendation for digest in sorted(stored))


def require_accepted(rehearsal: Rehearsal) -> None:
    """Raise ChangeRefusedError with what a rehearsal refuses, or would store otherwise."""
    if rehearsal.refusals:
        raise ChangeRefusedError("; ".join(rehearsal.refusals), "Nothing was changed.")
    if rehearsal.differences:
        text = "; ".join(
            f"{field}: {intended} is meant, {answered} would be stored"
            for field, intended, answered in rehearsal.differences
        )
        raise ChangeRefusedError(f"the target would store something else: {text}", "")
