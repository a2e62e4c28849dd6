"""CPU and memory: what pods request as the scheduler counts it, and what nodes have left of it.

Of a pod (k8s.io/component-helpers/resource, `PodRequests`): its containers together with its
sidecars, or the most that an init container needs beside the sidecars started before it; what the
pod itself says stands for that (Kubernetes 1.32); its overhead is added. A node holds the pods that
are bound to it and not over.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from collectors.kubernetes.api import Document
from collectors.kubernetes.client import Inventory
from collectors.kubernetes.objects import MILLI, HostRequest
from collectors.shared.json_parts import list_in, part, quantity, text_in

_SHOWN = 5
"""Nodes that a warning names at most."""


def asked_of_host(pod_spec: object) -> HostRequest | None:
    """Return the CPU and memory requests of a pod spec, None where they cannot be read."""
    main, first, sidecars = HostRequest(), HostRequest(), HostRequest()
    try:
        for container in list_in(pod_spec, "containers"):
            main += _of_container(container)
        for container in list_in(pod_spec, "initContainers"):
            amounts = _of_container(container)
            if text_in(container, "restartPolicy") == "Always":
                main, sidecars = main + amounts, sidecars + amounts
                amounts = HostRequest()
            first = first.most(amounts + sidecars)
        inside, pod_resources = main.most(first), part(pod_spec, "resources")
        limits = _amounts(part(pod_resources, "limits"), inside)
        unless_told = HostRequest(
            inside.cpu_milli or limits.cpu_milli, inside.memory_bytes or limits.memory_bytes
        )
        requests = _amounts(part(pod_resources, "requests"), unless_told)
        return requests + _amounts(part(pod_spec, "overhead"), HostRequest())
    except _UnreadableError:
        return None


class _UnreadableError(Exception):
    """A quantity that cannot be read."""


def _of_container(container: object) -> HostRequest:
    """Return requests; a limit stands for a request that is left out, as the API fills it in."""
    limits = _amounts(part(container, "resources", "limits"), HostRequest())
    return _amounts(part(container, "resources", "requests"), limits)


def _amounts(quantities: object, otherwise: HostRequest) -> HostRequest:
    if quantities is None:
        return otherwise
    if not isinstance(quantities, Mapping):
        raise _UnreadableError
    return HostRequest(
        _amount(quantities.get("cpu"), MILLI, otherwise.cpu_milli),
        _amount(quantities.get("memory"), 1, otherwise.memory_bytes),
    )


def _amount(value: object, times: int, otherwise: int) -> int:
    if value is None:
        return otherwise
    amount = quantity(value)
    if amount is None:
        raise _UnreadableError
    return math.ceil(amount * times)


def asked_by_pods(pods: Iterable[Document]) -> dict[str, HostRequest | None]:
    """Return the requests of pods by the node to which they are bound, None where unknown."""
    by_node: dict[str, HostRequest | None] = {}
    for pod in pods:
        node = text_in(pod, "spec", "nodeName")
        if node and text_in(pod, "status", "phase") not in ("Succeeded", "Failed"):
            total, more = by_node.get(node, HostRequest()), asked_of_host(part(pod, "spec"))
            by_node[node] = None if total is None or more is None else total + more
    return by_node


def allocatable(node: Document) -> HostRequest | None:
    """Return the resources that a node can allocate to pods, None where it does not state both."""
    cpu = quantity(part(node, "status", "allocatable", "cpu"))
    memory = quantity(part(node, "status", "allocatable", "memory"))
    if cpu is None or memory is None:
        return None
    return HostRequest(int(cpu * MILLI), int(memory))


def free_on_nodes(inventory: Inventory) -> dict[str, HostRequest | None]:
    """Return the free CPU and memory of every node beside its bound pods, None: not known.

    Nothing is known where pods of some namespaces alone, or not all pods, could be read.
    """
    requests = asked_by_pods(inventory.of("Pod"))
    complete = not (inventory.namespaces or inventory.unreadable or "Pod" in inventory.missing)
    free = {}
    for node in inventory.of("Node"):
        name = text_in(node, "metadata", "name")
        has, used = allocatable(node), requests.get(name, HostRequest())
        free[name] = has - used if complete and has is not None and used is not None else None
    return free


def unchecked_host_warning(inventory: Inventory, nodes: Sequence[str]) -> tuple[str, ...]:
    """Return the warning that plans do not check CPU and memory of nodes, () without nodes."""
    if not nodes:
        return ()
    names = ", ".join(nodes[:_SHOWN]) + f" and {len(nodes) - _SHOWN} more" * (len(nodes) > _SHOWN)
    why = (
        f"kubernetes.namespaces ({inventory.namespaces}) leaves out pods that are on them"
        if inventory.namespaces
        else "what they can allocate, or what a pod on them requests, cannot be read"
    )
    return (f"plans do not check the CPU and memory of {names}: {why}",)
