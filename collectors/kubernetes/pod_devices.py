"""Pods that share boards with others: the source of a share, its boards, and its size.

A device plugin that slices time or runs MPS hands one board to several pods and tells nobody which.
HAMi writes the boards into an annotation, KAI groups its pods and a pod that reserves their board,
and a claim of DRA names its devices. What nobody tells is told as unknown, never as a whole board.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from collectors.kubernetes.api import Document
from collectors.kubernetes.claims import ClaimedDevice
from collectors.kubernetes.objects import PodFacts, PodShare, boards_of, labels_of, shares_gpus
from collectors.shared.json_parts import part, text_in
from data.boards.board_shares import BOARD_SHARE, SHARED_BOARDS, SHARING
from data.facts.gpu_resources import PERCENTAGES, PIECES, SHARING_LABEL

_ALLOCATED = "hami.io/vgpu-devices-allocated"
_RESERVED = "run.ai/reserve_for_gpu_index"
_GROUP = "runai-gpu-group"
_FRACTION, _MEMORY = "gpu-fraction", "gpu-memory"
_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ANY_BOARD = "*"
"""The only board of a node, whose UUID and index nobody told."""


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
                if name in PIECES
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
        yield BOARD_SHARE, f"{amount + alone:.6g}"


def replicas_in_use(pods: Iterable[PodFacts], nodes: Mapping[str, Document]) -> dict[str, int]:
    """Return the replicas by node that pods hold, of nodes that hand boards out to several."""
    count: Counter[str] = Counter()
    for pod in pods:
        if pod.holds and shares_gpus(nodes.get(pod.node, {})):
            count[pod.node] += sum(entry.count for entry in pod.requests if not entry.mig_profile)
    return dict(count)
