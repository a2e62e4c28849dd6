"""Approvals from Slack and Teams: a signed request of a person whom the settings name.

An approval is for the digest that the message showed, and goes through the same decision service
with the same rights as on the pages. Nothing else can be done from a chat.
"""

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

import requests
from fastapi import FastAPI, Request
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from collectors.shared.http_deadline import sent
from dashboard.decisions.service import DecisionService
from dashboard.notify.chat_signing import (
    SeenSignatures,
    require_fresh,
    require_same,
    slack_signature,
    teams_signature,
)
from dashboard.notify.webhook import APPROVE, TEAMS, TeamsMessage, content_of, slack_text
from data.base.errors import ChangeRefusedError, NotAllowedError, NotKnownError, TrimtabError, scrub
from data.records.commands import Person
from data.records.findings import number_of
from data.records.recommendations import Decision
from data.settings.access import ChatSettings

logger = logging.getLogger(__name__)
CHAT_PATHS = frozenset({"/api/v1/chat/slack", "/api/v1/chat/teams"})
"""Signed by a chat, so they are asked without another sign-in."""
_WISH = re.compile(r"approve\s+(TT-\d{1,9})\s+([0-9a-f]{12,64})", re.IGNORECASE | re.ASCII)
_MENTION = re.compile(r"<at>[^<]{0,200}</at>|&nbsp;|</?(?:p|div|span)>", re.IGNORECASE)
_NO_WISH = "To approve, write: approve TT-12 and the digest that the message shows."
_ANSWER_SECONDS = 5
_SLACK_HOST = "hooks.slack.com"
SLACK_ANSWERS = f"https://{_SLACK_HOST}/"
"""The host to which answers to a button are posted: Slack gives no other."""
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
            "application/json": {"schema": {"type": "object"}},
        },
    }
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wished:
    """An approval that an account of a chat asks for; `answer_to` is where Slack takes words."""

    account: str
    finding: str
    digest: str
    answer_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDoor:
    """Requests of both chats, under the settings of the moment."""

    service: DecisionService
    signatures: SeenSignatures = field(default_factory=SeenSignatures)

    def settings_of(self, chat: str) -> ChatSettings:
        """Return the settings. Errors: NotKnownError where the chat is switched off."""
        chat_settings = self.service.settings().chat
        if not chat_settings.takes(chat):
            raise NotKnownError(
                f"approvals from {chat} are off", "Set its secret in the section chat."
            )
        return chat_settings

    def from_slack(self, request: Request, body: bytes) -> Wished | None:
        """Return the request of a press of a button, None for any other. Errors: TrimtabError."""
        settings, now = self.settings_of("slack"), self.service.clock()
        stated = request.headers.getlist("x-slack-request-timestamp")
        at = stated[0] if len(stated) == 1 else ""
        signature = require_same(
            slack_signature(settings.slack_signing_secret, at, body),
            request.headers.getlist("x-slack-signature"),
        )
        plain = at.isascii() and at.isdigit() and len(at) <= 11
        require_fresh(datetime.fromtimestamp(int(at), UTC) if plain else None, now)
        self.signatures.take(signature, now)
        return _pressed(body)

    def from_teams(self, request: Request, body: bytes) -> Wished | None:
        """Return the request of a message to the webhook. Errors: TrimtabError."""
        settings, now = self.settings_of("teams"), self.service.clock()
        signature = require_same(
            teams_signature(settings.teams_security_token, body),
            request.headers.getlist("authorization"),
        )
        sent = _document(body)
        require_fresh(_moment(sent.get("timestamp")), now)
        self.signatures.take(signature, now)
        text = _MENTION.sub(" ", _text(sent, "text"))
        wish = _WISH.fullmatch(" ".join(text.split()))
        if wish is None:
            return None
        return Wished(
            account=f"teams:{_text(_part(sent, 'from'), 'aadObjectId')}",
            finding=wish[1].upper(),
            digest=wish[2].lower(),
        )

    def carry_out(self, wished: Wished, chat: str) -> str:
        """Approve, and say what came of it in words for the person."""
        try:
            return self._approve(wished, chat)
        except TrimtabError as refused:
            logger.info("refused from %s: %s", chat, scrub(refused.message))
            return f"{wished.finding} was not approved: {refused}"

    def _approve(self, wished: Wished, chat: str) -> str:
        name = self.settings_of(chat).person_of(wished.account)
        if not name:
            raise NotAllowedError(
                f"the account {wished.account} is nobody here", "An admin names it in chat.people."
            )
        if self.service.stored(wished.digest).finding != number_of(wished.finding):
            raise ChangeRefusedError(
                f"the digest is not of {wished.finding}", "Take both from one message."
            )
        person = Person(name=name, via=chat)
        comment = f"from {chat}, as {wished.account.partition(':')[2]}"
        self.service.decide(wished.digest, Decision.APPROVED, person, comment)
        return f"{wished.finding} is approved by {name}. It is applied from its page."


def add_chats(api: FastAPI, service: DecisionService) -> None:
    """Add what Slack and Teams post to."""
    door = ChatDoor(service=service)

    @api.post("/chat/slack", response_model=dict[str, str | bool], openapi_extra=_BODY)
    async def slack(request: Request) -> Response:
        """Take a press of the button of a finding, signed by Slack."""
        wished, reply = await _heard(door, request, "slack", door.from_slack)
        if wished is None:
            return JSONResponse({})
        body = {"response_type": "ephemeral", "replace_original": False, "text": slack_text(reply)}
        later = BackgroundTask(_post, wished.answer_to, body) if wished.answer_to else None
        return JSONResponse(body, background=later)

    @api.post("/chat/teams", response_model=TeamsMessage, openapi_extra=_BODY)
    async def teams(request: Request) -> Response:
        """Take a message to the outgoing webhook, signed by Teams."""
        wished, reply = await _heard(door, request, "teams", door.from_teams)
        return JSONResponse(content_of(reply if wished else _NO_WISH, TEAMS))


async def _heard(
    door: ChatDoor, request: Request, chat: str, read: Callable[[Request, bytes], Wished | None]
) -> tuple[Wished | None, str]:
    """Return the request and its result. Errors: TrimtabError for who is not the chat."""
    body = await request.body()

    def answered() -> tuple[Wished | None, str]:
        wished = read(request, body)
        return wished, "" if wished is None else door.carry_out(wished, chat)

    return await run_in_threadpool(answered)


def _pressed(body: bytes) -> Wished | None:
    """Return the approval that a payload of Slack holds, None for another press."""
    try:
        form = parse_qs(body.decode(), strict_parsing=True, max_num_fields=10)
    except ValueError:
        return None
    payloads = form.get("payload", [])
    sent = _document(payloads[0].encode()) if len(payloads) == 1 else {}
    actions = sent.get("actions")
    if sent.get("type") != "block_actions" or not isinstance(actions, list) or len(actions) != 1:
        return None
    action = actions[0] if isinstance(actions[0], dict) else {}
    wish = _WISH.fullmatch(f"approve {_text(action, 'value')}")
    if action.get("action_id") != APPROVE or wish is None:
        return None
    to, user = _text(sent, "response_url"), _part(sent, "user")
    workspace = _text(user, "team_id") or _text(_part(sent, "team"), "id")
    return Wished(
        account=f"slack:{workspace}/{_text(user, 'id')}",
        finding=wish[1].upper(),
        digest=wish[2].lower(),
        answer_to=to if to.startswith(SLACK_ANSWERS) else "",
    )


def _post(address: str, content: dict[str, Any]) -> None:
    try:
        with sent("POST", address, seconds=_ANSWER_SECONDS, trust_env=True, json=content):
            pass
    except (requests.RequestException, OSError) as error:
        # Its text may hold the address, which lets anybody answer.
        logger.warning("Slack did not take an answer (%s)", type(error).__name__)


def _document(body: bytes) -> dict[str, Any]:
    """Return a JSON object, {} for anything else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _part(sent: dict[str, Any], name: str) -> dict[str, Any]:
    value = sent.get(name)
    return value if isinstance(value, dict) else {}


def _text(sent: dict[str, Any], name: str) -> str:
    value = sent.get(name)
    return value if isinstance(value, str) else ""


def _moment(text: object) -> datetime | None:
    try:
        value = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return value if value is not None and value.tzinfo is not None else None
