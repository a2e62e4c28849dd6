"""Pull requests through a forge's API, in the few calls that Gitea, Forgejo and GitHub share.

A request is found by its branch, whose name holds the digest: nothing has to be remembered of it.
"""

import json
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from urllib3.exceptions import HTTPError

from collectors.http_deadline import DeadlineAdapter
from dashboard.apply.git.repository import token_of
from data.apply_settings import GitApplySettings
from data.errors import ApplyError, scrub

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
    found: Any

    @property
    def words(self) -> str:
        """What a refusal says."""
        said = self.found.get("message", "") if isinstance(self.found, dict) else ""
        return scrub(f"the forge answers {self.status}: {said}", limit=200)


class Forge:
    """The repository's pages at the forge."""

    def __init__(self, settings: GitApplySettings) -> None:
        self._settings = settings
        # A forge may live below a folder of its host.
        self._owner, name = urlsplit(settings.repository).path.strip("/").split("/")[-2:]
        self._above = f"repos/{quote(self._owner)}/{quote(name.removesuffix('.git'))}"

    def may_push(self) -> str:
        """Return why the account may not make requests, '' when it may. Errors: ApplyError."""
        answer = self._ask("GET", self._above)
        if answer.status != 200 or not isinstance(answer.found, dict):
            return answer.words
        rights = answer.found.get("permissions")
        if isinstance(rights, dict) and rights.get("push") is True:
            return ""
        return "the account of apply_git.token_file may not push to the repository"

    def request_of(self, branch: str) -> PullRequest | None:
        """Return the newest request of a branch to the base, None without one. Errors: ApplyError.

        Each forge has a question of its own for it; neither needs the branch to be there still.
        """
        base = self._settings.base_branch
        if self._settings.forge == "gitea":
            path, query = f"pulls/{quote(base, safe='')}/{quote(branch)}", {}
        else:
            path, query = "pulls", {"state": "all", "base": base, "head": f"{self._owner}:{branch}"}
        answer = self._ask("GET", f"{self._above}/{path}", query=query)
        # GitHub answers 404 for what an account may not see, and an empty list for none.
        if answer.status == 404 and self._settings.forge == "gitea":
            return None
        found = [answer.found] if isinstance(answer.found, dict) else answer.found
        if answer.status != 200 or not isinstance(found, list):
            raise ApplyError(answer.words, "Look at apply_git.api_url and its token.")
        mine = [entry for entry in found if self._is_of(entry, branch)]
        return _request(max(mine, key=lambda entry: int(entry["number"]))) if mine else None

    def _is_of(self, entry: Any, branch: str) -> bool:
        """Whether an entry is a request of our branch: a fork may have one of the same name.

        Gitea keeps the name of a branch that was deleted in `label` alone.
        """
        try:
            head, base = entry["head"], entry["base"]
            same = head["repo"] is not None and head["repo"]["id"] == base["repo"]["id"]
            named = branch in (head["ref"], head.get("label"))
            return bool(same and named and base["ref"] == self._settings.base_branch
                        and type(entry["number"]) is int)  # fmt: skip
        except (TypeError, KeyError):
            return False

    def open(self, branch: str, title: str, body: str) -> ForgeAnswer:
        """Open a request, once. Errors: ApplyError when it never left, ForgeCutError."""
        content = {
            "title": title, "body": body, "head": branch, "base": self._settings.base_branch
        }  # fmt: skip
        return self._ask("POST", f"{self._above}/pulls", content=content)

    def close(self, number: int) -> ForgeAnswer:
        """Close a request without merging it, once. Errors: as `open`."""
        return self._ask("PATCH", f"{self._above}/pulls/{number}", content={"state": "closed"})

    def reason(self, number: int) -> str:
        """Return the last comment on a request, '' when there is none that can be read."""
        try:
            answer = self._ask("GET", f"{self._above}/issues/{number}/comments")
        except ApplyError:
            return ""
        said = answer.found if answer.status == 200 and isinstance(answer.found, list) else []
        texts = [entry.get("body") for entry in said if isinstance(entry, dict)]
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
        seconds = settings.timeout_seconds
        ends = time.monotonic() + seconds
        headers = {"Authorization": f"token {token}", "Accept": _ACCEPT}
        try:
            with requests.Session() as session:
                session.trust_env = False
                for scheme in ("https://", "http://"):
                    session.mount(scheme, DeadlineAdapter())
                with session.request(
                    method,
                    f"{settings.api_url.rstrip('/')}/{path}",
                    params=query,
                    json=content,
                    headers=headers,
                    timeout=(min(5.0, seconds), seconds),
                    allow_redirects=False,
                    stream=True,
                ) as response:
                    body = _body(response, ends).replace(token.encode(), b"***")
                    return ForgeAnswer(status=response.status_code, found=_json(body))
        except (requests.RequestException, HTTPError, OSError) as error:
            unsent = isinstance(error, requests.ConnectTimeout) or "NewConnection" in str(error)
            kind = ApplyError if unsent else ForgeCutError
            raise kind(
                f"{method} {path} of the forge: {type(error).__name__}", "Is apply_git.api_url up?"
            ) from None


def _body(response: requests.Response, ends: float) -> bytes:
    """Return the body of an answer. Errors: OSError when it is too much."""
    body = bytearray()
    while piece := response.raw.read1(1 << 16, decode_content=True):
        body += piece
        if time.monotonic() > ends or len(body) > _MAX_BYTES:
            raise OSError("the answer was not whole in time")
    return bytes(body)


def _json(body: bytes) -> Any:
    """Return the JSON of an answer, None where it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _request(entry: dict[str, Any]) -> PullRequest:
    merged, state = entry.get("merged_at"), entry.get("state")
    said = "merged" if merged else "open" if state == "open" else "closed"
    url = str(entry.get("html_url", ""))
    return PullRequest(
        number=entry["number"],
        state=said,
        url=scrub(url, limit=300) if url.startswith(("https://", "http://")) else "",
        at=scrub(str(merged or entry.get("closed_at") or entry.get("created_at") or ""), limit=40),
    )
