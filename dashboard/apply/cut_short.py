"""A change that is given up half-way is finished or taken back before its outcome is written."""

from datetime import timedelta

from dashboard.apply.base import ClosesChanges, Left
from dashboard.apply.next_move import Conclude, Move, Wait
from dashboard.apply.progress import Progress
from dashboard.apply.task import Task
from data.records.lifecycle import Event


def put_to_rest(task: Task, progress: Progress, move: Move, poll: timedelta) -> Move:
    """Return the move, once the applier has closed a change of which a step failed.

    Until then return the wait for the next call: whoever takes over after a crash goes on here.
    """
    change = progress.change
    if not isinstance(move, Conclude) or progress.outcome is not None or change is None:
        return move
    sent = max((*progress.sent, -1)) + 1
    applier = task.applier()
    if not sent or progress.done >= len(change.steps) or not isinstance(applier, ClosesChanges):
        return move
    if why := task.why_stopped():
        return Wait(until=task.clock() + poll, reason=f"{why}; {move.detail}")
    closed = applier.close(change, sent=sent)
    detail = "; ".join(filter(None, (move.detail, closed.detail)))
    if closed.left is Left.UNKNOWN:
        return Wait(until=task.clock() + poll, reason=detail)
    event = {
        Left.NOTHING: Event.REFUSED,
        Left.ALL: None,
        Left.PART: Event.APPLIED_DIFFERENTLY,
    }.get(closed.left, move.event)
    return Conclude(event=event, detail=detail)
