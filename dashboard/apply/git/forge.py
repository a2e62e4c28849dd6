"""Requests of the Git route to a forge, and how they are sent; `forges` has each kind.

A request is found by its branch, whose name holds the digest: nothing has to be remembered of it.
"""

import json
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
from urllib3.exceptions import HTTPError

from collectors.shared.http_deadline import sent, whole_body
from dashboard.apply.git.repository import TIMEOUT_SECONDS, token_of
from data.base.errors import ApplyError, scrub
from data.settings.apply import GitApplySettings

_MAX_BYTES = 8 * 1024 * 1024
_ACCEPT = "application/json, application/vnd.github+json"


class ForgeCutError(ApplyError):
    """A request was sent and no whole answer came: it may have been done or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """A pull request as the forge tells of it: `state` is open, merged or closed."""

    number: int
    state: str
    url: str
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeAnswer:
    """Status and JSON of an answer."""

    status: int
    data: Any

    @property
    def words(self) -> str:
        """Text of a refusal."""
        fields = self.data if isinstance(self.data, dict) else {}
        message = fields.get("message") or fields.get("error") or ""
        return scrub(f"the forge answers {self.status}: {message}", limit=200)

    @property
    def url(self) -> str:
        """The page of the request that an answer tells of, '' where it tells of none."""
        fields = self.data if isinstance(self.data, dict) else {}
        return safe_url(fields.get("html_url") or fields.get("web_url"))


class Forge(ABC):
    """The repository's pages at the forge."""

    scheme = "token"
    """How a token is presented to its API."""

    def __init__(self, settings: GitApplySettings) -> None:
        self._settings = settings
        # A forge may live below a folder of its host.
        path = unquote(urlsplit(settings.repository).path)
        self._names = path.strip("/").removesuffix(".git").split("/")

    @abstractmethod
    def may_push(self) -> str:
        """Return the reason against requests of the account, '' for none. Errors: ApplyError."""

    @abstractmethod
    def request_of(self, branch: str) -> PullRequest | None:
        """Return the newest request of a branch to the base, None without one. Errors: ApplyError.

        It does not need the branch to be there still. A request from a fork is not one.
        """

    @abstractmethod
    def open(self, branch: str, title: str, body: str) -> ForgeAnswer:
        """Open a request, once. Errors: ApplyError when it never left, ForgeCutError."""

    @abstractmethod
    def close(self, number: int) -> ForgeAnswer:
        """Close a request without merging it, once. Errors: as `open`."""

    @abstractmethod
    def reason(self, number: int) -> str:
        """Return the last comment on a request, '' when there is none that can be read."""

    def _last_comment(self, path: str, query: dict[str, str] | None = None) -> str:
        """Return the last of a list of comments that a person wrote."""
        try:
            answer = self._ask("GET", path, query=query)
        except ApplyError:
            return ""
        comments = answer.data if answer.status == 200 and isinstance(answer.data, list) else []
        texts = [
            entry.get("body")
            for entry in comments
            if isinstance(entry, dict) and entry.get("system") is not True
        ]
        return next(
            (scrub(text, limit=300) for text in reversed(texts) if isinstance(text, str)), ""
        )

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        content: dict[str, str] | None = None,
    ) -> ForgeAnswer:
        settings, token = self._settings, token_of(self._settings)
        ends = time.monotonic() + TIMEOUT_SECONDS
        headers = {"Authorization": f"{self.scheme} {token}", "Accept": _ACCEPT}
        try:
            with sent(
                method,
                f"{settings.api_url.rstrip('/')}/{path}",
                seconds=TIMEOUT_SECONDS,
                params=query,
                json=content,
                headers=headers,
            ) as response:
                body = whole_body(response, ends=ends, max_bytes=_MAX_BYTES)
                document = _json(body.replace(token.encode(), b"***"))
                return ForgeAnswer(status=response.status_code, data=document)
        except (requests.RequestException, HTTPError, OSError) as error:
            unsent = isinstance(error, requests.ConnectTimeout) or "NewConnection" in str(error)
            kind = ApplyError if unsent else ForgeCutError
            raise kind(
                f"{method} {path} of the forge: {type(error).__name__}", "Is apply_git.api_url up?"
            ) from None


def _json(body: bytes) -> Any:
    """Return the JSON of an answer, None where it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def safe_url(value: Any) -> str:
    """Return an address that a page may link to, '' for what is none."""
    url = str(value or "")
    return scrub(url, limit=300) if url.startswith(("https://", "http://")) else ""
