"""Owners that would undo a change: GitOps, Helm, autoscalers, Kueue, a controller above."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from collectors.kubernetes.api import Document
from collectors.kubernetes.client import Inventory
from collectors.kubernetes.objects import controller_of, labels_of
from collectors.kubernetes.workloads import INSTANCE, Owners, Workload
from collectors.shared.json_parts import list_in, part, text_in
from dashboard.apply.kubernetes.state.json_patch import names_of, pointer, value_at
from dashboard.apply.kubernetes.state.object_paths import Place
from data.records.feasible_changes import ELASTIC_KUEUE

BY_KUBECTL = "kubectl.kubernetes.io/last-applied-configuration"


_OF_REPLICAS = ("HorizontalPodAutoscaler", "Ray autoscaler")
"""Who writes the number of pods and nothing else."""
_BY_FIELDS = "server-side apply by "


def owners_of(
    place: Place,
    document: Document,
    fields: Iterable[str],
    autoscalers: Iterable[Document] = (),
) -> tuple[str, ...]:
    """Return names of all who write one of the fields (pointers) themselves, in a fixed order."""
    inventory = Inventory(objects={"HorizontalPodAutoscaler": list(autoscalers)})
    workload = Workload(
        namespace=place.namespace, kind=place.kind, name=place.name, chain=(document,)
    )
    pointers = list(fields)
    names = [
        name
        for name in Owners(inventory).managers_of(workload)
        if (
            is_rewriting_owner(name, pointers)
            if has_known_fields(name)
            else _applies(document, name, pointers)
        )
    ]
    above = controller_of(document)
    if above is not None:
        names.append(f"{above.kind} {above.name}")
    return tuple(sorted(names))


def is_rewriting_owner(name: str, fields: Iterable[str]) -> bool:
    """Return whether someone of this name would set one of the fields again."""
    if name == ELASTIC_KUEUE:
        return any(at != "/spec/parallelism" for at in fields)
    return name not in _OF_REPLICAS or any(at.endswith("/replicas") for at in fields)


def has_known_fields(name: str) -> bool:
    """Return whether the name alone tells which fields someone writes."""
    return not name.startswith(_BY_FIELDS)


def _applies(document: Document, name: str, pointers: Iterable[str]) -> bool:
    """Return whether one of the fields is among those that a server-side applier owns."""
    manager = name.removeprefix(_BY_FIELDS)
    owned = [
        part(entry, "fieldsV1")
        for entry in list_in(document, "metadata", "managedFields")
        if (text_in(entry, "manager"), text_in(entry, "operation")) == (manager, "Apply")
    ]
    return any(_holds(fields, document, names_of(at)) for at in pointers for fields in owned)


def _holds(owned: Any, value: Any, names: list[str]) -> bool:
    """Return whether a set of fields holds a field, what is above it, or something inside it."""
    for name in names:
        if not isinstance(owned, Mapping) or not owned:
            return isinstance(owned, Mapping)  # owned as a whole
        inside = value_at(value, pointer(name))
        inner = owned.get(f"f:{name}")
        if isinstance(value, list):
            inner = next((fields for key, fields in owned.items() if _is_key(key, inside)), None)
        owned, value = inner, inside
    return owned is not None


def _is_key(key: str, element: Any) -> bool:
    """Return whether `k:{...}` names this element of a list."""
    try:
        values = json.loads(key.removeprefix("k:")) if key.startswith("k:") else None
    except ValueError:
        return False
    return isinstance(values, dict) and all(
        part(element, name) == value for name, value in values.items()
    )


def was_applied_by_hand(document: Document) -> bool:
    """Return whether a person keeps its manifest and sends it with kubectl apply."""
    return BY_KUBECTL in labels_of(document)


def instance_of(document: Document) -> str:
    """Return the label by which Argo CD may track an object, and Helm charts mark theirs."""
    return labels_of(document).get(INSTANCE, "")


def tracked(instance: str) -> str:
    """Return the warning that Argo CD may track an object by its label alone."""
    return (
        f"Its label {INSTANCE} is {instance}: if Argo CD tracks it by that label and heals itself, "
        "it undoes the change within seconds; change it in the repository then."
    )
