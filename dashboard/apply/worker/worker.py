"""The apply worker: takes one command at a time and carries it as far as it goes now.

What to do next is decided by `next_move` from the journal; this file only carries it out. A step is
stored before it is sent and its answer after, so a worker that dies anywhere is followed by one
that looks first.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

from dashboard.apply import build_appliers
from dashboard.apply.contract.applier import Applier, NotingApplier, ReviewedApplier
from dashboard.apply.contract.shared_kill_switch import (
    SWITCH_NOTES,
    is_stopped,
    last_switch,
    note_stop,
)
from dashboard.apply.worker.abandoned_changes import (
    between_steps,
    closed_move,
    wait_after_refused_rollback,
)
from dashboard.apply.worker.next_step import (
    Conclude,
    Finish,
    MeasureMove,
    Move,
    Note,
    Pace,
    Prepare,
    ReadBackMove,
    Send,
    WaitMove,
    look_at_all,
    next_move,
)
from dashboard.apply.worker.prepare import command_hold, has_expired, prepare, require_accepted
from dashboard.apply.worker.progress import Progress, progress_of
from dashboard.apply.worker.same_object import commands_on_same_object
from dashboard.apply.worker.task import LEASE_DURATION, Task
from dashboard.apply.worker.verification import is_measurable, measure
from dashboard.common.rights import RULE
from data.base.clock import utc_now
from data.base.errors import (
    ApprovalMissingError,
    ChangeRefusedError,
    LeaseLostError,
    StalePlanError,
    StoreError,
    TrimtabError,
)
from data.records.actions import FOR_MEMORY
from data.records.changes import Change, ReadBack, StepOutcome, StepResult
from data.records.commands import Command, CommandKind, Lease, Work
from data.records.lifecycle import CHANGED_TARGET, OPEN, STANDING_STATES, LifecycleEvent, State
from data.settings.all_settings import Settings
from data.store import Store
from data.store.engine.record_json import to_json

logger = logging.getLogger(__name__)
_POLL = timedelta(seconds=2)
"""Between two looks at a change under way."""
_PAUSE = timedelta(seconds=15)
_MEASURE_PAUSE = timedelta(minutes=5)
_STOPPED_PAUSE = timedelta(milliseconds=500)
_ENDS = "its worker was told to end: the next one goes on"
_OUTSIDE_EVENTS = frozenset({LifecycleEvent.UNDONE_OUTSIDE, LifecycleEvent.CHANGED_OUTSIDE})
_COMMAND_TIMEOUT = timedelta(seconds=60)
"""No command to a target takes longer: what was cut off has arrived by then, or never will."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """Works on the commands of one store; `settings` is asked anew at every step.

    `appliers` gives who makes changes under the settings of the moment. Once `stopping` answers yes
    the command in hand is given back after what it is at, unless its target cannot be left between
    two steps: then the steps go on as far as nothing has to be waited for. `doing` says what it is
    at, `unsafe` why the target of the last visit cannot be left.
    """

    store: Store
    settings: Callable[[], Settings]
    appliers: Callable[[Settings], tuple[Applier, ...]] = build_appliers
    clock: Callable[[], datetime] = utc_now
    owner: str = field(default_factory=lambda: f"worker-{uuid4().hex[:12]}")
    stopping: Callable[[], bool] = bool
    doing: str = ""
    unsafe: str = ""
    _was_stopped: str | None = None
    _held: dict[str, str] = field(default_factory=dict)

    def work_once(self) -> bool:
        """Take a due command and carry it as far as it goes; tell whether there was one.

        Errors: StoreError, SettingsError: nothing was sent then.
        """
        self._note_the_switch()
        lease = self.store.commands.take(owner=self.owner, now=self.clock(), lasting=LEASE_DURATION)
        if lease is None:
            return False
        try:
            self._carry(self._task(lease))
        except LeaseLostError as lost:
            logger.warning("%s", lost)
        except StoreError:
            raise
        except TrimtabError as error:
            self._give_back(lease, str(error))
        except Exception as defect:
            logger.exception("defect while applying")
            self._give_back(lease, f"defect: {type(defect).__name__}")
        finally:
            self.doing = ""
        return True

    def _give_back(self, lease: Lease, why: str) -> None:
        self._release(lease, self.clock() + _PAUSE, why)

    def _release(self, lease: Lease, not_before: datetime, why: str) -> None:
        """Return a command back, and log why it waits when that is new."""
        self.store.commands.release(lease, not_before=not_before, held=why)
        if why and self._held.get(lease.command_id) != why:
            logger.info("command %s waits: %s", lease.command_id[:12], why)
        self._held[lease.command_id] = why

    def _task(self, lease: Lease) -> Task:
        command = self.store.reader.command(lease.command_id)
        return Task(
            store=self.store,
            settings=self.settings,
            appliers=self.appliers,
            clock=self.clock,
            lease=lease,
            command=command,
            recommendation=self.store.reader.kept_recommendation(command.digest),
        )

    def _note_the_switch(self) -> None:
        """Put into the audit that applying was stopped or resumed, whoever moved the file."""
        with SWITCH_NOTES:
            stop = is_stopped(Path(self.settings().apply.stop_file), self.store)
            text = "" if stop is None else stop.describe()
            if self._was_stopped is None:
                self._was_stopped = last_switch(self.store)
            if text == self._was_stopped:
                return
            if stop is not None:
                note_stop(self.store, stop, at=self.clock())
            elif last_switch(self.store):
                self.store.append_audit(
                    at=self.clock(), actor="file", event="resumed", digest="", detail=""
                )
        logger.info("%s", text or "applying goes on: the kill switch is off")
        self._was_stopped = text

    def _carry(self, task: Task) -> None:
        """Make moves until the command waits or is finished."""
        fresh: tuple[int, ReadBack] | None = None
        checked = False
        while True:
            progress = progress_of(task.journal())
            pace = _pace(task, progress)
            move = Finish() if task.is_followed() else _next(task, progress, fresh, pace)
            self.unsafe = between_steps(task, progress)
            if isinstance(move, WaitMove):
                ends = _ENDS if self.unsafe and self.stopping() else ""
                reasons = (move.reason, self.unsafe if self.unsafe not in move.reason else "", ends)
                self._release(task.lease, move.until, "; ".join(filter(None, reasons)))
                return
            if isinstance(move, Finish):
                task.store.commands.finish(task.lease)
                self._held.pop(task.lease.command_id, None)
                return
            if self.stopping() and not self.unsafe:
                self._release(task.lease, task.clock(), _ENDS)
                return
            at = f"{task.words} is at: {type(move).__name__.lower()}"
            self.doing = "; ".join(filter(None, (at, self.unsafe)))
            # Prepared in an earlier visit, the change may have been held back for hours; what was
            # sent may have been lost with its worker, and never arrived.
            if isinstance(move, Send) and move.step == 0 and not checked:
                checked = True
                if _is_refused_now(task, progress):
                    continue
            checked = checked or isinstance(move, Prepare)
            fresh = _make(task, progress, move)


def _next(task: Task, progress: Progress, fresh: tuple[int, ReadBack] | None, pace: Pace) -> Move:
    """Return the move that journal and looks ask for, or the one in its place for now."""
    move = next_move(progress, fresh, now=task.clock(), pace=pace)
    if isinstance(move, Prepare) and task.command.kind is CommandKind.ROLLBACK:
        return _ending_the_undone(task, pace) or _permitted(task, progress, move, fresh)
    if isinstance(move, Finish):
        return wait_after_refused_rollback(task, progress, pace.poll) or move
    return closed_move(task, progress, _permitted(task, progress, move, fresh), pace.poll)


def _ending_the_undone(task: Task, pace: Pace) -> Move | None:
    """Return the move before a rollback: the end of what it undoes, None once that is over.

    What was sent last may still be on its way: no command takes longer than a minute.
    """
    now = task.clock()
    if not task.end_earlier_commands():
        return WaitMove(until=now + pace.poll, reason="waits until the change under way is let go")
    if not progress_of(task.undone_journal()).sent:
        return Conclude(event=task.success(), detail="nothing had been sent: nothing to undo")
    earlier = [progress_of(rows) for rows in task.earlier_journals()]
    doubtful = [
        progress.since
        for progress in earlier
        if progress.since and progress.doubtful_step is not None
    ]
    arrived = max((since + _COMMAND_TIMEOUT for since in doubtful), default=now)
    if now < arrived:
        return WaitMove(until=arrived, reason="waits until what was sent last has surely arrived")
    return None


def _permitted(
    task: Task, progress: Progress, move: Move, fresh: tuple[int, ReadBack] | None
) -> Move:
    """Return the move, or the wait that takes its place for now."""
    now = task.clock()
    if (
        isinstance(move, Conclude)
        and move.event in _OUTSIDE_EVENTS
        and commands_on_same_object(task.store.reader, _change(progress), task.command.digest, OPEN)
    ):
        return WaitMove(until=now + _PAUSE, reason="another change of the same object is under way")
    if isinstance(move, MeasureMove) and not is_measurable(task, progress):
        pause = WaitMove(until=now + _MEASURE_PAUSE, reason="no samples yet of the time to measure")
        return pause if fresh else look_at_all(progress)
    if isinstance(move, Prepare) and has_expired(task):
        return move
    if isinstance(move, Prepare | Send) and (why := task.why_stopped()):
        return WaitMove(until=now + _STOPPED_PAUSE, reason=why)
    starts = isinstance(move, Prepare) or (isinstance(move, Send) and move.step == 0)
    hold = command_hold(task, prepared=isinstance(move, Send)) if starts else None
    if hold is not None:
        return WaitMove(until=hold.until, reason=hold.reason)
    return move


def _make(task: Task, progress: Progress, move: Move) -> tuple[int, ReadBack] | None:
    """Carry one move out; give what a look saw."""
    if isinstance(move, ReadBackMove):
        return _look(task, progress, move.done)
    if isinstance(move, Prepare):
        _prepare(task)
    elif isinstance(move, Send):
        _send(task, progress, move.step)
    elif isinstance(move, Note):
        result = StepResult(outcome=StepOutcome.DONE, detail=f"found by looking: {move.detail}")
        task.write(Work.ANSWERED, step=move.step, detail=result.detail, record=to_json(result))
    elif isinstance(move, MeasureMove):
        event, measurement = measure(task, progress)
        task.write(event, detail="; ".join(measurement.reasons), record=to_json(measurement))
        _undo_by_rule(task)
    elif isinstance(move, Conclude):
        refused = move.event is LifecycleEvent.REFUSED
        event = task.refusal() if refused else move.event or task.success()
        task.write(event, detail=move.detail, replaces=_replaced(task, progress, event))
        _leave_note(task, progress, str(event))
        _undo_by_rule(task)
    return None


def _leave_note(task: Task, progress: Progress, outcome: str) -> None:
    """Name at the target itself who changed it and what came of it, where an applier can."""
    applier = task.applier()
    if progress.change is not None and progress.sent and isinstance(applier, NotingApplier):
        warning = applier.note(progress.change, actor=task.command.person.name, outcome=outcome)
        if warning:
            logger.warning("no note left at %s: %s", progress.change.target.name, warning)


def _replaced(task: Task, progress: Progress, event: LifecycleEvent) -> tuple[Command, ...]:
    """Return the commands on the same fields until now: one object has one applied change."""
    if event not in (
        LifecycleEvent.APPLIED,
        LifecycleEvent.APPLIED_DIFFERENTLY,
        LifecycleEvent.FAILING,
    ):
        return ()
    return commands_on_same_object(
        task.store.reader, _change(progress), task.command.digest, STANDING_STATES
    )


def _change(progress: Progress) -> Change:
    if progress.change is None:
        raise RuntimeError("nothing was prepared")
    return progress.change


def _prepare(task: Task) -> None:
    try:
        change = prepare(task)
    except (ChangeRefusedError, StalePlanError, ApprovalMissingError) as refusal:
        moved = not isinstance(refusal, ChangeRefusedError)
        task.write(task.refusal(), detail=str(refusal), record=CHANGED_TARGET * moved)
    else:
        task.write(Work.PREPARED, detail=change.digest, record=to_json(change))


def _is_refused_now(task: Task, progress: Progress) -> bool:
    """Look again at what was prepared in an earlier visit, and conclude with a refusal if it moved.

    The fields that it touches say nothing of all others: the target is asked as before approval.
    """
    change, applier = _change(progress), task.applier()
    detail, moved = "", True
    try:
        if applier.look_again(change).fingerprint != change.target.fingerprint:
            detail = "the target has changed since the change was prepared"
        else:
            require_accepted(applier.rehearse(change))
    except (ChangeRefusedError, StalePlanError) as refusal:
        detail, moved = str(refusal), isinstance(refusal, StalePlanError)
    if detail:
        task.write(task.refusal(), detail=detail, record=CHANGED_TARGET * moved)
    return bool(detail)


def _send(task: Task, progress: Progress, step: int) -> None:
    change = _change(progress)
    task.write(Work.SENDING, step=step, detail=change.steps[step].text)
    result = task.applier().execute(change.steps[step], change)
    task.write(Work.ANSWERED, step=step, detail=result.detail, record=to_json(result))


def _look(task: Task, progress: Progress, done: int) -> tuple[int, ReadBack]:
    """Look, and note what is new: another sight than last time, or a step that is missing."""
    reading = task.applier().read_back(_change(progress), done=done)
    last = progress.looks[-1][1] if progress.looks else None
    if reading.seen is not last or progress.doubtful_step is not None:
        task.write(Work.LOOKED, step=done, detail=reading.detail, record=str(reading.seen))
        progress.looks.append((task.clock(), reading.seen))
    return done, reading


def _undo_by_rule(task: Task) -> None:
    """Ask for the rollback that the settings opted in to. Unique, so asking again is harmless.

    What fell short for memory is left: where it came from there was less of it.
    """
    if not task.settings().apply.auto_rollback or task.command.kind is not CommandKind.APPLY:
        return
    state = task.store.reader.states().get(task.command.digest)
    short = State.FELL_SHORT if task.recommendation.action not in FOR_MEMORY else None
    if state in (State.FAILING, short):
        task.store.commands.ask(
            kind=CommandKind.ROLLBACK,
            digest=task.command.digest,
            subject=f"{task.command.command_id}:0",
            target=task.command.target,
            person=RULE,
            at=task.clock(),
        )


def _pace(task: Task, progress: Progress) -> Pace:
    pace = _usual_pace(task)
    applier = task.maker()
    if applier is not None and progress.outcome is None and isinstance(applier, ReviewedApplier):
        return replace(
            pace, poll=max(pace.poll, applier.looks_every()), rollout_timeout=timedelta.max
        )
    return pace


def _usual_pace(task: Task) -> Pace:
    settings, recommendation = task.settings(), task.recommendation
    apply = settings.apply
    slots = timedelta(minutes=(apply.verify_slots + 1) * settings.planning.slot_minutes)
    over = recommendation.ends_at is not None and task.clock() >= recommendation.ends_at
    # A pause ends by design, and a Slurm job that was cancelled does not come back.
    passing = over or recommendation.cancels_job or recommendation.action.spec.pauses
    return Pace(
        poll=_POLL,
        rollout_timeout=timedelta(minutes=apply.rollout_timeout_minutes),
        watch=timedelta(minutes=apply.watch_minutes),
        measure_after=slots,
        lasting=not passing,
        lapses=recommendation.action.spec.caps_power,
    )
