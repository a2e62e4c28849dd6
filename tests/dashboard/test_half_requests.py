"""Requests that never end, end twice or end nowhere: what a started server makes of them."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from beds.ports import free_port
from beds.raw_requests import answer
from browser.bed import TRIMTAB, Server, running_server
from websockets.asyncio.client import connect

from dashboard.web.server import connections
from dashboard.web.server.connections import protocol_for
from data.settings.access import AccessSettings

LIMIT = 256
LIMITED = ("/bin/sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", TRIMTAB)
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /api/v1/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n{"
HALVES = {"nothing": b"", "a letter": b"G", "half a head": HEAD, "half a body": POST}
PATIENCE = 120
_LOG_BYTES = 200_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that may open few descriptors."""
    folder = tmp_path_factory.mktemp("half")
    with running_server(f"duckdb:///{folder}/t.duckdb", folder, program=LIMITED) as running:
        yield running


@contextmanager
def connected(server: Server, sent: bytes) -> Iterator[socket.socket]:
    """A connection on which this was sent."""
    parts = urlsplit(server.base)
    with socket.create_connection((str(parts.hostname), parts.port), timeout=PATIENCE) as link:
        link.sendall(sent)
        yield link


def is_closed(link: socket.socket) -> bool:
    """Wait for the end of what the server sends; whether it has closed the connection."""
    try:
        while link.recv(65536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("half", HALVES)
def test_many_half_requests_keep_nobody_out(server: Server, half: str) -> None:
    """More than there are descriptors: the oldest are closed, probes, pages and stop answer."""
    with ExitStack() as stack:
        links = [stack.enter_context(connected(server, HALVES[half])) for _ in range(2 * LIMIT)]
        for path in ("/livez", "/readyz", "/", "/api/v1/stop", "/api/v1/findings"):
            assert answer(server, path)[0] == 200, path
        assert all(is_closed(link) for link in links[: LIMIT // 2])
        text = b'{"reason": "x"}'
        for method, body in (("POST", text), ("DELETE", b"")):
            status, _said = answer(
                server, "/api/v1/stop", method=method, body=body, X_Trimtab_By="Robin",
                Content_Type="application/json", Content_Length=str(len(body)),
            )  # fmt: skip
            assert status == 200
    assert server.log.stat().st_size < _LOG_BYTES


@pytest.mark.slow_end
@pytest.mark.parametrize("half", HALVES)
def test_a_half_request_is_given_up(server: Server, half: str) -> None:
    """A single one, too, and one that goes on by a byte now and then."""
    with connected(server, HALVES[half]) as link, connected(server, HEAD) as other:
        other.settimeout(1)
        for number in range(PATIENCE):
            try:
                other.sendall(b"X" if number else b"X-Name: ")
                if other.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            pytest.fail("a dripped head is never given up")
        assert is_closed(link)


TWICE = {
    "both": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "both, in another order": b"transfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "another coding": b"Content-Length: 5\r\nTransfer-Encoding: identity\r\n\r\nhello",
    "a coding before 1.1": b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
}
_SECOND = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("path", ["/", "/livez", "/metrics", "/api/v1/stop", "/mcp"])
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("lengths", TWICE)
def test_a_body_of_two_lengths_is_refused_and_the_connection_closed(
    server: Server, lengths: str, method: str, path: str
) -> None:
    """RFC 9112, 6.1 and 6.3: what follows is never read as a request of its own."""
    version = "1.0" if "before" in lengths else "1.1"
    first = f"{method} {path} HTTP/{version}\r\nHost: localhost\r\n".encode()
    with connected(server, first + TWICE[lengths] + _SECOND) as link:
        said = b""
        try:
            while data := link.recv(65536):
                said += data
        except ConnectionResetError:
            pass
    assert said.count(b"HTTP/1.") == 1, said
    assert said.split()[1] in (b"400", b"501"), said


@pytest.mark.parametrize("path", ["/nowhere", "/api/v1/stop"])
def test_a_request_that_is_refused_unread_ends_its_connection(server: Server, path: str) -> None:
    """A body that nobody read is not taken for another request."""
    sent = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(_SECOND)}\r\n\r\n"
    with connected(server, sent.encode() + _SECOND) as link:
        said = b""
        while data := link.recv(65536):
            said += data
    assert said.count(b"HTTP/1.") == 1


def test_the_connection_of_a_page_outlives_the_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A WebSocket has no body to end: pages lost theirs after the seconds of a body."""
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.05)
    port, told = free_port(), protocol_for(AccessSettings())

    async def echo(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (event := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": event["text"]})

    async def talk() -> None:
        config = uvicorn.Config(echo, host="127.0.0.1", port=port, http=told, lifespan="off")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        async with connect(f"ws://127.0.0.1:{port}/") as link:
            for word in ("first", "after the deadline"):
                await link.send(word)
                assert await link.recv() == word
                await asyncio.sleep(0.2)
        server.should_exit = True
        await serving

    asyncio.run(talk())


BROKEN = {
    "at once": (b"-2\r\n{}\r\n0\r\n\r\n",),
    "without line ends": (b"2\n{}\n0\n\n",),
    "after the refusal": (b"", b"-2\r\n{}\r\n"),
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=list(BROKEN))
def test_a_broken_body_leaves_no_traceback(server: Server, sent: tuple[bytes, ...]) -> None:
    """One line of the log says it: strangers could fill the disk with tracebacks."""
    before = server.log.stat().st_size
    head = b"POST /api/v1/stop HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connected(server, head + sent[0]) as link:
        for part in sent[1:]:
            link.recv(65536)
            link.sendall(part)
        assert is_closed(link)
    assert answer(server, "/livez")[0] == 200
    assert b"Traceback" not in server.log.read_bytes()[before:]
