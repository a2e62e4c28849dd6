"""The cycle thread of `trimtab serve`: one cycle, then a pause, until told to stop."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from dashboard.common.threads import Background
from data.base.clock import utc_now
from data.base.errors import MORE_MEMORY, OUT_OF_MEMORY, TrimtabError, lacks_memory

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleState:
    """State of the cycle thread, for the page and for /readyz."""

    running: bool = False
    last_error: str = ""
    last_finished_at: datetime | None = None
    next_at: datetime | None = None
    doing: str = ""


class CycleCutError(TrimtabError):
    """The process is to end: the cycle is given up, and nothing of it is kept."""


class CycleThread(Background):
    """Runs `cycle` every `pause`; a failing cycle is remembered and the next one still comes.

    The pause is counted on the clock that only goes forward: a host's time set back by hours stops
    no cycle. A cycle that tells its progress by `at` is given up at
    the next word of it when the thread is told to stop. Without `keeps_time` its state names no
    hour: `cycle` itself knows when there is something to do.
    """

    def __init__(
        self,
        cycle: Callable[[], object],
        pause: timedelta,
        *,
        clock: Callable[[], datetime] = utc_now,
        keeps_time: bool = True,
    ) -> None:
        self._cycle = cycle
        self._pause = pause
        self._clock = clock
        self._keeps_time = keeps_time
        self._state = CycleState()
        self._stage = ""
        super().__init__("trimtab-cycle")

    @property
    def state(self) -> CycleState:
        """Present state of the thread."""
        return self._state

    @property
    def doing(self) -> str:
        """The stage of the cycle."""
        return f"a cycle is at {self._stage}; the next one begins anew" if self._stage else ""

    def at(self, stage: str, _done: int = 0, _total: int = 0) -> None:
        """Take note of the progress. Errors: CycleCutError when the thread is told to stop."""
        self._stage = stage
        if self.stopping:
            raise CycleCutError(f"the cycle is cut at {stage}", "The next one begins anew.")

    def _run(self) -> None:
        while not self._stop.is_set():
            self._state = CycleState(running=True, last_finished_at=self._state.last_finished_at)
            error = ""
            started = time.monotonic()
            try:
                self._cycle()
            except CycleCutError as told:
                logger.info("%s, after %.1f s", told.message, time.monotonic() - started)
            except TrimtabError as failure:
                error = str(failure)
                logger.warning("cycle failed after %.1f s: %s", time.monotonic() - started, error)
            except Exception as failure:
                spent = time.monotonic() - started
                if lacks_memory(failure):
                    error = f"{OUT_OF_MEMORY}. {MORE_MEMORY}"
                    logger.warning("cycle failed after %.1f s: %s", spent, error)
                else:
                    error = f"defect in the cycle: {type(failure).__name__}"
                    logger.exception("cycle failed with an unexpected error after %.1f s", spent)
            self._stage = ""
            finished = self._clock() if self._keeps_time else None
            self._state = CycleState(
                last_error=error,
                last_finished_at=finished,
                next_at=None if finished is None else finished + self._pause,
            )
            self._stop.wait(self._pause.total_seconds())
