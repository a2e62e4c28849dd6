"""Whether a cluster has room for one more pod of a workload, which a rollout with surge needs."""

from collections import Counter
from collections.abc import Iterable, Mapping

from collectors.kubernetes.objects import count_of, part, text_in
from collectors.kubernetes.placement_rules import admits, rules_of
from dashboard.apply.kubernetes.shape import Document
from data.gpu_resources import is_of_vendor

YES, NO = "yes", "no"


def asked_by(pod_spec: object) -> Counter[str]:
    """Return what a pod asks of every GPU resource: containers together or an init container."""
    together: Counter[str] = Counter()
    largest: Counter[str] = Counter()
    for section, into in (("containers", together), ("initContainers", largest)):
        for entry in part(pod_spec, section) or []:
            limits = part(entry, "resources", "limits")
            beside = section == "containers" or text_in(entry, "restartPolicy") == "Always"
            for name, quantity in limits.items() if isinstance(limits, Mapping) else ():
                if is_of_vendor(name):
                    if beside:
                        together[name] += count_of(quantity)
                    else:
                        into[name] = max(into[name], count_of(quantity))
    return Counter({name: max(together[name], largest[name]) for name in together | largest})


def room_for(pod_spec: Document, nodes: Iterable[Document], pods: Iterable[Document]) -> str:
    """Return yes or no: whether a node has the GPUs that a pod of this spec asks for.

    Counts GPUs, cordons, nodeSelector and required node affinity. CPU, memory and taints are not
    looked at: yes may be too kind, no is sure.
    """
    taken: dict[str, Counter[str]] = {}
    for pod in pods:
        if text_in(pod, "status", "phase") not in ("Succeeded", "Failed"):
            node = text_in(pod, "spec", "nodeName")
            taken.setdefault(node, Counter()).update(asked_by(part(pod, "spec")))
    wanted, rules = asked_by(pod_spec), rules_of(pod_spec)
    return YES if any(_fits(wanted, document, taken, rules) for document in nodes) else NO


def _fits(
    wanted: Counter[str], node: Document, taken: Mapping[str, Counter[str]], rules: str
) -> bool:
    if part(node, "spec", "unschedulable") is True or not admits(rules, node):
        return False
    offered = part(node, "status", "allocatable") or {}
    held = taken.get(text_in(node, "metadata", "name"), Counter())
    return all(
        count_of(offered.get(name, "0")) - held[name] >= count for name, count in wanted.items()
    )
