"""HTTP to a Prometheus: signed in, every request with a deadline, every answer with a size limit.

A timeout of `requests` is per read, so a server that drips bytes outlives it; a small compressed
body may unpack to gigabytes. Both are counted while the body is read.
"""

import re
import ssl
import time
from dataclasses import dataclass, field
from typing import Any

import requests
import urllib3
from requests.auth import HTTPBasicAuth

from collectors.shared.http_deadline import DeadlineAdapter, LargeAnswerError, whole_body
from data.base.errors import (
    CollectorError,
    SourceNotConfiguredError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
    scrub,
)
from data.base.files import text_of_setting
from data.settings.sources import PrometheusSettings

MAX_BYTES = 64 * 1024 * 1024
CONNECT_SECONDS = 5.0
TIMEOUT_SECONDS = 30.0
"""Of one request: a question that takes longer is split, and the halves are asked."""
_TEMPORARY = frozenset({429, 502, 503})
_TOO_MUCH_STATUS = frozenset({413, 422})
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
_MAX_WAIT_SECONDS = 10.0
_MAX_WARNINGS = 20
_OF_OBJECT = re.compile(r"^\S*Connection\([^)]*\): ")
_OF_VICTORIA_METRICS = "X-Server-Hostname"


class QueryTooLargeError(SourceRefusedError):
    """The server would answer a smaller question."""


class TooSlowError(SourceUnreachableError):
    """No whole answer within the time of one request: a smaller question may be answered."""


class TransientError(SourceUnreachableError):
    """Worth another try, after `wait_seconds` when the server named a time."""

    def __init__(self, message: str, hint: str, wait_seconds: float | None = None) -> None:
        super().__init__(message, hint)
        self.wait_seconds = wait_seconds


class ProxyGaveUpError(TransientError, TooSlowError):
    """A proxy did not wait for the answer: worth another try, and a smaller question."""


class GuardedSession(requests.Session):
    """The session that prometheus-api-client is given. `ends` is when the collection must end."""

    def __init__(self, settings: PrometheusSettings) -> None:
        super().__init__()
        self.warnings: list[str] = []
        self.ends = float("inf")
        self.victoria_metrics = False
        self.url = without_credentials(settings.url)
        self._settings = settings
        self.trust_env = False
        for prefix in ("http://", "https://"):
            super().mount(prefix, DeadlineAdapter())

    def mount(self, prefix: str | bytes, adapter: Any) -> None:
        """Refuse further adapters: the library's own would retry beyond the deadline."""

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return none: to prepare a redirect, requests would read its whole body, without limit."""
        return None

    def sign_in(self) -> None:
        """Read secrets from their files anew. Errors: SourceNotConfiguredError."""
        signed = read_sign_in(self._settings)
        self.headers.clear()
        self.headers.update(requests.utils.default_headers())
        self.headers.update(signed.headers)
        self.auth, self.verify, self.cert = signed.auth, signed.verify, signed.cert

    def request(self, method: str | bytes, url: str | bytes, **options: Any) -> requests.Response:  # type: ignore[override]
        """Return the whole answer. Errors: CollectorError for all but what its body says."""
        now = time.monotonic()
        ends = min(now + TIMEOUT_SECONDS, self.ends)
        if ends <= now:
            raise SourceUnreachableError(
                f"{self.url}: the time for this collection is used up",
                "Narrow prometheus.selector, or lengthen prometheus.step_seconds.",
            )
        remaining = ends - now
        options |= {"timeout": (min(CONNECT_SECONDS, remaining), remaining), "stream": True}
        options |= {"allow_redirects": False, "verify": self.verify, "cert": self.cert}
        if options.get("auth") is None:
            options.pop("auth", None)
        try:
            with super().request(method, url, **options) as response:
                response._content = whole_body(  # noqa: SLF001 - requests keeps it
                    response, ends=ends, max_bytes=MAX_BYTES
                )
        except LargeAnswerError as error:
            raise QueryTooLargeError(
                f"the answer of {self.url} exceeds {MAX_BYTES >> 20} MiB",
                "Narrow prometheus.selector or lengthen prometheus.step_seconds.",
            ) from error
        except (requests.exceptions.InvalidHeader, UnicodeError) as error:
            # The error quotes the header, which is a secret.
            raise SourceNotConfiguredError(
                "a header for Prometheus holds characters that HTTP does not allow",
                "Check prometheus.bearer_token, its file and prometheus.headers_file.",
            ) from error
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise (self._too_slow() if time.monotonic() >= ends else self._error(error)) from error
        # Else bytes that are no UTF-8 would be searched for a likely encoding, for minutes.
        response.encoding = "utf-8"
        self._check(response)
        return response

    def _too_slow(self) -> TooSlowError:
        return TooSlowError(
            f"{self.url} did not answer in time",
            "Narrow prometheus.selector, or lengthen prometheus.step_seconds.",
        )

    def _error(self, error: BaseException) -> CollectorError:
        url = self.url
        if isinstance(error, requests.exceptions.SSLError):
            return SourceRefusedError(
                f"no trusted connection to {url}: {scrub(_root(error))}",
                "Set prometheus.ca_file to the CA that signed its certificate, and "
                "prometheus.client_cert_file when it asks for one.",
            )
        if isinstance(error, requests.exceptions.ReadTimeout | urllib3.exceptions.ReadTimeoutError):
            return self._too_slow()
        if isinstance(error, requests.exceptions.InvalidURL):
            return SourceRefusedError(f"{url}: {scrub(str(error))}", "Mend prometheus.url.")
        if isinstance(error, urllib3.exceptions.DecodeError):
            return UnexpectedAnswerError(
                f"{url} sent a body that does not unpack", "Is a proxy between?"
            )
        return TransientError(
            f"cannot reach {url}: {scrub(_root(error))}",
            "Is Prometheus running there, and does this machine reach it?",
        )

    def _check(self, response: requests.Response) -> None:
        """Raise what a status means, and note the warnings of an answer."""
        url, status = self.url, response.status_code
        self.victoria_metrics = _OF_VICTORIA_METRICS in response.headers
        if status == 200:
            for warning in _warnings_of(response):
                if len(self.warnings) < _MAX_WARNINGS and warning not in self.warnings:
                    self.warnings.append(warning)
            return
        text = scrub(_error_text(response))
        if 300 <= status < 400:
            raise UnexpectedAnswerError(
                f"{url} redirects elsewhere", "Give the final address as prometheus.url."
            )
        if status in (401, 403):
            raise SourceRefusedError(
                f"{url} refused with {status}: {text}",
                "Check prometheus.bearer_token, username or client certificate.",
            )
        if status in _TOO_MUCH_STATUS or any(words in text.lower() for words in _TOO_MUCH):
            raise QueryTooLargeError(
                f"{url} refused with {status}: {text}",
                "Lengthen prometheus.step_seconds or raise the server's query limits.",
            )
        if status == 504:
            raise ProxyGaveUpError(
                f"{url} answered {status}: {text}",
                "A proxy gave up waiting: raise its timeout or narrow prometheus.selector.",
            )
        if status in _TEMPORARY:
            raise TransientError(
                f"{url} answered {status}: {text}",
                "It is overloaded or starting; the next collection fills the gap.",
                _wait_of(response),
            )
        raise SourceRefusedError(
            f"{url} refused with {status}: {text}",
            "Check prometheus.url, prometheus.selector and the server's query limits.",
        )


def _error_text(response: requests.Response) -> str:
    """Return the server's own words: the `error` of its JSON, else the start of the body."""
    try:
        document = response.json()
    except (ValueError, RecursionError):
        return response.content[:200].decode("utf-8", "replace")
    text = document.get("error") if isinstance(document, dict) else None
    return text if isinstance(text, str) else ""


def _warnings_of(response: requests.Response) -> list[str]:
    if not any(word in response.content for word in (b'"warnings"', b'"infos"')):
        return []
    try:
        document = response.json()
    except (ValueError, RecursionError):
        return []
    if not isinstance(document, dict):
        return []
    lists = (document.get(name) for name in ("warnings", "infos"))
    return [
        scrub(entry)
        for entries in lists
        if isinstance(entries, list)
        for entry in entries[:_MAX_WARNINGS]
        if isinstance(entry, str)
    ]


def _wait_of(response: requests.Response) -> float | None:
    try:
        return min(_MAX_WAIT_SECONDS, max(0.0, float(response.headers.get("Retry-After", ""))))
    except ValueError:
        return None


def _root(error: BaseException) -> str:
    """Return the innermost cause, such as `Connection refused`, without addresses of objects."""
    inner: BaseException = error
    while inner.args and isinstance(inner.args[-1], BaseException):
        inner = inner.args[-1]
    reason = getattr(inner, "reason", None)
    return _OF_OBJECT.sub("", str(reason or inner))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """Headers to send, user and password as UTF-8, what to trust and what certificate to show."""

    headers: dict[str, str] = field(repr=False)
    auth: HTTPBasicAuth | None = field(repr=False)
    verify: str | bool
    cert: str | tuple[str, str] | None


def read_sign_in(settings: PrometheusSettings) -> SignIn:
    """Return the sign-in of the settings and their files now. Errors: SourceNotConfiguredError."""
    headers: dict[str, str] = {}
    if settings.headers_file:
        headers = _headers(text_of_setting(settings.headers_file, "prometheus.headers_file"))
    token = settings.bearer_token
    if settings.bearer_token_file:
        token = text_of_setting(settings.bearer_token_file, "prometheus.bearer_token_file")
    if token:
        headers["Authorization"] = f"Bearer {token}"
    user = settings.username
    certificate, key = settings.client_cert_file, settings.client_key_file
    _check_certificates(settings)
    return SignIn(
        headers=headers,
        # As bytes: requests would encode text as Latin-1, or fail.
        auth=HTTPBasicAuth(user.encode(), settings.password.encode()) if user else None,
        verify=settings.ca_file or True,
        cert=((certificate, key) if key else certificate) or None,
    )


def without_credentials(url: str) -> str:
    """Return the address fit for messages."""
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"


def _check_certificates(settings: PrometheusSettings) -> None:
    """Load them once: else a wrong file would look like a server that does not answer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if settings.ca_file:
            setting = "prometheus.ca_file"
            context.load_verify_locations(settings.ca_file)
        if settings.client_cert_file:
            setting = "prometheus.client_cert_file"
            # Without a password an encrypted key would ask for one on the terminal.
            context.load_cert_chain(
                settings.client_cert_file, settings.client_key_file or None, password=""
            )
    except OSError as error:
        raise SourceNotConfiguredError(
            f"{setting}: not usable as PEM: {getattr(error, 'reason', None) or error.strerror}",
            "Give a readable file, the key that belongs to the certificate, and no password on it.",
        ) from error


def _headers(text: str) -> dict[str, str]:
    headers = {}
    for line in filter(str.strip, text.splitlines()):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise SourceNotConfiguredError(
                "prometheus.headers_file has a line that is no `Name: value`",
                "Write one header a line.",
            )
        headers[name.strip()] = value.strip()
    return headers
