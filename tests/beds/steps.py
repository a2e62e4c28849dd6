"""A step of a change sent to a real scheduler, as the worker sends it."""

import time
from typing import Any, Protocol

from data.records.changes import StepOutcome, StepResult

_PATIENCE_SECONDS = 240.0


class _Applier(Protocol):
    def execute(self, step: Any, change: Any) -> StepResult: ...


def send_step(applier: _Applier, step: Any, change: Any) -> StepResult:
    """Return the answer to a step, sent again while it is busy.

    A controller may write to the object between look and patch at any time; then nothing was
    changed, and the worker sends the step again.
    """
    ends = time.monotonic() + _PATIENCE_SECONDS
    while (answer := applier.execute(step, change)).outcome is StepOutcome.BUSY:
        assert time.monotonic() < ends, answer
        time.sleep(0.1)
    return answer
