"""The weekly report on its way: each edition once, only to who is named, only what is theirs."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import message_from_string, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from beds.mail_sink import MailSink, running_mail_sink
from beds.stores import cycle, filled
from factories import make_collected, make_job, make_recommendation, make_samples

from dashboard.notify.deliver import Notifier
from dashboard.notify.report_delivery import ReportRounds
from dashboard.reports.week.week import last_whole_week
from data.base.errors import SettingsError
from data.settings.access import AccessSettings, NotifySettings
from data.settings.all_settings import Settings
from data.settings.reports import ReportSettings
from data.store import Store

MONDAY = datetime(2026, 1, 5, 8, tzinfo=UTC)
HOSTILE = "vision/=HYPERLINK(1)"


def fill(store: Store) -> None:
    """Keep an idle day of a search and a vision job that ends with Sunday, and advice for both."""
    end = datetime(2026, 1, 5, tzinfo=UTC)
    search = make_samples(minutes=60 * 24, end=end, utilization_ratio=0.0)
    vision = make_samples(
        minutes=60 * 24, end=end, job_id=HOSTILE, gpu_uuid="GPU-v", utilization_ratio=0.1
    )
    jobs = (
        make_job(owner="ada"),
        make_job(HOSTILE, namespace="vision", owner="bob"),
    )
    store.keep(make_collected(search, jobs), make_collected(vision, jobs, batch_id="b" * 12))
    cycle(store, 1, make_recommendation(), make_recommendation(job_id=HOSTILE, job_name=""), at=end)


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """That day and the advice."""
    with filled(store_url, fill) as opened:
        yield opened


def settings(sink: MailSink | None = None, *, webhook: str = "", **report: Any) -> Settings:
    """Reports to these people through the sink."""
    return Settings(
        notify=NotifySettings(
            smtp_url=sink.url if sink else "smtp://127.0.0.1:1", webhook_url=webhook
        ),
        report=ReportSettings(**report),
    )


class Clock:
    """A time that a test moves; the outbox' pauses pass with it."""

    def __init__(self, now: datetime = MONDAY) -> None:
        self.now = now

    def __call__(self) -> datetime:
        """Tell it."""
        return self.now


def send_all(store: Store, using: Settings, clock: Clock) -> None:
    """What `serve` does in a minute: file what is due, send what waits."""
    ReportRounds(store=store, settings=lambda: using, clock=clock).file_due()
    notifier = Notifier(store=store, settings=lambda: using, clock=clock)
    for _attempt in range(50):
        if not notifier.deliver_once():
            break


def mails(sink: MailSink) -> list[tuple[list[str], EmailMessage]]:
    """What arrived: recipients of the envelope, and the mail."""
    parsed = [
        (mail.recipients, message_from_string(mail.text, policy=policy.default))
        for mail in sink.mails
    ]
    return [(to, mail) for to, mail in parsed if isinstance(mail, EmailMessage)]


def bodies(sink: MailSink) -> dict[str, str]:
    """The readable text by recipient."""
    found = {}
    for to, mail in mails(sink):
        part = mail.get_body(("plain",))
        assert part is not None
        found[",".join(to)] = part.get_content()
    return found


def test_a_week_goes_out_once_with_all_its_forms(store: Store) -> None:
    """Text to read; PDF and HTML attached; a second look sends nothing."""
    with running_mail_sink() as sink:
        using, clock = settings(sink, mail_to="ops@site.example"), Clock()
        for _minute in range(3):
            send_all(store, using, clock)
            clock.now += timedelta(minutes=1)
    ((to, mail),) = mails(sink)
    assert to == ["ops@site.example"]
    assert mail["Subject"] == "Trimtab weekly report, week-to-2026-01-05"
    attached = {part.get_filename(): part for part in mail.iter_attachments()}
    assert set(attached) == {
        "trimtab-week-to-2026-01-05.pdf",
        "trimtab-week-to-2026-01-05.html",
    }
    assert attached["trimtab-week-to-2026-01-05.pdf"].get_content().startswith(b"%PDF-")
    assert [entry.event for entry in store.reader.audit()] == ["reported"]
    assert store.reader.verify_audit() == ()


def test_an_edition_shows_nothing_of_others(store: Store) -> None:
    """A team gets its namespace, an owner their own jobs; no name of another in any part."""
    with running_mail_sink() as sink:
        using = settings(sink, teams="vision=v@site.example", owners="ada=ada@site.example")
        send_all(store, using, Clock())
    every = {to: mail.as_string() for (to,), mail in mails(sink)}
    assert set(every) == {"v@site.example", "ada@site.example"}
    texts = bodies(sink)
    assert "HYPERLINK" in texts["v@site.example"]
    assert "ranker" in texts["ada@site.example"]
    assert "ranker" not in texts["v@site.example"]
    assert "HYPERLINK" not in texts["ada@site.example"]
    for text, other in ((every["v@site.example"], "ada"), (every["ada@site.example"], "bob")):
        assert f"| {other} |" not in text


def test_downtime_is_caught_up_oldest_first(store: Store) -> None:
    """Three missed weeks follow in order; a first start sends the newest only."""
    with running_mail_sink() as sink:
        using, clock = settings(sink, mail_to="ops@site.example"), Clock()
        send_all(store, using, clock)
        clock.now += timedelta(days=21)
        send_all(store, using, clock)
    subjects = [str(mail["Subject"])[-10:] for _to, mail in mails(sink)]
    assert subjects == ["2026-01-05", "2026-01-12", "2026-01-19", "2026-01-26"]


def test_nothing_goes_out_before_its_hour_or_on_a_weekend(store: Store) -> None:
    """At six it waits for seven; a week that ends on Saturday waits for Monday."""
    with running_mail_sink() as sink:
        early = settings(sink, mail_to="ops@site.example")
        send_all(store, early, Clock(MONDAY.replace(hour=6)))
        first = [str(mail["Subject"])[-10:] for _to, mail in mails(sink)]
        assert first == ["2025-12-29"]  # last week's, never sent before
        saturday = settings(sink, mail_to="ops@site.example", week_ends="saturday")
        send_all(store, saturday, Clock(datetime(2026, 1, 10, 9, tzinfo=UTC)))
        assert [str(mail["Subject"])[-10:] for _to, mail in mails(sink)[1:]] == ["2026-01-03"]
        send_all(store, saturday, Clock(datetime(2026, 1, 12, 9, tzinfo=UTC)))
        assert str(mails(sink)[-1][1]["Subject"])[-10:] == "2026-01-10"


def test_an_owner_hears_of_one_finding_once_in_a_week(store: Store) -> None:
    """The same findings a day later, as another period, are held back and filed as such."""
    with running_mail_sink() as sink:
        owners = settings(sink, owners="ada=ada@site.example")
        send_all(store, owners, Clock())
        tuesdays = settings(sink, owners="ada=ada@site.example", week_ends="tuesday")
        send_all(store, tuesdays, Clock(MONDAY + timedelta(days=1)))
    assert len(sink.mails) == 1
    assert store.reader.audit()[-1].detail.endswith("told of all of it within 7 days")


def test_who_wastes_nothing_gets_no_mail(store: Store) -> None:
    """An owner without jobs is not bothered."""
    with running_mail_sink() as sink:
        send_all(store, settings(sink, owners="eve=eve@site.example"), Clock())
    assert sink.mails == []


def test_a_refusing_server_is_asked_again(store: Store) -> None:
    """After 451 the mail stays in the outbox and goes out later, once."""
    with running_mail_sink() as sink:
        using, clock = settings(sink, mail_to="ops@site.example"), Clock()
        for minute in range(10):
            sink.refusing = minute < 2
            send_all(store, using, clock)
            clock.now += timedelta(minutes=1)
    assert len(sink.mails) == 1


def test_a_check_sends_and_files_nothing(store: Store) -> None:
    """What would be sent is told, with what is held back."""
    using = settings(mail_to="ops@site.example", owners="eve=eve@site.example")
    rounds = ReportRounds(store=store, settings=lambda: using, clock=Clock())
    planned = rounds.planned(last_whole_week(MONDAY, using.report))
    assert [(entry.edition.key, entry.hold_reason) for entry in planned] == [
        ("fleet", ""),
        ("owner:eve", "nothing of theirs was idle and nothing waits"),
    ]
    assert store.report_log.filed() == frozenset()


@contextmanager
def webhook_sink() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook on loopback that keeps what it is posted."""
    posted: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", posted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_webhook_gets_the_summary_and_a_link(store: Store) -> None:
    """The finding, and the page on which the tables are."""
    with running_mail_sink() as sink, webhook_sink() as (url, posted):
        using = settings(sink, webhook=url, mail_to="ops@site.example")
        access = AccessSettings(public_url="https://t.example")
        using = replace(using, access=access, report=replace(using.report, webhook=True))
        send_all(store, using, Clock())
    (content,) = posted
    assert "GPU-hours" in content["text"]
    assert '"https://t.example/account?tab=reports"' in json.dumps(content)
    assert store.reader.audit()[-1].event == "reported"


@pytest.mark.parametrize(
    "wrong",
    [
        {"mail_to": "a@b\r\nBcc: c@d"},
        {"teams": "search=x"},
        {"owners": "=a@b"},
        {"mail_to": "ops"},
    ],
)
def test_recipients_that_are_no_addresses_are_refused(wrong: dict[str, Any]) -> None:
    """A header cannot be injected, a list cannot lose its name."""
    with pytest.raises(SettingsError):
        ReportSettings(**wrong)
