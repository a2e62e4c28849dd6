"""What a real server makes of raw requests: uploads, other names, other pages, many sessions."""

import http.client
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from beds.raw_requests import answer
from browser.bed import TRIMTAB, Server, running_server
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

SESSIONS, KEPT = 60, 128
LIMIT = 256
LIMITED = ("/bin/sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", TRIMTAB)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that listens as it does in a container, published on loopback."""
    folder = tmp_path_factory.mktemp("raw")
    with running_server(
        f"duckdb:///{folder}/t.duckdb",
        folder,
        TRIMTAB_SERVE_HOST="0.0.0.0",
        TRIMTAB_ACCESS_MODE="open",
    ) as running:
        yield running


@contextmanager
def session(server: Server) -> Iterator[ClientConnection]:
    """Open a session as a tab does, wait until its page was drawn, and close it at the end."""
    address = f"ws://{urlsplit(server.base).netloc}/_stcore/stream"
    # No pings: their thread and this one would both wait for the thread that reads, where
    # CPython 3.11 can fail (`Thread.join` with a limit of time, called by two threads).
    with connect(
        address,
        subprotocols=[Subprotocol("streamlit")],
        max_queue=None,
        open_timeout=120,
        ping_interval=None,
    ) as opened:
        asked, told = BackMsg(), ForwardMsg()
        asked.rerun_script.query_string = ""
        opened.send(asked.SerializeToString())
        while told.WhichOneof("type") != "script_finished":
            told.ParseFromString(opened.recv(timeout=120, decode=False))
        yield opened


def descriptors(server: Server) -> int:
    """How many descriptors the server holds now."""
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def test_no_file_is_taken(server: Server) -> None:
    """The refusal comes before the body: only the head of 200 MB is ever sent."""
    with session(server):
        for method in ("PUT", "POST", "DELETE"):
            status, said = answer(
                server,
                "/_stcore/upload_file/0/0",
                method=method,
                Content_Length=str(200 << 20),
                Content_Type="multipart/form-data; boundary=x",
            )
            assert (status, said) == (405, "nothing can be sent to this dashboard but to its API\n")


@pytest.mark.parametrize("path", ["/", "/jobs", "/api/v1/stop", "/nowhere", "/livez"])
def test_every_answer_says_what_a_browser_may_load(server: Server, path: str) -> None:
    """Nothing of other sites, no inline script but ours, no frame around it."""
    parts = urlsplit(server.base)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    connection.request("GET", path)
    headers = connection.getresponse().headers
    connection.close()
    policy = headers["Content-Security-Policy"].split("; ")
    rules = dict(rule.partition(" ")[::2] for rule in policy)
    assert (rules["default-src"], rules["object-src"]) == ("'self'", "'none'")
    assert rules["frame-ancestors"] == "'none'"
    scripts = set(rules["script-src"].split())
    assert not {"'unsafe-inline'", "'unsafe-eval'", "*", "https:"} & scripts
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_a_name_that_was_made_to_lead_here_is_told_the_setting(server: Server) -> None:
    """Pages, scripts and sockets; the paths of machines answer by whatever name."""
    for path in ("/", "/jobs", "/_stcore/health", "/_stcore/stream", "/static/js/x.js"):
        status, said = answer(server, path, Host="evil.example:8501")
        assert status == 421
        assert "access.public_url" in said
    for path in ("/livez", "/readyz", "/metrics"):
        assert answer(server, path, Host="10.244.0.7:8501")[0] == 200
        assert answer(server, path, Host="trimtab:8501")[0] == 200
    assert answer(server)[0] == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://localhost:1", "http://127.0.0.1", "null"]
)
def test_a_page_of_another_site_is_refused_without_asking_the_network(
    server: Server, origin: str
) -> None:
    """No socket, and no page: Streamlit, which would look its own address up, never hears of it."""
    address = f"ws://{urlsplit(server.base).netloc}/_stcore/stream"
    with ExitStack() as stack, pytest.raises(InvalidStatus) as refused:
        stack.enter_context(connect(address, origin=Origin(origin), open_timeout=60))
    assert refused.value.response.status_code == 403
    assert answer(server, "/_stcore/health", Origin=origin)[0] == 403
    with connect(address, origin=Origin(server.base), open_timeout=60):
        pass
    assert "origin=" not in server.log.read_text(encoding="utf-8")


def test_closed_tabs_hold_few_descriptors(server: Server) -> None:
    """A session costs its socket and a loop; of closed ones Streamlit keeps 128 at most."""
    with session(server):
        pass
    before = descriptors(server)
    for _ in range(3):
        with ExitStack() as opened:
            for _ in range(SESSIONS):
                opened.enter_context(session(server))
        give_up_at = time.monotonic() + 120
        while descriptors(server) > before + 3 * KEPT + 10 and time.monotonic() < give_up_at:
            time.sleep(0.1)
        assert descriptors(server) <= before + 3 * KEPT + 10


def open_until_refused(address: str, opened: ExitStack) -> str:
    """Open sessions until three in a row are refused; give the refusal of the last.

    What a request holds for a moment counts as well, so one refusal alone may be of that moment.
    """
    refusals: list[str] = []
    for _ in range(LIMIT):
        try:
            opened.enter_context(connect(address, open_timeout=60))
        except InvalidStatus as refused:
            refusals.append(str(refused))
            if len(refusals) == 3:
                return refusals[-1]
            time.sleep(0.2)
        else:
            refusals.clear()
    return ""


def test_more_tabs_than_descriptors_are_refused_with_a_reason(tmp_path: Path) -> None:
    """Health answers, the store stays open, and the room of closed tabs is used again."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with running_server(url, tmp_path, program=LIMITED) as server:
        address = f"ws://{urlsplit(server.base).netloc}/_stcore/stream"
        with ExitStack() as opened:
            assert "403" in open_until_refused(address, opened)
            assert descriptors(server) < LIMIT - 32
            status, said = answer(server)
            assert status == 503
            assert f"of {LIMIT} descriptors are in use" in said
            assert answer(server, "/readyz")[0] == 200
        give_up_at = time.monotonic() + 120
        while answer(server)[0] != 200 and time.monotonic() < give_up_at:
            time.sleep(0.1)
        with session(server):
            pass
        assert server.stop() == 0
        log = server.log.read_text(encoding="utf-8")
        assert "Too many open files" not in log
        assert "Traceback" not in log
