"""Filter of raw requests, before sign-in and before Streamlit sees them.

* The name in `Host` is one of ours. A site may let its own name lead to this machine (DNS
  rebinding); the browser then takes its page and this server for one site.
* A page that asks is one of ours. Streamlit lets in every page on any port of localhost, and looks
  the machine's external address up over the network before it refuses another.
* Nothing is sent in but to the API, and there at most 64 KiB: no page takes files, and Streamlit's
  upload endpoint keeps what it gets.
* Descriptors are left for the store and for those who are here already.
"""

import errno
import ipaddress
import json
import math
import os
import resource
import socket
import time
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from dashboard.mcp.server import MCP_PATH
from data.settings.access import AccessSettings, host_of, is_loopback
from data.settings.fields import entries

OPEN_PATHS = frozenset({"/livez", "/readyz", "/metrics"})
"""Asked by machines, by whatever name and without a sign-in; they name no person and no job."""
API_PATH = "/api/v1/"
_METHODS = ("GET", "HEAD", "OPTIONS")
_SENDING = ("POST", "DELETE")
_MAX_BODY = 65_536
_MAX_DIGITS = 9
_MAX_DESCRIPTORS = 65_536
_KEPT_DESCRIPTORS = 64
"""A quarter of the limit where that is less."""
_MAX_OPENED_PER_SECOND = 20_000
"""More than can be opened: so long they need not be counted again, which walks through all."""
Headers = Sequence[tuple[bytes, bytes]]


def is_for_programs(path: str) -> bool:
    """Return whether the API or the assistants' door answers there, and no page."""
    return path == MCP_PATH or path.startswith(API_PATH)


class RequestRefusedError(Exception):
    """A request that is not let in: status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


async def refuse(scope: Scope, receive: Receive, send: Send, refused: RequestRefusedError) -> None:
    """Answer with the refusal, without reading what else the request brings."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": refused.reason[:100]})
        return
    kind, body = "text/plain; charset=utf-8", f"{refused.reason}\n"
    if is_for_programs(scope["path"]):
        problem = {"type": "about:blank", "title": "refused", "status": refused.status}
        kind, body = "application/problem+json", json.dumps(problem | {"detail": refused.reason})
    # What else the request brings is not read, so it must not be taken for another request.
    headers = [(b"content-type", kind.encode()), (b"connection", b"close")]
    if refused.status == 405:
        headers.append((b"allow", ", ".join(_METHODS).encode()))
    start = {"type": "http.response.start", "status": refused.status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body.encode()})


class Admission:
    """ASGI middleware: answers requests that are meant for this dashboard, and refuses others.

    `listens_on` is the address that the server listens on.
    """

    def __init__(self, app: ASGIApp, access: AccessSettings, *, listens_on: str) -> None:
        self._app = app
        self._origins = frozenset(access.public_origins())
        self._public = {origin.partition("://")[2] for origin in self._origins}
        self._hosts = {host_of(netloc) for netloc in self._public}
        self._descriptors_until = float("-inf")
        self._hosts |= {entry.lower().strip("[]") for entry in entries(access.allowed_hosts)}
        if not is_loopback(listens_on):
            self._hosts.add(socket.gethostname().lower())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on as it came."""
        if scope["type"] in ("http", "websocket"):
            try:
                _require_one_length(scope)
                if scope["path"] not in OPEN_PATHS:
                    self._require_admissible(scope)
            except RequestRefusedError as refused:
                await refuse(scope, receive, send, refused)
                return
        await self._app(scope, receive, send)

    def _require_admissible(self, scope: Scope) -> None:
        """Refuse what is not meant for this dashboard. Errors: RequestRefusedError."""
        host = self._require_host(scope)
        for origin in _values(scope["headers"], b"origin"):
            self._require_origin(origin, host)
        if scope["type"] == "http" and scope["method"] not in _METHODS:
            _require_sendable(scope)
        if time.monotonic() >= self._descriptors_until:
            room = _require_descriptors()
            self._descriptors_until = time.monotonic() + room / _MAX_OPENED_PER_SECOND

    def _require_host(self, scope: Scope) -> str:
        stated = _values(scope["headers"], b"host")
        name = host_of(stated[0]) if len(stated) == 1 else ""
        local = (scope.get("server") or ("", 0))[0]
        listed = is_loopback(name) or name in self._hosts or "*" in self._hosts
        if not (name and (listed or _is_same_address(name, local))):
            raise RequestRefusedError(
                421,
                f"this dashboard does not answer to the host {(name or 'that was sent')[:100]!a}: "
                "use localhost or 127.0.0.1, or set access.public_url to the address that "
                "browsers use (access.allowed_hosts takes further names)",
            )
        return stated[0]

    def _require_origin(self, origin: str, host: str) -> None:
        """Refuse a page of another site, or of this one by another scheme where that is known."""
        scheme, _, netloc = origin.partition("://")
        same = netloc == host and scheme in ("http", "https") and host not in self._public
        if origin not in self._origins and not same:
            raise RequestRefusedError(
                403,
                f"pages of {origin[:100]!a} may not ask this dashboard: set access.public_url "
                "where that is its own address",
            )


def _require_one_length(scope: Scope) -> None:
    """Refuse a body that two readers could end at two places (RFC 9112, 6.1)."""
    stated, coded = (
        _values(scope["headers"], name) for name in (b"content-length", b"transfer-encoding")
    )
    if coded and (stated or scope.get("http_version") == "1.0"):
        raise RequestRefusedError(
            400, "the length of the body is stated twice: send Content-Length or Transfer-Encoding"
        )


def _require_sendable(scope: Scope) -> None:
    """Refuse what is sent elsewhere than to the API, or is larger than any decision."""
    if not is_for_programs(scope["path"]) or scope["method"] not in _SENDING:
        raise RequestRefusedError(405, "nothing can be sent to this dashboard but to its API")
    stated = _values(scope["headers"], b"content-length")
    if _values(scope["headers"], b"transfer-encoding") or len(stated) > 1:
        raise RequestRefusedError(411, "say how long the body is (Content-Length)")
    if stated and not (stated[0].isascii() and stated[0].isdigit()):
        raise RequestRefusedError(400, "Content-Length is no number")
    if stated and (len(stated[0]) > _MAX_DIGITS or int(stated[0]) > _MAX_BODY):
        raise RequestRefusedError(413, f"a body has at most {_MAX_BODY} bytes")


def _values(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key.lower() == name]


def _is_same_address(name: str, local: str) -> bool:
    """Return whether the name is the very address that the connection came in on."""
    try:
        stated, bound = ipaddress.ip_address(name), ipaddress.ip_address(local)
    except ValueError:
        return False
    return stated in (bound, getattr(bound, "ipv4_mapped", None))


def allow_descriptors() -> None:
    """Let this process open as many descriptors as it may: Streamlit keeps three for each tab."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def _require_descriptors() -> float:
    """Return the number of descriptors to open before one of those that are kept for the store.

    Errors: RequestRefusedError where none may.
    """
    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        opened = len(os.listdir("/dev/fd"))  # noqa: PTH208 - a `Path` each costs ten times as much
    except OSError as error:
        # There is none left to look with, or this system does not tell.
        opened = limit if error.errno == errno.EMFILE else 0
    room = math.inf if limit == resource.RLIM_INFINITY else limit - opened
    room -= min(_KEPT_DESCRIPTORS, limit // 4)
    if room < 0:
        raise RequestRefusedError(
            503,
            f"too many open pages: {opened} of {limit} descriptors are in use; close some, or let "
            "the server have more (ulimit -n, LimitNOFILE)",
        )
    return room
