"""HTTP to a Prometheus: signed in, every request with a deadline, every answer with a size limit.

A timeout of `requests` is per read, so a server that drips bytes outlives it; a small compressed
body may unpack to gigabytes. Both are counted here while the body is read.
"""

import time
from pathlib import Path
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter

from data.errors import (
    CollectorError,
    SourceNotConfiguredError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
    scrub,
)
from data.source_settings import PrometheusSettings

MOST_BYTES = 64 * 1024 * 1024
CONNECT_SECONDS = 5.0
_CHUNK = 1 << 16
_TEMPORARY = frozenset({429, 502, 503, 504})
_TOO_MUCH = (
    "exceeded maximum resolution",
    "too many samples",
    "too many points",
    "maximum number of",
    "max-samples",
    "query timed out",
    "response too large",
    "-search.max",
)
_MOST_WAIT_SECONDS = 10.0


class TooMuchAskedError(SourceRefusedError):
    """The server would answer a smaller question."""


class TooSlowError(SourceUnreachableError):
    """No whole answer within the time of one request: a smaller question may be answered."""


class PassingFailureError(SourceUnreachableError):
    """Worth another try, after `wait_seconds` when the server named a time."""

    def __init__(self, message: str, hint: str, wait_seconds: float | None = None) -> None:
        super().__init__(message, hint)
        self.wait_seconds = wait_seconds


class GuardedSession(requests.Session):
    """The session that prometheus-api-client is given. `ends` is when the collection must end."""

    def __init__(self, settings: PrometheusSettings) -> None:
        super().__init__()
        self.warnings: list[str] = []
        self.ends = float("inf")
        self._settings = settings
        self.trust_env = False
        adapter = HTTPAdapter(max_retries=0)
        for prefix in ("http://", "https://", settings.url):
            self.mount(prefix, adapter)

    def mount(self, prefix: str | bytes, adapter: Any) -> None:
        """Mount adapters that do not retry; the library's own would multiply the deadline."""
        super().mount(prefix, HTTPAdapter(max_retries=0))

    def sign_in(self) -> None:
        """Read secrets from their files anew. Errors: SourceNotConfiguredError."""
        one = self._settings
        self.headers.pop("Authorization", None)
        if one.headers_file:
            self.headers.update(_headers(_text(one.headers_file, "prometheus.headers_file")))
        token = one.bearer_token or (
            _text(one.bearer_token_file, "prometheus.bearer_token_file").strip()
            if one.bearer_token_file
            else ""
        )
        if token:
            self.headers["Authorization"] = f"Bearer {token}"
        self.auth = (one.username, one.password) if one.username else None
        self.verify = one.ca_file or True
        if one.client_cert_file:
            key = one.client_key_file
            self.cert = (one.client_cert_file, key) if key else one.client_cert_file

    def request(self, method: str | bytes, url: str | bytes, **options: Any) -> requests.Response:  # type: ignore[override]
        """Give the whole answer. Errors: CollectorError for all but what its body says."""
        now = time.monotonic()
        ends = min(now + self._settings.timeout_seconds, self.ends)
        if ends <= now:
            raise SourceUnreachableError(
                f"{self._settings.url}: the time for this collection is used up",
                "Raise prometheus.budget_seconds or narrow prometheus.selector.",
            )
        left = ends - now
        options |= {"timeout": (min(CONNECT_SECONDS, left), left), "stream": True}
        options |= {"allow_redirects": False, "verify": self.verify, "cert": self.cert}
        if options.get("auth") is None:
            options.pop("auth", None)
        try:
            with super().request(method, url, **options) as response:
                response._content = self._body(response, ends)  # noqa: SLF001 - requests keeps it
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._named(error) from error
        self._check(response)
        return response

    def _body(self, response: requests.Response, ends: float) -> bytes:
        """Read the body piece by piece, so that time and size are looked at between pieces."""
        body = bytearray()
        raw = response.raw
        while True:
            if time.monotonic() > ends:
                raise TooSlowError(
                    f"{self._settings.url} did not answer in time",
                    "Raise prometheus.timeout_seconds or narrow prometheus.selector.",
                )
            piece = raw.read1(_CHUNK, decode_content=True)
            if not piece:
                return bytes(body)
            body += piece
            if len(body) > MOST_BYTES:
                raise TooMuchAskedError(
                    f"the answer of {self._settings.url} exceeds {MOST_BYTES >> 20} MiB",
                    "Narrow prometheus.selector or lengthen prometheus.step_seconds.",
                )

    def _named(self, error: BaseException) -> CollectorError:
        url = self._settings.url
        if isinstance(error, requests.exceptions.SSLError):
            return SourceRefusedError(
                f"no trusted connection to {url}: {scrub(_root(error))}",
                "Set prometheus.ca_file to the CA that signed its certificate, and "
                "prometheus.client_cert_file when it asks for one.",
            )
        if isinstance(error, requests.exceptions.ReadTimeout | urllib3.exceptions.ReadTimeoutError):
            return TooSlowError(
                f"{url} did not answer in time",
                "Raise prometheus.timeout_seconds or narrow prometheus.selector.",
            )
        if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidHeader):
            return SourceRefusedError(f"{url}: {scrub(str(error))}", "Mend prometheus.url.")
        if isinstance(error, urllib3.exceptions.DecodeError):
            return UnexpectedAnswerError(
                f"{url} sent a body that does not unpack", "Is a proxy between?"
            )
        return PassingFailureError(
            f"cannot reach {url}: {scrub(_root(error))}",
            "Is Prometheus running there, and does this machine reach it?",
        )

    def _check(self, response: requests.Response) -> None:
        """Raise what a status means, and note the warnings of an answer."""
        url, status = self._settings.url, response.status_code
        if status == 200:
            self.warnings.extend(_warnings_of(response))
            return
        said = scrub(_said(response))
        if 300 <= status < 400:
            raise UnexpectedAnswerError(
                f"{url} redirects elsewhere", "Give the final address as prometheus.url."
            )
        if status in (401, 403):
            raise SourceRefusedError(
                f"{url} refused with {status}: {said}",
                "Check prometheus.bearer_token, username or client certificate.",
            )
        if any(words in said.lower() for words in _TOO_MUCH):
            raise TooMuchAskedError(
                f"{url} refused with {status}: {said}",
                "Lengthen prometheus.step_seconds or raise the server's query limits.",
            )
        if status in _TEMPORARY:
            raise PassingFailureError(
                f"{url} answered {status}: {said}",
                "It is overloaded or starting; the next collection fills the gap.",
                _wait_of(response),
            )
        raise SourceRefusedError(
            f"{url} refused with {status}: {said}",
            "Check prometheus.url, prometheus.selector and the server's query limits.",
        )


def _text(path: str, setting: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceNotConfiguredError(
            f"{setting}: cannot read {path}: {getattr(error, 'strerror', 'no UTF-8 text')}",
            "Give a file that this process can read.",
        ) from error


def _headers(text: str) -> dict[str, str]:
    found = {}
    for line in filter(str.strip, text.splitlines()):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise SourceNotConfiguredError(
                "prometheus.headers_file has a line that is no `Name: value`",
                "Write one header a line.",
            )
        found[name.strip()] = value.strip()
    return found


def _said(response: requests.Response) -> str:
    """Give the server's own words: the `error` of its JSON, else the start of the body."""
    try:
        document = response.json()
    except (ValueError, RecursionError):
        return response.content[:200].decode("utf-8", "replace")
    return str(document.get("error", "")) if isinstance(document, dict) else ""


def _warnings_of(response: requests.Response) -> list[str]:
    try:
        document = response.json()
    except (ValueError, RecursionError):
        return []
    if not isinstance(document, dict):
        return []
    lists = (document.get(name) for name in ("warnings", "infos"))
    return [scrub(str(one)) for found in lists if isinstance(found, list) for one in found]


def _wait_of(response: requests.Response) -> float | None:
    try:
        return min(_MOST_WAIT_SECONDS, max(0.0, float(response.headers.get("Retry-After", ""))))
    except ValueError:
        return None


def _root(error: BaseException) -> str:
    """Give the innermost cause, such as `Connection refused`, without addresses of objects."""
    inner: BaseException = error
    while inner.args and isinstance(inner.args[-1], BaseException):
        inner = inner.args[-1]
    reason = getattr(inner, "reason", None)
    return str(reason or inner).rpartition(">: ")[2]
