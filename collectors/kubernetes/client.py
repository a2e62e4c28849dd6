"""Reads lists from a Kubernetes API: page by page, with deadlines, every failure named.

Signing in is the official client's work (kubeconfig, exec plugins, in-cluster); objects are taken
as the JSON they are, because the cluster may be years older or newer than any client's models.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import requests
from urllib3.exceptions import HTTPError

from collectors.http_deadline import LargeAnswerError, LateAnswerError, sent, whole_body
from collectors.kubernetes.kinds import ASKED_WHERE, KINDS, NEEDED, WITHOUT_NAMESPACE, lean
from collectors.kubernetes.sign_in import configuration_of, transport
from data.errors import (
    CollectorError,
    SourceNotConfiguredError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
    scrub,
)
from data.source_settings import KubernetesSettings

Document = dict[str, Any]

MAX_BYTES = 256 * 1024 * 1024
_MAX_PAGES = 10_000
_RESTARTS = 3
_TRIES = 3
_MAX_WAIT_SECONDS = 10


def path_of_config_map(source: str) -> str:
    """Return the API path of a ConfigMap that settings name as NAMESPACE/NAME."""
    namespace, _, name = source.partition("/")
    return f"api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"


@dataclass(slots=True)
class Inventory:
    """The objects by kind, and the kinds that were refused or failed, with the reason.

    `unreadable` counts the list entries that were no objects. `mig_config` is the ConfigMap that
    `mig_source` names, None where none is read; `warnings` tell what else could not be read.
    """

    objects: dict[str, list[Document]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    unreadable: int = 0
    mig_source: str = ""
    mig_config: Document | None = None
    warnings: list[str] = field(default_factory=list)

    def of(self, kind: str) -> list[Document]:
        """Return the objects of a kind, none when it is not installed or was refused."""
        return self.objects.get(kind, [])


class KubernetesClient:
    """One API server."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
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

    def inventory(self) -> Inventory:
        """Return all objects of the known kinds.

        Errors: CollectorError when neither nodes nor pods may be read, or either fails otherwise.
        """
        found = Inventory()
        errors: dict[str, CollectorError] = {}
        for kind in KINDS:
            if kind in ASKED_WHERE and not ASKED_WHERE[kind](found.objects):
                continue
            silent = [
                collector_error
                for collector_error in errors.values()
                if isinstance(collector_error, SourceUnreachableError)
            ]
            if len(silent) > 1:
                # The server is gone: every further kind would wait as long.
                found.missing[kind] = f"not asked: {silent[-1]}"
                continue
            try:
                listed = self.listed(kind)
            except CollectorError as error:
                errors[kind] = error
                if kind in NEEDED and not isinstance(error, SourceRefusedError):
                    raise
                if errors.keys() >= set(NEEDED):
                    raise errors[NEEDED[0]] from error
                found.missing[kind] = str(error)
                continue
            if listed is not None:
                found.objects[kind] = [entry for entry in listed if isinstance(entry, dict)]
                found.unreadable += len(listed) - len(found.objects[kind])
            elif kind in NEEDED:
                raise UnexpectedAnswerError(
                    f"{self.name} knows no {kind}s: {KINDS[kind][0]} answered 404",
                    "Is this the address of a Kubernetes API?",
                )
        self._read_mig_config(found)
        return found

    def _read_mig_config(self, found: Inventory) -> None:
        """Add the ConfigMap of MIG layouts where one is named: without it none is known."""
        source = self._settings.mig_layouts
        if not source:
            return
        path = path_of_config_map(source)
        try:
            found.mig_config, found.mig_source = self.get(path), source
        except _NotServedError:
            found.warnings.append(f"no ConfigMap {source}. Correct kubernetes.mig_layouts.")
        except CollectorError as error:
            found.warnings.append(f"no MIG layout is known: {error}")

    def listed(self, kind: str, *, kept: Callable[[str, Any], Any] = lean) -> list[Any] | None:
        """Return every entry of a kind's list, None when the server does not know the kind.

        `kept` gives what is kept of an entry. Of pods that ask for no device only the name is:
        most pods of a cluster are such.
        """
        for path in KINDS[kind]:
            pages = [self._all_pages(kind, entry, kept) for entry in self._paths(kind, path)]
            if all(page is not None for page in pages):
                return [entry for page in pages for entry in page or []]
        return None

    def _paths(self, kind: str, path: str) -> list[str]:
        namespaces = [part.strip() for part in self._settings.namespaces.split(",") if part.strip()]
        if not namespaces or kind in WITHOUT_NAMESPACE:
            return [path]
        group, _, plural = path.rpartition("/")
        return [
            f"{group}/namespaces/{quote(namespace, safe='')}/{plural}" for namespace in namespaces
        ]

    def _all_pages(self, kind: str, path: str, kept: Callable[[str, Any], Any]) -> list[Any] | None:
        """Return a whole list; a list whose continue token expired is begun again."""
        for _attempt in range(1 + _RESTARTS):
            try:
                return [kept(kind, entry) for entry in self._pages(path)]
            except _ListExpiredError:
                continue
            except _NotServedError:
                return None
        raise UnexpectedAnswerError(
            f"{self.name}: the list {path} changed faster than it could be read",
            "Raise kubernetes.page_size, so that it takes fewer pages.",
        )

    def _pages(self, path: str) -> Iterator[Any]:
        token = ""
        for _page in range(_MAX_PAGES):
            query = {"limit": str(self._settings.page_size)} | (
                {"continue": token} if token else {}
            )
            document = self.get(path, query)
            items = document.get("items")
            if not isinstance(items, list):
                raise UnexpectedAnswerError(
                    f"{self.name}: {path} answered no list", "Is this a Kubernetes API?"
                )
            yield from items
            metadata = document.get("metadata")
            token = str(metadata.get("continue") or "") if isinstance(metadata, dict) else ""
            if not token:
                return
        raise UnexpectedAnswerError(
            f"{self.name}: {path} has more than {_MAX_PAGES} pages", "Raise kubernetes.page_size."
        )

    def get(self, path: str, query: dict[str, str] | None = None) -> Document:
        """Return one answer.

        A busy server is asked again when it says so. Errors: CollectorError.
        """
        for _attempt in range(_TRIES - 1):
            try:
                return self._once(path, query)
            except _ComeAgainError as error:
                time.sleep(error.wait_seconds)
        return self._once(path, query)

    def _once(self, path: str, query: dict[str, str] | None) -> Document:
        configuration = self._signed_in()
        seconds = self._settings.timeout_seconds
        ends = time.monotonic() + seconds
        url = f"{configuration.host}/{path}"
        try:
            with sent(
                "GET", url, seconds=seconds, params=query, **transport(configuration)
            ) as response:
                body = whole_body(response, ends=ends, max_bytes=MAX_BYTES)
        except LargeAnswerError as error:
            raise UnexpectedAnswerError(
                f"{self.name}: a page of {path} exceeds {MAX_BYTES >> 20} MiB",
                "Lower kubernetes.page_size.",
            ) from error
        except LateAnswerError as error:
            raise SourceUnreachableError(
                f"{self.name}: {path} did not answer in time",
                "Raise kubernetes.timeout_seconds or lower kubernetes.page_size.",
            ) from error
        except requests.exceptions.SSLError as error:
            raise SourceRefusedError(
                f"no trusted connection to {self.name}: {scrub(str(error))[:160]}",
                "Check certificate-authority and client-certificate of the kubeconfig.",
            ) from error
        except (requests.exceptions.InvalidHeader, UnicodeError) as error:
            raise SourceNotConfiguredError(
                f"the token for {self.name} is none that can be sent",
                "Write the token alone, without line breaks, into the kubeconfig.",
            ) from error
        except (requests.RequestException, HTTPError) as error:
            raise SourceUnreachableError(
                f"cannot read {path} from {self.name}: {type(error).__name__}",
                "Is the API server up, does this machine reach it, and does it answer within "
                f"kubernetes.timeout_seconds ({seconds:g} s)?",
            ) from error
        except OSError as error:
            raise SourceNotConfiguredError(
                f"a certificate or key for {self.name} cannot be read: {scrub(str(error))[:160]}",
                "Check certificate-authority and client-certificate of the kubeconfig.",
            ) from error
        return self._document(response, body, path)

    def _document(self, response: requests.Response, body: bytes, path: str) -> Document:
        status = response.status_code
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            document = None
        said = document.get("message") if isinstance(document, dict) else ""
        text = scrub(str(said or body[:120].decode("utf-8", "replace")))
        if status == 404:
            raise _NotServedError
        if status == 410:
            raise _ListExpiredError
        if status == 401:
            raise SourceRefusedError(
                f"{self.name} does not know this user: {text}",
                "Renew the token or certificate of the kubeconfig.",
            )
        if status == 403:
            raise SourceRefusedError(
                f"{self.name} refused {path}: {text}",
                "Bind deploy/kubernetes-reader.yaml's ClusterRole to this user.",
            )
        if status == 429 or status >= 500:
            busy = f"{self.name} answered {status} to {path}: {text}"
            hint = "It is overloaded or starting; the next collection asks again."
            wait = response.headers.get("Retry-After", "")
            if wait.isascii() and wait.isdecimal() and int(wait[:9]) <= _MAX_WAIT_SECONDS:
                raise _ComeAgainError(busy, hint, int(wait))
            raise SourceUnreachableError(busy, hint)
        if status != 200 or not isinstance(document, dict):
            raise UnexpectedAnswerError(
                f"{self.name} answered {status} to {path}: {text}",
                "Is this the address of a Kubernetes API?",
            )
        return document

    def _signed_in(self) -> Any:
        """Return the official client's configuration, loaded once."""
        if self._configuration is None:
            self._configuration = configuration_of(self._settings)
        return self._configuration


class _ComeAgainError(SourceUnreachableError):
    """The server names a time after which it will answer."""

    def __init__(self, message: str, hint: str, wait_seconds: float) -> None:
        super().__init__(message, hint)
        self.wait_seconds = wait_seconds


class _NotServedError(Exception):
    """The server has no such path: the kind is not installed."""


class _ListExpiredError(Exception):
    """The continue token is too old: the list has to be read from its start."""
