"""Room in a cluster for one more pod of a workload, which a rollout with surge needs."""

from collections import Counter
from collections.abc import Iterable, Mapping

from collectors.kubernetes.placement_rules import admits, rules_of
from collectors.shared.json_parts import count_of, part, text_in
from dashboard.apply.kubernetes.state.pod_spec import Document
from data.facts.gpu_resources import is_of_vendor

YES, NO = "yes", "no"


def asked_by(pod_spec: object) -> Counter[str]:
    """Return a pod's request of every GPU resource: containers together or an init container."""
    together: Counter[str] = Counter()
    largest: Counter[str] = Counter()
    for section, into in (("containers", together), ("initContainers", largest)):
        for entry in part(pod_spec, section) or []:
            limits = part(entry, "resources", "limits")
            runs_on = section == "containers" or text_in(entry, "restartPolicy") == "Always"
            for name, quantity in limits.items() if isinstance(limits, Mapping) else ():
                if is_of_vendor(name):
                    if runs_on:
                        together[name] += count_of(quantity)
                    else:
                        into[name] = max(into[name], count_of(quantity))
    return Counter({name: max(together[name], largest[name]) for name in together | largest})


def room_for(pod_spec: Document, nodes: Iterable[Document], pods: Iterable[Document]) -> str:
    """Return yes or no: whether a node has the GPUs that a pod of this spec asks for.

    Counts GPUs, cordons, nodeSelector and required node affinity. CPU, memory and taints are not
    looked at: yes may be too kind, no is sure.
    """
    return YES if pods_that_fit(pod_spec, nodes, pods, most=1) else NO


def pods_that_fit(
    pod_spec: Document, nodes: Iterable[Document], pods: Iterable[Document], *, most: int
) -> int:
    """Return the number of further pods of a spec with GPUs on nodes, counted as in `room_for`."""
    occupied: dict[str, Counter[str]] = {}
    for pod in pods:
        if text_in(pod, "status", "phase") not in ("Succeeded", "Failed"):
            node = text_in(pod, "spec", "nodeName")
            occupied.setdefault(node, Counter()).update(asked_by(part(pod, "spec")))
    request, rules, count = asked_by(pod_spec), rules_of(pod_spec), 0
    for document in nodes:
        here = occupied.setdefault(text_in(document, "metadata", "name"), Counter())
        while count < most and _fits(request, document, occupied, rules):
            here.update(request)
            count += 1
            if not +request:
                return most
    return count


def waits_for_a_node(pod: Document) -> bool:
    """Return whether the scheduler would bind a pod as soon as a node has room for it."""
    gone = text_in(pod, "metadata", "deletionTimestamp") or text_in(pod, "spec", "nodeName")
    pending = text_in(pod, "status", "phase") in ("", "Pending")
    return pending and not gone and not part(pod, "spec", "schedulingGates")


def _fits(
    request: Counter[str], node: Document, occupied: Mapping[str, Counter[str]], rules: str
) -> bool:
    if part(node, "spec", "unschedulable") is True or not admits(rules, node):
        return False
    offered = part(node, "status", "allocatable") or {}
    here = occupied.get(text_in(node, "metadata", "name"), Counter())
    return all(
        count_of(offered.get(name, "0")) - here[name] >= count for name, count in request.items()
    )
