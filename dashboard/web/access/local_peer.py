"""Account of this machine behind a local request: by the kernel, or by the start's key.

The kernel lists each connection with the account that opened it. Where it does not say (another
system, a tunnel of another account), the key in the address that the start prints lets in.
"""

import hmac
import os
import secrets
import socket
import struct
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.types import Scope

KEY = "key"
"""The parameter of the printed address, and the end of the name of its cookie."""
_START_KEY = secrets.token_urlsafe(24)
_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
"""Numbers of the kernel: NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST."""
_QUESTION = struct.Struct("=IHHII4BI2s2s16s16sI8s")
"""nlmsghdr and inet_diag_req_v2: one connection by its two ends, without a walk over all."""
_ANSWER = struct.Struct("=4xH11xB62xI")
"""Of nlmsghdr and inet_diag_msg: the type, the state and the account."""
_ESTABLISHED = 1
"""In any other state its account may have left the connection, which is listed as one of root."""
_MAPPED = "::ffff:"


def printed_address(host: str, port: int) -> str:
    """Return the address of the pages with the key of this start."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/?{KEY}={_START_KEY}"


def peer_uid(scope: Scope) -> int | None:
    """Return the account at the other end of the connection, None where nobody says."""
    client, server = scope.get("client"), scope.get("server")
    if not client or not server:
        return None
    peer, host = (end[0].removeprefix(_MAPPED) for end in (client, server))
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    with suppress(OSError, AttributeError, struct.error):  # another system, or one that forbids it
        ends = [socket.inet_pton(family, address) for address in (peer, host)]
        ports = [end[1].to_bytes(2) for end in (client, server)]
        parts = (_QUESTION.size, _BY_FAMILY, _REQUEST, 0, 0, family, socket.IPPROTO_TCP, 0, 0)
        question = _QUESTION.pack(*parts, 1 << _ESTABLISHED, *ports, *ends, 0, b"\xff" * 8)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
            kernel.settimeout(1)
            kernel.sendto(question, (0, 0))
            kind, state, uid = _ANSWER.unpack_from(kernel.recv(4096))
        if (kind, state) == (_BY_FAMILY, _ESTABLISHED):
            return int(uid)
    return None


def is_own_account(uid: int | None) -> bool:
    """Return whether it is the account of this process, or root, which may do as it likes."""
    return uid in (0, os.geteuid())


def brings_key(scope: Scope) -> bool:
    """Return whether the request has the start's cookie."""
    cookies = SimpleCookie()
    for name, value in scope["headers"]:
        if name.lower() == b"cookie":
            try:
                cookies.load(value.decode("latin-1"))
            except CookieError:
                return False
    morsel = cookies.get(_cookie(scope))
    return morsel is not None and _is_key(morsel.value)


def redirect_of(scope: Scope) -> list[tuple[bytes, bytes]] | None:
    """Return the headers that answer the printed address: the key leaves the address bar."""
    pairs = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    if scope["type"] != "http" or not any(name == KEY and _is_key(value) for name, value in pairs):
        return None
    rest = urlencode([pair for pair in pairs if pair[0] != KEY])
    # Its path alone: one that begins with two slashes would lead to another host.
    address = f"/{scope['path'].lstrip('/')}{'?' if rest else ''}{rest}"
    cookie = f"{_cookie(scope)}={_START_KEY}; Path=/; HttpOnly; SameSite=Strict"
    return [
        (b"location", address.encode("ascii", "ignore")),
        (b"set-cookie", cookie.encode()),
        (b"cache-control", b"no-store"),
    ]


def _is_key(text: str) -> bool:
    return hmac.compare_digest(text.encode(), _START_KEY.encode())


def _cookie(scope: Scope) -> str:
    """Return the name of the cookie; servers on other ports of this host have others."""
    return f"trimtab-{(scope.get('server') or ('', 0))[1]}-{KEY}"
