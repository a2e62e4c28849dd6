"""The few calls that submit to a Kubernetes API: create, and read what was created."""

import json
import time
from typing import Any

import requests
from urllib3.exceptions import HTTPError

from collectors.http_deadline import sent, whole_body
from collectors.kubernetes.sign_in import configuration_of, transport
from data.errors import (
    ChangeRefusedError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
    scrub,
)
from data.source_settings import KubernetesSettings

Object = dict[str, Any]
_MAX_ANSWER = 64 << 20
_RIGHTS = "Bind deploy/kubernetes-submitter.yaml's Role to this user in that namespace."
_TRIAL = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "trimtab"}


class SubmissionApi:
    """One API server, as the user who may create jobs."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._configuration: Any = None

    def read(self, path: str, **query: str) -> Object | None:
        """Return an object or a list, None when there is none. Errors: CollectorError."""
        status, document = self._call("GET", path, query=query)
        if status == 404:
            return None
        if status != 200:
            raise self._unexpected(status, path, document)
        return document

    def create(self, path: str, body: Object, *, trial: bool = False) -> Object | None:
        """Create an object and give it, None when the name is taken. `trial` keeps nothing.

        Errors: ChangeRefusedError when it is invalid or a quota forbids it, CollectorError.
        """
        query = dict(_TRIAL) if trial else {"fieldManager": "trimtab"}
        status, document = self._call("POST", path, query=query, body=body)
        if status == 409:
            return None
        if status in (400, 404, 422):
            said = scrub(str(document.get("message") or ""))
            known = f"Is {body.get('kind')} installed there?" if status == 404 else "Mend the job."
            raise ChangeRefusedError(f"Kubernetes refused the job: {status} {said}", known)
        if status not in (200, 201):
            raise self._unexpected(status, path, document)
        return document

    def _unexpected(self, status: int, path: str, document: Object) -> Exception:
        said = scrub(str(document.get("message") or ""), limit=200)
        if status in (401, 403):
            return SourceRefusedError(f"Kubernetes refused {path}: {status} {said}", _RIGHTS)
        if status == 429 or status >= 500:
            return SourceUnreachableError(
                f"Kubernetes answered {status} to {path}: {said}", "Try again in a moment."
            )
        return UnexpectedAnswerError(
            f"Kubernetes answered {status} to {path}: {said}", "Is this a Kubernetes API?"
        )

    def _call(
        self, method: str, path: str, *, query: dict[str, str], body: Object | None = None
    ) -> tuple[int, Object]:
        if self._configuration is None:
            self._configuration = configuration_of(self._settings)
        ends = time.monotonic() + self._settings.timeout_seconds
        try:
            with sent(
                method,
                f"{self._configuration.host}/{path}",
                seconds=self._settings.timeout_seconds,
                params=query,
                json=body,
                **transport(self._configuration),
            ) as response:
                text = whole_body(response, ends=ends, max_bytes=_MAX_ANSWER)
        except (requests.RequestException, HTTPError, OSError) as error:
            raise SourceUnreachableError(
                f"cannot reach Kubernetes for {path}: {type(error).__name__}",
                "Is the API server up? What may have been created is found again by its name.",
            ) from error
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        return response.status_code, document if isinstance(document, dict) else {}
