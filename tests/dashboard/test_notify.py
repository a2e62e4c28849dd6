"""Telling people: each told thing once per recipient, through real loopback servers."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from beds.apply_bench import START, Clock, fill
from beds.mail_sink import MailSink, running_mail_sink
from beds.stores import filled
from factories import NOW, make_recommendation

from dashboard.common.escaping import chat
from dashboard.notify.deliver import Notifier
from dashboard.notify.mail import mail_of
from dashboard.notify.messages import messages_for
from dashboard.notify.webhook import content_of
from data.base.errors import SettingsError
from data.base.failure import NotDeliveredError
from data.records.commands import AuditEntry
from data.records.findings import Finding
from data.records.recommendations import Decision
from data.settings.access import EVENTS, NotifySettings
from data.settings.all_settings import Settings
from data.store import Store
from data.store.record.outbox import Message


@dataclass
class Hook:
    """A webhook that keeps what it is sent and answers with `status`."""

    url: str = ""
    status: int = 200
    bodies: list[tuple[str, dict[str, str]]] = field(default_factory=list)


@contextmanager
def running_hook() -> Iterator[Hook]:
    """Serve a webhook on a free loopback port."""
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"]))
            hook.bodies.append((self.headers["Idempotency-Key"], json.loads(text)))
            self.send_response(hook.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    hook.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    try:
        yield hook
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A store with one recommendation."""
    with filled(store_url, fill) as opened:
        yield opened


@pytest.fixture
def sink() -> Iterator[MailSink]:
    """A mail server."""
    with running_mail_sink() as running:
        yield running


def approve(store: Store, comment: str = "go") -> None:
    """Something to tell."""
    store.append_decision(
        digest=make_recommendation().digest,
        decision=Decision.APPROVED,
        by="Robin",
        at=START,
        comment=comment,
    )


def notifier(store: Store, clock: Clock, **settings: object) -> Notifier:
    """A notifier with these settings of section notify."""
    notify = replace(NotifySettings(), **settings)  # type: ignore[arg-type]
    return Notifier(store=store, settings=lambda: replace(Settings(), notify=notify), clock=clock)


def test_an_approval_reaches_mailbox_and_webhook_once(store: Store, sink: MailSink) -> None:
    """Two addresses and a webhook: three messages, and nothing the second time."""
    with running_hook() as hook:
        told = notifier(
            store,
            Clock(),
            mail_to="ops@site.example, lead@site.example",
            smtp_url=sink.url,
            webhook_url=hook.url,
        )
        approve(store)
        assert [told.deliver_once() for _ in range(4)] == [True, True, True, False]
        assert len(hook.bodies) == 1
        assert "approved by Robin" in hook.bodies[0][1]["text"]
    assert sorted(mail.recipients[0] for mail in sink.mails) == [
        "lead@site.example",
        "ops@site.example",
    ]
    assert "Subject: Trimtab: TT-1 (fewer-gpus of" in sink.mails[0].text


def test_racing_notifiers_send_each_message_once(store: Store, sink: MailSink) -> None:
    """Eight threads, one mail."""
    told = notifier(store, Clock(), mail_to="ops@site.example", smtp_url=sink.url)
    approve(store)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _number: told.deliver_once(), range(40)))
    assert len(sink.mails) == 1


def test_a_mail_that_is_refused_comes_later_and_once(store: Store, sink: MailSink) -> None:
    """It waits, longer each time, and goes through when the server takes it."""
    clock = Clock()
    told = notifier(store, clock, mail_to="ops@site.example", smtp_url=sink.url)
    approve(store)
    sink.refusing = True
    assert told.deliver_once()
    assert not told.deliver_once()
    sink.refusing = False
    clock.forward(seconds=10)
    assert told.deliver_once()
    assert not told.deliver_once()
    assert len(sink.mails) == 1


def test_a_message_is_given_up_after_its_attempts(store: Store) -> None:
    """A server that is not there is tried so often, then left."""
    clock = Clock()
    told = notifier(store, clock, mail_to="ops@site.example", smtp_url="smtp://127.0.0.1:1")
    approve(store)
    tried = 0
    for _hour in range(12):
        tried += told.deliver_once()
        clock.forward(hours=2)
    assert tried == 8


def test_the_order_of_a_ticket_of_before_is_given_up(store: Store, sink: MailSink) -> None:
    """A version before wrote it: it is no mail, and it does not wait for ever."""
    clock = Clock()
    told = notifier(store, clock, mail_to="ops@site.example", smtp_url=sink.url)
    approve(store)
    order = Message(
        entry=1, channel="ticket", recipient="notify.ticket_url", subject="TT-1", body="{}"
    )
    store.outbox.fill(lambda _entry: (order,), now=clock())
    tried = 0
    for _hour in range(12):
        tried += told.deliver_once("mail")
        clock.forward(hours=2)
    assert tried == 8
    assert store.outbox.waiting() == ()
    assert sink.mails == []


def test_a_claim_of_a_dead_process_runs_out(store: Store, sink: MailSink) -> None:
    """Nothing is lost: another one sends it, under the same id."""
    clock = Clock()
    told = notifier(store, clock, mail_to="ops@site.example", smtp_url=sink.url)
    approve(store)
    settings = told.settings().notify
    store.outbox.fill(lambda entry: messages_for(entry, settings), now=clock())
    claim = store.outbox.claim(now=clock(), lasting=timedelta(minutes=5))
    assert claim is not None
    assert not told.deliver_once()
    clock.forward(minutes=6)
    assert told.deliver_once()
    assert claim.message.message_id[:40] in sink.mails[0].text


def test_what_happened_before_there_were_recipients_is_not_told(
    store: Store, sink: MailSink
) -> None:
    """Naming a recipient does not flood them with the past."""
    approve(store)
    assert not notifier(store, Clock()).deliver_once()
    told = notifier(store, Clock(), mail_to="ops@site.example", smtp_url=sink.url)
    assert not told.deliver_once()


@pytest.mark.parametrize(
    "hostile", ["x\r\nBcc: victim@evil.example", "x\nSubject: other", "x\u2028Bcc: a@b"]
)
def test_hostile_text_adds_no_header(store: Store, sink: MailSink, hostile: str) -> None:
    """Line breaks in names and comments stay in one line of the body."""
    told = notifier(store, Clock(), mail_to="ops@site.example", smtp_url=sink.url)
    store.append_audit(at=START, actor=hostile, event="stopped", digest="", detail=hostile)
    assert told.deliver_once()
    headers = sink.mails[0].text.partition("\r\n\r\n")[0]
    assert sink.mails[0].recipients == ["ops@site.example"]
    assert not any(line.lower().startswith("bcc") for line in headers.splitlines())
    assert sum(line.lower().startswith("subject") for line in headers.splitlines()) == 1


def test_a_header_with_a_line_break_is_refused() -> None:
    """Even if it came so far, the mail is not made."""
    message = Message(entry=1, channel="mail", recipient="a@b.example", subject="a\nb", body="")
    with pytest.raises(NotDeliveredError):
        mail_of(message, NotifySettings())


@pytest.mark.parametrize("address", ["a@b.example\nBcc: c@d", "nobody", "a b@c", "a@b@c"])
def test_addresses_that_are_none_are_refused(address: str) -> None:
    """Recipients come from the settings, and only plain ones."""
    with pytest.raises(SettingsError):
        NotifySettings(mail_to=address)


@pytest.mark.parametrize("text", ["<!channel>", "<https://evil.example|x>", "*b* `c` @here"])
def test_slack_reads_no_markup_from_names(text: str) -> None:
    """No mention, no link, no markup is left."""
    shown = chat(text)
    assert "<" not in shown
    assert "@here" not in shown
    assert "*b*" not in shown
    assert "https://" not in shown


@pytest.mark.parametrize("kind", ["slack", "teams"])
def test_a_chat_gets_the_text_without_markup_and_one_button(kind: str) -> None:
    """The button leads to the dashboard alone; without an address of it there is none."""
    hostile = "<!channel> [x](https://evil.example) **b** @here"
    body = f"{hostile}\nat noon\nhttps://t.example/findings?finding=TT-12"
    content = content_of(body, kind, public_url="https://t.example")
    if kind == "teams":
        (card,) = [attachment["content"] for attachment in content["attachments"]]
        assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
        runs = [run for block in card["body"] for run in block["inlines"]]
        assert [run["type"] for run in runs] == ["TextRun", "TextRun"]
        (button,) = card["actions"]
        assert button["type"] == "Action.OpenUrl"
    else:
        section, actions = content["blocks"]
        assert section["text"]["type"] == "plain_text"
        assert "https://" not in section["text"]["text"]
        assert content["mrkdwn"] is False
        (button,) = actions["elements"]
    assert button["url"] == "https://t.example/findings?finding=TT-12"
    for public_url in ("", "https://other.example"):
        without = json.dumps(content_of(body, kind, public_url=public_url))
        assert "OpenUrl" not in without
        assert '"button"' not in without


def test_a_slip_in_a_word_that_is_told_is_refused() -> None:
    """It would switch the notification off; the word that was meant is named."""
    with pytest.raises(SettingsError, match=r"notify\.events is 'aproved'") as refused:
        NotifySettings(events="failing, aproved")
    assert "such as approved" in str(refused.value.hint)
    words = (*EVENTS, "submission-refused", "submission-lost", "a-word-of-a-later-version")
    assert NotifySettings(events=",".join(words))


def test_a_kind_of_chat_that_is_none_is_refused() -> None:
    """The setting is named with what it may be."""
    with pytest.raises(SettingsError, match=r"notify\.webhook_kind"):
        NotifySettings(webhook_kind="irc")


def test_the_webhook_address_is_not_kept(store: Store) -> None:
    """It is a secret: the store names the setting instead."""
    entry = AuditEntry(
        sequence=1,
        at=START,
        actor="A",
        event="applied",
        digest="f" * 64,
        detail="",
        previous_hash="",
        entry_hash="",
    )
    settings = NotifySettings(webhook_url="https://hooks.example/SECRET")
    found = messages_for(entry, settings)
    assert [message.recipient for message in found] == ["notify.webhook_url"]
    assert "SECRET" not in found[0].body
    finding = Finding(number=12, target="a/b", action="reclaim", opened_at=NOW, seen_at=None)
    (told,) = messages_for(entry, settings, finding=finding)
    assert told.subject.startswith("Trimtab: TT-12 (reclaim of a/b) applied by")
    assert told.body.endswith("trimtab findings show TT-12")
    (linked,) = messages_for(entry, settings, finding=finding, public_url="https://t.example/")
    assert linked.body.endswith("https://t.example/findings?finding=TT-12")
