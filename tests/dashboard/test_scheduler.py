"""The cycle thread: failures are remembered, the next cycle still comes, it stops cleanly."""

import re
import threading
from datetime import timedelta

import pytest

from dashboard.cycle.cycle_thread import CycleThread
from data.base.errors import StoreError


def test_a_failing_cycle_is_remembered_and_the_next_one_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """First an error of ours, then a defect, then no memory, then success."""
    ran = threading.Semaphore(0)
    failures: list[Exception | None] = [
        StoreError("disk full", "Free space."),
        ZeroDivisionError(),
        MemoryError(),
        None,
    ]
    seen: list[str] = []

    def cycle() -> None:
        seen.append(thread.state.last_error)
        failure = failures.pop(0) if failures else None
        ran.release()
        if failure is not None:
            raise failure

    thread = CycleThread(cycle, timedelta(milliseconds=1))
    with thread.running():
        for _cycle in range(5):
            assert ran.acquire(timeout=60)
    assert not thread.state.running
    assert len(seen) >= 5
    assert re.search(r"cycle failed after \d+\.\d s: the process ran out of memory", caplog.text)
    assert thread.state.last_error == ""


def test_a_cycle_comes_early_when_reality_has_left_the_band() -> None:
    """Asked in the pause: an error and a no keep waiting, a yes ends the pause of a day."""
    ran = threading.Semaphore(0)
    answers: list[bool | Exception] = [StoreError("busy", "Wait."), False, True]

    def early() -> bool:
        answer = answers.pop(0) if answers else False
        if isinstance(answer, Exception):
            raise answer
        return answer

    thread = CycleThread(
        ran.release, timedelta(days=1), early=early, look_every=timedelta(milliseconds=1)
    )
    with thread.running():
        assert ran.acquire(timeout=10)
        assert ran.acquire(timeout=10)
    assert answers == []
