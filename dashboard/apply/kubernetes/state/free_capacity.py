"""Room in a cluster for one more pod of a workload, which a rollout with surge needs."""

from collections import Counter
from collections.abc import Iterable, Mapping

from collectors.kubernetes.placement_rules import admits, rules_of
from collectors.shared.json_parts import part, text_in, whole_number
from dashboard.apply.kubernetes.state.pod_spec import Document
from data.facts.gpu_resources import is_of_vendor

YES, NO, UNKNOWN = "yes", "no", "unknown"
_UNBOUNDED = 10**9
"""More than any quantity that is read: stands for one that is not, where the worst counts."""


def asked_by(pod_spec: object, *, unread: int = 0) -> Counter[str]:
    """Return a pod's request of every GPU resource: containers together or an init container.

    `unread` stands for each quantity that is not understood.
    """
    together: Counter[str] = Counter()
    largest: Counter[str] = Counter()
    for section, into in (("containers", together), ("initContainers", largest)):
        for entry in part(pod_spec, section) or []:
            limits = part(entry, "resources", "limits")
            runs_on = section == "containers" or text_in(entry, "restartPolicy") == "Always"
            for name, quantity in limits.items() if isinstance(limits, Mapping) else ():
                if is_of_vendor(name):
                    count = _read(quantity, unread)
                    if runs_on:
                        together[name] += count
                    else:
                        into[name] = max(into[name], count)
    return Counter({name: max(together[name], largest[name]) for name in together | largest})


def _read(quantity: object, unread: int) -> int:
    count = whole_number(quantity)
    return unread if count is None else count


def room_for(pod_spec: Document, nodes: Iterable[Document], pods: Iterable[Document]) -> str:
    """Return yes, no or unknown: whether a node has the GPUs that a pod of this spec asks for.

    Counts GPUs, cordons, nodeSelector and required node affinity. CPU, memory and taints are not
    looked at: yes may be too kind, no is sure. Unknown where a quantity that is not understood
    decides.
    """
    least, most = fitting_pods(pod_spec, nodes, pods, most=1)
    return YES if least else UNKNOWN if most else NO


def fitting_pods(
    pod_spec: Document, nodes: Iterable[Document], pods: Iterable[Document], *, most: int
) -> tuple[int, int]:
    """Return (fewest, most) further pods of a spec with GPUs on nodes, counted as in `room_for`.

    They differ where a quantity is not understood.
    """
    nodes, pods, rules = list(nodes), list(pods), rules_of(pod_spec)
    open_nodes = [
        node
        for node in nodes
        if part(node, "spec", "unschedulable") is not True and admits(rules, node)
    ]
    fewest, highest = (
        _fitting(pod_spec, open_nodes, pods, most=most, unread=unread) for unread in (_UNBOUNDED, 0)
    )
    return fewest, highest


def _fitting(
    pod_spec: Document, nodes: list[Document], pods: list[Document], *, most: int, unread: int
) -> int:
    occupied: dict[str, Counter[str]] = {}
    for pod in pods:
        if text_in(pod, "status", "phase") not in ("Succeeded", "Failed"):
            node = text_in(pod, "spec", "nodeName")
            request = asked_by(part(pod, "spec"), unread=unread)
            occupied.setdefault(node, Counter()).update(request)
    request, count = +asked_by(pod_spec, unread=unread), 0
    for document in nodes:
        offered = part(document, "status", "allocatable") or {}
        here = occupied.get(text_in(document, "metadata", "name"), Counter())
        free = [_read(offered.get(name, 0), _UNBOUNDED - unread) - here[name] for name in request]
        if not request:
            return most
        fits = min(
            remaining // each for remaining, each in zip(free, request.values(), strict=True)
        )
        count += min(max(0, fits), most - count)
    return count


def is_waiting_for_node(pod: Document) -> bool:
    """Return whether the scheduler would bind a pod as soon as a node has room for it."""
    gone = text_in(pod, "metadata", "deletionTimestamp") or text_in(pod, "spec", "nodeName")
    pending = text_in(pod, "status", "phase") in ("", "Pending")
    return pending and not gone and not part(pod, "spec", "schedulingGates")
