"""A message to a Slack-compatible webhook."""

from typing import Any

import requests

from dashboard.foreign_text import chat
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


def slack_text(text: str) -> str:
    """Return text that mentions nobody and links nowhere (see `foreign_text.chat`)."""
    return chat(text)


def send(message: Message, settings: NotifySettings) -> None:
    """Post a message. Errors: NotDeliveredError."""
    post({"text": slack_text(message.body)}, message.message_id, settings)


def post(content: dict[str, Any], message_id: str, settings: NotifySettings) -> None:
    """Post what a webhook takes. Errors: NotDeliveredError. The id lets it drop a repeat."""
    try:
        # The body of the answer is not read: it may be endless.
        with requests.post(
            settings.webhook_url,
            json=_NO_MARKUP | content,
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
