"""Messages of the page's socket that no browser sends: presses by hand, of buttons shown or not."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from beds.api_clients import fill_two_owners
from beds.raw_requests import answer
from browser.bed import Server, running_server
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

APPROVER, VIEWER, OWNER = "ann", "vera", "search"
PAGES = ("findings", "overview", "jobs", "settings", "audit", "new_job")
HUGE = "9" * 400
AGAIN = 4
ANSWERS: tuple[Any, ...] = (
    None, 7, "x", [], [1], {"nonce": 1}, {"nonce": "a", "done": "x"}, {"nonce": "b", "done": None},
    {"nonce": "c", "done": 1e308}, {"nonce": "d", "refused": 5}, {"nonce": "e", "refused": [{}]},
    {"nonce": "f", "done": [], "by": []}, {"nonce": {}, "done": {}}, {"nonce": "g", "by": "cfo"},
    {"nonce": "h", "done": 10**30, "refused": ["<script>"] * 50}, {"nonce": "\ud800", "done": 1},
)  # fmt: skip
RAW = (
    "", "[", "null", "[]", f'{{"answers": {{"nonce": "r", "done": {HUGE}}}}}',
    '{"answers": {"nonce": "s", "done": NaN}}', '{"answers": {"nonce": "t", "done": Infinity}}',
    '{"answers": {"nonce": "u", "nonce": "v"}}', "[" * 50_000, '{"answers": ' + "[" * 50_000,
    f'{{"answers": {{"nonce": "w", "done": {"9" * 5000}}}}}',
)  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server behind a proxy, with a finding of each of two owners."""
    folder = tmp_path_factory.mktemp("posted")
    url = f"duckdb:///{folder}/t.duckdb"
    fill_two_owners(url)
    access = {
        "MODE": "proxy", "PROXY_ADDRESSES": "127.0.0.1", "DEFAULT_ROLE": "none",
        "APPROVERS": APPROVER, "VIEWERS": VIEWER, "OWNERS": OWNER,
    }  # fmt: skip
    settings = {f"TRIMTAB_ACCESS_{name}": text for name, text in access.items()}
    with running_server(url, folder, **settings) as running:
        yield running


class Tab:
    """A session of somebody; `shown` are the ids of the components that its pages sent."""

    def __init__(self, link: ClientConnection) -> None:
        self._link = link
        self.shown: set[str] = set()
        self.complaints: list[str] = []

    def ask(self, page: str = "findings", query: str = "", **values: str) -> None:
        """Ask for a page with these values of components, and wait until its script has run."""
        message, reply = BackMsg(), ForwardMsg()
        message.rerun_script.page_name = page
        message.rerun_script.query_string = query
        for name, value in values.items():
            state = message.rerun_script.widget_states.widgets.add()
            state.id, state.json_value = name, value
        self._link.send(message.SerializeToString())
        while reply.WhichOneof("type") != "script_finished" or reply.script_finished == 2:
            reply.ParseFromString(self._link.recv(timeout=120, decode=False))
            element = reply.delta.new_element
            if element.WhichOneof("type") == "bidi_component":
                self.shown.add(element.bidi_component.id)
            if element.WhichOneof("type") == "exception":
                self.complaints.append(element.exception.message)


@contextmanager
def tab(server: Server, name: str) -> Iterator[Tab]:
    """Open a session as somebody."""
    with connect(
        f"ws://{urlsplit(server.base).netloc}/_stcore/stream",
        subprotocols=[Subprotocol("streamlit")],
        additional_headers={"X-Forwarded-User": name},
        max_size=None,
        max_queue=None,
        open_timeout=120,
        ping_interval=None,
    ) as link:
        yield Tab(link)


def states(server: Server) -> dict[str, str]:
    """The states of both findings, and the number of entries of the record."""
    status, text = answer(server, "/api/v1/findings", X_Forwarded_User=VIEWER)
    assert status == 200, text
    state_by_finding = {row["finding"]: row["state"] for row in json.loads(text)["items"]}
    status, text = answer(server, "/api/v1/audit", X_Forwarded_User=VIEWER)
    assert status == 200, text
    return state_by_finding | {"entries": str(len(json.loads(text)["items"]))}


def tracebacks(server: Server) -> int:
    """The number of tracebacks in the log."""
    return server.log.read_text(encoding="utf-8").count("Traceback")


def test_no_press_by_hand_decides_or_breaks_a_page(server: Server) -> None:
    """Values of any shape in the place of what a button tells: no decision, no error, no trace."""
    before = states(server)
    with tab(server, APPROVER) as mine:
        for page in PAGES:
            mine.ask(page)
        mine.ask("findings", "finding=TT-1")
        assert mine.shown
        for value in ANSWERS:
            pressed = json.dumps({"answers": value})
            mine.ask("findings", "finding=TT-1", **dict.fromkeys(mine.shown, pressed))
    assert mine.complaints == []
    assert states(server) == before
    assert tracebacks(server) == 0


def test_messages_that_nothing_reads_fill_no_log(server: Server) -> None:
    """Streamlit's own reading fails for whoever sent it; a few tracebacks say so, not each."""
    before, sent = states(server), 0
    with tab(server, VIEWER) as mine:
        mine.ask("findings", "finding=TT-1")
        for _again in range(AGAIN):
            for value in RAW:
                mine.ask("findings", **dict.fromkeys([*mine.shown, ""], value))
                sent += 1
        assert mine.complaints
    with tab(server, VIEWER) as mine:
        mine.ask("findings", "finding=TT-1")
        assert mine.complaints == []
    assert states(server) == before
    assert tracebacks(server) <= sent / 3


@pytest.mark.parametrize("name", [VIEWER, OWNER, "stranger"])
def test_buttons_that_another_was_shown_press_nothing(server: Server, name: str) -> None:
    """Their ids, posted by who may not decide, and ids that nobody was shown."""
    before = states(server)
    with tab(server, APPROVER) as theirs, tab(server, name) as mine:
        theirs.ask("findings", "finding=TT-2")
        foreign = {*theirs.shown, "$$ID-x-approve"}
        press = json.dumps({"answers": {"nonce": "n", "done": 1, "refused": [], "by": APPROVER}})
        for page in PAGES:
            mine.ask(page, "finding=TT-2", **dict.fromkeys(foreign, press))
        assert mine.complaints == []
    assert states(server) == before
