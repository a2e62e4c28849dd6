"""A mail server on loopback that keeps what it is sent: enough SMTP for one client at a time."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO


@dataclass
class Kept:
    """One mail: the envelope's recipients and the text with its headers."""

    recipients: list[str]
    text: str


@dataclass
class MailSink:
    """Where mails arrive; `refusing` answers every mail with a temporary failure."""

    url: str = ""
    mails: list[Kept] = field(default_factory=list)
    refusing: bool = False


def _body(lines: BinaryIO) -> str | None:
    """Return the text of a mail up to its end, None when the sender is gone before."""
    found = []
    while (line := lines.readline().decode()) != ".\r\n":
        if not line:
            return None
        found.append(line)
    return "".join(found)


@contextmanager
def running_mail_sink() -> Iterator[MailSink]:
    """Serve on a free loopback port until the block ends."""
    sink = MailSink()

    class Session(socketserver.StreamRequestHandler):
        def say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

        def handle(self) -> None:
            self.say("220 sink")
            recipients: list[str] = []
            while line := self.rfile.readline().decode().strip():
                word = line.upper()[:4]
                if word == "QUIT":
                    self.say("221 bye")
                    return
                if word == "RCPT":
                    recipients.append(line.partition("<")[2].partition(">")[0])
                if word != "DATA":
                    self.say("250 ok")
                elif sink.refusing:
                    self.say("451 try later")
                else:
                    self.say("354 go on")
                    text = _body(self.rfile)
                    if text is None:
                        return
                    sink.mails.append(Kept(recipients, text))
                    recipients = []
                    self.say("250 kept")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        sink.url = f"smtp://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield sink
        finally:
            server.shutdown()
            thread.join()
