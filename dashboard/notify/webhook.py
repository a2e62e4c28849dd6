"""A message to the webhook of a chat: Slack and what takes its messages, or Microsoft Teams."""

import re
from typing import Any

import requests

from collectors.shared.http_deadline import sent
from dashboard.common.escaping import chat, shown
from data.base.failure import NotDeliveredError
from data.settings.access import NotifySettings
from data.store.record.outbox import Message

_NO_MARKUP: dict[str, Any] = {
    "mrkdwn": False,
    "parse": "none",
    "link_names": False,
    "unfurl_links": False,
    "unfurl_media": False,
}
"""Asked of the chat on top of the escaping: whoever reads one of them reads no markup."""


SLACK, TEAMS = "slack", "teams"
TIMEOUT_SECONDS = 10.0
_MAX_BLOCK = 3000
"""Characters that Slack takes in a text of a block."""
_OPEN = "Open in Trimtab"
_PLACE = re.compile(r"findings\?finding=TT-\d+|admin|account\?tab=reports")
"""Where our own lines lead; nobody's comment makes a button to anywhere else."""


def content_of(body: str, kind: str, *, public_url: str = "") -> dict[str, Any]:
    """Return the content for the chat of a kind: text without any markup, and the link a button.

    Trimtab writes the lines of a message; foreign text is cut to one line, so no line is an address
    that others wrote.
    """
    lines = body.splitlines()
    base = f"{public_url.rstrip('/')}/"
    links = [
        line
        for line in lines
        if public_url and line.startswith(base) and _PLACE.fullmatch(line.removeprefix(base))
    ]
    lines = [line for line in lines if line not in links]
    if kind == TEAMS:
        card = {
            "type": "AdaptiveCard",
            "version": "1.4",
            # A TextRun is shown as it is; a TextBlock would read Markdown.
            "body": [
                {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": shown(line)}]}
                for line in lines
            ],
            "actions": [
                {"type": "Action.OpenUrl", "title": _title(link), "url": link} for link in links
            ],
        }
        kind_of_card = "application/vnd.microsoft.card.adaptive"
        return {
            "type": "message",
            "attachments": [{"contentType": kind_of_card, "contentUrl": None, "content": card}],
        }
    content = _NO_MARKUP | {"text": chat(body)}
    if links:
        words = {"type": "plain_text", "text": chat("\n".join(lines))[:_MAX_BLOCK], "emoji": False}
        buttons = [
            {
                "type": "button",
                "text": {"type": "plain_text", "text": _title(link)},
                "url": link,
            }
            for link in links
        ]
        content["blocks"] = [
            {"type": "section", "text": words},
            {"type": "actions", "elements": buttons},
        ]
    return content


def _title(link: str) -> str:
    """Return the title of the button of an address: of one finding its number."""
    return f"Open {number}" if (number := link.partition("?finding=")[2]) else _OPEN


def send(message: Message, settings: NotifySettings, *, public_url: str = "") -> None:
    """Post a message. Errors: NotDeliveredError."""
    content = content_of(message.body, settings.webhook_kind, public_url=public_url)
    post(content, message.message_id, settings)


def post(content: dict[str, Any], message_id: str, settings: NotifySettings) -> None:
    """Post what a webhook takes. Errors: NotDeliveredError. The id lets it drop a repeat."""
    try:
        # The body of the answer is not read: it may be endless.
        with sent(
            "POST",
            settings.webhook_url,
            seconds=TIMEOUT_SECONDS,
            trust_env=True,
            json=content,
            headers={"Idempotency-Key": message_id},
        ) as answer:
            status = answer.status_code
    except (requests.RequestException, OSError) as error:
        # The text of the error may hold the address, which is a secret.
        raise NotDeliveredError(f"the webhook did not answer ({type(error).__name__})") from None
    if status // 100 != 2:
        raise NotDeliveredError(f"the webhook answered {status}")
