"""Who would undo a change from outside: GitOps, Helm, autoscalers, Kueue, a controller above."""

from collections.abc import Iterable

from collectors.kubernetes.client import Document, Inventory
from collectors.kubernetes.objects import controller_of, labels_of
from collectors.kubernetes.workloads import Owners, Workload
from dashboard.apply.kubernetes.places import Place

BY_KUBECTL = "kubectl.kubernetes.io/last-applied-configuration"


def owners_of(
    place: Place, document: Document, autoscalers: Iterable[Document] = ()
) -> tuple[str, ...]:
    """Give the names of all who own the fields of an object, in a fixed order."""
    inventory = Inventory(objects={"HorizontalPodAutoscaler": list(autoscalers)})
    workload = Workload(
        namespace=place.namespace, kind=place.kind, name=place.name, chain=(document,)
    )
    found = list(Owners(inventory).managers_of(workload))
    above = controller_of(document)
    if above is not None:
        found.append(f"{above.kind} {above.name}")
    return tuple(sorted(found))


def was_applied_by_hand(document: Document) -> bool:
    """Whether a person keeps its manifest and sends it with kubectl apply."""
    return BY_KUBECTL in labels_of(document)
