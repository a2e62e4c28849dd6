"""A mail server or webhook that answers slowly, badly or without end delays its own messages."""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.apply_bench import fill
from beds.mail_sink import running_mail_sink
from beds.raw_requests import answer
from browser.bed import running_server

from dashboard.notify import mail, webhook
from data.base.failure import NotDeliveredError
from data.settings.access import NotifySettings
from data.store import open_store
from data.store.record.outbox import Message

PATIENCE = 120
FLOOD_BYTES = 64 << 20
ADDRESS = "ops@site.example"
WORD = "open sesame"
MESSAGE = Message(entry=1, channel="x", recipient=ADDRESS, subject="s", body="b")


def _drip(link: socket.socket, first: bytes, over: threading.Event) -> None:
    """Send what begins well, and then a letter now and then, until the other end has gone."""
    with link, contextlib.suppress(OSError):
        link.sendall(first)
        while not over.wait(0.05):
            link.sendall(b"x")


@contextlib.contextmanager
def dripping(first: bytes) -> Iterator[int]:
    """Listen on loopback until the block ends, and drip to whoever connects."""
    over, threads = threading.Event(), list[threading.Thread]()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    link, _peer = listener.accept()
                    threads.append(threading.Thread(target=_drip, args=(link, first, over)))
                    threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
    for thread in threads:
        thread.join(PATIENCE)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second for a message."""
    for module in (mail, webhook):
        monkeypatch.setattr(module, "TIMEOUT_SECONDS", 1.0)


HEADER = b"HTTP/1.1 200 OK\r\nX-Slow: "
HANDSHAKE = b"\x16\x03\x03\x3f\xff"


@pytest.mark.parametrize(("scheme", "first"), [("http", b""), ("https", HANDSHAKE)])
def test_a_webhook_that_drips_is_given_up(scheme: str, first: bytes) -> None:
    """Its status line, its side of the handshake."""
    with dripping(first) as port:
        slow = NotifySettings(webhook_url=f"{scheme}://127.0.0.1:{port}/x")
        with pytest.raises(NotDeliveredError):
            webhook.send(MESSAGE, slow)


def test_a_webhook_that_took_a_message_and_drips_its_header_is_not_waited_for() -> None:
    """It has said 200: the message has arrived, and nothing of the header is needed."""
    with dripping(HEADER) as port:
        address = f"http://127.0.0.1:{port}/x"
        webhook.send(MESSAGE, NotifySettings(webhook_url=address))


@pytest.mark.parametrize("first", [b"", b"220-", b"220 sink\r\n250-"])
def test_a_mail_server_that_drips_is_given_up(first: bytes) -> None:
    """Its banner, and its answer to the first command."""
    with dripping(first) as port:
        slow = NotifySettings(
            smtp_url=f"smtp{'+starttls' if b'sink' in first else ''}://127.0.0.1:{port}"
        )
        with pytest.raises(NotDeliveredError):
            mail.send(MESSAGE, slow)


GOOD = {"EHLO": "250-sink\r\n250 AUTH CRAM-MD5 PLAIN LOGIN", "DATA": "354 go on", "QUIT": "221 bye"}
CHALLENGES = ("334 !!!", "334 a", "334 \u00e9", "334", "334 " + "A" * 5001, "535 no", "xyz", "")
BAD: list[dict[str, str]] = [
    *({"AUTH": text} for text in CHALLENGES),
    *({"EHLO": text} for text in (
        "250-sink\r\n250 AUTH", "250-sink\r\n250 AUTH X", "250 \x00\u00e9", "2x0 sink", "-50 sink",
        "999 sink", "550 no", "", "250" + "x" * 9000,
    )),
    *({"MAIL": text} for text in ("", "550 \u001b[2J\u202e", "2", "501-a\r\n501 b")),
    {"RCPT": "550 no\r\n250 yes"}, {"DATA": "250 no"}, {"DATA": "451 later"}, {".": "552 full"},
]  # fmt: skip


@contextlib.contextmanager
def answering(replies: dict[str, str], flood: bytes = b"") -> Iterator[tuple[int, list[int]]]:
    """A mail server of these replies by command, and the bytes that it sent of each flood.

    With `flood` it sends a reply again and again instead of ending it, 64 MiB of it at most.
    """
    sent: list[int] = []

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.say("", "220 sink")
                body = False
                while raw := self.rfile.readline():
                    line = raw.decode("utf-8", "replace").strip("\r\n")
                    word = "." if line == "." else line.upper()[:4]
                    if not body or word == ".":
                        self.say(word, (GOOD | replies).get(word, "250 ok"))
                        body = word == "DATA"

        def say(self, word: str, reply: str) -> None:
            if flood and word == replies.get("at", ""):
                sent.append(0)
                while sent[-1] < FLOOD_BYTES:
                    self.wfile.write(flood * 100)
                    sent[-1] += 100 * len(flood)
            self.wfile.write(reply.encode() + b"\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server.server_address[1], sent
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("replies", BAD)
def test_a_mail_server_that_answers_badly_is_named(replies: dict[str, str]) -> None:
    """Whatever it says, the message is kept for a later try, and the loop has no defect."""
    with answering(replies) as (port, _sent):
        bad = NotifySettings(smtp_url=f"smtp://ops@127.0.0.1:{port}", smtp_password=WORD)
        with pytest.raises(NotDeliveredError) as told:
            mail.send(MESSAGE, bad)
    assert f"127.0.0.1:{port}" in str(told.value)
    assert str(told.value).isprintable()


@pytest.mark.parametrize("at", ["", "EHLO", "MAIL", "."])
@pytest.mark.parametrize("flood", [b"250-" + b"x" * 500 + b"\r\n", b"250-\r\n"])
def test_a_reply_without_end_takes_little_memory(
    monkeypatch: pytest.MonkeyPatch, at: str, flood: bytes
) -> None:
    """Lines that never end a reply are read up to a limit, however long there would be time."""
    monkeypatch.setattr(mail, "TIMEOUT_SECONDS", 600.0)
    with answering({"at": at}, flood) as (port, sent):
        endless = NotifySettings(smtp_url=f"smtp://127.0.0.1:{port}")
        with pytest.raises(NotDeliveredError, match="too long"):
            mail.send(MESSAGE, endless)
    assert sent[0] < FLOOD_BYTES / 2


def test_a_slow_webhook_delays_no_mail(tmp_path: Path) -> None:
    """A server tells of a stop by mail while its webhook holds it; what fails is in the log."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with open_store(url) as store:
        fill(store)
    body = b'{"reason": "smoke"}'
    with dripping(HEADER) as port, running_mail_sink() as sink:
        settings = {
            "TRIMTAB_APPLY_ENABLED": "true", "TRIMTAB_APPLY_STOP_FILE": f"{tmp_path}/STOP",
            "TRIMTAB_NOTIFY_WEBHOOK_URL": f"http://127.0.0.1:{port}/x",
            "TRIMTAB_NOTIFY_MAIL_TO": ADDRESS,
            "TRIMTAB_NOTIFY_SMTP_URL": sink.url,
        }  # fmt: skip
        with running_server(url, tmp_path, **settings) as server:
            answer(server, "/api/v1/stop", method="POST", body=body, X_Trimtab_By="Robin",
                   Content_Type="application/json", Content_Length=str(len(body)))  # fmt: skip
            subjects = wait_for_mails(sink, "stopped")
    assert "stopped" in " ".join(subjects)


def wait_for_mails(sink: object, word: str) -> list[str]:
    """Return the mails once one of them has that word; others tell that readings are old."""
    waiting = threading.Event()
    for _tenth in range(10 * PATIENCE):
        mails: list[object] = sink.mails  # type: ignore[attr-defined]
        if any(word in str(kept) for kept in mails):
            return [str(kept) for kept in mails]
        waiting.wait(0.1)
    pytest.fail("no mail came while the webhook was slow")
