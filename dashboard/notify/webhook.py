"""A message to the webhook of a chat: Slack and what takes its messages, or Microsoft Teams."""

from typing import Any

import requests

from dashboard.foreign_text import chat, shown
from dashboard.notify.failure import NotDeliveredError
from data.access_settings import NotifySettings
from data.store.outbox import Message

_NO_MARKUP: dict[str, Any] = {
    "mrkdwn": False,
    "parse": "none",
    "link_names": False,
    "unfurl_links": False,
    "unfurl_media": False,
}
"""Asked of the chat on top of the escaping: whoever reads one of them reads no markup."""


SLACK, TEAMS = "slack", "teams"
_MAX_BLOCK = 3000
"""Characters that Slack takes in a text of a block."""
_OPEN = "Open in Trimtab"


def slack_text(text: str) -> str:
    """Return text that mentions nobody and links nowhere (see `foreign_text.chat`)."""
    return chat(text)


def content_of(body: str, kind: str, *, public_url: str = "") -> dict[str, Any]:
    """Return what the chat of a kind takes: the text without any markup, and one button.

    The button leads to the last line of the body where that is an address of the dashboard. Lines
    of a message are ours, and what others wrote is cut to one line, so it is no address of theirs.
    """
    text, _, last = body.rpartition("\n")
    link = last if public_url and last.startswith(f"{public_url.rstrip('/')}/") else ""
    told = text if link else body
    if kind == TEAMS:
        # A TextRun is shown as it is; a TextBlock would read Markdown.
        runs = [
            {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": shown(line)}]}
            for line in told.splitlines()
        ]
        card = {
            "type": "AdaptiveCard",
            "version": "1.4",
            "body": runs,
            "actions": [{"type": "Action.OpenUrl", "title": _OPEN, "url": link}] if link else [],
        }
        kind_of_card = "application/vnd.microsoft.card.adaptive"
        return {
            "type": "message",
            "attachments": [{"contentType": kind_of_card, "contentUrl": None, "content": card}],
        }
    content: dict[str, Any] = {"text": slack_text(body)}
    if link:
        words = {"type": "plain_text", "text": slack_text(told)[:_MAX_BLOCK], "emoji": False}
        button = {"type": "button", "text": {"type": "plain_text", "text": _OPEN}, "url": link}
        content["blocks"] = [
            {"type": "section", "text": words},
            {"type": "actions", "elements": [button]},
        ]
    return _NO_MARKUP | content


def send(message: Message, settings: NotifySettings, *, public_url: str = "") -> None:
    """Post a message. Errors: NotDeliveredError."""
    content = content_of(message.body, settings.webhook_kind, public_url=public_url)
    post(content, message.message_id, settings)


def post(content: dict[str, Any], message_id: str, settings: NotifySettings) -> None:
    """Post what a webhook takes. Errors: NotDeliveredError. The id lets it drop a repeat."""
    try:
        # The body of the answer is not read: it may be endless.
        with requests.post(
            settings.webhook_url,
            json=content,
            headers={"Idempotency-Key": message_id},
            timeout=settings.timeout_seconds,
            allow_redirects=False,
            stream=True,
        ) as answer:
            status = answer.status_code
    except requests.RequestException as error:
        # The text of the error may hold the address, which is a secret.
        raise NotDeliveredError(f"the webhook did not answer ({type(error).__name__})") from None
    if status // 100 != 2:
        raise NotDeliveredError(f"the webhook answered {status}")
