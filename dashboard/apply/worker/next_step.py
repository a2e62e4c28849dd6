"""Next step of the worker, decided from the journal and a fresh look alone. Pure.

Because nothing else is asked, a worker that died at any point is followed by one that goes on
rightly: a step in doubt is looked for before anything is sent again.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from dashboard.apply.worker.progress import Progress
from data.records.changes import ReadBack, StepOutcome, StepResult
from data.records.changes import VerificationResult as Verdict
from data.records.lifecycle import LifecycleEvent

RETRIES = 5
_GROWTH = 3
_LOOKS_BEFORE_RESEND = 2
"""Looks that must find a step missing before it is sent again: one may have come too early."""
_AGE_PER_PAUSE = 20
_MIN_PAUSE, _MAX_PAUSE = timedelta(minutes=5), timedelta(hours=1)
"""Between two looks at what stands: a twentieth of its age, within these."""
_SENT_VERDICTS = frozenset(
    {
        Verdict.AS_INTENDED,
        Verdict.NOT_YET,
        Verdict.FAILING,
        Verdict.DECLINED,
    }
)
_WATCHED_EVENTS = frozenset(
    {
        LifecycleEvent.APPLIED,
        LifecycleEvent.APPLIED_DIFFERENTLY,
        LifecycleEvent.FAILING,
        LifecycleEvent.UNKNOWN,
        LifecycleEvent.ROLLED_BACK,
    }
)
_MEASURED = frozenset(
    {LifecycleEvent.APPLIED, LifecycleEvent.APPLIED_DIFFERENTLY, LifecycleEvent.FAILING}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Look at the target and work out the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Store, then send this step."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBackMove:
    """Read back whether the first `done` steps hold."""

    done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Note that the step in doubt is there, as a look has shown."""

    step: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclude:
    """Write the outcome; None is success: applied or rolled back, as the command was."""

    event: LifecycleEvent | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitMove:
    """Hand the command back until then."""

    until: datetime
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureMove:
    """Measure what the change brought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Nothing is left to do."""


Move = Prepare | Send | ReadBackMove | Note | Conclude | WaitMove | MeasureMove | Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Times of the settings: looks, rollout, watch; `measure_after` None measures nothing.

    `lasting`: the change is meant to stay, so that its target is looked at for as long as it
    stands. `lapses`: it ends by itself when nobody renews it.
    """

    poll: timedelta
    rollout_timeout: timedelta
    watch: timedelta
    measure_after: timedelta | None
    lasting: bool = False
    lapses: bool = False


def next_move(
    progress: Progress, fresh: tuple[int, ReadBack] | None, *, now: datetime, pace: Pace
) -> Move:
    """Return the next move; `fresh` is (done, answer) of a look made in this visit, None before."""
    if progress.outcome is not None:
        return _after_the_outcome(progress, fresh, now, pace)
    if progress.change is None:
        return Prepare()
    doubtful = progress.doubtful_step
    if doubtful is not None:
        return _resolve(progress, doubtful, fresh, now, pace)
    if not progress.change.steps:
        return Conclude(event=None, detail="the target is as it was before: nothing was sent")
    step = progress.done
    if step in progress.answers:
        return _after_a_no(progress, step, fresh, now, pace)
    if step < len(progress.change.steps):
        return Send(step=step)
    return _settle(progress, fresh, now, pace)


def _overdue(progress: Progress, now: datetime, pace: Pace) -> bool:
    return progress.since is not None and now - progress.since >= pace.rollout_timeout


def _resolve(
    progress: Progress,
    step: int,
    fresh: tuple[int, ReadBack] | None,
    now: datetime,
    pace: Pace,
) -> Move:
    """Find out whether the step in doubt has arrived."""
    if fresh is None:
        return ReadBackMove(done=step + 1)
    done, answer = fresh
    if done == step + 1:
        if answer.seen in _SENT_VERDICTS:
            return Note(step=step, detail=answer.detail)
        if answer.seen is Verdict.GONE:
            return Conclude(
                event=LifecycleEvent.UNKNOWN, detail=f"the target is gone: {answer.detail}"
            )
        if answer.seen is Verdict.UNREADABLE:
            return _again_or_unknown(progress, answer, now, pace)
        if step > 0:
            return ReadBackMove(done=step)
        if answer.seen is Verdict.DIFFERENT:
            return Conclude(event=LifecycleEvent.APPLIED_DIFFERENTLY, detail=answer.detail)
    elif answer.seen not in _SENT_VERDICTS:
        return Conclude(event=LifecycleEvent.APPLIED_DIFFERENTLY, detail=answer.detail)
    return _missing(progress, step, answer, now, pace)


def _missing(progress: Progress, step: int, answer: ReadBack, now: datetime, pace: Pace) -> Move:
    """The step did not arrive: make sure, then send it again, a few times at most."""
    if len(progress.looks) < _LOOKS_BEFORE_RESEND:
        why = f"whether step {step + 1} arrived is looked at once more: {answer.detail}"
        return WaitMove(until=now + pace.poll, reason=why)
    if progress.sent[step] <= RETRIES:
        return Send(step=step)
    detail = f"step {step + 1} never arrived: {answer.detail}"
    return Conclude(
        event=LifecycleEvent.REFUSED if step == 0 else LifecycleEvent.APPLIED_DIFFERENTLY,
        detail=detail,
    )


def _after_a_no(
    progress: Progress,
    step: int,
    fresh: tuple[int, ReadBack] | None,
    now: datetime,
    pace: Pace,
) -> Move:
    """A step was answered by refused or busy. Between steps the work may fail of those taken."""
    at, result = progress.answers[step]
    busy = result.outcome is StepOutcome.BUSY and progress.sent[step] <= RETRIES
    again = at + _pause(result, progress.sent[step])
    if busy and now >= again:
        return Send(step=step)
    if step and (not busy or result.wait_within_seconds is not None):
        if fresh is None:
            return ReadBackMove(done=step)
        if fresh[1].seen is Verdict.FAILING:
            return Conclude(event=LifecycleEvent.FAILING, detail=_short(progress, fresh[1].detail))
        again = min(again, now + pace.poll)
    if busy:
        return WaitMove(until=again, reason=result.detail)
    if step == 0:
        return Conclude(event=LifecycleEvent.REFUSED, detail=result.detail)
    return Conclude(
        event=LifecycleEvent.APPLIED_DIFFERENTLY, detail=_short(progress, result.detail)
    )


def _short(progress: Progress, why: str) -> str:
    """Return the cause that stopped a change between its steps."""
    steps = len(progress.change.steps) if progress.change else 0
    return f"{progress.done} of {steps} steps were taken, then: {why}"


def _pause(result: StepResult, sent: int) -> timedelta:
    """Return the time to the next try: three times the last one where the target says how long."""
    seconds = result.retry_after_seconds
    if seconds is None and result.wait_within_seconds is not None:
        tries = sum(_GROWTH**k for k in range(RETRIES))
        share = result.wait_within_seconds * _GROWTH ** (sent - 1) / tries
        return timedelta(seconds=min(max(share, 1.0), 3600.0))
    return timedelta(seconds=2.0**sent if seconds is None else min(max(seconds, 0.0), 3600.0))


def _again_or_unknown(progress: Progress, answer: ReadBack, now: datetime, pace: Pace) -> Move:
    if not _overdue(progress, now, pace):
        return WaitMove(until=now + pace.poll, reason=answer.detail)
    return Conclude(event=LifecycleEvent.UNKNOWN, detail=f"cannot read back: {answer.detail}")


def _settle(
    progress: Progress, fresh: tuple[int, ReadBack] | None, now: datetime, pace: Pace
) -> Move:
    """All steps were answered by done: see whether it is so."""
    if fresh is None:
        return ReadBackMove(done=progress.done)
    answer = fresh[1]
    if answer.seen is Verdict.AS_INTENDED:
        return Conclude(event=None, detail=answer.detail)
    if answer.seen is Verdict.DIFFERENT:
        return Conclude(event=LifecycleEvent.APPLIED_DIFFERENTLY, detail=answer.detail)
    if answer.seen is Verdict.DECLINED:
        return Conclude(event=LifecycleEvent.REFUSED, detail=answer.detail)
    if answer.seen is Verdict.GONE:
        return Conclude(event=LifecycleEvent.UNKNOWN, detail=f"the target is gone: {answer.detail}")
    if answer.seen is Verdict.FAILING:  # the applier has been patient itself
        return Conclude(event=LifecycleEvent.FAILING, detail=answer.detail)
    if not _overdue(progress, now, pace):
        return WaitMove(until=now + pace.poll, reason=answer.detail)
    minutes = pace.rollout_timeout / timedelta(minutes=1)
    late = f"set, and not there after {minutes:g} min: " if answer.seen is Verdict.NOT_YET else ""
    return Conclude(event=_LATE_EVENTS[answer.seen], detail=f"{late}{answer.detail}")


_LATE_EVENTS: dict[Verdict, LifecycleEvent | None] = {
    Verdict.NOT_YET: None,
    Verdict.UNTOUCHED: LifecycleEvent.REFUSED,
    Verdict.UNREADABLE: LifecycleEvent.UNKNOWN,
}
"""What a sight means after the rollout timeout. NOT_YET: the value is set; the watch goes on.
UNTOUCHED: it was answered by done, and nothing happened."""


def _after_the_outcome(
    progress: Progress, fresh: tuple[int, ReadBack] | None, now: datetime, pace: Pace
) -> Move:
    """Watch the job for a while, measure once the slots are over, and see whether it stays."""
    concluded = progress.concluded_at or now
    if progress.outcome not in _WATCHED_EVENTS or progress.change is None:
        return Finish()
    stands = progress.outcome in _MEASURED
    due = None
    if stands and not progress.measured and pace.measure_after is not None:
        due = concluded + pace.measure_after
    watched = now < concluded + pace.watch and not progress.measured
    if not watched and not (stands and pace.lasting):
        return _measure_or_finish(due, now)
    ripe = due is not None and now >= due and not watched
    if fresh is None:
        return MeasureMove() if ripe else look_at_all(progress)
    turned = _turned(progress, fresh[1], now, pace)
    if turned is not None:
        return turned
    if ripe:
        return MeasureMove()
    pause = 5 * pace.poll
    if not watched:
        pause = min(max((now - concluded) / _AGE_PER_PAUSE, _MIN_PAUSE), _MAX_PAUSE)
    return WaitMove(
        until=now + pause if due is None else min(now + pause, max(due, now + pace.poll))
    )


def _measure_or_finish(due: datetime | None, now: datetime) -> Move:
    if due is None:
        return Finish()
    return MeasureMove() if now >= due else WaitMove(until=due)


def look_at_all(progress: Progress) -> ReadBackMove:
    """Return the look at what is known to have been taken; in doubt, at all that was sent."""
    sent = progress.sent_steps
    return ReadBackMove(done=sent if progress.doubtful_step is not None else progress.done or sent)


def _turned(progress: Progress, answer: ReadBack, now: datetime, pace: Pace) -> Move | None:
    """Return the move after a look during the watch, None when all is as it was."""
    if progress.outcome is LifecycleEvent.UNKNOWN:
        return _known_at_last(progress, answer)
    stands = progress.outcome in _MEASURED
    if answer.seen is Verdict.GONE:
        detail = f"the target has ended or was deleted: {answer.detail}"
        return Conclude(event=LifecycleEvent.TARGET_GONE, detail=detail) if stands else Finish()
    if stands and pace.lasting and progress.done:
        drifted = _drifted(progress, answer, now, pace)
        if drifted is not None:
            return drifted
    if progress.outcome is LifecycleEvent.FAILING:
        return _recovered(progress, answer)
    since = progress.failing_since
    if answer.seen is Verdict.FAILING and since is not None and now - since >= pace.rollout_timeout:
        return Conclude(event=LifecycleEvent.FAILING, detail=answer.detail)
    return None


def _drifted(progress: Progress, answer: ReadBack, now: datetime, pace: Pace) -> Move | None:
    """Return the move when fields no longer hold what was sent; two looks have to say so.

    Where the target stored something else from the beginning, another value says nothing new.
    """
    events = {
        Verdict.UNTOUCHED: LifecycleEvent.UNDONE_OUTSIDE,
        Verdict.DIFFERENT: LifecycleEvent.CHANGED_OUTSIDE,
    }
    event = events.get(answer.seen)
    changed = event is LifecycleEvent.CHANGED_OUTSIDE
    if event is None or (changed and progress.outcome is LifecycleEvent.APPLIED_DIFFERENTLY):
        return None
    first = progress.looks[-1][0] if progress.looks else now
    if now - first < pace.poll:
        return WaitMove(until=now + pace.poll, reason=answer.detail)
    values = "; ".join(f"{field} is {value}" for field, value in answer.observed)
    detail = answer.detail + (f" ({values})" if values and values not in answer.detail else "")
    if pace.lapses and not changed:
        return Conclude(event=LifecycleEvent.TARGET_GONE, detail=f"it was not renewed: {detail}")
    what = "changed" if changed else "put back"
    return Conclude(event=event, detail=f"{what} from outside: {detail}")


def _recovered(progress: Progress, answer: ReadBack) -> Move | None:
    """Return the move once the work is well: its next step, or the outcome after the last."""
    if answer.seen is not Verdict.AS_INTENDED:
        return None
    step = progress.done
    if progress.change is None or step >= len(progress.change.steps):
        return Conclude(event=None, detail=f"recovered: {answer.detail}")
    return Send(step=step) if progress.sent[step] <= 2 * RETRIES else None


def _known_at_last(progress: Progress, answer: ReadBack) -> Move | None:
    """An unknown outcome is decided by the first look that gets an answer."""
    steps = len(progress.change.steps) if progress.change else 0
    partial = progress.sent_steps < steps
    if answer.seen is Verdict.UNTOUCHED:
        return Conclude(event=LifecycleEvent.REFUSED, detail=f"it never arrived: {answer.detail}")
    if answer.seen is Verdict.DECLINED:
        return Conclude(event=LifecycleEvent.REFUSED, detail=answer.detail)
    if answer.seen is Verdict.FAILING:
        return Conclude(event=LifecycleEvent.FAILING, detail=answer.detail)
    if answer.seen is Verdict.DIFFERENT or (partial and answer.seen in _SENT_VERDICTS):
        return Conclude(event=LifecycleEvent.APPLIED_DIFFERENTLY, detail=answer.detail)
    return Conclude(event=None, detail=answer.detail) if answer.seen in _SENT_VERDICTS else None
