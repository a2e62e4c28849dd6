"""Devices of pods: those that claims give them, and parts of boards that others use too.

Dynamic resource allocation (DRA): NVIDIA's driver names a device by its minor number (gpu-0), which
is its index on most machines, and tells the UUID in a ResourceSlice, in lower case.

A device plugin that slices time or runs MPS hands one board to several pods and tells nobody which.
HAMi writes the boards into an annotation, KAI groups its pods and a pod that reserves their board,
and a claim of DRA names its devices. What nobody tells is told as unknown, never as a whole board:
nor is a request of a claim that is not understood whole, until the claim has its devices.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from collectors.kubernetes.api import Document
from collectors.kubernetes.objects import (
    GpuRequest,
    PodFacts,
    PodShare,
    boards_of,
    labels_of,
    shares_gpus,
)
from collectors.shared.json_parts import list_in, part, text_in, whole_number
from data.boards.board_shares import BOARD_SHARE, SHARED_BOARDS, SHARING
from data.facts.gpu_resources import (
    BOARD_CLASS,
    FRACTION_RESOURCES,
    INSTANCE_CLASS,
    PERCENTAGES,
    SHARING_LABEL,
    is_accelerator,
)

_ALLOCATED = "hami.io/vgpu-devices-allocated"
_RESERVED = "run.ai/reserve_for_gpu_index"
_GROUP = "runai-gpu-group"
_FRACTION, _MEMORY = "gpu-fraction", "gpu-memory"
_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ANY_BOARD = "*"
"""The only board of a node, whose UUID and index nobody told."""
UNKNOWN_PROFILE = "unknown"
"""Mark of a MIG instance whose slice cannot be read: part of a board, of unknown size."""
_BOARD_NAME = re.compile(r"gpu-(\d{1,3})")
_UUID_OF_SLICE = re.compile(r"gpu-([0-9a-f-]{8,40})", re.IGNORECASE)
DeviceName = tuple[str, str]
"""Pool and device: what a claim says, and a slice explains."""
_BOARD_TYPES = ("", "gpu", "vfio")
_PARTIAL_DEVICE_FIELDS = ("shareID", "consumedCapacity")
"""Marks of a device that several claims have parts of (KEP-5075)."""
_READ_FIELDS = frozenset(
    (
        *("name", "exactly", "deviceClassName", "selectors"),
        *("tolerations", "adminAccess", "count", "allocationMode"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDevice:
    """A GPU. `mig_profile` is '' for a board; `gpu_uuid` and `gpu_index` are its board's or ''.

    `ratio` is the part of each of those that have the claim.
    """

    node: str
    gpu_uuid: str
    gpu_index: str
    product: str
    mig_profile: str
    ratio: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A pod of KAI that holds a board for the pods of a group."""

    board: str
    label: str


def is_reservation(pod: Document) -> bool:
    """Return whether a pod only holds a board for others."""
    return bool(labels_of(pod).get(_RESERVED))


def reservations(pods: Iterable[Document]) -> dict[str, Reservation]:
    """Return the boards that KAI reserves, by group."""
    by_group = {}
    for pod in pods:
        labels = labels_of(pod)
        uuid, group = labels.get(_RESERVED, ""), labels.get(_GROUP, "")
        if group and _UUID.fullmatch(uuid):
            name = f"{text_in(pod, 'metadata', 'namespace')}/{text_in(pod, 'metadata', 'name')}"
            by_group[group] = Reservation(board=uuid, label=name)
    return by_group


def share_of(
    pod: PodFacts, document: Document, node: Document, reserved: Mapping[str, Reservation]
) -> PodShare | None:
    """Return the boards that a pod shares, None of one that has its devices alone."""
    labels = labels_of(document)
    if not any(request.shared for request in pod.requests):
        return None
    if labels.get(_FRACTION) or labels.get(_MEMORY):
        group = reserved.get(labels.get(_GROUP, ""))
        request = labels.get(_FRACTION) or f"{labels[_MEMORY]} MiB"
        return PodShare(
            by=f"KAI, {request} of a GPU",
            boards=(group.board,) if group else (),
            ratio=_ratio(labels.get(_FRACTION, "")),
            reserved_by=group.label if group else "",
        )
    if _pieces(document):
        return PodShare(
            by="HAMi",
            boards=tuple(dict.fromkeys(_UUID.findall(labels.get(_ALLOCATED, "")))),
            ratio=_ratio(str(max(_pieces(document))), of=100),
        )
    strategy = text_in(node, "metadata", "labels", SHARING_LABEL)
    if strategy in ("time-slicing", "mps"):
        return PodShare(by=strategy)
    return PodShare(by="others use the same boards")


def _pieces(document: Document) -> list[int]:
    """Return the percentages of a board that a pod asks HAMi for, 0 where it asks otherwise."""
    percentages = []
    for container in part(document, "spec", "containers") or ():
        limits = part(container, "resources", "limits")
        if isinstance(limits, Mapping):
            percentages += [
                int(str(limits[name]))
                if name in PERCENTAGES and str(limits[name]).isdecimal()
                else 0
                for name in limits
                if name in FRACTION_RESOURCES
            ]
    return percentages


def _ratio(text: str, *, of: int = 1) -> float | None:
    """Return a part of a board above 0 and below 1, None for anything else."""
    try:
        ratio = float(text) / of
    except ValueError:
        return None
    return ratio if 0 < ratio < 1 else None


def device_rows(
    pod: PodFacts, devices: Sequence[ClaimedDevice], node: Document
) -> Iterator[dict[str, object]]:
    """Yield the devices that a pod holds, as ends of rows of allocations.

    A slice is no board, and of a node with several boards a part of nobody knows which takes none:
    a count would claim the node's boards for this pod.
    """
    rows: list[dict[str, object]] = [
        {"gpu_uuid": device.gpu_uuid, "gpu_index": device.gpu_index, "gpu_count": device.ratio}
        for device in devices
        if device.node == pod.node and (device.gpu_uuid or device.gpu_index)
    ]
    sliced = any(request.mig_profile for request in pod.requests)
    share = pod.share
    if share is not None and not rows:
        part_of = share.ratio or _UNKNOWN_PART
        rows = [{"gpu_uuid": board, "gpu_count": part_of} for board in share.boards]
        alone = boards_of(node) == 1 and not sliced
        yield from rows or [{"gpu_count": part_of if alone else None}]
        return
    yield from rows
    if sliced or share is not None:
        if not rows:
            yield {"gpu_count": None}
    elif not rows or pod.gpus != len(rows):
        yield {"gpu_count": float(pod.gpus - len(rows))}


_UNKNOWN_PART = 0.5
"""Stands for a part of unknown size: a row below 1 is a share, and its holders count evenly."""


def share_facts(
    pods: Sequence[PodFacts],
    devices_of: Callable[[PodFacts], Sequence[ClaimedDevice]],
    nodes: Mapping[str, Document],
    in_use: Mapping[str, int],
) -> Iterator[tuple[str, str]]:
    """Yield the facts of a job about the shares that its pods have.

    `in_use` are the replicas by node that pods hold where a device plugin hands boards out to
    several: it puts them on as many boards as there are, and tells nobody which.
    """
    sharing = [pod for pod in pods if pod.share is not None]
    if not sharing:
        return
    words = Counter(pod.share.by for pod in sharing if pod.share)
    yield SHARING, ", ".join(sorted(words))
    places, amount = [], 0.0
    for pod in sharing:
        node = nodes.get(pod.node, {})
        boards = boards_of(node)
        names = (pod.share.boards if pod.share else ()) or tuple(
            device.gpu_uuid or device.gpu_index
            for device in devices_of(pod)
            if device.node == pod.node and (device.gpu_uuid or device.gpu_index)
        )
        if not names and boards == 1:
            names = (_ANY_BOARD,)
        places += [f"{pod.node}:{name}" for name in names]
        replicas = in_use.get(pod.node, 0)
        if not names and boards and replicas:
            amount += pod.gpus * min(boards, replicas) / replicas
    alone = sum(pod.gpus for pod in pods if pod.share is None)
    if places and not amount and not alone:
        yield SHARED_BOARDS, ",".join(dict.fromkeys(places))
    elif amount:
        yield BOARD_SHARE, f"{amount + alone:.12g}"


def replicas_in_use(pods: Iterable[PodFacts], nodes: Mapping[str, Document]) -> dict[str, int]:
    """Return the replicas by node that pods hold, of nodes that hand boards out to several."""
    count: Counter[str] = Counter()
    for pod in pods:
        if pod.holds and shares_gpus(nodes.get(pod.node, {})):
            count[pod.node] += sum(entry.count for entry in pod.requests if not entry.mig_profile)
    return dict(count)


def devices_of(slices: Iterable[Document]) -> dict[DeviceName, ClaimedDevice]:
    """Return the devices in the ResourceSlices of NVIDIA's driver."""
    device_by_name = {}
    for document in slices:
        if text_in(document, "spec", "driver") != BOARD_CLASS:
            continue
        pool = text_in(document, "spec", "pool", "name")
        for entry in list_in(document, "spec", "devices"):
            # Before v1 the attributes stood in `basic`.
            attributes = part(entry, "attributes") or part(entry, "basic", "attributes")
            uuid = _UUID_OF_SLICE.fullmatch(text_in(attributes, "uuid", "string"))
            is_board = text_in(attributes, "type", "string") in _BOARD_TYPES
            device_by_name[pool, text_in(entry, "name")] = ClaimedDevice(
                node=text_in(document, "spec", "nodeName") or pool,
                gpu_uuid=f"GPU-{uuid[1].lower()}" if uuid else "",
                gpu_index="",
                product=text_in(attributes, "productName", "string"),
                mig_profile=text_in(attributes, "profile", "string")
                or UNKNOWN_PROFILE * (not is_board),
            )
    return device_by_name


def claimed_devices(
    claim: Document, device_by_name: Mapping[DeviceName, ClaimedDevice]
) -> tuple[ClaimedDevice, ...]:
    """Return the GPUs that a claim was given to use. Admin access is a monitor's: it takes none."""
    devices = []
    users = max(1, len(list_in(claim, "status", "reservedFor")))
    for result in list_in(claim, "status", "allocation", "devices", "results"):
        if text_in(result, "driver") != BOARD_CLASS or part(result, "adminAccess") is True:
            continue
        pool, name = text_in(result, "pool"), text_in(result, "device")
        board = _BOARD_NAME.fullmatch(name)
        device = device_by_name.get((pool, name)) or ClaimedDevice(
            node=pool,
            gpu_uuid="",
            gpu_index=board.group(1) if board else "",
            product="",
            mig_profile="" if board else UNKNOWN_PROFILE,
        )
        # The board of an instance is not the pod's own.
        uuid = "" if device.mig_profile else device.gpu_uuid
        of_claim = (
            _UNKNOWN_PART if any(part(result, mark) for mark in _PARTIAL_DEVICE_FIELDS) else 1.0
        )
        devices.append(replace(device, gpu_uuid=uuid, ratio=of_claim / users))
    return tuple(devices)


def with_claims(
    pod: PodFacts, claims: Sequence[Document], device_by_name: Mapping[DeviceName, ClaimedDevice]
) -> PodFacts | None:
    """Return the pod with the GPUs of its claims counted, None when it has no GPU at all."""
    claimed = [request for claim in claims for request in _requests(claim, device_by_name)]
    unread = [name for claim in claims for name in unread_requests(claim)]
    if claimed or unread:
        return replace(pod, requests=(*pod.requests, *claimed), unread=", ".join(unread))
    return pod if pod.requests else None


def _requests(claim: Document, devices: Mapping[DeviceName, ClaimedDevice]) -> Iterator[GpuRequest]:
    """Yield the devices allocated to a claim; those that it requests until then."""
    if part(claim, "status", "allocation") is None:
        yield from _spec_requests(claim)
        return
    kinds = Counter(
        (device.mig_profile, device.ratio < 1) for device in claimed_devices(claim, devices)
    )
    for (profile, shared), count in sorted(kinds.items()):
        yield GpuRequest(mig_profile=profile, shared=shared, count=count)


def _spec_requests(claim: Document) -> Iterator[GpuRequest]:
    for entry in list_in(claim, "spec", "devices", "requests"):
        item = part(entry, "exactly") or entry  # before v1 it stood in the request itself
        device_class = text_in(item, "deviceClassName")
        # Admin access is a monitor's: it takes none.
        if not _why_unread(entry, item) and not part(item, "adminAccess"):
            yield GpuRequest(
                mig_profile="" if device_class == BOARD_CLASS else UNKNOWN_PROFILE,
                shared=False,
                count=whole_number(part(item, "count")) or 1,
            )


def unread_requests(claim: Document) -> Iterator[str]:
    """Yield the requests of a claim without devices whose number or kind nobody can tell yet."""
    waits = part(claim, "status", "allocation") is None
    for entry in list_in(claim, "spec", "devices", "requests") if waits else ():
        items = list_in(entry, "firstAvailable") or [part(entry, "exactly") or entry]
        classes = {text_in(item, "deviceClassName") for item in items}
        why = " or ".join(filter(None, (_why_unread(entry, item) for item in items)))
        if why and any(is_accelerator(name, otherwise=True) for name in classes):
            yield f"{' or '.join(sorted(classes))} of a claim without devices ({why})"


def _why_unread(entry: object, item: object) -> str:
    """Return the fields of a request by which it may be for other devices, '' where there are none.

    `All` is as many as there are; others are such as capacity, or fields of later releases.
    """
    fields = {
        str(name): value
        for of in (entry, item)
        for name, value in (of.items() if isinstance(of, Mapping) else ())
    }
    count, admin = fields.get("count"), fields.get("adminAccess")
    unread = [name for name, value in fields.items() if value and name not in _READ_FIELDS]
    unread += [
        f"{name} {fields.get(name)}"
        for name, is_read in (
            ("deviceClassName", fields.get("deviceClassName") in (BOARD_CLASS, INSTANCE_CLASS)),
            ("allocationMode", fields.get("allocationMode") in (None, "", "ExactCount")),
            ("count", count is None or bool(whole_number(count))),
            ("adminAccess", admin is None or isinstance(admin, bool)),
        )
        if not is_read
    ]
    return ", ".join(unread)
