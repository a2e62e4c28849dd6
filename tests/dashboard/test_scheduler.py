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
