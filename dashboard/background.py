"""A thread that does one small thing again and again until it is told to stop."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from data.errors import TrimtabError

logger = logging.getLogger(__name__)
_AFTER_A_DEFECT = 5.0


class Loop:
    """Calls `tick` until it answers that nothing is left, then pauses.

    A failure is remembered and the next call still comes. Stop and join the thread before the
    process ends: a thread inside DuckDB at exit aborts with 134.
    """

    def __init__(self, name: str, tick: Callable[[], bool], pause: timedelta) -> None:
        self._tick = tick
        self._pause = pause.total_seconds()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self.last_error = ""

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
            if not self._once():
                self._stop.wait(_AFTER_A_DEFECT if self.last_error else self._pause)

    def _once(self) -> bool:
        try:
            busy = self._tick()
        except TrimtabError as failure:
            if str(failure) != self.last_error:
                logger.warning("%s: %s", self._thread.name, failure)
            self.last_error = str(failure)
        except Exception as failure:
            self.last_error = f"defect: {type(failure).__name__}"
            logger.exception("%s failed by a defect", self._thread.name)
        else:
            self.last_error = ""
            return busy
        return False
