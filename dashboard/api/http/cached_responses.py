"""Answers that are made once and given until the data change, each with its ETag."""

import hashlib
import hmac
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from data.base.clock import floor_to_slot
from data.store.handles.cached_reader import CachedReader

Answer = TypeVar("Answer")
_MINUTE, _TAG_LENGTH = 60, 32
SIGNATURE, _API = "Trimtab-Signature", "/api/v1/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """An answer, as JSON by default, and the ETag that names it."""

    body: bytes
    tag: str
    kind: str = "application/json"


def document(body: bytes, tag: str = "") -> Document:
    """Return an answer under its tag, by default the hash of what it says."""
    return Document(body=body, tag=tag or f'"{hashlib.sha256(body).hexdigest()[:_TAG_LENGTH]}"')


def response(request: Request, stored: Document) -> Response:
    """Return the answer to a request: 304 without it where If-None-Match names it."""
    headers = {"ETag": stored.tag, "Cache-Control": "private, no-cache", "Vary": "Authorization"}
    tags = request.headers.get("if-none-match", "")
    if stored.tag in {part.strip().removeprefix("W/") for part in tags.split(",")}:
        return Response(status_code=304, headers=headers)
    headers |= _signature(request, stored.body)
    return Response(stored.body, media_type=stored.kind, headers=headers)


def _signature(request: Request, body: bytes) -> dict[str, str]:
    """Return the header by which whoever holds the token of the request can check its answer.

    It is over path, query and body, so that the answer to one question is none to another; a proxy
    may put something in front of the path.
    """
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer":
        return {}
    path = request.url.path.rpartition(_API)[2]
    question = f"{_API}{path}?{request.url.query}\n".encode()
    code = hmac.new(token.strip().encode(), question + body, hashlib.sha256).hexdigest()
    return {SIGNATURE: f"sha256={code}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswers:
    """Answers of the last minute, for as long as the data stay the same."""

    reader: CachedReader
    clock: Callable[[], datetime]

    def get(self, key: tuple[Hashable, ...], make: Callable[[], Answer]) -> Answer:
        """Return the answer that `make` gave for this key."""
        minute = floor_to_slot(self.clock(), _MINUTE)
        return self.reader.remember(("api", *key, minute), make, decisions=True)


class HeadAsGet:
    """Answers HEAD as GET; the server leaves the body out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)
