"""Interrupts of a command while a change is under way: it says so, and ends soon."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType

from dashboard.common.escaping import shown
from dashboard.common.threads import SHUTDOWN_TIMEOUT

_STDERR = 2


class SignalExit:
    """Order to end the process by a signal, and its exit code for that."""

    def __init__(self) -> None:
        self.signal = 0
        self.since = 0.0

    @property
    def told(self) -> bool:
        """Return whether SIGTERM or SIGINT has come."""
        return bool(self.signal)

    @property
    def told_for_seconds(self) -> float:
        """Seconds since the signal came, 0 before."""
        return time.monotonic() - self.since if self.told else 0.0

    @property
    def exit_code(self) -> int:
        """Exit code that shells expect of a process that a signal ended."""
        return 128 + self.signal


def write_to_stderr(text: str) -> None:
    """Write to stderr; past the stream where a signal came in the middle of a print to it."""
    line = f"trimtab: {shown(text)}\n"
    try:
        print(line, end="", file=sys.stderr, flush=True)
    except RuntimeError:
        os.write(_STDERR, line.encode(errors="replace"))


@contextmanager
def ending_by_signal(
    doing: Callable[[], str], *, within: timedelta = SHUTDOWN_TIMEOUT
) -> Iterator[SignalExit]:
    """Take note of SIGTERM and SIGINT for the block, and end the process when it lasts too long."""
    ending = SignalExit()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return

    def end(number: int, _frame: FrameType | None) -> None:
        if ending.told:
            os._exit(ending.exit_code)
        ending.signal, ending.since = number, time.monotonic()
        at = doing() or "none"
        name = signal.Signals(number).name
        write_to_stderr(f"{name}: the step under way ends first ({at}). {CONTINUATION_HINT}")
        timer = threading.Timer(within.total_seconds(), cut)
        timer.daemon = True
        timer.start()

    def cut() -> None:
        write_to_stderr(f"cut after {within.total_seconds():g} s; {doing()}. {CONTINUATION_HINT}")
        os._exit(ending.exit_code)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield ending
    finally:
        sys.stdout.flush()
        for number, handler in before.items():
            signal.signal(number, handler)


CONTINUATION_HINT = (
    "`trimtab serve` or `trimtab apply work` goes on with it: it looks at the target first and "
    "sends nothing twice"
)
