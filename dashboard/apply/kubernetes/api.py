"""One request to a Kubernetes API, sent once: what it answered, or how far the request came.

Signing in is the collectors' (one place imports the official client), with the applying account.
Whether a request was sent at all is told apart from an answer that never came: after the first
nothing has changed, after the second only a look can tell.
"""

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import requests
from urllib3.exceptions import ConnectTimeoutError, HTTPError, MaxRetryError, NewConnectionError

from collectors.http_deadline import LateAnswerError, sent, whole_body
from collectors.kubernetes.sign_in import configuration_of, transport
from data.apply_settings import KubernetesApplySettings
from data.errors import ApplyError, SourceNotConfiguredError, scrub
from data.source_settings import KubernetesSettings

Document = dict[str, Any]

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
FIELD_MANAGER = "trimtab"

_MAX_BYTES = 64 * 1024 * 1024
_MAX_WAIT = 3600


class NotSentError(ApplyError):
    """The request never left: nothing has changed."""


class CutError(ApplyError):
    """The request was sent and no whole answer came: it may have been done or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAnswer:
    """What the API said. `document` is None where it was no JSON object.

    `at` is the server's own time, `retry_after_seconds` its wish; both None when it told none.
    """

    status: int
    document: Document | None
    text: str
    at: datetime | None = None
    retry_after_seconds: float | None = None

    @property
    def found(self) -> Document:
        """The object of an answer that has one; nothing of another."""
        return self.document or {}

    @property
    def ok(self) -> bool:
        """Whether it is a success that carries an object."""
        return self.status in (200, 201) and self.document is not None and self.kind != "Status"

    @property
    def kind(self) -> str:
        """The kind of what it carries; Status is that of the API's own refusals."""
        return str(self.found.get("kind", ""))


class KubernetesApi:
    """One API server, signed in to with the applying account."""

    def __init__(self, settings: KubernetesApplySettings) -> None:
        self._settings = settings
        self._configuration: Any = None

    def get(self, path: str, query: dict[str, str] | None = None) -> ApiAnswer:
        """Read once. Errors: NotSentError, CutError (for a read both mean: try again)."""
        return self._send("GET", path, query=query)

    def patch(self, path: str, operations: list[Document], *, dry_run: bool = False) -> ApiAnswer:
        """Send a JSON patch once; a dry run stores nothing. Errors: NotSentError, CutError.

        Servers before 1.25 take no notice of fieldValidation: what they drop, the answer shows.
        """
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        return self._send(
            "PATCH",
            path,
            query=query | ({"dryRun": "All"} if dry_run else {}),
            body=operations,
            content_type=JSON_PATCH,
        )

    def create(self, path: str, document: Document) -> ApiAnswer:
        """Create an object, once. Errors: NotSentError, CutError."""
        query = {"fieldManager": FIELD_MANAGER}
        return self._send("POST", path, query=query, body=document, content_type=JSON)

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = "",
    ) -> ApiAnswer:
        try:
            signed = self._signed_in()
            options = transport(signed)
        except SourceNotConfiguredError as error:
            raise NotSentError(
                error.message, f"{error.hint} For changes: apply_kubernetes.kubeconfig."
            ) from error
        if content_type:
            options["headers"] |= {"Content-Type": content_type}
        seconds = self._settings.timeout_seconds
        ends = time.monotonic() + seconds
        try:
            with sent(
                method,
                f"{signed.host}/{path}",
                seconds=seconds,
                params=query,
                data=None if body is None else json.dumps(body).encode(),
                **options,
            ) as response:
                return _answer(response, _body(response, ends))
        except (requests.RequestException, HTTPError, OSError, UnicodeError, ValueError) as error:
            raise _told(error, f"{method} {path}") from error

    def _signed_in(self) -> Any:
        """Return the official client's configuration, loaded once."""
        if self._configuration is None:
            self._configuration = configuration_of(
                KubernetesSettings(
                    kubeconfig=self._settings.kubeconfig, context=self._settings.context
                ),
                personal=False,
            )
        return self._configuration


def _told(error: Exception, what: str) -> ApplyError:
    """Return the error that says whether the request was sent."""
    reason = error.args[0] if error.args else None
    reason = reason.reason if isinstance(reason, MaxRetryError) else reason
    # The reason says it all; around it the client repeats the address, and a cut would end there.
    said = f"{type(error).__name__}: {scrub(str(reason or error))[:160]}"
    before = isinstance(reason, NewConnectionError | ConnectTimeoutError) or isinstance(
        error,
        requests.ConnectTimeout
        | requests.exceptions.ProxyError
        | requests.exceptions.InvalidHeader
        | requests.exceptions.InvalidURL
        | UnicodeError,
    )
    # A certificate or key that cannot be read is an OSError of its own, before any connection.
    untrusted = "CERTIFICATE_VERIFY_FAILED" in str(error)
    if (
        before
        or untrusted
        or not isinstance(error, requests.RequestException | HTTPError | LateAnswerError)
    ):
        return NotSentError(
            f"{what} was not sent ({said})",
            "Is the API server up, and do apply_kubernetes.kubeconfig and its certificates fit?",
        )
    return CutError(
        f"{what} was sent and not answered ({said})",
        "Look at the object: the server may have taken the request or not.",
    )


def _body(response: requests.Response, ends: float) -> bytes:
    """Return the body; whatever breaks here, the request had been sent."""
    try:
        return whole_body(response, ends=ends, max_bytes=_MAX_BYTES)
    except (HTTPError, OSError) as error:
        raise LateAnswerError(f"the answer broke off: {error}") from error


def _answer(response: requests.Response, body: bytes) -> ApiAnswer:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        document = None
    said = (document or {}).get("message") or body[:200].decode("utf-8", "replace")
    wait = response.headers.get("Retry-After", "")
    whole = wait.isascii() and wait.isdecimal() and len(wait) < 6
    return ApiAnswer(
        status=response.status_code,
        document=document,
        text=scrub(str(said)),
        at=_server_time(response.headers.get("Date", "")),
        retry_after_seconds=float(min(int(wait), _MAX_WAIT)) if whole else None,
    )


def _server_time(date: str) -> datetime | None:
    """Return the time that an answer's Date names: pods' ages are told by the same clock."""
    try:
        found = parsedate_to_datetime(date)
        return found.astimezone(UTC) if found.tzinfo else None
    except (ValueError, TypeError, OverflowError):
        return None
