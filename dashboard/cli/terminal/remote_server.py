"""A server on another host, asked through its HTTP API: `--server URL --token-file FILE`.

Who a command is by is whom the token names, with no more rights than these give in the API.
"""

import argparse
import json
import time
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from dashboard.api.http.pagination import PageOfRows
from data.base.errors import SettingsError, StoreError
from data.store.handles.remote_store import refusal_of

_TIMEOUT_SECONDS = 120.0
"""Seconds: a what-if is solved, a report is made."""
_PAGE = 1000
_MOST_ROWS = 1_000_000
_MAX_BYTES = 256 * 2**20
"""Of one answer: a whole plan, a year of samples."""
Row = TypeVar("Row")


class RemoteServer:
    """The HTTP API of a server, as the person of a token."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}

    def ask(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: object = None
    ) -> Any:
        """Return the server's answer. Errors: those that it names, StoreError where it is gone.

        A redirect is not followed: the token is for this address alone.
        """
        import requests  # takes 0.1 s that no other command needs
        from urllib3.exceptions import HTTPError

        from collectors.shared.http_deadline import sent, whole_body

        ends = time.monotonic() + _TIMEOUT_SECONDS
        try:
            with sent(
                method,
                f"{self._url}/api/v1/{path}",
                seconds=_TIMEOUT_SECONDS,
                # Without TLS it is for this host alone: no proxy may read the token.
                trust_env=self._url.lower().startswith("https:"),
                params=query,
                json=body,
                headers=self._headers,
            ) as answer:
                content = whole_body(answer, ends=ends, max_bytes=_MAX_BYTES)
                status = answer.status_code
        except (requests.RequestException, HTTPError, OSError) as error:
            raise StoreError(
                f"the server {self._url} does not answer ({type(error).__name__})",
                "See that it runs, and whether --server is the address that browsers use.",
            ) from error
        if status >= 300:
            raise refusal_of(content, status, f"the server {self._url}")
        try:
            return json.loads(content, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise self._stranger() from error

    def _stranger(self) -> StoreError:
        return StoreError(
            f"what answers at {self._url} is no Trimtab of this version", "Look at --server."
        )

    def rows(self, path: str, kind: type[Row], query: Mapping[str, Any] | None = None) -> list[Row]:
        """Return all rows of a list, page by page. Errors: as `ask`."""
        rows: list[Row] = []
        cursor: str | None = ""
        cursors: set[str] = set()
        while cursor is not None:
            parameters = {**(query or {}), "limit": _PAGE, "cursor": cursor}
            page = self.read(PageOfRows[Any], self.ask("GET", path, query=parameters))
            # A cursor leads on: one that is given twice, or behind a page without rows, never ends.
            if page.next in cursors or (page.next is not None and not page.items):
                raise self._stranger()
            rows += [self.read(kind, row) for row in page.items]
            if len(rows) > _MOST_ROWS:
                raise StoreError(
                    f"the server {self._url} has more than {_MOST_ROWS:,} rows of {path}",
                    "Ask for fewer, by the filters of the command.",
                )
            cursor = page.next
            cursors.add(cursor or "")
        return rows

    def one(self, path: str, kind: Any, query: Mapping[str, Any] | None = None) -> Any:
        """Return the content of a resource. Errors: as `ask`."""
        return self.read(kind, self.ask("GET", path, query=query))

    def read(self, kind: Any, document: object) -> Any:
        """Return an answer as an object of its type. Errors: StoreError where it is not one."""
        try:
            # As text, so that times are read back.
            return TypeAdapter(kind).validate_json(json.dumps(document))
        except ValidationError as error:
            raise self._stranger() from error


def _no_number(name: str) -> float:
    """Refuse what JSON does not know. Errors: ValueError."""
    raise ValueError(f"{name} is no JSON")


def server_of(options: argparse.Namespace) -> RemoteServer:
    """Return the server that a command is to ask.

    Errors: SettingsError for an address or a file of a token that cannot be used.
    """
    url, file = options.server, options.token_file
    if url is None or file is None:
        raise SettingsError(
            "--server and --token-file go together",
            "Give both: an admin makes a token with `trimtab token make`.",
        )
    if options.store is not None:
        raise SettingsError("--server and --store name two stores", "Leave one of them out.")
    _require_safe(url)
    try:
        token = Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"--token-file {file} cannot be read ({type(error).__name__})",
            "Give a file whose one line is the token.",
        ) from error
    if not token or not token.isascii() or len(token.split()) != 1:
        raise SettingsError(
            f"--token-file {file} holds no token", "Put the token into it, on one line."
        )
    return RemoteServer(url, token)


def refuse_with_server(options: argparse.Namespace, *names: str) -> None:
    """Refuse options that the API does not have. Errors: SettingsError."""
    for name in names:
        if vars(options).get(name):
            refuse_remote(f"--{name.replace('_', '-')}")


def refuse_remote(what: str, where: str = "on the host of the store") -> NoReturn:
    """Refuse what needs the store itself. Errors: SettingsError."""
    raise SettingsError(
        f"{what} is not to be had with --server", f"Do it {where}, without --server."
    )


def _require_safe(url: str) -> None:
    """Refuse an address by which everybody on the way reads the token. Errors: SettingsError."""
    try:
        parts = urlsplit(url)
        host, plain = parts.hostname or "", (parts.path.strip("/"), parts.query, parts.fragment)
        valid = bool(host) and parts.port != 0 and parts.username is None and not any(plain)
    except ValueError:
        valid, parts, host = False, urlsplit(""), ""
    if valid and (parts.scheme == "https" or (parts.scheme == "http" and _is_this_host(host))):
        return
    raise SettingsError(
        f"--server {url[:100]!a} is no address that a token may be sent to",
        "Give https://HOST, or http:// on this host.",
    )


def _is_this_host(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
