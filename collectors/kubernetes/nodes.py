"""A Kubernetes node as the fleet knows it: what it offers, and whether it takes pods.

NVIDIA's MIG manager obeys a label of its node, which names one layout of a ConfigMap, and writes
another label with the state of its work.
"""

from dataclasses import replace
from datetime import datetime

from collectors.kubernetes.api import Document
from collectors.kubernetes.client import Inventory
from collectors.kubernetes.findings import unread_reason
from collectors.kubernetes.host_requests import free_on_nodes
from collectors.kubernetes.objects import boards_of, gpu_resources, mig_offer, model_of
from collectors.shared.json_parts import count_of, list_in, part, quantity, text_in
from collectors.shared.mig_layouts import layouts_in
from data.base.units import BYTES_PER_MIB
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.fleet import MigManager, Node
from data.facts.gpu_resources import (
    COUNT_LABEL,
    MIG_CAPABLE_LABEL,
    MIG_LAYOUT_LABEL,
    MIG_STATE_LABEL,
    MIG_STRATEGY_LABEL,
    is_of_vendor,
)

_FILE = "config.yaml"


def read_nodes(
    inventory: Inventory, catalogue: GpuCatalogue, *, seen_at: datetime, source: str
) -> tuple[Node, ...]:
    """Return every node that offers accelerators, by name: without boards where none is read."""
    free = free_on_nodes(inventory)
    nodes = []
    for document in inventory.of("Node"):
        if not (gpu_resources(document) or unread_reason(document)):
            continue
        node = read_node(document, catalogue, seen_at=seen_at, source=source)
        free_host = free[node.name]
        nodes.append(
            replace(
                node,
                mig_manager=mig_manager_of(
                    document, catalogue, inventory.mig_config, inventory.mig_source
                ),
                free_cpus=None if free_host is None else free_host.cpus,
                free_memory_mib=None if free_host is None else free_host.memory_mib,
            )
        )
    return tuple(sorted(nodes, key=lambda node: node.name))


def read_node(node: Document, catalogue: GpuCatalogue, *, seen_at: datetime, source: str) -> Node:
    """Return the node. Its memory is in MiB; taints of GPU operators do not block GPU pods."""
    blocked = [
        text_in(taint, "key")
        for taint in list_in(node, "spec", "taints")
        if text_in(taint, "effect") in ("NoSchedule", "NoExecute")
        and not is_of_vendor(text_in(taint, "key"))
    ]
    ready = any(
        text_in(entry, "type") == "Ready" and text_in(entry, "status") == "True"
        for entry in list_in(node, "status", "conditions")
    )
    cordoned = part(node, "spec", "unschedulable") is True
    labels = part(node, "metadata", "labels")
    memory = quantity(part(node, "status", "capacity", "memory"))
    return Node(
        name=text_in(node, "metadata", "name"),
        gpu_model=model_of(node, catalogue),
        gpu_count=boards_of(node),
        mig_instances=mig_offer(gpu_resources(node)),
        cpus=count_of(part(node, "status", "capacity", "cpu")) or None,
        memory_mib=None if memory is None else float(memory / BYTES_PER_MIB),
        features=tuple(
            f"{key}={value}"
            for key, value in sorted(labels.items() if isinstance(labels, dict) else ())
            if is_of_vendor(key) or str(key).startswith("topology.kubernetes.io/")
        ),
        state="Ready" if ready else "NotReady",
        reason=", ".join(
            filter(None, ["cordoned" if cordoned else "", *blocked, unread_reason(node)])
        ),
        schedulable=ready and not cordoned and not blocked,
        seen_at=seen_at,
        source=source,
    )


def mig_manager_of(
    node: Document, catalogue: GpuCatalogue, config: Document | None, source: str
) -> MigManager | None:
    """Return the MIG manager of a node as far as known, None where the node cannot be cut.

    `config` is the ConfigMap `source`, None where it is not read.
    """
    labels = part(node, "metadata", "labels")
    if text_in(labels, MIG_CAPABLE_LABEL) != "true":
        return None
    model = catalogue.find(model_of(node, catalogue))
    boards = count_of(text_in(labels, COUNT_LABEL))
    layouts = () if model is None else layouts_in(file_of(config), model, boards)
    return MigManager(
        layout=text_in(labels, MIG_LAYOUT_LABEL),
        state=text_in(labels, MIG_STATE_LABEL),
        strategy=text_in(labels, MIG_STRATEGY_LABEL),
        source=source if layouts else "",
        layouts=layouts,
    )


def file_of(config: Document | None) -> str:
    """Return the text of a ConfigMap's layouts, '' when there is none."""
    text = part(config, "data", _FILE)
    return text if isinstance(text, str) else ""
