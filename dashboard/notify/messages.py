"""Messages for people from audit entries. Text of the record is hostile: one line, no markup."""

import re

from dashboard.common.escaping import unlinked
from data.base.errors import scrub
from data.records.commands import AuditEntry
from data.records.findings import Finding
from data.settings.access import NotifySettings
from data.settings.fields import entries
from data.store.record.outbox import Message
from data.store.record.report_log import URGENT

_SUBJECT_LIMIT = 120
_DETAIL_LIMIT = 500
WEBHOOK, MAIL = "webhook", "mail"
NO_LINK = "No link can be given: access.public_url is not set."


def messages_for(
    entry: AuditEntry,
    settings: NotifySettings,
    *,
    finding: Finding | None = None,
    public_url: str = "",
) -> tuple[Message, ...]:
    """Return the messages of one entry: one per recipient, none for what is not to be told.

    `finding` is what the entry is about, None for what is about no recommendation. `public_url` is
    where browsers find the dashboard, '' where they do not.
    """
    if entry.event not in entries(settings.events):
        return ()
    subject, body = _subject_and_body(entry, finding, public_url)
    plain = _without_links(body, public_url)
    recipients = [(MAIL, address) for address in entries(settings.mail_to)]
    if settings.webhook_url:
        # The address is a secret: it stays in the settings and out of the store.
        recipients.append((WEBHOOK, "notify.webhook_url"))
    return tuple(
        Message(
            entry=entry.sequence,
            channel=channel,
            recipient=recipient,
            subject=subject,
            body=body if channel == WEBHOOK else plain,
        )
        for channel, recipient in recipients
    )


def _without_links(body: str, public_url: str) -> str:
    """Return a body in which a program of mail finds no address but our own, whole lines of it."""
    address = re.escape(f"{public_url.rstrip('/')}/")
    ours = re.compile(rf"{address}(?:admin|findings\?finding=TT-\d+)" if public_url else "")
    return "\n".join(line if ours.fullmatch(line) else unlinked(line) for line in body.split("\n"))


def _subject_and_body(
    entry: AuditEntry, finding: Finding | None, public_url: str
) -> tuple[str, str]:
    """Return subject and body of the message of one entry."""
    what, look = "applying", ""
    if finding is not None:
        what = f"{finding.reference} ({finding.action} of {finding.target})"
        look = f"trimtab findings show {finding.reference}"
        if public_url:
            look = f"{public_url.rstrip('/')}/findings?finding={finding.reference}"
    elif entry.digest:
        what = f"recommendation {entry.digest[:12]}"
        look = f"trimtab findings show {entry.digest[:12]}"
    headline = f"{what} {entry.event} by {entry.actor}"
    if entry.event == URGENT:
        headline = f"urgent: {entry.detail}"
        if finding is None:
            look = f"{public_url.rstrip('/')}/admin" if public_url else "trimtab urgent"
        if not public_url:
            look += f"\n{NO_LINK}"
    subject = scrub(f"Trimtab: {headline}", limit=_SUBJECT_LIMIT)
    body = "\n".join(
        (
            subject,
            f"at {entry.at:%Y-%m-%d %H:%M:%S} UTC, audit entry {entry.sequence}",
            scrub(entry.detail, limit=_DETAIL_LIMIT),
            look,
        )
    ).strip()
    return subject, body
