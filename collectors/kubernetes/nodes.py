"""A Kubernetes node as the fleet knows it: what it offers, and whether it takes pods.

NVIDIA's MIG manager obeys a label of its node, which names one layout of a ConfigMap, and writes
another label with the state of its work. A layout (github.com/NVIDIA/mig-parted) is a list of
entries: on which boards, of which device ids, whether MIG is on, and how many slices of which
profile.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any

import yaml

from collectors.kubernetes.api import Document
from collectors.kubernetes.client import Inventory
from collectors.kubernetes.findings import unread_reason
from collectors.kubernetes.host_requests import free_on_nodes
from collectors.kubernetes.objects import boards_of, gpu_resources, mig_offer, model_of
from collectors.shared.json_parts import count_of, list_in, part, quantity, text_in
from data.base.units import BYTES_PER_MIB
from data.catalogue.gpu_catalogue import GpuCatalogue, GpuModel
from data.facts.fleet import MigLayout, MigManager, Node
from data.facts.gpu_resources import (
    COUNT_LABEL,
    MIG_CAPABLE_LABEL,
    MIG_LAYOUT_LABEL,
    MIG_STATE_LABEL,
    MIG_STRATEGY_LABEL,
    is_of_vendor,
)

_Slices = tuple[tuple[str, int], ...]
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_MAX_SLICES = 7
"""Of one board, whatever its model (NVIDIA, MIG User Guide)."""
_DEVICE_IDS = {
    "A100-SXM4-40GB": "0x20B010DE",
    "A100-SXM4-80GB": "0x20B210DE",
    "A100-PCIE-40GB": "0x20F110DE",
    "A100-PCIE-80GB": "0x20B510DE",
    "A30-24GB": "0x20B710DE",
    "H100-SXM5-80GB": "0x233010DE",
    "H100-PCIE-80GB": "0x233110DE",
    "H100-NVL-94GB": "0x232110DE",
    "GH200-96GB": "0x234210DE",
    "GH200-144GB": "0x234810DE",
    "H200-SXM-141GB": "0x233510DE",
    "H200-NVL-141GB": "0x233B10DE",
    "B200-SXM-180GB": "0x290110DE",
    "B300-SXM-270GB": "0x318210DE",
    "GB300-278GB": "0x31C210DE",
}
"""Model to the device and vendor id that entries name (pci-ids.ucw.cz, vendor 10de)."""


@lru_cache(maxsize=64)
def layouts_in(text: str, model: GpuModel, boards: int) -> tuple[MigLayout, ...]:
    """Return the layouts of a file that say of every board of a node how it is cut.

    A layout is omitted if it may not fit this model: the catalogue does not know a slice, a device
    filter names a model without an id here, or no entry names a board.
    """
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError, TypeError):
        return ()
    table = part(document, "mig-configs")
    layouts = (
        MigLayout(name=name, boards=_grouped(cut))
        for name, entries in (table.items() if isinstance(table, Mapping) else ())
        if isinstance(name, str)
        and _LABEL_VALUE.fullmatch(name)
        and (cut := _cut(entries, model, boards)) is not None
    )
    return tuple(sorted(layouts, key=lambda layout: layout.name))


def _cut(entries: Any, model: GpuModel, boards: int) -> list[_Slices] | None:
    """Return the slices of each board, None where they are not all known."""
    cut: dict[int, _Slices] = {}
    for entry in entries if isinstance(entries, list) else ():
        matches = _is_for(entry, model)
        slices = _slices(entry, model) if matches else ()
        if matches is None or slices is None:
            return None
        for index in _devices(entry, boards) if matches else ():
            if not isinstance(index, int) or index in cut or not 0 <= index < boards:
                return None
            cut[index] = slices
    return [cut[index] for index in range(boards)] if boards and len(cut) == boards else None


def _is_for(entry: Any, model: GpuModel) -> bool | None:
    """Return whether an entry is for boards of a model, None where that is not known."""
    devices = part(entry, "device-filter")
    if devices is None:
        return True
    device = _DEVICE_IDS.get(model.name)
    ids = devices if isinstance(devices, list) else [devices]
    ids_of_boards = {name.casefold() for name in ids if isinstance(name, str)}
    return None if device is None else device.casefold() in ids_of_boards


def _devices(entry: Any, boards: int) -> Iterator[Any]:
    if part(entry, "devices") == "all":
        yield from range(boards)
    else:
        yield from list_in(entry, "devices")


def _slices(entry: Any, model: GpuModel) -> _Slices | None:
    """Return the slices of an entry's boards, () of whole ones, None when they are not known."""
    enabled, devices = part(entry, "mig-enabled"), part(entry, "mig-devices")
    if enabled is False:
        return ()
    profiles = {profile.name for profile in model.mig_profiles}
    if enabled is not True or not isinstance(devices, Mapping) or not devices:
        return None
    pairs = tuple(sorted((str(name), count_of(count)) for name, count in devices.items()))
    counts = sum(count for _name, count in pairs)
    is_known = all(name in profiles and count for name, count in pairs)
    return pairs if is_known and counts <= _MAX_SLICES else None


def _grouped(cut: list[_Slices]) -> tuple[tuple[int, _Slices], ...]:
    return tuple((number, slices) for slices, number in sorted(Counter(cut).items()))


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
