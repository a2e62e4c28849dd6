"""HTTP to a Kubernetes API: signed in as the kubeconfig says, with a deadline and a size limit.

The official client finds the credentials (plug-ins, certificates, tokens that rotate); requests
go through its connection pool, without its models: plain JSON is read, so that an unknown field or
a newer release breaks nothing.
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import urllib3
import yaml

from data.errors import (
    CollectorError,
    SourceNotConfiguredError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
    scrub,
)
from data.source_settings import KubernetesSettings

MOST_BYTES = 128 * 1024 * 1024
MOST_TRIES = 3
_CONNECT_SECONDS = 5.0
_MOST_WAIT_SECONDS = 10.0
_CHUNK = 1 << 16
_PASSING = frozenset({429, 500, 502, 503, 504})
_LEFT_TO_CALLER = frozenset({200, 404, 410})
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"


class KubernetesConnection:
    """One API server, asked by GET only. Making one reads the credentials anew."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._configuration = _configuration(settings)
        self._host = str(self._configuration.host).rstrip("/")
        self._pool = _pool(self._configuration)

    @property
    def address(self) -> str:
        """The server's address without credentials, fit for a message."""
        scheme, _, rest = self._host.partition("://")
        return scrub(f"{scheme}://{rest.rpartition('@')[2]}", limit=120)

    def close(self) -> None:
        """Close every connection."""
        self._pool.clear()

    def get(
        self, path: str, *, accept: str = "application/json", **query: str
    ) -> tuple[int, dict[str, Any]]:
        """Give (status, JSON object) for 200, 404 and 410. Errors: CollectorError for all else.

        What passes by itself (429, 5xx, a cut connection) is tried again, three times in all.
        """
        for attempt in range(1, MOST_TRIES + 1):
            try:
                return self._once(path, accept, query)
            except PassingFailureError as error:
                if attempt == MOST_TRIES:
                    raise
                time.sleep(0.2 * attempt if error.wait_seconds is None else error.wait_seconds)
        raise AssertionError("unreachable: the last try returns or raises")

    def _once(self, path: str, accept: str, query: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        asked = f"{self.address}{path}"
        ends = time.monotonic() + self._settings.timeout_seconds
        url = f"{self._host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            response = self._pool.request(
                "GET",
                url,
                headers=self._headers(accept),
                timeout=urllib3.Timeout(
                    connect=min(_CONNECT_SECONDS, self._settings.timeout_seconds),
                    read=self._settings.timeout_seconds,
                ),
                preload_content=False,
                redirect=False,
                retries=False,
            )
            try:
                body = self._body(response, asked, ends)
            finally:
                response.close()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _named(error, asked) from error
        return response.status, _checked(response, body, asked)

    def _headers(self, accept: str) -> dict[str, str]:
        headers = {"Accept": accept, "Accept-Encoding": "gzip", "User-Agent": "trimtab"}
        from kubernetes.config import ConfigException

        try:
            signed = self._configuration.auth_settings().get("BearerToken", {}).get("value")
        except (ConfigException, OSError, ValueError) as error:
            raise SourceNotConfiguredError(
                f"cannot renew the credentials of {self.address}: {scrub(str(error))}",
                "Sign in again with kubectl, or mend the kubeconfig's user.",
            ) from error
        if signed:
            headers["Authorization"] = str(signed).strip()
        return headers

    def _body(self, response: urllib3.BaseHTTPResponse, asked: str, ends: float) -> bytes:
        """Read piece by piece: a server that drips bytes outlives a timeout of one read."""
        body = bytearray()
        while True:
            if time.monotonic() > ends:
                raise SourceUnreachableError(
                    f"{asked} did not answer in {self._settings.timeout_seconds:g} s",
                    "Raise kubernetes.timeout_seconds or lower kubernetes.page_size.",
                )
            piece = cast("urllib3.HTTPResponse", response).read1(_CHUNK, decode_content=True)
            if not piece:
                return bytes(body)
            body += piece
            if len(body) > MOST_BYTES:
                raise SourceRefusedError(
                    f"the answer of {asked} exceeds {MOST_BYTES >> 20} MiB",
                    "Lower kubernetes.page_size.",
                )


class PassingFailureError(SourceUnreachableError):
    """Worth another try, after `wait_seconds` when the server named a time."""

    def __init__(self, message: str, hint: str, wait_seconds: float | None = None) -> None:
        super().__init__(message, hint)
        self.wait_seconds = wait_seconds


def _configuration(settings: KubernetesSettings) -> Any:
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise SourceNotConfiguredError(
            "the package kubernetes is not installed", "Install trimtab[kubernetes]."
        ) from error
    configuration = client.Configuration()
    inside = not settings.kubeconfig and bool(os.environ.get(_IN_CLUSTER))
    path = str(Path(settings.kubeconfig).expanduser()) if settings.kubeconfig else None
    try:
        if inside:
            config.load_incluster_config(client_configuration=configuration)
        else:
            config.load_kube_config(
                config_file=path,
                context=settings.context or None,
                client_configuration=configuration,
                persist_config=False,
            )
    except (
        config.ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError,
        yaml.YAMLError,
    ) as error:  # fmt: skip
        what = "the pod's service account" if inside else path or "~/.kube/config"
        raise SourceNotConfiguredError(
            f"cannot read the credentials of {what}: {scrub(str(error)) or type(error).__name__}",
            "Set kubernetes.kubeconfig and kubernetes.context; `kubectl config get-contexts` "
            "lists them.",
        ) from error
    return configuration


def _pool(configuration: Any) -> urllib3.PoolManager:
    from kubernetes.client.rest import RESTClientObject

    try:
        pool: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
    except (OSError, ValueError) as error:
        raise SourceNotConfiguredError(
            f"the kubeconfig's certificates cannot be used: {scrub(str(error))}",
            "Mend certificate-authority, client-certificate and client-key of the kubeconfig.",
        ) from error
    return pool


def _checked(response: urllib3.BaseHTTPResponse, body: bytes, asked: str) -> dict[str, Any]:
    """Give the body's JSON object, or raise what the status means."""
    status = response.status
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    said = document.get("message") if isinstance(document, dict) else None
    words = scrub(said if isinstance(said, str) else body[:200].decode("utf-8", "replace"))
    if status in _LEFT_TO_CALLER:
        if isinstance(document, dict):
            return document
        if status == 404:
            return {}  # an API group that is not there is answered in plain text
        raise UnexpectedAnswerError(
            f"{asked} answered {status} with no JSON object: {words}",
            "Is this a Kubernetes API, or a proxy before it?",
        )
    if status in _PASSING:
        raise PassingFailureError(
            f"{asked} answered {status}: {words}",
            "It is overloaded or starting; the next collection asks again.",
            _wait_of(response),
        )
    if status == 401:
        raise SourceRefusedError(
            f"{asked} does not accept the credentials (401): {words}",
            "The token has expired or is of another cluster: sign in again, or mend the "
            "kubeconfig's user.",
        )
    if status == 403:
        raise SourceRefusedError(
            f"{asked} refused (403): {words}",
            "Bind the user to the ClusterRole of deploy/kubernetes-reader.yaml.",
        )
    raise UnexpectedAnswerError(
        f"{asked} answered {status}: {words}", "Is the kubeconfig's server a Kubernetes API?"
    )


def _wait_of(response: urllib3.BaseHTTPResponse) -> float | None:
    try:
        return min(_MOST_WAIT_SECONDS, max(0.0, float(response.headers.get("Retry-After", ""))))
    except ValueError:
        return None


def _named(error: BaseException, asked: str) -> CollectorError:
    """Give the error that a failed exchange stands for."""
    if isinstance(error, urllib3.exceptions.SSLError):
        return SourceRefusedError(
            f"no trusted connection to {asked}: {scrub(str(error))}",
            "Give the cluster's CA as certificate-authority-data of the kubeconfig.",
        )
    if isinstance(error, urllib3.exceptions.ConnectTimeoutError):
        return SourceUnreachableError(
            f"nothing answers at {asked}", "Does this machine reach the API server?"
        )
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return SourceUnreachableError(
            f"{asked} did not answer in time",
            "Raise kubernetes.timeout_seconds or lower kubernetes.page_size.",
        )
    if isinstance(error, urllib3.exceptions.DecodeError):
        return UnexpectedAnswerError(
            f"{asked} sent a body that does not unpack", "Is a proxy between?"
        )
    if isinstance(error, urllib3.exceptions.LocationValueError | UnicodeError):
        return SourceNotConfiguredError(
            f"{asked} is no address: {scrub(str(error))}", "Mend the kubeconfig's server."
        )
    return PassingFailureError(
        f"cannot reach {asked}: {scrub(_root(error))}",
        "Is the API server running there, and does this machine reach it?",
    )


def _root(error: BaseException) -> str:
    """Give the innermost words, such as `Connection refused`, without addresses of objects."""
    return str(error).rpartition(">: ")[2] or type(error).__name__
