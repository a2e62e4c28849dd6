"""What a server takes while nobody asks it anything: CPU time of its process over a minute."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from streamlit.proto.BackMsg_pb2 import BackMsg
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from benchmarks.pages import Server

SECONDS, SETTLED = 60.0, 15.0
GOAL = 0.01
_START_SECONDS = 1800.0
_KINDS = {"serve, empty store": "serve", "demo, after its first plan": "demo"}
_PAGES = {"no page open": None, "overview open": "", "findings open": "findings"}


@contextmanager
def started(command: str) -> Iterator[Server]:
    """Run a command that serves, in folders of its own, until it has nothing to begin with."""
    program = str(Path(sys.executable).with_name("trimtab"))
    with TemporaryDirectory() as place, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        log = Path(place) / "said"
        environ = {
            name: text for name, text in os.environ.items() if not name.startswith("TRIMTAB")
        }
        with log.open("wb") as sink:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [program, "--store", f"duckdb:///{place}/t.duckdb", command, "--port", str(port)],
                cwd=place, env=environ | {"XDG_STATE_HOME": place}, stdout=sink, stderr=sink,
            )  # fmt: skip
        base = f"http://127.0.0.1:{port}"
        try:
            give_up_at = time.monotonic() + _START_SECONDS
            while not _is_ready(base) or (command == "demo" and b"3/3" not in log.read_bytes()):
                if process.poll() is not None or time.monotonic() > give_up_at:
                    raise RuntimeError(f"it did not come up: {log.read_text()[-2000:]}")
                time.sleep(0.5)
            yield Server(base=base, log=log, pid=process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def _is_ready(base: str) -> bool:
    try:
        with urllib.request.urlopen(f"{base}/livez", timeout=5):  # noqa: S310 - loopback
            return True
    except OSError:
        return False


@contextmanager
def tab(server: Server, page: str | None) -> Iterator[None]:
    """Hold a page open as a tab does; none where it is None."""
    if page is None:
        yield
        return
    address = server.base.replace("http", "ws", 1) + "/_stcore/stream"
    with connect(
        address,
        max_size=None,
        max_queue=None,
        subprotocols=[Subprotocol("streamlit")],
        origin=Origin(server.base),
        open_timeout=_START_SECONDS,
    ) as stream:
        request = BackMsg()
        request.rerun_script.page_name = page
        stream.send(request.SerializeToString())
        yield


def share(server: Server) -> float:
    """Return the share of a core that the server takes, once it has settled."""
    time.sleep(SETTLED)
    spent, began = server.cpu_seconds(), time.monotonic()
    time.sleep(SECONDS)
    return (server.cpu_seconds() - spent) / (time.monotonic() - began)


def section() -> list[str]:
    """Return the lines of servers that nobody asks anything."""
    lines = [
        "## A server that nobody asks",
        "",
        (
            f"`python -m benchmarks.load --idle`: CPU time over {SECONDS:g} s. A demo is not idle: "
            f"its clock runs 60 times as fast. At most {GOAL:.0%} of a core: _met_."
        ),
        "",
        f"| | {' | '.join(_PAGES)} |",
        f"|---|{'---:|' * len(_PAGES)}",
    ]
    idle = []
    for title, command in _KINDS.items():
        shares = []
        with started(command) as server:
            for page in _PAGES.values():
                with tab(server, page):
                    shares.append(share(server))
        idle += shares if command == "serve" else []
        lines.append(f"| {title} | {' | '.join(f'{one:.1%}' for one in shares)} |")
    lines[2] = lines[2].replace("_met_", "met" if max(idle) <= GOAL else "missed")
    return [*lines, ""]
