"""The one client that changes objects of a Kubernetes API: each write is sent once."""

from collections.abc import Mapping
from typing import TypeVar

from collectors.kubernetes.api import ApiAnswer, Document, KubernetesApi
from data.settings.apply import KubernetesApplySettings
from data.settings.sources import KubernetesSettings

FIELD_MANAGER = "trimtab"
JSON_PATCH = "application/json-patch+json"
_MANAGED: Mapping[str, str] = {"fieldManager": FIELD_MANAGER}
_STRICT: Mapping[str, str] = {"fieldValidation": "Strict"}
_DRY_RUN: Mapping[str, str] = {"dryRun": "All"}

Api = TypeVar("Api", bound=KubernetesApi)


class KubernetesWriter(KubernetesApi):
    """One API server, signed in to with an account that may change objects.

    A write raises CutError where it was sent and no whole answer came, another CollectorError
    where it was not sent.
    """

    def patch(self, path: str, operations: list[Document], *, dry_run: bool = False) -> ApiAnswer:
        """Send a JSON patch; a dry run stores nothing. Errors: CollectorError.

        Servers before 1.25 take no notice of fieldValidation: what they drop, the answer shows.
        """
        query = {**_MANAGED, **_STRICT, **(_DRY_RUN if dry_run else {})}
        return self._request("PATCH", path, query, body=operations, content_type=JSON_PATCH)

    def create(self, path: str, document: Document, *, dry_run: bool = False) -> ApiAnswer:
        """Create an object; a dry run checks it and stores nothing. Errors: CollectorError."""
        query = {**_MANAGED, **({**_STRICT, **_DRY_RUN} if dry_run else {})}
        return self._request("POST", path, query, body=document)


def applying_account(client: type[Api], settings: KubernetesApplySettings) -> Api:
    """Return a client of the applying account; with methods that write if its class has them."""
    return client(
        KubernetesSettings(kubeconfig=settings.kubeconfig, context=settings.context),
        role="deploy/kubernetes-applier.yaml",
        section="apply_kubernetes",
        personal=False,
    )
