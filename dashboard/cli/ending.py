"""SIGTERM while changes are made: said at once; what is under way ends first."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dashboard.cli.output import say

GOES_ON = "what is not finished goes on with `trimtab serve` or `trimtab apply work`"


@dataclass(slots=True)
class Ending:
    """Whether the process was asked to end."""

    asked: bool = False


@contextmanager
def ending_on_sigterm() -> Iterator[Ending]:
    """Note SIGTERM instead of dying in the middle of a step; a second one ends the process."""
    ending = Ending()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    before = signal.getsignal(signal.SIGTERM)

    def asked(_number: int, _frame: object) -> None:
        ending.asked = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        say(f"SIGTERM: the step under way ends first; {GOES_ON}", file=sys.stderr)

    signal.signal(signal.SIGTERM, asked)
    try:
        yield ending
    finally:
        signal.signal(signal.SIGTERM, before)
