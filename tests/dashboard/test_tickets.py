"""A ticket of a finding: opened once, in the form of its system, and its number kept."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from beds.apply_bench import START, fill
from beds.stores import filled
from factories import make_recommendation

from dashboard.notify.deliver import Notifier
from dashboard.notify.tickets import ticket_of
from dashboard.resources.rows import record_of
from data.base.errors import SettingsError
from data.records.recommendations import Decision
from data.settings.access import AccessSettings, NotifySettings
from data.settings.all_settings import Settings
from data.store import Store

JIRA, SERVICENOW = b'{"id":"1","key":"OPS-12"}', b'{"result":{"number":"INC0010002"}}'
HOSTILE = "[x|https://evil.example] {noformat} *b* \u202e"


@dataclass
class Desk:
    """A ticket system: what it answers, and what it was sent."""

    body: bytes = JIRA
    status: int = 201
    url: str = ""
    asked: list[tuple[dict[str, str], Any]] = field(default_factory=list)


@contextmanager
def running_desk() -> Iterator[Desk]:
    """Serve a ticket system on a free loopback port."""
    desk = Desk()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            desk.asked.append(({name.lower(): value for name, value in self.headers.items()},
                               json.loads(body)))  # fmt: skip
            self.send_response(desk.status)
            self.send_header("Content-Length", str(len(desk.body)))
            self.end_headers()
            self.wfile.write(desk.body)

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    desk.url = f"http://127.0.0.1:{server.server_address[1]}/issue"
    try:
        yield desk
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A ticket system."""
    with running_desk() as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with one recommendation."""
    with filled(f"duckdb:///{tmp_path}/t.duckdb", fill) as opened:
        yield opened


def settings_of(desk: Desk, **notify: Any) -> Settings:
    """Settings by which approvals open tickets there."""
    given = {"ticket_url": desk.url, "ticket_project": "OPS", "ticket_token": "SECRET"} | notify
    return Settings(
        access=AccessSettings(public_url="https://t.example"), notify=NotifySettings(**given)
    )


def approve(store: Store, comment: str = "go") -> None:
    """Something that opens a ticket."""
    digest = make_recommendation().digest
    store.append_decision(
        digest=digest, decision=Decision.APPROVED, by="Robin", at=START, comment=comment
    )


def deliver(store: Store, settings: Settings, *, later: timedelta = timedelta()) -> None:
    """Send all that is due."""
    now = datetime(2026, 1, 8, tzinfo=UTC) + later
    told = Notifier(store=store, settings=lambda: settings, clock=lambda: now)
    while told.deliver_once():
        pass


@pytest.mark.parametrize(
    ("kind", "answer", "number"),
    [("jira", JIRA, "OPS-12"), ("servicenow", SERVICENOW, "INC0010002")],
)
def test_an_approval_opens_one_ticket_whose_number_is_kept(
    kind: str, answer: bytes, number: str, store: Store, desk: Desk
) -> None:
    """With the address of the finding; what others wrote is neither markup nor address."""
    desk.body = answer
    settings = settings_of(
        desk, ticket_project="OPS" if kind == "jira" else "", ticket_events="approved,urgent"
    )
    approve(store, HOSTILE)
    deliver(store, settings)
    ((headers, sent),) = desk.asked
    assert headers["authorization"] == "Bearer SECRET"
    text = sent["fields"]["description"] if kind == "jira" else sent["description"]
    assert text.splitlines()[-1] == "https://t.example/findings?finding=TT-1"
    assert "https://evil" not in text
    if kind == "jira":
        assert sent["fields"]["project"] == {"key": "OPS"}
        assert "\\[x\\|" in text
        assert "\\{noformat\\}" in text
    assert ticket_of(store.reader, 1) == number
    assert (record_of(store.reader, 1)[-1].event, record_of(store.reader, 1)[-1].detail) == (
        "ticket", number,
    )  # fmt: skip
    store.append_audit(at=START, actor="a", event="urgent",
                       digest=make_recommendation().digest, detail="")  # fmt: skip
    deliver(store, settings, later=timedelta(days=1))
    assert len(desk.asked) == 1
    assert store.reader.verify_audit() == ()


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, JIRA), (302, JIRA), (201, b"x"), (201, b"[]"), (201, b"{}"), (201, b'{"key":7}'),
     (201, b'{"key":"<script>"}'), (201, b"[" * 100_000), (201, b'{"key":"' + b"A" * 99 + b'"}')],
    ids=["error", "elsewhere", "text", "list", "nothing", "number", "markup", "deep", "long"],
)  # fmt: skip
def test_an_answer_that_names_no_ticket_is_tried_again(
    status: int, body: bytes, store: Store, desk: Desk
) -> None:
    """And nothing of it is kept; when it names one, that is."""
    desk.status, desk.body = status, body
    approve(store)
    deliver(store, settings_of(desk))
    assert ticket_of(store.reader, 1) == ""
    (problem,) = store.outbox.waiting()
    assert "SECRET" not in problem
    assert "127.0.0.1" not in problem
    desk.status, desk.body = 201, JIRA
    deliver(store, settings_of(desk), later=timedelta(hours=2))
    assert ticket_of(store.reader, 1) == "OPS-12"


def test_what_is_not_named_opens_none(store: Store, desk: Desk) -> None:
    """Another event, and what is about no finding."""
    approve(store)
    store.append_audit(at=START, actor="a", event="stopped", digest="", detail="")
    deliver(store, settings_of(desk, ticket_events="urgent,stopped"))
    assert desk.asked == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"ticket_url": "ftp://x"},
    ],
)
def test_settings_that_open_no_ticket_are_refused(wrong: dict[str, str]) -> None:
    """By name."""
    with pytest.raises(SettingsError, match=r"notify\.ticket_"):
        NotifySettings(**wrong)
