"""The weekly digest: once, at its hour, of what is open, with an address of each finding."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from beds.mail_sink import running_mail_sink
from beds.stores import cycle
from factories import make_collected, make_job, make_recommendation

from dashboard.findings import FindingStatus, findings_now
from dashboard.notify.deliver import Notifier
from dashboard.notify.digest_rounds import DigestRounds, digest_text, open_findings
from dashboard.notify.webhook import content_of
from data.access_settings import AccessSettings, NotifySettings
from data.records.decisions import Decision
from data.report_settings import ReportSettings
from data.settings import Settings
from data.store import Store, open_store

MONDAY = datetime(2026, 1, 12, 7, tzinfo=UTC)
URL = "https://t.example"
NAMES = [*(f"search/job-{number}" for number in range(11)),
         "search/<!channel>\n[x](https://evil.example)"]  # fmt: skip


def find(store: Store, number: int, at: datetime) -> None:
    """A cycle that finds twelve things, the last of a job with a hostile name."""
    found = [
        make_recommendation(job_id=name, created_at=at, expires_at=at + timedelta(hours=9))
        for name in NAMES
    ]
    cycle(store, number, *found, at=at)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Twelve open findings."""
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as opened:
        opened.keep(make_collected(jobs=tuple(make_job(job_id=name) for name in NAMES)))
        find(opened, 0, MONDAY - timedelta(hours=2))
        yield opened


def settings_of(**notify: object) -> Settings:
    """Settings by which a mailbox and a chat are told."""
    told = NotifySettings(mail_to="ops@site.example", webhook_url="https://hooks.example/x")
    return Settings(
        access=AccessSettings(public_url=URL), notify=replace(told, **notify),  # type: ignore[arg-type]
        report=ReportSettings(send_hour=7),
    )  # fmt: skip


def rounds(store: Store, now: datetime, **notify: object) -> DigestRounds:
    """What looks at a time whether the digest is due."""
    return DigestRounds(
        store=store, reader=store.reader_for_pages(), settings=lambda: settings_of(**notify),
        clock=lambda: now,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("now", "due"),
    [
        (MONDAY - timedelta(minutes=1), [False, True]),
        (MONDAY, [True, False]),
        (MONDAY + timedelta(days=3), [True, False]),
    ],
)
def test_it_is_told_once_a_week(store: Store, now: datetime, due: list[bool]) -> None:
    """From its hour on, also late; the next week again."""
    week = [now, MONDAY + timedelta(days=3, hours=1), *(MONDAY + timedelta(days=n) for n in (6, 7))]
    told = []
    for number, at in enumerate(week, start=1):
        find(store, number, at - timedelta(hours=1))
        told.append(rounds(store, at).tell_due())
    assert told == [*due, False, True]
    events = [(entry.event, entry.actor) for entry in store.reader.audit()]
    assert events == [("digest", "trimtab")] * 2
    assert "12 open findings" in store.reader.audit()[0].detail


@pytest.mark.parametrize(
    "notify", [{"events": "approved"}, {"mail_to": "", "webhook_url": ""}], ids=["off", "nobody"]
)
def test_who_is_not_to_be_told_is_not(store: Store, notify: dict[str, str]) -> None:
    """And nothing is entered."""
    assert rounds(store, MONDAY, **notify).tell_due() is False
    assert store.reader.audit() == ()


def test_a_quiet_week_has_none(tmp_path: Path) -> None:
    """Nothing is open."""
    with open_store(f"duckdb:///{tmp_path}/empty.duckdb") as empty:
        assert rounds(empty, MONDAY).tell_due() is False


def test_each_recipient_has_one_message(store: Store) -> None:
    """Ten findings with their addresses, and how many more; what was decided is not among them."""
    digest = store.reader.recommendations(now=MONDAY)[0].recommendation.digest
    store.append_decision(
        digest=digest, decision=Decision.REJECTED, by="ann", at=MONDAY, comment=""
    )
    rounds(store, MONDAY).tell_due()
    with running_mail_sink() as sink:
        settings = settings_of(smtp_port=sink.port, webhook_url="")
        told = Notifier(store=store, settings=lambda: settings, clock=lambda: MONDAY)
        while told.deliver_once():
            pass
    mails = [mail.text for mail in sink.mails if "open findings" in mail.text]
    assert len(mails) == 1
    assert "Subject: Trimtab: 11 open findings" in mails[0]
    found = open_findings(_found(store))
    subject, body = digest_text(found, URL)
    lines = body.splitlines()
    assert subject == lines[0] == "Trimtab: 11 open findings"
    assert [line for line in lines if line.startswith(URL)][-1] == f"{URL}/recommendations"
    assert sum("?finding=TT-" in line for line in lines) == 10
    assert "and 1 more" in lines
    assert not [line for line in lines if line.startswith(f"{URL}/") and "evil" in line]
    assert digest_text(found, "")[1].splitlines()[-1] == "trimtab findings list"


def _found(store: Store) -> tuple[FindingStatus, ...]:
    return findings_now(store.reader, now=MONDAY)


@pytest.mark.parametrize("kind", ["slack", "teams"])
def test_a_chat_has_a_button_of_each_finding(kind: str, store: Store) -> None:
    """That leads to the dashboard; no name of a job is markup or an address."""
    _subject, body = digest_text(open_findings(_found(store)), URL)
    content = json.dumps(content_of(body, kind, public_url=URL))
    buttons = content.count('"url":')
    assert buttons == (11 if kind == "slack" else 6)
    assert content.count(f'"url": "{URL}/recommendations') == buttons
    assert "<!channel>" not in content or kind == "teams"
    for line in ("https://evil.example/x", f"{URL}/oauth2callback", f"{URL}.evil/reports"):
        assert '"url"' not in json.dumps(content_of(f"a\n{line}", kind, public_url=URL))
