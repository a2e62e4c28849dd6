"""A message by e-mail. The standard library refuses line breaks in headers; so do the settings."""

import smtplib
import socket
import ssl
from contextlib import ExitStack
from email.message import EmailMessage
from email.utils import format_datetime
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from collectors.shared.http_deadline import end_within
from dashboard.notify.webhook import TIMEOUT_SECONDS
from data.base.clock import utc_now
from data.base.errors import scrub
from data.base.failure import NotDeliveredError
from data.settings.access import NotifySettings
from data.store.record.outbox import Message


def mail_of(message: Message, settings: NotifySettings) -> EmailMessage:
    """Return the mail, its text the message's body.

    Errors: NotDeliveredError when a header would break out of its line.
    """
    mail = EmailMessage()
    domain = settings.mail_from.partition("@")[2]
    headers = {
        "From": settings.mail_from,
        "To": message.recipient,
        # The library would decode `=?utf-8?q?…=0D=0A…?=` and write the line break it held.
        "Subject": message.subject.replace("=?", "= ?"),
        "Date": format_datetime(utc_now()),
        "Message-ID": f"<{message.message_id[:40]}@{domain}>",
        "Auto-Submitted": "auto-generated",
    }
    try:
        for name, value in headers.items():
            mail[name] = value
    except ValueError as error:
        raise NotDeliveredError(f"a header holds a line break: {scrub(str(error))}") from error
    mail.set_content(message.body)
    return mail


_MAX_REPLY = 64 * 1024


class _Replies:
    """Lines that a mail server sends: those of one reply are read up to a limit."""

    def __init__(self, lines: BinaryIO) -> None:
        self._lines = lines
        self.left = _MAX_REPLY
        self.close = lines.close

    def readline(self, most: int) -> bytes:
        """Return the next line. Errors: SMTPServerDisconnected."""
        line = self._lines.readline(most)
        self.left -= len(line)
        if self.left < 0:
            raise smtplib.SMTPServerDisconnected("its reply is too long")
        return line


class _BoundedSMTP(smtplib.SMTP):
    """A session that ends after its timeout in all, and with a reply that is too long."""

    def getreply(self) -> tuple[int, bytes]:
        """Return code and text of the next reply. Errors: SMTPServerDisconnected."""
        if self.file is None and self.sock is not None:
            self.file = _Replies(self.sock.makefile("rb"))
        if self.file is not None:
            self.file.left = _MAX_REPLY
        return super().getreply()

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        connection: socket.socket = super()._get_socket(host, port, timeout)  # type: ignore[misc]
        self._bounds = ExitStack()
        end_within(self._bounds, connection, timeout)
        return connection

    def close(self) -> None:
        """Close the connection, and wait for its end no more."""
        super().close()
        if hasattr(self, "_bounds"):
            self._bounds.close()


def send(message: Message, settings: NotifySettings) -> None:
    """Hand a message to the mail server. Errors: NotDeliveredError."""
    send_mail(mail_of(message, settings), message.recipient, settings)


def send_mail(mail: EmailMessage, recipient: str, settings: NotifySettings) -> None:
    """Hand a mail to the mail server. Errors: NotDeliveredError."""
    parts = urlsplit(settings.smtp_url)
    host, port = parts.hostname or "", parts.port or 25
    try:
        with _BoundedSMTP(host, port, timeout=TIMEOUT_SECONDS) as server:
            if parts.scheme == "smtp+starttls":
                server.starttls(context=ssl.create_default_context())
            if parts.username:
                server.login(unquote(parts.username), settings.smtp_password)
            server.send_message(mail, to_addrs=[recipient])
    except (OSError, smtplib.SMTPException, ValueError) as error:  # also a challenge of no base64
        raise NotDeliveredError(f"mail server {host}:{port}: {scrub(str(error))}") from error
