"""Dynamic resource allocation: which devices a ResourceClaim was given, and what they are.

NVIDIA's driver names a device by its minor number (gpu-0), which is its index on most machines, and
tells the UUID in a ResourceSlice, in lower case.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from collectors.kubernetes.api import Document
from collectors.kubernetes.objects import GpuRequest, PodFacts
from collectors.shared.json_parts import count_of, list_in, part, text_in
from data.facts.gpu_resources import BOARD_CLASS, INSTANCE_CLASS

UNKNOWN_PROFILE = "unknown"
"""Of a MIG instance whose slice cannot be read: it is no board, and more is not known."""

_BOARD_NAME = re.compile(r"gpu-(\d{1,3})")
_INSTANCE_NAME = re.compile(r"gpu-\d{1,3}-mig-.{1,60}")
_UUID = re.compile(r"gpu-([0-9a-f-]{8,40})", re.IGNORECASE)

DeviceName = tuple[str, str]
"""Pool and device: what a claim says, and a slice explains."""


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
            uuid = _UUID.fullmatch(text_in(attributes, "uuid", "string"))
            device_by_name[pool, text_in(entry, "name")] = ClaimedDevice(
                node=text_in(document, "spec", "nodeName") or pool,
                gpu_uuid=f"GPU-{uuid[1].lower()}" if uuid else "",
                gpu_index="",
                product=text_in(attributes, "productName", "string"),
                mig_profile=text_in(attributes, "profile", "string"),
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
            mig_profile=UNKNOWN_PROFILE if _INSTANCE_NAME.fullmatch(name) else "",
        )
        # The board of an instance is not the pod's own.
        uuid = "" if device.mig_profile else device.gpu_uuid
        devices.append(replace(device, gpu_uuid=uuid, ratio=1 / users))
    return tuple(devices)


def with_claims(
    pod: PodFacts, claims: Sequence[Document], device_by_name: Mapping[DeviceName, ClaimedDevice]
) -> PodFacts | None:
    """Return the pod with the GPUs of its claims counted, None when it has no GPU at all."""
    claimed = [request for claim in claims for request in _requests(claim, device_by_name)]
    if claimed:
        return replace(pod, requests=(*pod.requests, *claimed))
    return pod if pod.requests else None


def _requests(claim: Document, devices: Mapping[DeviceName, ClaimedDevice]) -> Iterator[GpuRequest]:
    """Yield the devices allocated to a claim; those that it requests until then."""
    shared = len(list_in(claim, "status", "reservedFor")) > 1
    if part(claim, "status", "allocation") is None:
        yield from _spec_requests(claim)
        return
    profiles = [device.mig_profile for device in claimed_devices(claim, devices)]
    for profile in sorted(set(profiles)):
        count = profiles.count(profile)
        yield GpuRequest(mig_profile=profile, shared=shared, count=count)


def _spec_requests(claim: Document) -> Iterator[GpuRequest]:
    for entry in list_in(claim, "spec", "devices", "requests"):
        for item in (entry, part(entry, "exactly")):  # before v1 it stood in the request itself
            device_class = text_in(item, "deviceClassName")
            count = count_of(part(item, "count") or 1)
            if (
                device_class in (BOARD_CLASS, INSTANCE_CLASS)
                and part(item, "adminAccess") is not True
            ):
                profile = "" if device_class == BOARD_CLASS else UNKNOWN_PROFILE
                yield GpuRequest(mig_profile=profile, shared=False, count=count)
