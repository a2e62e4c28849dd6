"""The boards of this machine and their MIG instances, as NVML lists them."""

import math
import re
from dataclasses import dataclass
from typing import Any

import pynvml

from collectors.nvml.calls import DeviceLostError, NvmlCalls

_PROFILE = re.compile(r"MIG (?:[1-9]c\.)?([1-9]g\.[0-9]{1,4}gb(?:[+-][a-z.]{1,20})?)\s*")
_MIB_PER_GB_OF_NAMES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One GPU instance; it has a MIG device (handle, UUID) per compute instance in it."""

    instance: str
    profile: str
    handles: tuple[Any, ...]
    uuids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One board; without instances it is read as a whole."""

    index: str
    uuid: str
    name: str
    handle: Any
    in_mig_mode: bool
    instances: tuple[Instance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _MigDevice:
    instance: str
    profile: str
    handle: Any
    uuid: str


def find_boards(calls: NvmlCalls) -> tuple[int, tuple[Board, ...]]:
    """Return the number of boards by the driver, and those that can be named, in its order."""
    try:
        count = calls.read(pynvml.nvmlDeviceGetCount) or 0
    except DeviceLostError as lost:
        calls.missing[lost.reason] += 1
        return 0, ()
    boards = []
    for index in range(count):
        try:
            board = _board(calls, index)
        except DeviceLostError as lost:
            calls.missing[lost.reason] += 1
            continue
        if board is not None:
            boards.append(board)
    return count, tuple(boards)


def _board(calls: NvmlCalls, index: int) -> Board | None:
    handle = calls.read(pynvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return None
    uuid = calls.read(pynvml.nvmlDeviceGetUUID, handle)
    if not uuid:
        return None
    # Boards that cannot do MIG, and drivers before it, answer so: no missing reading.
    mode, reason = calls.attempt(pynvml.nvmlDeviceGetMigMode, handle)
    if mode is None and not reason.endswith((": NotSupported", ": FunctionNotFound")):
        calls.missing[reason] += 1
    in_mig_mode = mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    return Board(
        index=str(index),
        uuid=uuid,
        name=calls.read(pynvml.nvmlDeviceGetName, handle) or "",
        handle=handle,
        in_mig_mode=in_mig_mode,
        instances=_instances(calls, handle) if in_mig_mode else (),
    )


def _instances(calls: NvmlCalls, board: Any) -> tuple[Instance, ...]:
    """Return the GPU instances: slots may be empty, and one instance may hold several devices."""
    devices: dict[str, list[_MigDevice]] = {}
    for slot in range(calls.read(pynvml.nvmlDeviceGetMaxMigDeviceCount, board) or 0):
        handle, reason = calls.attempt(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, board, slot)
        if handle is None:
            if not reason.endswith(": NotFound"):
                calls.missing[reason] += 1
            continue
        device = _mig_device(calls, handle)
        if device is not None:
            devices.setdefault(device.instance, []).append(device)
    return tuple(
        Instance(
            instance=instance,
            profile=members[0].profile,
            handles=tuple(member.handle for member in members),
            uuids=tuple(member.uuid for member in members if member.uuid),
        )
        for instance, members in devices.items()
    )


def _mig_device(calls: NvmlCalls, handle: Any) -> _MigDevice | None:
    instance = calls.read(pynvml.nvmlDeviceGetGpuInstanceId, handle)
    if instance is None:
        return None
    return _MigDevice(
        instance=str(instance),
        profile=_profile(calls, handle),
        handle=handle,
        uuid=calls.read(pynvml.nvmlDeviceGetUUID, handle) or "",
    )


def _profile(calls: NvmlCalls, handle: Any) -> str:
    """Return the profile's name: as the device is called, else from its slices and memory."""
    name = calls.read(pynvml.nvmlDeviceGetName, handle) or ""
    match = _PROFILE.search(name)
    if match:
        return match[1]
    attributes = calls.read(pynvml.nvmlDeviceGetAttributes, handle)
    if attributes is None or not attributes.gpuInstanceSliceCount:
        return ""
    # the name rounds up: 9856 MiB is a 1g.10gb
    gigabytes = math.ceil(attributes.memorySizeMB / _MIB_PER_GB_OF_NAMES)
    return f"{attributes.gpuInstanceSliceCount}g.{gigabytes}gb"
