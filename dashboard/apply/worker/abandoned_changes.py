"""A change that is given up half-way is finished or taken back before its command is over."""

import logging
from datetime import timedelta

from dashboard.apply.contract.applier import ClosingApplier, Remains
from dashboard.apply.worker.next_step import Conclude, Move, WaitMove
from dashboard.apply.worker.progress import Progress, progress_of
from dashboard.apply.worker.task import Task
from data.base.errors import ApplyError
from data.records.commands import CommandKind
from data.records.lifecycle import LifecycleEvent

logger = logging.getLogger(__name__)


def closed_move(task: Task, progress: Progress, move: Move, poll: timedelta) -> Move:
    """Return the move, once the applier has closed a change of which a step failed.

    Until then return the wait for the next call: whoever takes over after a crash goes on here.
    """
    change = progress.change
    if not isinstance(move, Conclude) or progress.outcome is not None or change is None:
        return move
    sent = progress.sent_steps
    applier = task.applier()
    if not sent or progress.done >= len(change.steps) or not isinstance(applier, ClosingApplier):
        return move
    if why := task.why_stopped():
        return WaitMove(until=task.clock() + poll, reason=f"{why}; {move.detail}")
    closed = applier.close(change, sent=sent)
    detail = "; ".join(filter(None, (move.detail, closed.detail)))
    if closed.left is Remains.UNKNOWN:
        return WaitMove(until=task.clock() + poll, reason=detail)
    event = {
        Remains.NOTHING: LifecycleEvent.REFUSED,
        Remains.ALL: None,
        Remains.PART: LifecycleEvent.APPLIED_DIFFERENTLY,
    }.get(closed.left, move.event)
    return Conclude(event=event, detail=detail)


def between_steps(task: Task, progress: Progress) -> str:
    """Return the reason not to leave the target as it is now, '' for none."""
    change = progress.change
    if change is None or progress.outcome is not None or progress.done >= len(change.steps):
        return ""
    try:
        applier = task.applier()
    except ApplyError:
        return ""  # switched off meanwhile: the move itself says so
    if not isinstance(applier, ClosingApplier):
        return ""
    return applier.between_steps(change, sent=progress.sent_steps)


def wait_after_refused_rollback(task: Task, progress: Progress, poll: timedelta) -> WaitMove | None:
    """Return the wait until what a refused rollback had ended is closed, None once it is.

    A rollback ends the command under way before it looks at the target. Where it is refused then,
    nobody else finishes or takes back what was half done.
    """
    applier = task.applier()
    if (
        task.command.kind is not CommandKind.ROLLBACK
        or progress.outcome is not LifecycleEvent.ROLLBACK_REFUSED
        or not isinstance(applier, ClosingApplier)
    ):
        return None
    for rows in task.earlier_journals():
        ended = progress_of(rows)
        if ended.change is None or not ended.sent or ended.outcome is not None:
            continue
        if why := task.why_stopped():
            return WaitMove(until=task.clock() + poll, reason=why)
        closed = applier.close(ended.change, sent=max(ended.sent) + 1)
        if closed.left is Remains.UNKNOWN:
            return WaitMove(until=task.clock() + poll, reason=closed.detail)
        logger.info("%s after a refused rollback: %s", ended.change.target.name, closed.detail)
    return None
