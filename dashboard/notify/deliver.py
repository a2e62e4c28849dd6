"""Fills the outbox from the audit and sends what is due, one message at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from dashboard.notify import mail, webhook
from dashboard.notify.failure import NotDeliveredError
from dashboard.notify.messages import WEBHOOK, messages_for
from data.clock import utc_now
from data.settings import Settings
from data.store import Store

_CLAIMED = timedelta(minutes=5)
"""Longer than sending may take (60 s a connection): a claim that ran out belongs to a dead one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifier:
    """Tells people, under the settings of the moment."""

    store: Store
    settings: Callable[[], Settings]
    clock: Callable[[], datetime] = utc_now

    def deliver_once(self) -> bool:
        """Send one message that is due; tell whether there was one. Errors: StoreError."""
        settings = self.settings().notify
        self.store.outbox.fill(lambda entry: messages_for(entry, settings), now=self.clock())
        claim = self.store.outbox.claim(now=self.clock(), lasting=_CLAIMED)
        if claim is None:
            return False
        send = webhook.send if claim.message.channel == WEBHOOK else mail.send
        try:
            send(claim.message, settings)
        except NotDeliveredError as error:
            self.store.outbox.failed(claim, error.message, now=self.clock(), most=settings.attempts)
        else:
            self.store.outbox.sent(claim)
        return True
