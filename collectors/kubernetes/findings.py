"""Gaps of a Kubernetes cluster for Trimtab, each with the exact line that would close it.

Also its accelerators that are not read: resources of nodes and pods, and drivers.
"""

import re
from collections.abc import Collection, Iterator, Mapping

from collectors.kubernetes.api import Document
from collectors.kubernetes.client import Inventory, KubernetesClient
from collectors.kubernetes.kinds import GROUPS, KINDS
from collectors.kubernetes.objects import (
    KAI_DEVICES,
    KAI_SCHEDULER,
    boards_of,
    claims_of,
    gpu_resources,
    is_read,
    labels_of,
    mig_offer,
    product_of,
)
from collectors.kubernetes.pod_devices import claimed_devices, devices_of, unread_requests
from collectors.shared.collector import Finding
from collectors.shared.json_parts import list_in, part, text_in, whole_number
from collectors.shared.unread import UnreadAccelerators
from data.base.counts import count_text
from data.base.errors import CollectorError, scrub
from data.facts.gpu_resources import (
    BOARD_CLASS,
    BOARDS,
    MIG_STRATEGY_LABEL,
    PRODUCT_LABELS,
    SHARED_GPU,
    UNREAD_SUFFIX,
    is_accelerator,
)
from data.settings.sources import KubernetesSettings

_ENDED_PHASES = frozenset({"Succeeded", "Failed"})
_DRIVER = re.compile(r"""device\.driver\s*==\s*["']([\w.-]{1,100})["']""")


def kubernetes_findings(settings: KubernetesSettings) -> tuple[Finding, ...]:
    """Return the present and missing parts of a cluster, for the user of the settings."""
    client = KubernetesClient(settings)
    try:
        inventory = client.inventory()
    except CollectorError as error:
        return (("reachable and authorised", "missing", str(error)),)
    nodes, unread = inventory.of("Node"), unread_accelerators(inventory)
    return (
        ("reachable and authorised", "ok", f"{client.name}, {count_text(len(nodes), 'node')}"),
        *_rights(inventory),
        *(_devices(nodes, unread) if "Node" in inventory.objects else ()),
        *([("accelerators", "missing", f"{'; '.join(unread.texts)}.")] * bool(unread.texts)),
        *_mig(nodes),
        _claims(inventory),
    )


def _rights(inventory: Inventory) -> Iterator[Finding]:
    for kind in sorted(inventory.missing):
        resources = KINDS[kind][0].rpartition("/")[2]
        yield (
            f"may list {kind}",
            "missing",
            (
                f"{inventory.missing[kind]} Add to the ClusterRole: "
                f'{{apiGroups: ["{GROUPS[kind]}"], resources: ["{resources}"], '
                'verbs: ["get", "list"]}.'
            ),
        )
    if not inventory.missing:
        yield "may list every kind", "ok", f"{len(inventory.objects)} kinds are installed"


def _devices(nodes: list[Document], unread: UnreadAccelerators) -> Iterator[Finding]:
    """Yield the devices of nodes: never ok of a cluster that is not fully understood."""
    state = "missing" if unread.nodes else "ok"
    offers = {text_in(node, "metadata", "name"): gpu_resources(node) for node in nodes}
    offering = {name: offer for name, offer in offers.items() if offer}
    if not offering:
        yield (
            "GPU resources",
            "missing",
            f"no node offers {' or '.join(BOARDS)}: install the vendor's device plugin.",
        )
        return
    boards = sum(map(boards_of, nodes))
    instances = sum(count for offer in offering.values() for _profile, count in mig_offer(offer))
    yield (
        "GPU resources",
        state,
        (
            f"{count_text(boards, 'GPU')} and {count_text(instances, 'MIG instance')} "
            f"on {count_text(len(offering), 'node')}" + ", others are not read" * (state != "ok")
        ),
    )
    nameless = [
        text_in(node, "metadata", "name")
        for node in nodes
        if text_in(node, "metadata", "name") in offering and not product_of(node)
    ]
    if nameless:
        yield (
            "GPU models",
            "missing",
            (
                f"no label {' or '.join(PRODUCT_LABELS[:2])} on "
                f"{count_text(len(nameless), 'node')} such as {nameless[0]}: enable "
                "gpu-feature-discovery (gfd.enabled=true in the chart of the device plugin), or "
                "AMD's node labeller with -product-name."
            ),
        )
    else:
        yield "GPU models", "ok", "every node whose GPUs are read names their model"


def _mig(nodes: list[Document]) -> Iterator[Finding]:
    cut = [node for node in nodes if mig_offer(gpu_resources(node))]
    strategies = {text_in(document, "metadata", "labels", MIG_STRATEGY_LABEL) for document in cut}
    strategies.discard("")
    if cut:
        names = (
            ", ".join(sorted(scrub(strategy, limit=20) for strategy in strategies))
            or "mixed (no label)"
        )
        yield "MIG strategy", "ok", f"{names}, on {count_text(len(cut), 'node')}"


def _claims(inventory: Inventory) -> Finding:
    what = "GPUs by resource claim (DRA)"
    if "ResourceClaim" not in inventory.objects:
        return what, "ok", "not served; telemetry alone tells which board a pod holds"
    devices = devices_of(inventory.of("ResourceSlice"))
    count = sum(len(claimed_devices(entry, devices)) for entry in inventory.of("ResourceClaim"))
    return what, "ok", f"{count} devices are given to claims, {len(devices)} are described"


def unread_accelerators(inventory: Inventory) -> UnreadAccelerators:
    """Return the accelerators of nodes, pods and resource claims that no reader understands."""
    return UnreadAccelerators.of(
        nodes=_of_nodes(inventory),
        holders={
            "pod": _of_pods(inventory),
            "claim template": _of_templates(inventory),
            "device class": _of_classes(inventory),
        },
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
    claims = {_label(entry): entry for entry in inventory.of("ResourceClaim")}
    resources = frozenset(name for name, _class in _class_resources(inventory))
    for document in inventory.of("Pod"):
        if text_in(document, "status", "phase") not in _ENDED_PHASES:
            for name in _of_pod(document, claims, resources):
                yield name, _label(document)
    for document in inventory.of("ResourceClaim"):
        namespace = text_in(document, "metadata", "namespace")
        for entry in list_in(document, "status", "allocation", "devices", "results"):
            if _is_unread_driver(driver := text_in(entry, "driver")):
                for pod in list_in(document, "status", "reservedFor"):
                    yield driver, f"{namespace}/{text_in(pod, 'name')}"


def _of_templates(inventory: Inventory) -> Iterator[tuple[str, str]]:
    for document in inventory.of("ResourceClaimTemplate"):
        for name in unread_requests({"spec": part(document, "spec", "spec")}):
            yield name, _label(document)


def _of_classes(inventory: Inventory) -> Iterator[tuple[str, str]]:
    yield from _class_resources(inventory)
    for document in inventory.of("DeviceClass"):
        for driver in filter(_is_unread_driver, _drivers_of(document)):
            yield driver, text_in(document, "metadata", "name")


def _class_resources(inventory: Inventory) -> Iterator[tuple[str, str]]:
    """Yield the resources by which pods may ask for a class of accelerators (KEP-5004)."""
    for document in inventory.of("DeviceClass"):
        name = text_in(document, "metadata", "name")
        resource = text_in(document, "spec", "extendedResourceName")
        counts = any(map(is_accelerator, _drivers_of(document) or (name,)))
        if resource and counts and not is_read(resource):
            yield resource, name


def _drivers_of(device_class: Document) -> list[str]:
    """Return the drivers that the selectors of a device class name."""
    expressions = (
        text_in(selector, "cel", "expression")
        for selector in list_in(device_class, "spec", "selectors")
    )
    return [match[1] for text in expressions for match in _DRIVER.finditer(text)]


def _of_pod(
    pod: Document, claims: Mapping[str, Document], resources: Collection[str]
) -> Iterator[str]:
    yield from _resource_names(pod, resources)
    namespace = text_in(pod, "metadata", "namespace")
    for claim in claims_of(pod):
        yield from unread_requests(claims.get(f"{namespace}/{claim}", {}))
    devices = labels_of(pod).get(KAI_DEVICES, "1")
    if text_in(pod, "spec", "schedulerName") == KAI_SCHEDULER and not whole_number(devices):
        yield f"{KAI_DEVICES} {devices}"


def _label(document: Document) -> str:
    metadata = part(document, "metadata")
    return f"{text_in(metadata, 'namespace')}/{text_in(metadata, 'name')}"


def _is_unread_driver(driver: str) -> bool:
    return driver != BOARD_CLASS and is_accelerator(driver)


def unread_resources(node: Document) -> dict[str, str]:
    """Return the accelerator resources of a node that are not read, with their quantities.

    These stay as they are written: 20000 of what is counted in MiB is "20k". Shared boards of
    which no label tells how many there are count among them.
    """
    offered = part(node, "status", "allocatable")
    pairs = offered.items() if isinstance(offered, Mapping) else ()
    uncounted = (*BOARDS, SHARED_GPU) if not boards_of(node) else ()
    return {
        str(name): str(quantity)
        for name, quantity in pairs
        if _is_unread(str(name), quantity) or (name in uncounted and whole_number(quantity))
    }


def unread_reason(node: Document) -> str:
    """Return the resources of a node that are not read, '' of a node that is fully understood."""
    resources = ", ".join(
        f"{scrub(quantity, limit=20)} {scrub(name, limit=80)}"
        for name, quantity in sorted(unread_resources(node).items())
    )
    return f"holds {resources}, {UNREAD_SUFFIX}" if resources else ""


def _is_unread(name: str, quantity: object) -> bool:
    understood = is_read(name) and whole_number(quantity) is not None
    return is_accelerator(name) and not understood and str(quantity) != "0"


def _resource_names(pod: Document, resources: Collection[str]) -> Iterator[str]:
    """Yield the accelerator resources of a pod that are not read; all of `resources` are."""
    for section in ("containers", "initContainers"):
        for container in list_in(pod, "spec", section):
            limits = part(container, "resources", "limits")
            for name in limits if isinstance(limits, Mapping) else ():
                if str(name) in resources or _is_unread(str(name), limits[name]):
                    yield str(name)
