"""One Kubernetes API, read and never changed: each request has a deadline, each failure a name.

Signing in is the official client's work (kubeconfig, exec plugins, in-cluster); objects are taken
as the JSON they are, because the cluster may be years older or newer than any client's models.
Whether a request was sent at all is told apart from an answer that never came: after the first
nothing has changed, after the second only a look can tell. What changes objects has a class of
its own in `dashboard`, which adds the methods that write.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import requests
from urllib3.exceptions import ConnectTimeoutError, HTTPError, MaxRetryError, NewConnectionError
from yaml import YAMLError

from collectors.shared.http_deadline import LargeAnswerError, LateAnswerError, sent, whole_body
from data.base.errors import (
    CollectorError,
    SettingsError,
    SourceNotConfiguredError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
    scrub,
)
from data.base.extras import require_extra
from data.settings.sources import KubernetesSettings

Document = dict[str, Any]

MAX_BYTES = 256 * 1024 * 1024
TIMEOUT_SECONDS = 30.0
PAGE_SIZE = 500
"""As many as kubectl asks for at once."""
_MAX_PAGES = 10_000
_RESTARTS = 3
_TRIES = 3
_MAX_WAIT_SECONDS = 10
_MAX_RETRY_AFTER_SECONDS = 3600
_OF_REQUESTS = (requests.RequestException, HTTPError, LateAnswerError, LargeAnswerError)
"""Errors that fail a request; another OSError is that of a file which it needs."""
_UNSENT_ERRORS = (
    requests.ConnectTimeout,
    requests.exceptions.ProxyError,
    requests.exceptions.InvalidURL,
    NewConnectionError,
    ConnectTimeoutError,
)


class CutError(SourceUnreachableError):
    """The request was sent and no whole answer came: it may have been done or not."""


class _ListExpiredError(UnexpectedAnswerError):
    """The continue token is too old: the list has to be read from its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAnswer:
    """An answer of the API. `document` is None where it was no JSON object.

    `at` is the server's own time, `retry_after_seconds` its Retry-After, None where it told none.
    """

    status: int
    document: Document | None
    text: str
    at: datetime | None = None
    retry_after_seconds: float | None = None

    @property
    def found(self) -> Document:
        """The object, empty where the answer has none."""
        return self.document or {}

    @property
    def ok(self) -> bool:
        """Return whether it is a success that carries an object."""
        return self.status in (200, 201) and self.document is not None and self.kind != "Status"

    @property
    def kind(self) -> str:
        """The kind of what it carries; Status is that of the API's own refusals."""
        return str(self.found.get("kind", ""))

    @property
    def lacks_right(self) -> bool:
        """Return whether roles forbid it to this user; quotas and admission rules give 403 too."""
        return self.status == 403 and 'is forbidden: User "' in self.text

    @property
    def is_busy(self) -> bool:
        """Return whether the server is overloaded or starting."""
        return self.status == 429 or self.status >= 500


class KubernetesApi:
    """One API server, signed in to with one account.

    `role` is the file with the rights that the account needs, `section` that of the settings, for
    hints. Without `personal` the kubeconfig of this user is never the way in.
    """

    def __init__(
        self,
        settings: KubernetesSettings,
        *,
        role: str = "deploy/kubernetes-reader.yaml",
        section: str = "kubernetes",
        personal: bool = True,
    ) -> None:
        self._settings = settings
        self._role, self._section, self._personal = role, section, personal
        self._configuration: Any = None

    @property
    def name(self) -> str:
        """The server for reports: its host; what the settings name when they lead to none.

        The same before and after the first question: the store remembers a source by its name.
        """
        try:
            host = str(self._signed_in().host)
        except SourceNotConfiguredError:
            return self._settings.context or self._settings.kubeconfig or "in-cluster or default"
        return host.partition("://")[2].rpartition("@")[2]

    def get(self, path: str, query: Mapping[str, str] | None = None) -> ApiAnswer:
        """Ask once and return the answer, whatever its status. Errors: CollectorError."""
        return self._request("GET", path, query)

    def read(self, path: str, query: Mapping[str, str] | None = None) -> Document | None:
        """Return an object or a list, None where there is none.

        A busy server is asked again when it says when. Errors: CollectorError.
        """
        answer = self.get(path, query)
        for _attempt in range(_TRIES - 1):
            wait = answer.retry_after_seconds
            if not answer.is_busy or wait is None or wait > _MAX_WAIT_SECONDS:
                break
            time.sleep(wait)
            answer = self.get(path, query)
        if answer.status == 404:
            return None
        if answer.status != 200 or answer.document is None:
            raise self.refusal(answer, path)
        return answer.document

    def whole_list(
        self, path: str, query: Mapping[str, str] | None = None, *, read: Callable[[Any], Any]
    ) -> list[Any] | None:
        """Return the result of `read` for each entry of a list, None where the path is not served.

        A list whose continue token expired is begun again. Errors: CollectorError.
        """
        for _attempt in range(1 + _RESTARTS):
            entries: list[Any] = []
            try:
                for page in self._pages(path, query):
                    if page is None:
                        return None
                    entries += [read(entry) for entry in page]
            except _ListExpiredError:
                continue
            return entries
        raise UnexpectedAnswerError(
            f"{self.name}: the list {path} changed faster than it could be read",
            "Narrow kubernetes.namespaces, so that it takes fewer pages.",
        )

    def _pages(self, path: str, query: Mapping[str, str] | None) -> Iterator[list[Any] | None]:
        parameters = {"limit": str(PAGE_SIZE), **(query or {})}
        for _page in range(_MAX_PAGES):
            document = self.read(path, parameters)
            if document is None:
                yield None
                return
            items = document.get("items")
            if not isinstance(items, list):
                raise UnexpectedAnswerError(
                    f"{self.name}: {path} answered no list", "Is this a Kubernetes API?"
                )
            yield items
            metadata = document.get("metadata")
            token = str(metadata.get("continue") or "") if isinstance(metadata, dict) else ""
            if not token:
                return
            parameters["continue"] = token
        raise UnexpectedAnswerError(
            f"{self.name}: {path} has more than {_MAX_PAGES} pages",
            "Narrow kubernetes.namespaces.",
        )

    def refusal(self, answer: ApiAnswer, path: str) -> CollectorError:
        """Return the error of an answer that is not what was asked for."""
        message = f"{self.name} answered {answer.status} to {path}: {answer.text}"
        if answer.status == 401:
            return SourceRefusedError(
                f"{self.name} does not know this user: {answer.text}",
                "Renew the token or certificate of the kubeconfig.",
            )
        if answer.status == 403:
            return SourceRefusedError(
                f"{self.name} refused {path}: {answer.text}",
                f"Bind the role of {self._role} to this user.",
            )
        if answer.status == 410:
            return _ListExpiredError(message, "Ask again.")
        if answer.is_busy:
            return SourceUnreachableError(
                message, "It is overloaded or starting: try again in a moment."
            )
        return UnexpectedAnswerError(message, "Is this the address of a Kubernetes API?")

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Any = None,
        content_type: str = "application/json",
    ) -> ApiAnswer:
        """Send one request, once.

        Errors: CutError when it was sent and not answered whole, else another CollectorError. A GET
        may raise another CollectorError after it was sent: it changes nothing.
        """
        signed = self._signed_in()
        options = transport(signed)
        if body is not None:
            options["headers"] |= {"Content-Type": content_type}
        ends = time.monotonic() + TIMEOUT_SECONDS
        try:
            with sent(
                method,
                f"{signed.host}/{path}",
                seconds=TIMEOUT_SECONDS,
                params=query,
                data=None if body is None else json.dumps(body).encode(),
                **options,
            ) as response:
                return _answer(response, _body(response, ends))
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            raise self._failure(error, method, path) from error

    def _failure(self, error: Exception, method: str, path: str) -> CollectorError:
        """Return the error that says how far a request came, and why not further."""
        reason = error.args[0] if error.args else None
        reason = reason.reason if isinstance(reason, MaxRetryError) else reason
        # The reason says it all; around it the client repeats the address, a cut would end there.
        cause = scrub(str(reason or error))[:160]
        request, kubeconfig = f"{method} {path} at {self.name}", f"{self._section}.kubeconfig"
        if isinstance(error, LargeAnswerError) and method == "GET":
            return UnexpectedAnswerError(f"{request}: {cause}", "Narrow kubernetes.namespaces.")
        if isinstance(error, requests.exceptions.SSLError) and (
            method == "GET" or "CERTIFICATE_VERIFY_FAILED" in str(error)
        ):
            return SourceRefusedError(
                f"{request} was not sent: no trusted connection ({cause})",
                f"Check certificate-authority and client-certificate of {kubeconfig}.",
            )
        if isinstance(error, requests.exceptions.InvalidHeader | UnicodeEncodeError):
            return SourceNotConfiguredError(
                f"{request} was not sent: the token has characters that no header can carry",
                f"Write the token alone, without line breaks, into {kubeconfig}.",
            )
        if method != "GET" and isinstance(error, ValueError):  # an answer's broken Location
            hint = "Its answer redirects to a broken address: is a proxy in front of it?"
            return CutError(f"{request} was sent and not answered ({cause})", hint)
        if not isinstance(error, _OF_REQUESTS):
            return SourceNotConfiguredError(
                f"{request} was not sent: a certificate or key cannot be read ({cause})",
                f"Check certificate-authority and client-certificate of {kubeconfig}.",
            )
        detail = f"({type(error).__name__}: {cause})"
        hint = (
            "Is the API server up, does this machine reach it, and does it answer within "
            f"{TIMEOUT_SECONDS:g} s?"
        )
        if isinstance(error, _UNSENT_ERRORS) or isinstance(reason, _UNSENT_ERRORS):
            return SourceUnreachableError(f"{request} was not sent {detail}", hint)
        return CutError(f"{request} was sent and not answered {detail}", hint)

    def _signed_in(self) -> Any:
        """Return the official client's configuration, loaded once."""
        if self._configuration is None:
            self._configuration = configuration_of(
                self._settings, personal=self._personal, section=self._section
            )
        return self._configuration


def _body(response: requests.Response, ends: float) -> bytes:
    """Return the body; whatever breaks here, the request had been sent."""
    try:
        return whole_body(response, ends=ends, max_bytes=MAX_BYTES)
    except LargeAnswerError:
        raise
    except (HTTPError, OSError) as error:
        raise LateAnswerError(f"the answer broke off: {error}") from error


def _answer(response: requests.Response, body: bytes) -> ApiAnswer:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        document = None
    text = (document or {}).get("message") or body[:200].decode("utf-8", "replace")
    wait = response.headers.get("Retry-After", "")
    valid = wait.isascii() and wait.isdecimal() and len(wait) < 6
    return ApiAnswer(
        status=response.status_code,
        document=document,
        text=scrub(str(text)),
        at=_server_time(response.headers.get("Date", "")),
        retry_after_seconds=float(min(int(wait), _MAX_RETRY_AFTER_SECONDS)) if valid else None,
    )


def _server_time(date: str) -> datetime | None:
    """Return the time that an answer's Date names: pods' ages are told by the same clock."""
    try:
        server_time = parsedate_to_datetime(date)
        return server_time.astimezone(UTC) if server_time.tzinfo else None
    except (ValueError, TypeError, OverflowError):
        return None


def configuration_of(settings: KubernetesSettings, *, personal: bool, section: str) -> Any:
    """Return the official client's configuration: host, certificates, and a token that renews.

    Without `personal` the kubeconfig of this user is never the way out: who changes a cluster does
    it with the account that was named. `section` is that of the settings, for hints. Errors:
    SourceNotConfiguredError when the package or every way to sign in is missing.
    """
    try:
        require_extra("kubernetes", "Kubernetes is to be asked")
    except SettingsError as error:
        raise SourceNotConfiguredError(error.message, error.hint) from error
    from kubernetes import client, config

    configuration: Any = client.Configuration()
    try:
        _load(settings, config, configuration, personal=personal)
    except (config.ConfigException, OSError, ValueError, TypeError, YAMLError) as error:
        raise SourceNotConfiguredError(
            f"no Kubernetes to sign in to: {scrub(str(error))[:160]}", _way_in(settings, section)
        ) from error
    return configuration


def _way_in(settings: KubernetesSettings, section: str) -> str:
    """Return the next step after a sign-in that failed: no setting that is there already."""
    file, context = settings.kubeconfig, settings.context
    if file and not Path(file).expanduser().is_file():
        return f"The file {scrub(file)!r} does not exist: correct {section}.kubeconfig."
    if context:
        where = scrub(file) or "the kubeconfig"
        return f"Does {where} have the context {scrub(context)!r}? `kubectl config get-contexts`."
    if file:
        return f"Is {scrub(file)!r} a kubeconfig that `kubectl --kubeconfig` takes?"
    return f"Set {section}.kubeconfig, or run in a pod with a service account."


def transport(configuration: Any) -> dict[str, Any]:
    """Return the request options for trust in both directions, from the client's configuration.

    Errors: SourceNotConfiguredError when a token that has to be renewed cannot be.
    """
    from kubernetes.config import ConfigException

    try:
        token = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    except (ConfigException, OSError, ValueError) as error:
        raise SourceNotConfiguredError(
            f"the token of the kubeconfig or the pod cannot be renewed: {scrub(str(error))[:160]}",
            "Sign in again with kubectl; in a pod, is its service account mounted?",
        ) from error
    trusted = (configuration.ssl_ca_cert or True) if configuration.verify_ssl else False
    signed = (configuration.cert_file, configuration.key_file)
    proxy = configuration.proxy
    return {
        "headers": {"Accept": "application/json"} | ({"Authorization": token} if token else {}),
        "verify": trusted,
        "cert": signed if configuration.cert_file else None,
        "proxies": {"http": proxy, "https": proxy} if proxy else None,
    }


def _load(settings: KubernetesSettings, config: Any, configuration: Any, *, personal: bool) -> None:
    """Load the kubeconfig of the settings, else what a pod is given, else that of this user."""
    if settings.kubeconfig or settings.context:
        config.load_kube_config(
            config_file=settings.kubeconfig or None,
            context=settings.context or None,
            client_configuration=configuration,
        )
        return
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        if not personal:
            raise
        config.load_kube_config(client_configuration=configuration)
