"""Fills the outbox from the audit and sends what is due, one message at a time."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from dashboard.notify import mail, webhook
from dashboard.notify.messages import MAIL, WEBHOOK, messages_for
from dashboard.notify.report_mail import (
    REPORT_MAIL,
    REPORT_WEBHOOK,
    attach,
    ordered_report,
    summary,
)
from data.base.clock import utc_now
from data.base.errors import scrub
from data.base.failure import NotDeliveredError
from data.records.commands import AuditEntry
from data.settings.all_settings import Settings
from data.store import Store
from data.store.record.outbox import Message

logger = logging.getLogger(__name__)
_CLAIM_TIMEOUT = timedelta(minutes=5)
"""Longer than sending may take (10 s a connection): a claim that ran out belongs to a dead one."""
_MAX_TRIES = 8
"""With pauses that double, in some four minutes: later it would be no news."""
_TICKET = "ticket"
"""The sink of orders that an earlier version left in the store: they end, with a log line."""
SINKS = {
    "webhook": (WEBHOOK, REPORT_WEBHOOK),
    "mail": (MAIL, REPORT_MAIL, _TICKET),
}
"""Where messages go, with the channels of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifier:
    """Tells people, under the settings of the moment."""

    store: Store
    settings: Callable[[], Settings]
    clock: Callable[[], datetime] = utc_now

    def deliver_once(self, sink: str = "") -> bool:
        """Send one message that is due; tell whether there was one. Errors: StoreError.

        To one of `SINKS` where it is named: whoever waits for a slow one keeps no other waiting.
        """
        every = self.settings()
        settings = every.notify
        reader, url = self.store.reader, every.access.public_url

        def messages_of(entry: AuditEntry) -> tuple[Message, ...]:
            about = reader.finding_about(entry.digest)
            return messages_for(entry, settings, finding=about, public_url=url)

        self.store.outbox.fill(messages_of, now=self.clock())
        claim = self.store.outbox.claim(
            now=self.clock(), lasting=_CLAIM_TIMEOUT, channels=SINKS[sink] if sink else ()
        )
        if claim is None:
            return False
        try:
            self._send(claim.message, every)
        except NotDeliveredError as error:
            logger.warning(
                "%r was not delivered at try %d of %d: %s",
                scrub(claim.message.subject),
                claim.attempts,
                _MAX_TRIES,
                error,
            )
            self.store.outbox.failed(claim, error.message, now=self.clock(), most=_MAX_TRIES)
        else:
            self.store.outbox.sent(claim)
        return True

    def _send(self, message: Message, settings: Settings) -> None:
        """Send by the channel of the message. Errors: NotDeliveredError, StoreError."""
        notify = settings.notify
        if message.channel == WEBHOOK:
            webhook.send(message, notify, public_url=settings.access.public_url)
        elif message.channel == _TICKET:
            raise NotDeliveredError("Trimtab opens no tickets any more")
        elif message.channel == REPORT_MAIL:
            letter = mail.mail_of(message, notify)
            attach(letter, ordered_report(message.body, self.store.reader, settings))
            mail.send_mail(letter, message.recipient, notify)
        elif message.channel == REPORT_WEBHOOK:
            text = summary(ordered_report(message.body, self.store.reader, settings))
            if public := settings.access.public_url:
                text = f"{text}\n{public.rstrip('/')}/account?tab=reports"
            content = webhook.content_of(text, notify.webhook_kind, public_url=public)
            webhook.post(content, message.message_id, notify)
        else:
            mail.send(message, notify)
