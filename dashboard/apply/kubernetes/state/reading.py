"""Reads what a change depends on: the object itself, its autoscalers, nodes and pods."""

from datetime import datetime

from collectors.kubernetes.api import ApiAnswer, Document, KubernetesApi
from collectors.kubernetes.client import version_of
from collectors.kubernetes.kinds import GROUPS, KINDS
from collectors.kubernetes.objects import controller_of
from collectors.shared.json_parts import list_in, text_in, time_in
from dashboard.apply.kubernetes.state.api_errors import look_error, meaning_of
from dashboard.apply.kubernetes.state.object_paths import Place
from dashboard.apply.kubernetes.state.rollout import (
    WorkloadPods,
    controlled_replica_sets,
    selector_of,
)
from data.base.errors import ApplyError, ChangeRefusedError, CollectorError, StalePlanError

_MAX_OWNERS = 8


def fetch(api: KubernetesApi, place: Place, path: str = "") -> tuple[str, Document]:
    """Return (path, object). Errors: StalePlanError if it is gone, ChangeRefusedError, ApplyError.

    Without a path every API version is tried, the newest first.
    """
    newest, *older = [path] if path else place.paths()
    tried_path, answer = newest, asking(api, newest)
    for tried_path in older if answer.status == 404 else ():
        answer = asking(api, tried_path)
        if answer.status != 404:
            break
    return tried_path, object_in(answer, tried_path, place)


def object_in(answer: ApiAnswer, path: str, place: Place) -> Document:
    """Return the object of an answer. Errors: as `fetch`."""
    if answer.ok and is_object(answer.found):
        return answer.found
    raise look_error(answer, path, f"{place.word} in {place.namespace or 'the cluster'}")


def is_object(document: Document) -> bool:
    """Return whether an answer is an object that can be told from another and locked."""
    return all(text_in(document, "metadata", name) for name in ("uid", "resourceVersion"))


def asking(api: KubernetesApi, path: str, query: dict[str, str] | None = None) -> ApiAnswer:
    """Read once. Errors: ApplyError when nothing answers."""
    try:
        return api.get(path, query)
    except CollectorError as error:
        raise ApplyError(error.message, "Is the API server up? Look again.") from error


def topmost(api: KubernetesApi, place: Place) -> Place:
    """Return the workload over a pod: its topmost controller. Errors: as `fetch`."""
    for _step in range(_MAX_OWNERS):
        if place.kind not in ("Pod", "ReplicaSet"):
            return place
        _path, document = fetch(api, place)
        owner = controller_of(document)
        if owner is None:
            break
        if owner.kind not in KINDS or owner.group not in ("", GROUPS[owner.kind]):
            raise ChangeRefusedError(
                f"{place.label} belongs to the {owner.kind} {owner.name}, a kind that no change "
                "is known for",
                "Change its manifest by hand.",
            )
        place = Place(kind=owner.kind, namespace=place.namespace, name=owner.name)
    raise ChangeRefusedError(
        f"the {place.kind.lower()} {place.label} has no workload above it, and the GPUs of a pod "
        "cannot change",
        "Delete it and make it anew with fewer GPUs, once its owner agrees.",
    )


def autoscalers(api: KubernetesApi, namespace: str) -> list[Document]:
    """Return autoscalers of a namespace. Errors: ChangeRefusedError when they may not be read."""
    for listed in KINDS["HorizontalPodAutoscaler"]:
        above, _, plural = listed.rpartition("/")
        path = f"{above}/namespaces/{namespace}/{plural}"
        answer = asking(api, path)
        if answer.ok:
            return list_in(answer.found, "items")
        if answer.status != 404:
            raise ChangeRefusedError(
                "whether an autoscaler would undo the change is unknown: "
                f"{meaning_of(answer, path, verb='list')}",
                "See deploy/kubernetes-applier.yaml for the whole role.",
            )
    return []


def nodes(api: KubernetesApi) -> list[Document] | None:
    """Return every node, None where they may not be read."""
    return _all(api, "api/v1/nodes")


def pods(api: KubernetesApi, namespace: str = "", **query: str) -> list[Document] | None:
    """Return pods, of all namespaces unless one is named; None where they may not be read."""
    return _all(api, f"api/v1/namespaces/{namespace}/pods" if namespace else "api/v1/pods", query)


def quotas(api: KubernetesApi, namespace: str) -> list[Document] | None:
    """Return the quotas of a namespace, None where they may not be read."""
    return _all(api, f"api/v1/namespaces/{namespace}/resourcequotas")


def limit_ranges(api: KubernetesApi, namespace: str) -> list[Document] | None:
    """Return the limit ranges of a namespace, None where they may not be read."""
    return _all(api, f"api/v1/namespaces/{namespace}/limitranges")


def budgets(api: KubernetesApi, namespace: str) -> list[Document] | None:
    """Return the disruption budgets of a namespace, None where they may not be read."""
    lists = (
        _all(api, f"apis/policy/{version}/namespaces/{namespace}/poddisruptionbudgets")
        for version in ("v1", "v1beta1")
    )
    return next((entries for entries in lists if entries is not None), None)


def work_of(api: KubernetesApi, place: Place, document: Document) -> WorkloadPods | None:
    """Return a workload with its pods, None where these cannot be told or may not be listed."""
    selector = selector_of(place.kind, place.name, document)
    members = pods(api, place.namespace, labelSelector=selector) if selector else None
    if members is None:
        return None
    sets = None
    if place.kind == "Deployment":
        path = f"apis/apps/v1/namespaces/{place.namespace}/replicasets"
        sets = _all(api, path, {"labelSelector": selector})
    return WorkloadPods(
        kind=place.kind,
        document=document,
        pods=members,
        sets=None if sets is None else controlled_replica_sets(document, sets),
    )


def _all(
    api: KubernetesApi, path: str, query: dict[str, str] | None = None
) -> list[Document] | None:
    """Return a whole list, None where it cannot be had."""
    try:
        entries = api.whole_list(path, query, read=lambda entry: entry)
    except CollectorError:
        return None
    return None if entries is None else [entry for entry in entries if isinstance(entry, dict)]


def server_version(api: KubernetesApi) -> str:
    """Return the server's version as `1.20`, '' where it does not tell."""
    return version_of(asking(api, "version").found)


def require_older(place: Place, document: Document, planned_at: datetime) -> None:
    """Refuse (StalePlanError) an object that was made after the plan: it is another one."""
    start = time_in(document, "metadata", "creationTimestamp")
    if start is not None and start > planned_at:
        raise StalePlanError(
            f"{place.word} in {place.namespace or 'the cluster'} was made at "
            f"{start:%Y-%m-%d %H:%M:%S} UTC, after the plan of {planned_at:%Y-%m-%d %H:%M:%S} UTC: "
            "it is another object",
            "Run a new cycle and approve its recommendation.",
        )


def require_living(place: Place, document: Document) -> None:
    """Refuse (StalePlanError) an object that is being deleted."""
    if text_in(document, "metadata", "deletionTimestamp"):
        raise StalePlanError(
            f"{place.word} in {place.namespace or 'the cluster'} is being deleted",
            "Run a new cycle.",
        )
