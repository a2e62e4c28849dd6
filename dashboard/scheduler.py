"""The cycle thread of `trimtab serve`: one cycle, then a pause, until told to stop."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from data.clock import utc_now
from data.errors import MORE_MEMORY, OUT_OF_MEMORY, TrimtabError, lacks_memory

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleState:
    """What the cycle thread is doing, for the page and for /readyz."""

    running: bool = False
    last_error: str = ""
    last_finished_at: datetime | None = None
    next_at: datetime | None = None
    read_only: bool = True


class CycleThread:
    """Runs `cycle` every `pause`; a failing cycle is remembered and the next one still comes.

    With `early`, the pause is interrupted every `look_every` to ask it: when it answers True, the
    next cycle comes at once. The pause is counted on the clock that only goes forward: a host's
    time set back by hours stops no cycle. Stop and join the thread before the process ends: a
    thread inside DuckDB at exit aborts with 134.
    """

    def __init__(
        self,
        cycle: Callable[[], object],
        pause: timedelta,
        *,
        early: Callable[[], bool] | None = None,
        look_every: timedelta | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._cycle = cycle
        self._pause = pause
        self._early = early
        self._look_every = look_every or pause
        self._clock = clock
        self._stop = threading.Event()
        self._state = CycleState()
        self._thread = threading.Thread(target=self._run, name="trimtab-cycle")

    @property
    def state(self) -> CycleState:
        """What the thread does now."""
        return self._state

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the thread, and stop and join it on leaving."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._state = CycleState(running=True, last_finished_at=self._state.last_finished_at)
            error = ""
            try:
                self._cycle()
            except TrimtabError as failure:
                error = str(failure)
                logger.warning("cycle failed: %s", error)
            except Exception as failure:
                if lacks_memory(failure):
                    error = f"{OUT_OF_MEMORY}. {MORE_MEMORY}"
                    logger.warning("cycle failed: %s", error)
                else:
                    error = f"defect in the cycle: {type(failure).__name__}"
                    logger.exception("cycle failed by a defect")
            finished = self._clock()
            self._state = CycleState(
                last_error=error, last_finished_at=finished, next_at=finished + self._pause
            )
            self._rest(time.monotonic() + self._pause.total_seconds())

    def _rest(self, until: float) -> None:
        """Wait until the next cycle is due, told to stop, or called for early."""
        every = self._look_every.total_seconds()
        while not self._stop.is_set() and (left := until - time.monotonic()) > 0:
            self._stop.wait(min(left, every))
            if self._stop.is_set() or time.monotonic() >= until or self._early is None:
                continue
            try:
                if self._early():
                    logger.info("planning again early: reality has left the forecasts' bands")
                    return
            except TrimtabError as failure:
                logger.warning("could not look between two cycles: %s", failure)
