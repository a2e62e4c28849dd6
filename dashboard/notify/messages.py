"""From an audit entry to what people read. Text of the record is hostile: one line, no markup."""

from data.access_settings import NotifySettings, entries
from data.errors import scrub
from data.records.decisions import AuditEntry
from data.store.outbox import Message

_SUBJECT_LIMIT = 120
_DETAIL_LIMIT = 500
WEBHOOK, MAIL = "webhook", "mail"


def messages_for(entry: AuditEntry, settings: NotifySettings) -> tuple[Message, ...]:
    """Return the messages of one entry: one per recipient, none for what is not to be told."""
    if entry.event not in entries(settings.events):
        return ()
    recipients = [(MAIL, address) for address in entries(settings.mail_to)]
    if settings.webhook_url:
        # The address is a secret: it stays in the settings and out of the store.
        recipients.append((WEBHOOK, "notify.webhook_url"))
    what = f"recommendation {entry.digest[:12]} " if entry.digest else "applying "
    subject = scrub(f"Trimtab: {what}{entry.event} by {entry.actor}", limit=_SUBJECT_LIMIT)
    body = "\n".join(
        (
            subject,
            f"at {entry.at:%Y-%m-%d %H:%M:%S} UTC, audit entry {entry.sequence}",
            scrub(entry.detail, limit=_DETAIL_LIMIT),
            f"trimtab recommendations show {entry.digest[:12]}" if entry.digest else "",
        )
    ).strip()
    return tuple(
        Message(
            entry=entry.sequence, channel=channel, recipient=recipient, subject=subject, body=body
        )
        for channel, recipient in recipients
    )
