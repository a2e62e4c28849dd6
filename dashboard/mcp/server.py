"""Assistants by streamable HTTP under /mcp, with the tokens and the rights of the API.

A tool names a command that reads; here the API answers it, asked as whoever asks. The door holds no
session: each request stands alone.
"""

import asyncio
import json
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dashboard.api.http.context import ApiWorld
from dashboard.api.http.problems import problem, problem_of
from dashboard.mcp.tools import Answer, build_server
from data.base.errors import SettingsError, TrimtabError
from data.base.extras import require_extra

MCP_PATH = "/mcp"
_RESOURCES = {
    "findings list": "findings",
    "findings show": "findings/{}",
    "findings idle": "idle",
    "audit list": "audit",
    "forecast": "forecasts",
    "report weekly": "reports/weekly",
}
"""Where the API answers a command, if not under its name."""
_WHOLE = {
    ("jobs", "job"): "jobs",
    ("jobs", "application"): "applications",
    ("savings", "change"): "savings",
}
"""Where it answers a command and its option `by`, and takes no option."""
_PAGED = frozenset({"findings list", "urgent", "audit list", "jobs", "gpus", "nodes", "sources"})
_ASKED: ContextVar[list[tuple[bytes, bytes]]] = ContextVar("headers of the request")


class ApiAnswers:
    """Answers the words of a command by the API, as whoever made the request."""

    def __init__(self, api: ASGIApp) -> None:
        self._api = api

    def __call__(self, *words: str, rows: int | None = None) -> Answer:
        """Return the answer of the command. Errors: ToolError with the words of the API."""
        from mcp.server.mcpserver.exceptions import ToolError

        command, path, query = _address(words, rows)
        # A tool has a thread of its own, in which nothing else runs.
        status, document = asyncio.run(self._get(path, query))
        if status != 200:
            texts = (document.get("detail", ""), document.get("hint", ""))
            raise ToolError(". ".join(filter(None, texts)))
        return _as_said(command, document, rows)

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
            "query_string": query.encode(), "headers": _ASKED.get(), "server": None, "client": None,
        }  # fmt: skip
        await self._api(scope, receive, send)
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], json.loads(body or b"{}")


def _address(words: tuple[str, ...], rows: int | None) -> tuple[str, str, str]:
    """Return the command, and the path and query under which the API answers it."""
    names = words[words.index("--") + 1 :] if "--" in words else ()
    options = [word[2:].partition("=") for word in words if word.startswith("--") and word != "--"]
    command = " ".join(word for word in words[: len(words) - len(names)] if word[:2] != "--")
    pairs = [(name, value) for name, _, value in options if name not in ("format", "what-if")]
    knobs = [value.partition("=") for name, _, value in options if name == "what-if"]
    path = _RESOURCES.get(command, command)
    if command == "estimate":
        pairs.append(("model", names[0]))
    elif names:
        path = path.format(quote(names[0], safe=""))
    if knobs:
        path, pairs = "what-if", [(name, value) for name, _, value in knobs]
    elif command == "plan":
        pairs = []  # all of it, whichever rows a table would show
    elif (command, dict(pairs).get("by")) in _WHOLE:
        path, pairs = _WHOLE[command, dict(pairs)["by"]], []
    elif command == "savings":
        path = "savings/to-date"
    if command in _PAGED:
        pairs.append(("limit", str(rows)))
    return command, path, "&".join(f"{quote(name)}={quote(value)}" for name, value in pairs)


def _as_said(command: str, document: Any, rows: int | None) -> Answer:
    """Return an answer of the API in the shape of the command's."""
    if command in _PAGED:
        return {"answer": document["items"], "total": document["total"]}
    if command == "findings show":
        parts = {name: document[name] for name in ("record", "change")}
        document = document["finding"] | parts
    elif command == "savings" and isinstance(document, dict):
        document = {"recommendations": document["items"]}
    if isinstance(document, list) and rows is not None:
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
        _ASKED.set([pair for pair in scope["headers"] if pair[0] in _WHO])
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


_WHO = frozenset({b"authorization", b"x-trimtab-person", b"x-trimtab-by"})
"""Headers by which the API knows who asks."""
