"""Account of this machine behind a local request: by the kernel, or by the start's key.

The kernel lists each connection with the account that opened it. Where it does not say (another
system, a tunnel of another account), the key in the address that the start prints lets in.
"""

import hmac
import ipaddress
import os
import secrets
import sys
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from starlette.types import Scope

KEY = "key"
"""The parameter of the printed address, and the end of the name of its cookie."""
_START_KEY = secrets.token_urlsafe(24)
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"
"""Any other state lists a connection that its account may have left, as one of root."""
_TRIES = 3
"""The kernel writes its table piece by piece, and may pass over a row while others come and go."""
_MAPPED = "::ffff:"


def printed_address(host: str, port: int) -> str:
    """Return the address of the pages with the key of this start."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/?{KEY}={_START_KEY}"


def peer_uid(scope: Scope) -> int | None:
    """Return the account at the other end of the connection, None where nobody says."""
    client, server = scope.get("client"), scope.get("server")
    if not client or not server:
        return None
    try:
        ends = [
            (_written(client[0], client[1], mapped), _written(server[0], server[1], mapped))
            for mapped in (False, True)
        ]
    except ValueError:
        return None
    rows = tuple(f"{local} {remote} {_ESTABLISHED} " for local, remote in ends)
    for _try in range(_TRIES):
        for table in _TABLES:
            try:
                lines = table.read_text(encoding="ascii").splitlines()
            except OSError:
                continue
            for line in lines:
                if any(row in line for row in rows):
                    return int(line.split()[7])
    return None


def _written(address: str, port: int, mapped: bool) -> str:
    """Return one end as the kernel lists it; `mapped` is IPv4 on a socket of IPv6."""
    packed = ipaddress.ip_address(address.removeprefix(_MAPPED)).packed
    if mapped and len(packed) == 4:
        packed = ipaddress.ip_address(f"{_MAPPED}{address.removeprefix(_MAPPED)}").packed
    step = -1 if sys.byteorder == "little" else 1
    words = (packed[start : start + 4][::step].hex() for start in range(0, len(packed), 4))
    return f"{''.join(words)}:{port:04x}".upper()


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
