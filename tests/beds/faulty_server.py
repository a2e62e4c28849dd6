"""A server on loopback that misbehaves by a script, before a real Prometheus or instead of one."""

import contextlib
import gzip
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

POWER = "DCGM_FI_DEV_POWER_USAGE"


class FaultyServer(ThreadingHTTPServer):
    """Answers each request by the next behaviour of its script; the last one stays."""

    daemon_threads = True

    def __init__(self, script: Sequence["Behaviour"], names: Sequence[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = list(script)
        self.names = names
        self.stop = threading.Event()
        self.asked: list[tuple[str, dict[str, str], dict[str, str]]] = []
        """Path, query and headers of every request, in order."""

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"

    def ranges(self) -> list[dict[str, str]]:
        """The range queries that were asked."""
        return [query for path, query, _headers in self.asked if path.endswith("query_range")]

    def handle_error(self, *_arguments: object) -> None:
        """Say nothing: clients that give up are what is tested."""


class _Handler(BaseHTTPRequestHandler):
    server: FaultyServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        self.server.asked.append((parts.path, query, dict(self.headers)))
        behave: Behaviour = answers(list(self.server.names))
        if not (self.server.names and parts.path.endswith("__name__/values")):
            script = self.server.script
            behave = script.pop(0) if len(script) > 1 else script[0]
        with contextlib.suppress(ConnectionError):
            behave(self)

    def whole(self, status: int, body: bytes, headers: Sequence[tuple[str, str]] = ()) -> None:
        """Send a well-formed answer."""
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        return


Behaviour = Callable[[_Handler], None]


@contextmanager
def faulty_server(*script: Behaviour, names: Sequence[str] = (POWER,)) -> Iterator[FaultyServer]:
    """The server. With `names` it tells these metrics well, and misbehaves when asked further."""
    server = FaultyServer(script, names)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.stop.set()
        server.shutdown()
        server.server_close()
        thread.join()


def says(status: int, body: bytes = b"", *headers: tuple[str, str]) -> Behaviour:
    """Answer that."""
    return lambda handler: handler.whole(status, body, headers)


def answers(data: Any, **more: Any) -> Behaviour:
    """Answer a success with that `data`, and `more` beside it."""
    return says(200, json.dumps({"status": "success", "data": data, **more}).encode())


def answers_series(*series: Any, kind: str = "matrix", **more: Any) -> Behaviour:
    """Answer these series."""
    return answers({"resultType": kind, "result": list(series)}, **more)


def asks_upstream(url: str) -> Behaviour:
    """Answer what the server at `url` answers."""

    def behave(handler: _Handler) -> None:
        try:
            with urllib.request.urlopen(url + handler.path, timeout=30) as response:
                handler.whole(response.status, response.read())
        except urllib.error.HTTPError as error:
            handler.whole(error.code, error.read())

    return behave


def hangs(handler: _Handler) -> None:
    """Take the question and say nothing."""
    handler.server.stop.wait(60)


def resets(handler: _Handler) -> None:
    """Close the connection without an answer."""
    handler.close_connection = True


def _drip(handler: _Handler, piece: bytes) -> None:
    while not handler.server.stop.wait(0.05):
        handler.wfile.write(piece)
        handler.wfile.flush()


def drips_body(handler: _Handler) -> None:
    """Send a body of which a byte comes every 50 ms, for ever."""
    handler.send_response(200)
    handler.end_headers()
    _drip(handler, b" ")


def drips_headers(handler: _Handler) -> None:
    """Send a header of which a byte comes every 50 ms, for ever."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    _drip(handler, b"x")


def redirects_and_drips(handler: _Handler) -> None:
    """Redirect with a body that never ends."""
    handler.send_response(302)
    handler.send_header("Location", "http://127.0.0.1:9/")
    handler.end_headers()
    _drip(handler, b" ")


def truncates(handler: _Handler) -> None:
    """Promise a longer body than is sent."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"status":"success","data":')


def gzip_bomb(handler: _Handler) -> None:
    """Send 1 MB that unpack to 1 GB of spaces."""
    member = gzip.compress(b" " * (16 << 20))
    handler.send_response(200)
    handler.send_header("Content-Encoding", "gzip")
    handler.end_headers()
    for _part in range(64):
        handler.wfile.write(member)


def broken_gzip(handler: _Handler) -> None:
    """Say gzip and send none."""
    handler.whole(200, b"no gzip at all", [("Content-Encoding", "gzip")])
