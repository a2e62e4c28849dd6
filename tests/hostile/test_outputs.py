"""Everything that leaves Trimtab beside its pages, made of a fleet whose every name is hostile."""

import io
import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_string, policy
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pypdfium2 as pdfium
import pytest
from beds.mail_sink import running_mail_sink
from hostile.fleet import TEXTS, fill
from hostile.payloads import HALF_CHARACTERS
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families

from dashboard.cli import main
from dashboard.cli.terminal.log_format import OneLine
from dashboard.cycle.cycle_thread import CycleState
from dashboard.notify.mail import mail_of, send
from dashboard.notify.messages import messages_for
from dashboard.notify.report_mail import attach, summary
from dashboard.notify.webhook import content_of, post
from dashboard.reports.render.html_report import (
    render_html,
    render_json,
    render_markdown,
)
from dashboard.reports.render.pdf_file import render_pdf
from dashboard.reports.week.week import week_to
from dashboard.reports.week.weekly_report import WeeklyReport, make_weekly_report
from dashboard.web.server.prometheus_metrics import OwnMetrics
from data.base.clock import floor_to_slot, utc_now
from data.base.errors import StoreError
from data.base.failure import NotDeliveredError
from data.base.text import without_nul
from data.records.commands import AuditEntry
from data.settings.access import NotifySettings
from data.settings.all_settings import Settings
from data.store import Store, open_store
from data.store.record.outbox import Message

pytestmark = pytest.mark.slow
NOW = floor_to_slot(utc_now(), 300)
JOINER = "\u2060"
ADDRESS = "trimtab@site.example"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of hostile names."""
    folder = tmp_path_factory.mktemp("outputs")
    with open_store(f"duckdb:///{folder}/t.duckdb") as opened:
        fill(opened, folder, NOW)
    return folder / "t.duckdb"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """That store, open."""
    with open_store(f"duckdb:///{path}", create=False) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(path: Path) -> WeeklyReport:
    """Its report."""
    with open_store(f"duckdb:///{path}", create=False) as opened:
        return make_weekly_report(
            opened.reader,
            week=week_to(NOW, "UTC"),
            settings=Settings(),
        )


def test_markdown_report_holds_no_link_picture_or_html(report: WeeklyReport) -> None:
    """Its tables keep their columns, and names in them are text."""
    text = render_markdown(report)
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    inner = [item for token in tokens for item in (token.children or ())]
    assert {kept.type for kept in inner} <= {
        "text", "text_special", "strong_open", "strong_close", "softbreak", "code_inline"
    }  # fmt: skip
    assert not [token for token in tokens if token.type in ("html_block", "fence", "code_block")]
    rows = [line for line in text.splitlines() if line.startswith("| ") and "evil" in line]
    assert len(rows) > 100


class Elements(HTMLParser):
    """Every element of a page with its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.found.append((tag, dict(attrs)))


def test_html_report_holds_its_own_elements_only(report: WeeklyReport) -> None:
    """No element, handler or address comes from a name, and nothing unseen is left."""
    text = render_html(report)
    page = Elements()
    page.feed(text)
    allowed = (
        "html head meta link title style body h1 h2 h3 p div b span table thead tbody tr th td"
    )
    picture = "svg clippath rect g polygon path text"
    assert {tag for tag, _ in page.found} <= {*allowed.split(), *picture.split(), "br", "ul", "li"}
    assert [item for _, item in page.found if any(name.startswith("on") for name in item)] == []
    assert {item["href"] for _, item in page.found if "href" in item} == {"data:,"}
    assert "\u202e" not in text.partition("<h2>Allocated but idle")[2]


def test_pdf_report_is_text_alone(report: WeeklyReport) -> None:
    """No link, script, form or attached file; the names can be searched."""
    made = render_pdf(report)
    objects = re.sub(rb"stream\r?\n.*?endstream", b"", made, flags=re.DOTALL)
    assert b"/ObjStm" not in objects  # streams are drawings and fonts, and hold no object
    for mark in (b"/JavaScript", b"/JS", b"/URI", b"/Launch", b"/AcroForm", b"/EmbeddedFile"):
        assert mark not in objects
    document = pdfium.PdfDocument(made)
    pages = [page.get_textpage().get_text_bounded() for page in document]
    annotations = [pdfium.raw.FPDFPage_GetAnnotCount(page) for page in document]
    assert annotations == [0] * len(pages)
    text = "".join("".join(pages).split())
    assert "<scriptsrc=//evil.example/x.js></script>" in text


def test_json_report_carries_the_names_unchanged(report: WeeklyReport) -> None:
    """A program gets what was written, every character of it."""
    document = json.loads(render_json(report))
    owners = {row["owner"] for row in document["waste"]}
    assert len(owners & set(TEXTS)) > 250


def entry(text: str) -> AuditEntry:
    """An approval by this person with this comment."""
    return AuditEntry(
        sequence=1,
        at=NOW,
        actor=text,
        event="approved",
        digest="d" * 64,
        detail=text,
        previous_hash="",
        entry_hash="",
    )


def test_mails_have_our_headers_and_one_plain_part() -> None:
    """324 mails through a real server: no header, recipient or part comes from a name."""
    with running_mail_sink() as sink:
        settings = NotifySettings(mail_to=ADDRESS, smtp_url=sink.url)
        for text in TEXTS:
            for message in messages_for(entry(text), settings):
                send(message, settings)
    assert len(sink.mails) == len(TEXTS)
    for kept in sink.mails:
        mail = message_from_string(kept.text, policy=policy.default)
        assert kept.recipients == [ADDRESS]
        assert {name.lower() for name in mail} == {
            "from", "to", "subject", "date", "message-id", "auto-submitted", "content-type",
            "content-transfer-encoding", "mime-version"
        }  # fmt: skip
        assert mail.get_content_type() == "text/plain"
        assert mail["to"] == ADDRESS


def test_a_subject_of_two_lines_is_never_sent() -> None:
    """Should a line break come this far, the mail is refused, not split."""
    message = Message(entry=1, channel="mail", recipient=ADDRESS, subject="a\r\nBcc: b", body="c")
    with pytest.raises(NotDeliveredError, match="line break"):
        mail_of(message, NotifySettings())


def test_a_report_mail_names_its_files_itself(report: WeeklyReport) -> None:
    """Parts and file names are ours, whatever the jobs are called."""
    message = Message(entry=1, channel="report-mail", recipient=ADDRESS, subject="week", body="")
    mail = mail_of(message, NotifySettings())
    attach(mail, report)
    names = [part.get_filename() for part in mail.iter_attachments()]
    assert len(names) == 2
    body = mail.get_body(("plain",))
    assert body is not None
    assert "GPU-hours" in body.get_content()
    assert "GPU\\-hours" not in body.get_content()
    assert all(name and name.startswith(f"trimtab-{report.week.name}") for name in names)


@contextmanager
def running_chat() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook on loopback: its address, and what it was sent."""
    sent: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/", sent
        finally:
            server.shutdown()
            thread.join()


def test_a_chat_gets_no_mention_link_or_markup(report: WeeklyReport) -> None:
    """Every text as a message, and the report's, through a real webhook."""
    with running_chat() as (address, sent):
        settings = NotifySettings(webhook_url=address)
        lines = "\n".join(message.body for text in TEXTS for message in messages_for(
            entry(text), NotifySettings(mail_to=ADDRESS)
        ))  # fmt: skip
        for text in (lines, summary(report)):
            post(content_of(text, "slack"), "id", settings)
    assert len(sent) == 2
    for row in sent:
        assert (row["mrkdwn"], row["parse"], row["link_names"]) == (False, "none", False)
        said = row["text"]
        assert not {"<", ">"} & set(said)
        assert "://" not in said
        assert "](" not in said
        assert all(said[at + 1] == JOINER for at, mark in enumerate(said) if mark in "@*_~`#!")


COMMANDS = (
    ("jobs",),
    ("gpus",),
    ("nodes",),
    ("sources",),
    ("audit", "list"),
    ("findings", "list"),
    ("plan",),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("form", ["table", "json"])
def test_a_terminal_is_told_text(
    path: Path, command: tuple[str, ...], form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No control, escape or direction reaches stdout or stderr; JSON reads back whole."""
    main(["--store", f"duckdb:///{path}", "--quiet", *command, "--format", form])
    said = capsys.readouterr()
    assert {
        item for item in said.out + said.err if not (item.isprintable() or item == "\n")
    } == set()
    if form == "json":
        json.loads(said.out)


def test_json_of_the_jobs_is_what_was_written(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Written as numbers where a terminal would obey, and the same text again once read."""
    main(["--store", f"duckdb:///{path}", "jobs", "--format", "json"])
    names = {load["name"] for load in json.loads(capsys.readouterr().out)}
    assert names <= {without_nul(text) for text in TEXTS}


@pytest.mark.parametrize("number", range(0, len(TEXTS), 36))
def test_a_refusal_is_one_line(path: Path, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    """An id that nothing has, a person and a comment: the answer is one line that can be read."""
    code = main(
        ["--store", f"duckdb:///{path}", "findings", "approve", f"={TEXTS[number]}",
         f"--by={TEXTS[number]}"]
    )  # fmt: skip
    said = capsys.readouterr()
    assert code == 1
    assert len(said.err.splitlines()) == 1
    assert said.err.removesuffix("\n").isprintable()


def test_logs_are_one_line_an_entry() -> None:
    """Ours or a library's: no name forges a line."""
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    for text in TEXTS:
        handler.handle(OneLine("uvicorn", logging.WARNING, "", 0, "job %s", (text,), None))
    said = lines.getvalue()
    assert said.count("\n") == len(TEXTS)
    assert all(line.startswith("WARNING job ") for line in said.split("\n")[:-1])
    assert all(line.isprintable() for line in said.split("\n"))


def test_the_program_logs_so() -> None:
    """The command line sets it up before anything is logged."""
    script = (
        "import logging; from dashboard.cli import main; main(['settings', '--format', 'json']);"
        "logging.getLogger('uvicorn.error').error('a\\nERROR forged \\x1b[2J')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    _time, _, said = done.stderr.partition(" ")
    assert said == "ERROR uvicorn.error: a⟨000A⟩ERROR forged ⟨001B⟩[2J\n"


def test_metrics_name_no_person_and_no_job(store: Store) -> None:
    """Prometheus' own parser reads them; no hostile text is a label, and the series are few."""
    text = OwnMetrics(store.reader, CycleState, lambda: False).exposition(NOW).decode()
    families = list(text_string_to_metric_families(text))
    labels = {
        value
        for family in families
        for sample in family.samples
        for value in sample.labels.values()
    }
    assert not {label for label in labels if label in TEXTS}
    assert sum(len(family.samples) for family in families) < 1000


@pytest.mark.parametrize("text", HALF_CHARACTERS)
def test_half_characters_are_refused_before_anything_is_kept(store: Store, text: str) -> None:
    """What is no Unicode text cannot be stored or shown: the store says so."""
    before = store.reader.counts()
    with pytest.raises(StoreError, match="no Unicode"):
        store.append_audit(at=NOW, actor=text, event="x", digest="", detail="")
    assert store.reader.counts() == before
