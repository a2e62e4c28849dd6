"""Fills the outbox from the audit and sends what is due, one message at a time."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from dashboard.decisions.findings import findings_now
from dashboard.notify import mail, webhook
from dashboard.notify.digest import digest_text, open_findings, team_of
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
from data.settings.access import HOURS
from data.settings.all_settings import Settings
from data.store import Store
from data.store.record.outbox import Message
from data.store.record.report_log import DIGEST, URGENT

logger = logging.getLogger(__name__)
_CLAIMED = timedelta(minutes=5)
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
AT_ONCE = frozenset({URGENT, "failing", "stopped", "resumed"})
"""Events that are told at any hour."""


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
            about, digest, team = reader.finding_about(entry.digest), None, ""
            if entry.event == DIGEST:
                team = team_of(entry.detail)
                findings = open_findings(findings_now(reader, now=entry.at), team)
                digest = digest_text(findings, every, team=team)
            messages = messages_for(
                entry,
                settings,
                finding=about,
                public_url=url,
                digest=digest,
                team=team,
            )
            if entry.event in AT_ONCE:
                return messages
            until = quiet_until(self.clock(), settings.quiet_time, every.report.timezone)
            return tuple(replace(message, held_until=until) for message in messages)

        self.store.outbox.fill(messages_of, now=self.clock())
        claim = self.store.outbox.claim(
            now=self.clock(), lasting=_CLAIMED, channels=SINKS[sink] if sink else ()
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
            mail.hand_over(letter, message.recipient, notify)
        elif message.channel == REPORT_WEBHOOK:
            text = summary(ordered_report(message.body, self.store.reader, settings))
            if public := settings.access.public_url:
                text = f"{text}\n{public.rstrip('/')}/account?tab=reports"
            content = webhook.content_of(text, notify.webhook_kind, public_url=public)
            webhook.post(content, message.message_id, notify)
        else:
            mail.send(message, notify)


def quiet_until(now: datetime, hours: str, zone: str) -> datetime | None:
    """Return when the quiet hours around `now` end, UTC; None outside of them.

    `hours` is such as 22:00-07:00 by the clock of the zone, '' for none. Where the clock changes,
    they end by its new time.
    """
    match = HOURS.fullmatch(hours)
    if match is None:
        return None
    begin_hour, begin_minute, end_hour, end_minute = map(int, match.groups())
    begin, end = time(begin_hour, begin_minute), time(end_hour, end_minute)
    local = now.astimezone(ZoneInfo(zone))
    clock = local.time()
    inside = begin <= clock < end if begin < end else clock >= begin or clock < end
    if not inside:
        return None
    day = local.date() + timedelta(days=int(clock >= end))
    return datetime.combine(day, end, tzinfo=local.tzinfo).astimezone(UTC)
