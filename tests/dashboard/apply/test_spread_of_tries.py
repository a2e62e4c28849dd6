"""A step that waits for its target is tried soon at first, and over all the time it may take."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from dashboard.apply.worker.next_step import (
    RETRIES,
    Conclude,
    Move,
    Pace,
    ReadBackMove,
    Send,
    WaitMove,
    next_move,
)
from dashboard.apply.worker.progress import Progress
from data.records.changes import (
    Change,
    ChangeStep,
    ReadBack,
    StepOutcome,
    StepResult,
    Target,
    VerificationResult,
)
from data.records.lifecycle import LifecycleEvent

AT = datetime(2026, 3, 2, tzinfo=UTC)
STEP = ChangeStep(
    verb="patch", target="t", field="f", before="1", after="2", payload="{}", text="do it"
)
CHANGE = Change(
    recommendation_digest="d",
    target=Target(kind="Deployment", name="t", identity="uid"),
    steps=(STEP, STEP),
    undo=(),
)
PACE = Pace(
    poll=timedelta(seconds=2),
    rollout_timeout=timedelta(minutes=10),
    watch=timedelta(minutes=10),
    measure_after=None,
)


def busy(sent: int, after: float, *, seen: VerificationResult | None = None, **wish: float) -> Move:
    """The move `after` seconds after the second step was answered by busy for the nth time.

    `seen` is what a look in this visit found.
    """
    done = StepResult(outcome=StepOutcome.DONE, detail="done")
    no = StepResult(outcome=StepOutcome.BUSY, detail="its rollout is not over", **wish)
    progress = Progress(
        change=CHANGE, since=AT, sent=Counter({0: 1, 1: sent}), answers={0: (AT, done), 1: (AT, no)}
    )
    fresh = None if seen is None else (1, ReadBack(seen=seen, detail="0/3 nodes are available"))
    return next_move(progress, fresh, now=AT + timedelta(seconds=after), pace=PACE)


def waited(sent: int, **wish: float) -> float:
    """The seconds between the nth busy answer and the next try, looked at in between."""
    after = 0.0
    while isinstance(move := busy(sent, after, seen=VerificationResult.NOT_YET, **wish), WaitMove):
        until = (move.until - AT).total_seconds()
        assert after < until <= after + PACE.poll.total_seconds()
        after = until
    assert move == Send(step=1)
    return after


def test_a_rollout_is_asked_after_soon_and_over_all_the_time_it_is_allowed() -> None:
    """Ten minutes: again after 5 s, and all tries together span the ten minutes."""
    waits = [waited(sent, wait_within_seconds=600.0) for sent in range(1, RETRIES + 1)]
    assert 4.0 < waits[0] < 6.0
    assert waits == sorted(waits)
    assert abs(sum(waits) - 600.0) < 1.0


def test_the_first_try_again_is_never_sooner_than_a_second() -> None:
    """A pod that may end at once is still not asked for in a tight loop."""
    assert waited(1, wait_within_seconds=7.5) == 1.0


def test_the_servers_own_wish_comes_first() -> None:
    """Retry-After is obeyed, whatever the step waits for."""
    assert waited(1, retry_after_seconds=7.0, wait_within_seconds=600.0) == 7.0


def test_after_the_wait_the_step_is_sent_again_and_not_for_ever() -> None:
    """Due, it is sent; after the last try the change is said to be half done."""
    assert busy(1, 6.0, wait_within_seconds=600.0) == Send(step=1)
    last = busy(RETRIES + 1, 0.0, seen=VerificationResult.NOT_YET, wait_within_seconds=600.0)
    assert isinstance(last, Conclude)
    assert last.event is LifecycleEvent.APPLIED_DIFFERENTLY


@pytest.mark.parametrize("sent", [1, RETRIES + 1])
def test_what_fails_between_two_steps_is_failing_at_once(sent: int) -> None:
    """Nobody waits for the rest of a rollout whose pods find no node: it can be rolled back."""
    assert busy(sent, 0.0, wait_within_seconds=600.0) == ReadBackMove(done=1)
    found = busy(sent, 0.0, seen=VerificationResult.FAILING, wait_within_seconds=600.0)
    assert found == Conclude(
        event=LifecycleEvent.FAILING,
        detail="1 of 2 steps were taken, then: 0/3 nodes are available",
    )
