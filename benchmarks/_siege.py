"""A server under everything at once: clients, sessions, cycles back to back, half-open requests.

Half-open requests come from other loopback addresses than people do, as an attacker's would.
"""

import json
import socket
import statistics
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from streamlit.proto.BackMsg_pb2 import BackMsg
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from benchmarks.pages import Server, served

CLIENTS, SESSIONS, HALF_OPEN, SECONDS = 50, 200, 500, 120.0
_ADMIN, _READER = "admin@example", "reader@example"
_PATHS = (
    "findings?limit=50",
    "jobs?limit=50",
    "nodes?limit=50",
    "plan",
)
_PROBES = ("livez", "readyz")
_TIMEOUT = 60.0
SETTINGS = {
    "TRIMTAB_ACCESS_MODE": "proxy",
    "TRIMTAB_ACCESS_PROXY_ADDRESSES": "127.0.0.1",
    "TRIMTAB_ACCESS_ADMINS": _ADMIN,
    "TRIMTAB_ACCESS_VIEWERS": _READER,
    "TRIMTAB_SERVE_CYCLE_MINUTES": "0.001",
    # Nobody listens there: a cycle forecasts and plans what is stored, and names the source.
    "TRIMTAB_PROMETHEUS_URL": "http://127.0.0.1:9",
}


@dataclass(slots=True)
class Answers:
    """Times of answers by kind, s, and how many had which status; 0 of none."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(
        self, kind: str, base: str, path: str, *, person: str = "", method: str = "GET"
    ) -> None:
        """Send a request and note its answer."""
        headers = {"X-Forwarded-User": person} if person else {}
        body = None
        if method == "POST":
            headers["Content-Type"] = "application/json"
            body = json.dumps({"reason": "siege"}).encode()
        request = urllib.request.Request(  # noqa: S310 - loopback
            f"{base}/{path}", data=body, headers=headers, method=method
        )
        started = time.perf_counter()
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310
                answer.read()
                status = answer.status
        except urllib.error.HTTPError as error:
            status = error.code
        except OSError:
            status = 0
        took = time.perf_counter() - started
        with self.lock:
            self.seconds.setdefault(kind, []).append(took)
            self.statuses[kind, status] += 1


def siege(server: Server, answers: Answers, seconds: float = SECONDS) -> None:
    """Let everybody come at once for so many seconds."""
    over = threading.Event()
    threads = [
        *(
            threading.Thread(target=_client, args=(server, answers, n, over))
            for n in range(CLIENTS)
        ),
        threading.Thread(target=_probe, args=(server, answers, over)),
        threading.Thread(target=_stop_and_resume, args=(server, answers, over)),
        *(threading.Thread(target=_half_open, args=(server, n, over)) for n in range(10)),
        *(threading.Thread(target=_sessions, args=(server, answers, over)) for _ in range(10)),
    ]
    for thread in threads:
        thread.start()
    over.wait(seconds)
    over.set()
    for thread in threads:
        thread.join()


def _client(server: Server, answers: Answers, number: int, over: threading.Event) -> None:
    turn = number
    while not over.wait(0.5):
        path = f"api/v1/{_PATHS[turn % len(_PATHS)]}"
        answers.ask("API", server.base, path, person=_READER)
        turn += 1


def _probe(server: Server, answers: Answers, over: threading.Event) -> None:
    while not over.wait(0.2):
        for path in _PROBES:
            answers.ask("probe", server.base, path)


def _stop_and_resume(server: Server, answers: Answers, over: threading.Event) -> None:
    while not over.wait(1.0):
        for kind, method in (("kill switch", "POST"), ("resume", "DELETE")):
            answers.ask(kind, server.base, "api/v1/stop", person=_ADMIN, method=method)


def _half_open(server: Server, number: int, over: threading.Event) -> None:
    """Hold a tenth of the half-open requests; what the server closes is opened again."""
    port = int(server.base.rpartition(":")[2])
    sockets: list[socket.socket] = []
    while not over.wait(0.5):
        sockets = [one for one in sockets if _is_open(one)]
        while len(sockets) < HALF_OPEN // 10 and not over.is_set():
            one = socket.socket()
            one.bind((f"127.0.1.{10 + number}", 0))
            one.settimeout(2.0)
            try:
                one.connect(("127.0.0.1", port))
                one.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
                one.setblocking(False)
            except OSError:
                one.close()
                break
            sockets.append(one)
    for one in sockets:
        one.close()


def _is_open(one: socket.socket) -> bool:
    try:
        closed = one.recv(1) == b""
    except BlockingIOError:
        return True
    except OSError:
        closed = True
    if closed:
        one.close()
    return not closed


def _sessions(server: Server, answers: Answers, over: threading.Event) -> None:
    """Hold a tenth of the sessions, each with a page that ran."""
    with ExitStack() as stack:
        for _ in range(SESSIONS // 10):
            if over.is_set():
                return
            started = time.perf_counter()
            try:
                stack.enter_context(_session(server))
                status = 200
            except (OSError, WebSocketException):
                status = 0
            with answers.lock:
                answers.seconds.setdefault("session", []).append(time.perf_counter() - started)
                answers.statuses["session", status] += 1
        over.wait()


@contextmanager
def _session(server: Server) -> Iterator[None]:
    with connect(
        server.base.replace("http", "ws", 1) + "/_stcore/stream",
        max_size=None,
        subprotocols=[Subprotocol("streamlit")],
        origin=Origin(server.base),
        additional_headers={"X-Forwarded-User": _READER},
        open_timeout=_TIMEOUT,
    ) as stream:
        request = BackMsg()
        request.rerun_script.page_name = "findings"
        stream.send(request.SerializeToString())
        stream.recv(timeout=_TIMEOUT)
        yield


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def section(path: Path) -> list[str]:
    """Return the lines of a siege of a server on this store."""
    answers = Answers()
    with TemporaryDirectory() as place, ExitStack() as stack:
        # Its own: a siege that is killed leaves nothing stopped.
        settings = SETTINGS | {"TRIMTAB_APPLY_STOP_FILE": f"{place}/STOP"}
        server = stack.enter_context(served(path, Path(place), settings))
        spent, cycles = server.cpu_seconds(), _cycles(Path(place))
        siege(server, answers)
        spent, cycles = server.cpu_seconds() - spent, _cycles(Path(place)) - cycles
    errors = sum(count for (_kind, status), count in answers.statuses.items() if status >= 500)
    none = sum(count for (_kind, status), count in answers.statuses.items() if not status)
    lines = [
        f"## {CLIENTS} clients, {SESSIONS} sessions, {HALF_OPEN} half-open requests",
        "",
        (
            f"For {SECONDS:g} s, while cycles run one after the other ({cycles} ended; "
            f"{spent:.0f} CPU s of the server). Status 5xx: {errors}; no answer: {none}."
        ),
        "",
        "| | answers | p50, s | p99, s | longest, s | statuses |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for kind, seconds in sorted(answers.seconds.items()):
        statuses = ", ".join(
            f"{status} × {count}"
            for (of, status), count in sorted(answers.statuses.items())
            if of == kind
        )
        lines.append(
            f"| {kind} | {len(seconds)} | {statistics.median(seconds):.2f} "
            f"| {percentile(seconds, 0.99):.2f} | {max(seconds):.2f} | {statuses} |"
        )
    return [*lines, ""]


def _cycles(place: Path) -> int:
    return (place / "server.log").read_text(encoding="utf-8", errors="replace").count(" ended in ")
