"""HTTP connections whose wait for the head of an answer ends, however slowly it comes.

A timeout of a socket is per read: a server that drips its headers byte by byte would hold a call
for hours, before there is a body whose reading could be timed.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPResponse, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection


class DeadlineAdapter(HTTPAdapter):
    """Makes connections that end at their read timeout in all, and never retries by itself."""

    def __init__(self) -> None:
        super().__init__(max_retries=0)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        """Make the pools of these connections."""
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}


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


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # Not the method of SSLSocket: that would make a read go on as one of plain text.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Connection(HTTPConnection):
    def getresponse(self) -> HTTPResponse:  # type: ignore[override] # as urllib3 has it
        with _cut_after(self.timeout, self.sock):
            return super().getresponse()


class _SecureConnection(HTTPSConnection):
    def getresponse(self) -> HTTPResponse:  # type: ignore[override] # as urllib3 has it
        with _cut_after(self.timeout, self.sock):
            return super().getresponse()


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection
