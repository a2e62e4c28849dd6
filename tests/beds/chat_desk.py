"""A server with approvals from both chats on, and requests as these would send them."""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from beds.api_clients import PROXY, clients, two_owners
from httpx2 import Response
from starlette.testclient import TestClient

from dashboard.api.routes import chat_webhooks
from dashboard.notify.chat_signing import slack_signature, teams_signature
from dashboard.notify.webhook import APPROVE
from data.base.clock import utc_now
from data.settings.access import ChatSettings
from data.settings.all_settings import Settings
from data.store import Store

SECRET, TOKEN = "8f742231b10e8888abcd99yyyzzz85a5", base64.b64encode(b"k" * 32).decode()
OBJECT = "47a1f28c-eaad-4a6e-bb12-605cc0cd047a"
CHAT = ChatSettings(
    slack_signing_secret=SECRET, teams_security_token=TOKEN,
    people=f"slack:T01/U01=ann, slack:T01/U02=search, slack:T01/U03=vera, teams:{OBJECT}=ann",
)  # fmt: skip


class Desk:
    """A server with both chats on, and requests as these would send them."""

    def __init__(self, client: Callable[..., TestClient], store: Store) -> None:
        self.client = client(peer="203.0.113.9")
        self.store = store
        self.digest = {
            f"TT-{recommendation.finding}": recommendation.recommendation.digest
            for recommendation in store.reader.recommendations(now=utc_now())
            if recommendation.state == "proposed"
        }
        self.events = len(store.reader.audit())

    def approved(self) -> list[tuple[str, str]]:
        """Who approved what since, with the remark."""
        return [
            (entry.actor, entry.detail)
            for entry in self.store.reader.audit()[self.events :]
            if entry.event == "approved"
        ]

    def slack(self, finding: str = "TT-1", **changes: Any) -> Response:
        """Press a button."""
        value = changes.pop("value", f"{finding} {self.digest.get(finding, '')}")
        payload = {
            "type": "block_actions", "user": {"id": changes.pop("user", "U01"), "team_id": "T01"},
            "actions": [{"action_id": APPROVE, "value": value}],
        }  # fmt: skip
        payload |= changes.pop("payload", {})
        body = changes.pop("body", urlencode({"payload": json.dumps(payload)}).encode())
        at = str(changes.pop("at", int(utc_now().timestamp())))
        headers = {
            "X-Slack-Request-Timestamp": at,
            "X-Slack-Signature": slack_signature(SECRET, at, body),
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return self.client.post("/api/v1/chat/slack", content=body, headers=headers | changes)

    def teams(self, text: str = "", **changes: Any) -> Response:
        """Write to the webhook."""
        said = {
            "type": "message", "text": f"<at>Trimtab</at>&nbsp;{text}\n",
            "timestamp": utc_now().isoformat(), "from": {"aadObjectId": OBJECT},
        }  # fmt: skip
        body = json.dumps(said | changes.pop("said", {})).encode()
        headers = {"Authorization": teams_signature(TOKEN, body)}
        return self.client.post("/api/v1/chat/teams", content=body, headers=headers | changes)


@contextmanager
def opened(folder: Path, chat: ChatSettings = CHAT) -> Iterator[Desk]:
    """A finding of each of two owners; ann approves, search owns, vera looks."""
    with (
        pytest.MonkeyPatch.context() as patch,
        two_owners(folder) as store,
        clients(store, PROXY, settings=Settings(access=PROXY, chat=chat)) as client,
    ):
        patch.setattr(chat_webhooks, "SLACK_ANSWERS", "http://127.0.0.1:")
        yield Desk(client, store)


@contextmanager
def slack_server() -> Iterator[tuple[str, list[Any]]]:
    """What takes answers to a button, and the answers."""
    heard: list[Any] = []

    class Takes(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if self.path == "/moved":
                self.send_response(307)
                self.send_header("Location", "/answer")
                self.end_headers()
                return
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_said: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Takes) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/answer", heard
        server.shutdown()
