"""HTTP requests whose wait for an answer ends, however slowly it comes.

A timeout of a socket is per read: a server that drips its headers byte by byte would hold a call
for hours, before there is a body whose reading could be timed.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPResponse, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

_CONNECT_SECONDS = 5.0


class DeadlineAdapter(HTTPAdapter):
    """Makes connections that end at their read timeout in all, and never retries by itself."""

    def __init__(self) -> None:
        super().__init__(max_retries=0)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        """Make the pools of these connections."""
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}


class LateAnswerError(OSError):
    """The answer was not whole in time."""


class LargeAnswerError(OSError):
    """The answer has more bytes than are read of it."""


@contextlib.contextmanager
def sent(
    method: str, url: str, *, seconds: float, trust_env: bool = False, **options: Any
) -> Iterator[requests.Response]:
    """Send a request once, and yield its answer with the body still to be read.

    Nothing of the environment, such as a proxy or a password, has a part in it unless `trust_env`,
    and no redirect is followed. Errors: those of requests and urllib3, when the head does not come
    in `seconds`.
    """
    with requests.Session() as session:
        session.trust_env = trust_env
        session.mount("https://", DeadlineAdapter())
        session.mount("http://", DeadlineAdapter())
        timeout = (min(_CONNECT_SECONDS, seconds), seconds)
        with session.request(
            method, url, timeout=timeout, allow_redirects=False, stream=True, **options
        ) as response:
            yield response


def whole_body(response: requests.Response, *, ends: float, max_bytes: int) -> bytes:
    """Return the body of an answer. Errors: LateAnswerError, LargeAnswerError, those of urllib3.

    `ends` is of the monotonic clock, s. A read of a fixed size would wait for all of it.
    """
    body = bytearray()
    while piece := response.raw.read1(1 << 16, decode_content=True):
        body += piece
        if time.monotonic() > ends:
            raise LateAnswerError("the answer was not whole in time")
        if len(body) > max_bytes:
            body.clear()  # whoever keeps the error keeps this frame
            raise LargeAnswerError(f"the answer exceeds {max_bytes >> 20} MiB")
    if time.monotonic() > ends:  # headers that were cut at the deadline read as an empty answer
        raise LateAnswerError("the answer did not come in time")
    return bytes(body)


@contextlib.contextmanager
def _cut_after(seconds: object, connection: socket.socket | None) -> Iterator[None]:
    """End the connection from a second thread, so that a read that waits on it returns."""
    if connection is None or not isinstance(seconds, int | float):
        yield
        return
    timer = threading.Timer(seconds, _cut, (connection,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def end_within(stack: contextlib.ExitStack, connection: socket.socket, seconds: object) -> None:
    """End the connection after so many seconds unless the stack closes before.

    By a descriptor of its own: TLS takes away that of the connection.
    """
    copy = stack.enter_context(connection.dup())
    stack.enter_context(_cut_after(seconds, copy))


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # Not the method of SSLSocket: that would make a read go on as one of plain text.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Connection(HTTPConnection):
    def getresponse(self) -> HTTPResponse:  # type: ignore[override] # as urllib3 has it
        with _cut_after(self.timeout, self.sock):
            return super().getresponse()


class _SecureConnection(HTTPSConnection):
    def connect(self) -> None:
        with contextlib.ExitStack() as self._handshake:
            super().connect()

    def _new_conn(self) -> socket.socket:
        connection = super()._new_conn()
        end_within(self._handshake, connection, self.timeout)
        return connection

    def getresponse(self) -> HTTPResponse:  # type: ignore[override] # as urllib3 has it
        with _cut_after(self.timeout, self.sock):
            return super().getresponse()


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection
