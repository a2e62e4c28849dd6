"""Assistants by streamable HTTP under /mcp, with the tokens and the rights of the API.

A tool names a resource; here the API answers it, asked as whoever asks. The door holds no session:
each request stands alone.
"""

import asyncio
import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dashboard.api.http.context import ApiWorld
from dashboard.api.http.problems import problem, problem_of
from dashboard.mcp.tools import Answer, build_server
from dashboard.resources.documents import DOCUMENTS
from dashboard.resources.listings import LISTINGS
from data.base.errors import SettingsError, TrimtabError
from data.base.extras import require_extra

MCP_PATH = "/mcp"
_PATHS = frozenset(resource.name for resource in DOCUMENTS)
_REQUEST_HEADERS: ContextVar[list[tuple[bytes, bytes]]] = ContextVar("headers of the request")


class ApiAnswers:
    """Answers for a resource by the API, as whoever made the request."""

    def __init__(self, api: ASGIApp) -> None:
        self._api = api

    def __call__(self, resource: str, parameters: Mapping[str, Any], rows: int) -> Answer:
        """Return the answer of a resource. Errors: ToolError with the words of the API."""
        from mcp.server.mcpserver.exceptions import ToolError

        # A tool has a thread of its own, in which nothing else runs.
        status, document = asyncio.run(self._get(*address_of(resource, parameters, rows)))
        if status != 200:
            texts = (document.get("detail", ""), document.get("hint", ""))
            raise ToolError(". ".join(filter(None, texts)))
        return answer_of(document, rows)

    async def _get(self, path: str, query: str) -> tuple[int, Any]:
        """Return status and document of an address of the API."""
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": f"/{path}", "raw_path": quote(f"/{path}").encode(), "root_path": "",
            "query_string": query.encode(), "headers": _REQUEST_HEADERS.get([]), "server": None,
            "client": None,
        }  # fmt: skip
        await self._api(scope, receive, send)
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], json.loads(body or b"{}")


def address_of(resource: str, parameters: Mapping[str, Any], rows: int) -> tuple[str, str]:
    """Return path and query of a resource in the API; of a name in it nothing is a path."""
    kind, slash, name = resource.partition("/")
    path = resource if resource in _PATHS else kind + slash + quote(name, safe="")
    paged = {"limit": rows} if resource == "findings" or resource in LISTINGS else {}
    return path, urlencode({**parameters, **paged}, quote_via=quote)


def answer_of(document: Any, rows: int) -> Answer:
    """Return an answer of the API as a tool gives it: so many rows of a list, of how many."""
    if isinstance(document, dict) and {"items", "total"} <= {*document}:
        return {"answer": document["items"], "total": document["total"]}
    if isinstance(document, dict) and {*document} == {"finding", "record", "change"}:
        parts = {name: document[name] for name in ("record", "change")}
        return {"answer": document["finding"] | parts}
    if isinstance(document, list):
        return {"answer": document[:rows], "total": len(document)}
    return {"answer": document}


class AssistantDoor:
    """ASGI application: asks who it is, then lets the protocol's library answer."""

    def __init__(self, world: ApiWorld, api: ASGIApp) -> None:
        self._world = world
        self._answers = ApiAnswers(api)
        self._server: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; whoever is not known, or has no role, gets a problem."""
        answer = await asyncio.to_thread(self._refusal, Request(scope))
        if answer is not None:
            await answer(scope, receive, send)
            return
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        if self._server is None:
            self._server = build_server(self._answers)
        _REQUEST_HEADERS.set([pair for pair in scope["headers"] if pair[0] in _IDENTITY_HEADERS])
        manager = StreamableHTTPSessionManager(
            self._server._lowlevel_server,  # noqa: SLF001 - as its own application does
            json_response=True,
            stateless=True,
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        try:
            self._world.known(request)
        except TrimtabError as failure:
            return problem_of(failure)
        try:
            require_extra("mcp", f"{MCP_PATH} speaks a protocol of others")
        except SettingsError as error:
            return problem(501, "not installed", error.message, hint=error.hint)
        return None


_IDENTITY_HEADERS = frozenset({b"authorization", b"x-trimtab-person", b"x-trimtab-by"})
"""Headers by which the API knows who asks."""
