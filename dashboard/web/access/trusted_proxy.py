"""Person behind a request of a trusted proxy: read from the raw request, before Streamlit.

Streamlit takes the first of duplicate headers and believes every sender. So here the headers of
sign-in proxies are believed only from listed addresses, refused when they come twice, and taken
out; what is left is one header of our own, which nobody outside can set.
"""

import ipaddress
import json
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from dashboard.api.http.authentication import PERSON_HEADER, carries_token
from dashboard.web.access.local_peer import brings_key, is_own_account, peer_uid, redirect_of
from dashboard.web.access.request_filter import (
    OPEN_PATHS,
    Headers,
    RequestRefusedError,
    is_for_programs,
    refuse,
)
from data.settings.access import AccessSettings
from data.settings.fields import entries

_PROXY_HEADERS = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-user", b"x-real-ip"})
_LONGEST = 512


def is_listed(address: str, access: AccessSettings) -> bool:
    """Return whether the peer is one of the proxies whose headers are believed."""
    try:
        peer = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped is not None:
        peer = peer.ipv4_mapped
    networks = (ipaddress.ip_network(entry) for entry in entries(access.proxy_addresses))
    return any(peer.version == network.version and peer in network for network in networks)


def person_behind(headers: Headers, address: str, access: AccessSettings) -> dict[str, object]:
    """Return name and groups that a trusted proxy states. Errors: RequestRefusedError."""
    if not is_listed(address, access):
        raise RequestRefusedError(403, "requests are let in from the sign-in proxy only")
    name = _only(headers, access.proxy_user_header)
    if not name:
        raise RequestRefusedError(401, f"the proxy sent no {access.proxy_user_header}")
    groups = _only(headers, access.proxy_groups_header) if access.proxy_groups_header else ""
    return {"name": name, "groups": entries(groups)}


def _only(headers: Headers, name: str) -> str:
    """Return the one value of a header, '' without one.

    Errors: RequestRefusedError for two, and for another spelling: a proxy that sets or removes
    X-Forwarded-User may pass on the X_Forwarded_User that its client wrote (CVE-2025-64484).
    """
    field = name.encode("ascii", "ignore").lower()
    pairs = [(key, value) for key, value in headers if _folded(key) == _folded(field)]
    if len(pairs) > 1:
        raise RequestRefusedError(400, f"{name} came {len(pairs)} times")
    if any(key.lower() != field for key, _value in pairs):
        raise RequestRefusedError(400, f"a header is spelt almost like {name}")
    values = [value for _key, value in pairs]
    try:
        text = values[0].decode("utf-8").strip(" \t") if values else ""
    except UnicodeDecodeError:
        raise RequestRefusedError(400, f"{name} is no UTF-8") from None
    if not text.isprintable() or len(text) > _LONGEST:
        raise RequestRefusedError(400, f"{name} holds what no name holds")
    return text


def _folded(name: bytes) -> bytes:
    """Fold case, and the underscore that some proxies take for a hyphen."""
    return name.lower().replace(b"_", b"-")


def _is_by_token(scope: Scope) -> bool:
    """Return whether the API has to know who asks, by the token that the request brings."""
    by_api = scope["type"] == "http" and is_for_programs(scope["path"])
    return by_api and carries_token(scope["headers"])


class AuthMiddleware:
    """ASGI middleware: lets a request in as somebody, or answers why not.

    `guarded`: changes can be applied. `peer` tells the account of a connection in local mode.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: AccessSettings,
        *,
        guarded: bool,
        peer: Callable[[Scope], int | None] = peer_uid,
    ) -> None:
        self._app = app
        self._access = access
        self._guarded = guarded
        self._peer = peer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on with one header that says who it is."""
        if scope["type"] not in ("http", "websocket") or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        if self._access.mode == "local" and (moved := redirect_of(scope)) is not None:
            await send({"type": "http.response.start", "status": 303, "headers": moved})
            await send({"type": "http.response.body"})
            return
        try:
            headers = self._checked(scope)
        except RequestRefusedError as refused:
            await refuse(scope, receive, send, refused)
            return
        await self._app({**scope, "headers": headers}, receive, send)

    def _checked(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        headers = scope["headers"]
        pairs = [pair for pair in headers if _folded(pair[0]) != PERSON_HEADER.encode()]
        if self._access.mode == "proxy" and not _is_by_token(scope):
            peer = (scope.get("client") or ("", 0))[0]
            person = person_behind(headers, peer, self._access)
            stated = {
                _folded(name.encode())
                for name in (self._access.proxy_user_header, self._access.proxy_groups_header)
            }
            pairs = [pair for pair in pairs if _folded(pair[0]) not in stated]
            pairs.append((PERSON_HEADER.encode(), json.dumps(person).encode("ascii")))
        alone = self._access.mode == "local" and self._guarded
        if alone and any(_folded(name) in _PROXY_HEADERS for name, _value in headers):
            # Behind a proxy everyone would be the one local person.
            raise RequestRefusedError(
                403, "a proxy forwards to a single-user dashboard: set access.mode to proxy"
            )
        if self._access.mode == "local" and not _is_by_token(scope):
            uid = self._peer(scope)
            if not is_own_account(uid) and not brings_key(scope):
                whose = "no account that the kernel names" if uid is None else f"the account {uid}"
                raise RequestRefusedError(
                    403,
                    f"this dashboard is for the account that started it, not for {whose}: open the "
                    "address that its start printed, with its key, or set access.mode",
                )
            account = f"uid {uid}" if is_own_account(uid) else "the key of the start"
            pairs.append((PERSON_HEADER.encode(), account.encode()))
        return pairs
