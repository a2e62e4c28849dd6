"""Threads that work until they are told to stop, and the end of all of them within a bound."""

import atexit
import logging
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import NoReturn

from data.base.errors import TrimtabError

logger = logging.getLogger(__name__)
_RESTART_DELAY_SECONDS = 5.0
SHUTDOWN_TIMEOUT = timedelta(seconds=15)
"""Time for all threads of a process to end; with that for open pages it is 20 s."""


class Background:
    """A thread that runs `_run` until told to stop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stop = threading.Event()
        # What does not end in time is cut with the process.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        raise NotImplementedError

    @property
    def doing(self) -> str:
        """Present work in words; '' when nothing is worth saying."""
        return ""

    @property
    def stopping(self) -> bool:
        """Return whether it was told to stop."""
        return self._stop.is_set()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Let it end after what it is at."""
        self._stop.set()

    def has_ended(self, *, within: float) -> bool:
        """Wait for the end, so many seconds at most; tell whether it came."""
        self._thread.join(within)
        return not self._thread.is_alive()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the thread, and stop and join it on leaving."""
        with running_together([self]):
            yield


def cut(threads: Sequence[Background]) -> NoReturn:
    """End the process under threads that do not end. Every write to the store is whole or absent.

    The store is left as by a killed process: the next one opens it and goes on from its record.
    """
    for background in threads:
        doing = f" while {background.doing}" if background.doing else ""
        logger.warning("%s does not end in time and is cut%s", background.name, doing)
    logging.shutdown()
    _leave(0)


def end_process(code: int) -> NoReturn:
    """End the process with this exit code once its work is done, under whatever threads are left.

    A server has threads of libraries. C++ ends a process by SIGABRT whose exit finds one of them
    running (`std::thread`), so the last step is `_exit`, after all that Python does at exit.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - the only way to them without the end
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    _leave(code)


def _leave(code: int) -> NoReturn:
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(code)


@contextmanager
def running_together(
    threads: Sequence[Background],
    *,
    within: timedelta = SHUTDOWN_TIMEOUT,
    give_up: Callable[[Sequence[Background]], object] = cut,
) -> Iterator[None]:
    """Start the threads; on leaving tell all to stop, and give up those that do not end in time."""
    started = []
    try:
        for thread in threads:
            thread.start()
            started.append(thread)
        yield
    finally:
        for background in started:
            background.ask_to_stop()
        deadline = time.monotonic() + within.total_seconds()
        alive = [
            background
            for background in started
            if not background.has_ended(within=max(0.0, deadline - time.monotonic()))
        ]
        if alive:
            give_up(alive)


class Loop(Background):
    """Calls `tick` until it answers that nothing is left, then pauses.

    A failure is remembered and the next call still comes. `doing` says what a tick is at.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], bool],
        pause: timedelta,
        *,
        doing: Callable[[], str] = str,
    ) -> None:
        super().__init__(name)
        self._tick = tick
        self._pause = pause.total_seconds()
        self._doing = doing
        self.last_error = ""

    @property
    def doing(self) -> str:
        """Present work of the tick."""
        return self._doing()

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._once():
                self._stop.wait(_RESTART_DELAY_SECONDS if self.last_error else self._pause)

    def _once(self) -> bool:
        try:
            busy = self._tick()
        except TrimtabError as failure:
            if str(failure) != self.last_error:
                logger.warning("%s: %s", self.name, failure)
            self.last_error = str(failure)
        except Exception as failure:
            self.last_error = f"defect: {type(failure).__name__}"
            logger.exception("%s failed with an unexpected error", self.name)
        else:
            self.last_error = ""
            return busy
        return False
