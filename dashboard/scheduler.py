"""The cycle thread of `trimtab serve`: one cycle, then a pause, until told to stop."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from data.clock import utc_now
from data.errors import TrimtabError

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

    Stop and join it before the process ends: a thread inside DuckDB at exit aborts with 134.
    """

    def __init__(self, cycle: Callable[[], object], pause: timedelta) -> None:
        self._cycle = cycle
        self._pause = pause
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
                error = f"defect in the cycle: {type(failure).__name__}"
                logger.exception("cycle failed by a defect")
            finished = utc_now()
            self._state = CycleState(
                last_error=error, last_finished_at=finished, next_at=finished + self._pause
            )
            self._stop.wait(self._pause.total_seconds())
