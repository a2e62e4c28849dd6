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
_MAX_ACTIONS = 6
"""Buttons that Teams shows of a card."""
_OPEN = "Open in Trimtab"
_PLACE = re.compile(r"findings(\?finding=TT-\d+)?|admin|account\?tab=reports")
"""Where our own lines lead; nobody's comment makes a button to anywhere else."""


def content_of(body: str, kind: str, *, public_url: str = "") -> dict[str, Any]:
    """Return the content for the chat of a kind: text without any markup, and a button a link.

    A line that is an address of the dashboard becomes the button of the lines before it. Lines of
    a message are ours, and what others wrote is cut to one line, so it is no address of theirs.
    """
    parts = _parts(body, public_url)
    links = [link for _told, link in parts if link]
    if kind == TEAMS:
        # A TextRun is shown as it is; a TextBlock would read Markdown.
        runs = [
            {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": shown(line)}]}
            for text, _link in parts
            for line in text.splitlines()
        ]
        card = {
            "type": "AdaptiveCard",
            "version": "1.4",
            "body": runs,
            "actions": [
                {"type": "Action.OpenUrl", "title": _title(link), "url": link}
                for link in links[-_MAX_ACTIONS:]
            ],
        }
        kind_of_card = "application/vnd.microsoft.card.adaptive"
        return {
            "type": "message",
            "attachments": [{"contentType": kind_of_card, "contentUrl": None, "content": card}],
        }
    content: dict[str, Any] = {"text": chat(body)}
    blocks: list[dict[str, Any]] = []
    for text, link in parts if links else ():
        words = {"type": "plain_text", "text": chat(text)[:_MAX_BLOCK], "emoji": False}
        blocks += [{"type": "section", "text": words}] if text else []
        if link:
            words = {"type": "plain_text", "text": _title(link)}
            button = {"type": "button", "text": words, "url": link}
            blocks.append({"type": "actions", "elements": [button]})
    return _NO_MARKUP | content | ({"blocks": blocks} if blocks else {})


def _parts(body: str, public_url: str) -> list[tuple[str, str]]:
    """Return the lines of a body up to each address of the dashboard, and that, '' for none."""
    parts, lines = list[tuple[str, str]](), list[str]()
    for line in body.splitlines():
        place = line.removeprefix(f"{public_url.rstrip('/')}/")
        if public_url and place != line and _PLACE.fullmatch(place):
            parts.append(("\n".join(lines), line))
            lines = []
        else:
            lines.append(line)
    return [*parts, ("\n".join(lines), "")] if lines else parts


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
