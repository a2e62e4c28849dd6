"""Gaps of a Kubernetes cluster for Trimtab, each with the exact line that would close it."""

from collections.abc import Iterator

from collectors.kubernetes.api import Document
from collectors.kubernetes.client import Inventory, KubernetesClient
from collectors.kubernetes.kinds import GROUPS, KINDS
from collectors.kubernetes.objects import boards_of, gpu_resources, mig_offer, product_of
from collectors.kubernetes.pod_devices import claimed_devices, devices_of
from collectors.kubernetes.unread import unread_accelerators
from collectors.shared.collector import Finding
from collectors.shared.json_parts import text_in
from collectors.shared.unread import UnreadAccelerators
from data.base.counts import count_text
from data.base.errors import CollectorError, scrub
from data.facts.gpu_resources import BOARDS, MIG_STRATEGY_LABEL, PRODUCT_LABELS
from data.settings.sources import KubernetesSettings


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
