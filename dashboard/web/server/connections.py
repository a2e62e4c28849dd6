"""Connections that ask nothing to the end: closed after a while, and the oldest when they are many.

A connection waits until the head of a request, and then its body, is there. Somebody who opens
thousands and sends a byte now and then would take every descriptor that the store, the log and the
kill switch need. Who asks at once is never the oldest, so that a flood keeps nobody out.
"""

import asyncio
import errno
import logging
import resource
import time
import traceback
from collections.abc import Callable
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from data.settings.access import AccessSettings

logger = logging.getLogger(__name__)
HEAD_SECONDS, BODY_SECONDS = 10.0, 20.0
_MOST_WAITING = 1024
"""A quarter of the descriptors where that is less, and of one address a quarter of these."""
_LOG_INTERVAL_SECONDS = 60.0


class BoundedProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, with a deadline for each head and body."""

    due: asyncio.TimerHandle | None = None
    began = 0.0
    _phase = ""
    access = AccessSettings()
    waiting: ClassVar[dict[str, dict["BoundedProtocol", None]]] = {}
    """Connections that wait, by address, the oldest first."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a head, and close the oldest that wait where there are too many."""
        super().connection_made(transport)
        self._wait("head", HEAD_SECONDS)
        limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _MOST_WAITING
        if limit != resource.RLIM_INFINITY:
            most = min(most, limit // 4)
        here = self.waiting[self._address()]
        if len(here) > max(1, most // 4) and not self._by_proxy():
            next(iter(here)).give_up()
        elif sum(map(len, self.waiting.values())) > most:
            oldest = (next(iter(entries)) for entries in self.waiting.values())
            min(oldest, key=lambda entry: entry.began).give_up()

    def data_received(self, data: bytes) -> None:
        """Read on, and wait for what is still missing."""
        super().data_received(data)
        state = self.conn.their_state
        if self.transport.get_protocol() is not self:  # a WebSocket now, which has no body to end
            self._stop_waiting()
        elif state is h11.SEND_BODY:
            self._wait("body", BODY_SECONDS)
        elif state is h11.IDLE and self.conn.trailing_data[0]:
            self._wait("head", HEAD_SECONDS)
        else:
            self._stop_waiting()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; the request that it broke is answered no second time."""
        super().send_400_response(msg)
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _by_proxy(self) -> bool:
        """Return whether the peer is a sign-in proxy, by which everybody comes."""
        from dashboard.web.access.trusted_proxy import is_listed

        return self.access.mode == "proxy" and is_listed(self._address(), self.access)

    def _wait(self, phase: str, seconds: float) -> None:
        """Set the deadline of a phase; more bytes of the same phase do not move it."""
        if self.due is None or self._phase != phase:
            self._stop_waiting()
            self.began = self.loop.time()
            self._phase, self.due = phase, self.loop.call_later(seconds, self.give_up)
            self.waiting.setdefault(self._address(), {})[self] = None

    def _stop_waiting(self) -> None:
        if self.due is not None:
            self.due.cancel()
            self.due = None
            here = self.waiting[self._address()]
            del here[self]
            if not here:
                del self.waiting[self._address()]

    def give_up(self) -> None:
        """Close the connection without another word."""
        self._stop_waiting()
        self.transport.abort()


def protocol_for(settings: AccessSettings) -> type[BoundedProtocol]:
    """Return the protocol of a server with these settings of who is let in."""
    return type("Bounded", (BoundedProtocol,), {"access": settings, "waiting": {}})


def limit_accept_errors(
    loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic
) -> None:
    """Log once a minute that no connection can be accepted; asyncio does it for each try."""
    told_at = float("-inf")

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal told_at
        error = context.get("exception")
        lacks = isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
        if not lacks:
            loop.default_exception_handler(context)
        elif clock() - told_at >= _LOG_INTERVAL_SECONDS:
            told_at = clock()
            logger.error(
                "no connection can be accepted: %s; close some, or let the server have more "
                "descriptors (ulimit -n, LimitNOFILE)",
                error,
            )

    loop.set_exception_handler(handle)


class TracebackLimit(logging.Filter):
    """Lets one traceback a minute through of an error and the line that raised it.

    Streamlit writes one for each odd message of a page's socket: who may look could fill the disk.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._told_at: dict[tuple[str, str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written."""
        if not record.exc_info or record.exc_info[1] is None:
            return True
        error, now = record.exc_info[1], self._clock()
        frame = traceback.extract_tb(error.__traceback__, limit=-1)
        place = (
            type(error).__name__,
            *((frame[0].filename, frame[0].lineno or 0) if frame else ("", 0)),
        )
        if now - self._told_at.get(place, float("-inf")) < _LOG_INTERVAL_SECONDS:
            return False
        self._told_at[place] = now
        return True
