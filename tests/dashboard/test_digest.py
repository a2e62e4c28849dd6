"""The weekly digest: once, at its hour, of what is open, with an address of each finding."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from beds.mail_sink import running_mail_sink
from beds.stores import cycle, filled
from factories import make_collected, make_job, make_recommendation

from dashboard.decisions.findings import FindingStatus, findings_now
from dashboard.notify.deliver import Notifier
from dashboard.notify.digest import DigestRounds, digest_text, open_findings
from dashboard.notify.webhook import content_of
from data.base.errors import SettingsError
from data.records.recommendations import Decision
from data.settings.access import AccessSettings, NotifySettings
from data.settings.all_settings import Settings
from data.settings.reports import ReportSettings
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


def fill(store: Store) -> None:
    """Keep twelve open findings."""
    store.keep(make_collected(jobs=tuple(make_job(job_id=name) for name in NAMES)))
    find(store, 0, MONDAY - timedelta(hours=2))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with these."""
    with filled(f"duckdb:///{tmp_path}/t.duckdb", fill) as opened:
        yield opened


def settings_of(**notify: object) -> Settings:
    """Settings by which a mailbox and a chat are told."""
    told = NotifySettings(mail_to="ops@site.example", webhook_url="http://127.0.0.1:9/x")
    return Settings(
        access=AccessSettings(public_url=URL), notify=replace(told, **notify),  # type: ignore[arg-type]
        report=ReportSettings(),
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
        settings = settings_of(smtp_url=sink.url, webhook_url="")
        told = Notifier(store=store, settings=lambda: settings, clock=lambda: MONDAY)
        while told.deliver_once():
            pass
    mails = [mail.text for mail in sink.mails if "open findings" in mail.text]
    assert len(mails) == 1
    assert "Subject: Trimtab: 11 open findings" in mails[0]
    found = open_findings(_found(store))
    subject, body = digest_text(found, settings_of())
    lines = body.splitlines()
    assert subject == lines[0] == "Trimtab: 11 open findings"
    assert [line for line in lines if line.startswith(URL)][-1] == f"{URL}/findings"
    assert sum("?finding=TT-" in line for line in lines) == 10
    assert "and 1 more" in lines
    assert not [line for line in lines if line.startswith(f"{URL}/") and "evil" in line]
    assert digest_text(found, Settings())[1].splitlines()[-2:] == [
        "trimtab findings list",
        "No link can be given: access.public_url is not set.",
    ]


def _found(store: Store) -> tuple[FindingStatus, ...]:
    return findings_now(store.reader, now=MONDAY)


@pytest.mark.parametrize("kind", ["slack", "teams"])
def test_a_chat_has_a_button_of_each_finding(kind: str, store: Store) -> None:
    """That leads to the dashboard; no name of a job is markup or an address."""
    _subject, body = digest_text(open_findings(_found(store)), settings_of())
    content = json.dumps(content_of(body, kind, public_url=URL))
    buttons = content.count('"url":')
    assert buttons == (11 if kind == "slack" else 6)
    assert content.count(f'"url": "{URL}/findings') == buttons
    assert "<!channel>" not in content or kind == "teams"
    for line in ("https://evil.example/x", f"{URL}/oauth2callback", f"{URL}.evil/reports"):
        assert '"url"' not in json.dumps(content_of(f"a\n{line}", kind, public_url=URL))


def test_a_team_has_a_digest_of_its_own(store: Store) -> None:
    """To its own receivers, of its findings alone; the whole stays with the others, once a week."""
    at = MONDAY - timedelta(hours=1)
    theirs = make_recommendation(
        job_id="vision/zebra", namespace="vision", created_at=at,
        expires_at=at + timedelta(hours=9),
    )  # fmt: skip
    store.keep(make_collected(jobs=(make_job(job_id="vision/zebra"),), batch_id="b"))
    cycle(store, 1, make_recommendation(job_id=NAMES[0]), theirs, at=at)
    teams = "search=ada@site.example bob@site.example, vision=eve@site.example, idle=x@site.example"
    assert rounds(store, MONDAY, teams=teams).tell_due() is True
    assert rounds(store, MONDAY, teams=teams).tell_due() is False
    with running_mail_sink() as sink:
        settings = settings_of(smtp_url=sink.url, webhook_url="", teams=teams)
        told = Notifier(store=store, settings=lambda: settings, clock=lambda: MONDAY)
        while told.deliver_once():
            pass
    got = {mail.text.partition("To: ")[2].split()[0]: mail.text for mail in sink.mails}
    assert {name.partition("@")[0] for name in got} == {"ops", "ada", "bob", "eve"}
    assert "Subject: Trimtab: 1 open findings of namespace vision" in got["eve@site.example"]
    assert "vision/zebra" in got["eve@site.example"]
    assert "search/" not in got["eve@site.example"]
    assert "vision" not in got["ada@site.example"]
    assert "vision/zebra" in got["ops@site.example"]
    assert len(sink.mails) == 4


def test_a_team_alone_is_told_and_at_night_later(store: Store) -> None:
    """Nobody else is named; quiet hours hold it back as any other message."""
    night = {"teams": "search=ada@site.example", "mail_to": "", "webhook_url": ""}
    assert rounds(store, MONDAY, **night).tell_due() is True
    with running_mail_sink() as sink:
        settings = settings_of(smtp_url=sink.url, quiet_time="22:00-08:00", **night)
        clock = [MONDAY]
        told = Notifier(store=store, settings=lambda: settings, clock=lambda: clock[0])
        assert told.deliver_once() is False
        clock[0] = MONDAY + timedelta(hours=1)
        assert told.deliver_once() is True
    assert len(sink.mails) == 1


@pytest.mark.parametrize("teams", ["search", "=a@site.example", "search=ada", "search="])
def test_a_team_without_an_address_is_refused(teams: str) -> None:
    """The whole list: nobody is left out in silence."""
    with pytest.raises(SettingsError, match=r"notify\.teams"):
        NotifySettings(teams=teams)
