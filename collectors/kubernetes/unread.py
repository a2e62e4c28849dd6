"""Accelerators of a Kubernetes cluster that are not read: resources of nodes and pods, drivers."""

from collections.abc import Iterator, Mapping

from collectors.kubernetes.api import Document
from collectors.kubernetes.client import Inventory
from collectors.kubernetes.objects import gpu_resources, is_read
from collectors.shared.json_parts import list_in, part, text_in, whole_number
from collectors.shared.unread import UnreadAccelerators
from data.base.errors import scrub
from data.facts.gpu_resources import BOARD_CLASS, NOT_READ, is_accelerator

_OVER = frozenset({"Succeeded", "Failed"})


def unread_accelerators(inventory: Inventory) -> UnreadAccelerators:
    """Return the accelerators of nodes, pods and resource claims that no reader understands."""
    return UnreadAccelerators.of(
        "pod",
        nodes=_of_nodes(inventory),
        holders=_of_pods(inventory),
        readable=(
            text_in(node, "metadata", "name")
            for node in inventory.of("Node")
            if gpu_resources(node)
        ),
    )


def _of_nodes(inventory: Inventory) -> Iterator[tuple[str, str]]:
    for document in inventory.of("Node"):
        for name in unread_resources(document):
            yield name, text_in(document, "metadata", "name")
    for document in inventory.of("ResourceSlice"):
        driver, node = text_in(document, "spec", "driver"), text_in(document, "spec", "nodeName")
        if _is_unread_driver(driver):
            yield driver, node or text_in(document, "spec", "pool", "name")


def _of_pods(inventory: Inventory) -> Iterator[tuple[str, str]]:
    for document in inventory.of("Pod"):
        if text_in(document, "status", "phase") not in _OVER:
            metadata = part(document, "metadata")
            for name in _resource_names(document):
                yield name, f"{text_in(metadata, 'namespace')}/{text_in(metadata, 'name')}"
    for document in inventory.of("ResourceClaim"):
        namespace = text_in(document, "metadata", "namespace")
        for entry in list_in(document, "status", "allocation", "devices", "results"):
            if _is_unread_driver(driver := text_in(entry, "driver")):
                for pod in list_in(document, "status", "reservedFor"):
                    yield driver, f"{namespace}/{text_in(pod, 'name')}"


def _is_unread_driver(driver: str) -> bool:
    return driver != BOARD_CLASS and is_accelerator(driver)


def unread_resources(node: Document) -> dict[str, str]:
    """Return the accelerator resources of a node that are not read, with their quantities.

    These stay as they are written: 20000 of what is counted in MiB is "20k".
    """
    offered = part(node, "status", "allocatable")
    pairs = offered.items() if isinstance(offered, Mapping) else ()
    return {str(name): str(quantity) for name, quantity in pairs if _is_unread(str(name), quantity)}


def unread_reason(node: Document) -> str:
    """Return the resources of a node that are not read, '' of a node that is fully understood."""
    resources = ", ".join(
        f"{scrub(quantity, limit=20)} {scrub(name, limit=80)}"
        for name, quantity in sorted(unread_resources(node).items())
    )
    return f"holds {resources}, {NOT_READ}" if resources else ""


def _is_unread(name: str, quantity: object) -> bool:
    understood = is_read(name) and whole_number(quantity) is not None
    return is_accelerator(name) and not understood and str(quantity) != "0"


def _resource_names(pod: Document) -> Iterator[str]:
    for section in ("containers", "initContainers"):
        for container in list_in(pod, "spec", section):
            limits = part(container, "resources", "limits")
            for name in limits if isinstance(limits, Mapping) else ():
                if _is_unread(str(name), limits[name]):
                    yield str(name)
