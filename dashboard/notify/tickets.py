"""A ticket for a finding, in Jira or ServiceNow; the answer's number is kept in the record.

One ticket a finding: the entry `ticket` of the record, which stands with the finding, is its proof.
"""

import json
import re
import time
from typing import Any

import requests
from urllib3.exceptions import HTTPError

from collectors.shared.http_deadline import sent, whole_body
from dashboard.common.escaping import shown
from dashboard.notify.webhook import TIMEOUT_SECONDS
from data.base.errors import scrub
from data.base.failure import NotDeliveredError
from data.records.commands import AuditEntry
from data.records.findings import Finding
from data.settings.access import NotifySettings
from data.settings.fields import entries
from data.store import StoreReader
from data.store.record.outbox import Message

TICKET = "ticket"
"""The channel of the outbox, and the event of the record."""
_RECIPIENT = "notify.ticket_url"
_MAX_ANSWER = 65_536
_JIRA_MARKUP = re.compile(r"[\\*_{}\[\]|!^~+]")
_NUMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def ticket_for(
    entry: AuditEntry, settings: NotifySettings, finding: Finding | None, message: tuple[str, str]
) -> tuple[Message, ...]:
    """Return the order of a ticket about the finding of an entry, none for what makes none.

    `message` are subject and body of the message about it.
    """
    is_due = settings.ticket_url and entry.event in entries(settings.ticket_events)
    if not is_due or finding is None:
        return ()
    order = {"number": finding.number, "digest": entry.digest, "text": message[1]}
    # The address may hold a secret: it stays in the settings and out of the store.
    return (
        Message(
            entry=entry.sequence,
            channel=TICKET,
            recipient=_RECIPIENT,
            subject=message[0],
            body=json.dumps(order),
        ),
    )


def ticket_of(reader: StoreReader, number: int) -> str:
    """Return the ticket of a finding, '' without one."""
    tickets = [entry.detail for entry in reader.entries_about(number) if entry.event == TICKET]
    return tickets[-1] if tickets else ""


def open_ticket(message: Message, settings: NotifySettings, reader: StoreReader) -> tuple[str, str]:
    """Open the ticket that a message orders; give the digest it is about, and its number.

    The number is '' where the finding has a ticket. Errors: NotDeliveredError.
    """
    order = json.loads(message.body)
    if ticket_of(reader, order["number"]):
        return order["digest"], ""
    answer = _post(_content(message.subject, order["text"], settings), message, settings)
    number = answer.get("key") if settings.ticket_project else _result(answer).get("number")
    if not isinstance(number, str) or not _NUMBER.fullmatch(number):
        raise NotDeliveredError("the answer of notify.ticket_url names no ticket")
    return order["digest"], number


def _content(subject: str, text: str, settings: NotifySettings) -> dict[str, Any]:
    """Return the content for the system; Jira reads markup, so what it reads is escaped."""
    *lines, last = map(shown, text.splitlines())
    # What others wrote is no address; the last line is ours, and may be one.
    lines = [*(line.replace("://", ":\u2060//") for line in lines), last]
    if not settings.ticket_project:
        return {"short_description": shown(subject), "description": "\n".join(lines)}
    escaped = [_JIRA_MARKUP.sub(r"\\\g<0>", line) for line in lines]
    fields = {
        "project": {"key": settings.ticket_project},
        "issuetype": {"name": "Task"},
        "summary": shown(subject),
        "description": "\n".join(escaped),
    }
    return {"fields": fields}


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    result = answer.get("result")
    return result if isinstance(result, dict) else {}


def _post(content: dict[str, Any], message: Message, settings: NotifySettings) -> dict[str, Any]:
    """Post it and return the answer's object. Errors: NotDeliveredError."""
    headers = {"Idempotency-Key": message.message_id, "Accept": "application/json"}
    auth = None
    if settings.ticket_user:
        auth = (settings.ticket_user, settings.ticket_token)
    elif settings.ticket_token:
        headers["Authorization"] = f"Bearer {settings.ticket_token}"
    try:
        ends = time.monotonic() + TIMEOUT_SECONDS
        with sent(
            "POST",
            settings.ticket_url,
            seconds=TIMEOUT_SECONDS,
            trust_env=True,
            json=content,
            headers=headers,
            auth=auth,
        ) as answer:
            status = answer.status_code
            body = whole_body(answer, ends=ends, max_bytes=_MAX_ANSWER)
    except (requests.RequestException, HTTPError, OSError) as error:
        raise NotDeliveredError(
            f"notify.ticket_url did not answer ({type(error).__name__})"
        ) from None
    if status // 100 != 2:
        raise NotDeliveredError(f"notify.ticket_url answered {status}")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NotDeliveredError(
            f"the answer of notify.ticket_url is no JSON: {scrub(str(error), limit=80)}"
        ) from None
    return document if isinstance(document, dict) else {}
