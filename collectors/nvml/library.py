"""The NVML library of this machine: found, opened and closed, its refusals said with their fix."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import pynvml

from collectors.nvml.calls import error_name
from data.base.errors import (
    CollectorError,
    SourceNotConfiguredError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
    scrub,
)
from data.settings.sources import NvmlSettings

NO_LIBRARY = (
    "Install the NVIDIA driver; in a container start it with `--gpus all` and "
    "NVIDIA_DRIVER_CAPABILITIES=utility, in Kubernetes with `runtimeClassName: nvidia`; "
    "or set nvml.library to the path of libnvidia-ml.so.1."
)
_ERRORS: dict[str, tuple[type[CollectorError], str]] = {
    "LibraryNotFound": (SourceNotConfiguredError, NO_LIBRARY),
    "DriverNotLoaded": (
        SourceUnreachableError,
        "Load the kernel module (`modprobe nvidia`); `dmesg | grep -i nvrm` says why it fails.",
    ),
    "LibRmVersionMismatch": (
        SourceUnreachableError,
        "The driver was updated while in use: reboot, or unload and load its kernel modules.",
    ),
    "NoPermission": (
        SourceRefusedError,
        "Give this user, or this container, the devices /dev/nvidiactl and /dev/nvidia0.",
    ),
    "FunctionNotFound": (
        UnexpectedAnswerError,
        "That is no NVML of today: set nvml.library to the driver's libnvidia-ml.so.1.",
    ),
}
_UNKNOWN_ERROR = (
    SourceUnreachableError,
    "See whether `nvidia-smi` answers, and what `dmesg | grep -i -e nvrm -e xid` says.",
)


def _load(path: str) -> None:
    """Load the library so that pynvml, which asks for the soname, is given this one."""
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise SourceNotConfiguredError(
            f"nvml.library {scrub(path)!r} cannot be loaded: {scrub(str(error))}",
            _corrected(NO_LIBRARY),
        ) from error


def _corrected(hint: str) -> str:
    """Return the hint for where nvml.library is set already."""
    return hint.replace("set nvml.library to", "correct nvml.library:")


@contextmanager
def nvml_session(settings: NvmlSettings) -> Iterator[None]:
    """Hold NVML open; every init has its shutdown. Errors: CollectorError.

    Without persistence mode the driver sets a GPU up at every init, which can take seconds:
    whoever reads again and again keeps one session. A library whose soname is not
    libnvidia-ml.so.1 is not seen by pynvml.
    """
    if settings.library:
        _load(settings.library)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        name = error_name(error)
        kind, hint = _ERRORS.get(name, _UNKNOWN_ERROR)
        if settings.library:
            hint = _corrected(hint)
        raise kind(
            f"NVML ({scrub(settings.library) or 'libnvidia-ml.so.1'}) did not start: {name}", hint
        ) from error
    try:
        yield
    finally:
        _shutdown()


def _shutdown() -> None:
    """Close; a driver that went away meanwhile has nothing left to close."""
    try:
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        if error_name(error) not in {"Uninitialized", "DriverNotLoaded", "GpuIsLost", "Unknown"}:
            raise SourceUnreachableError(
                f"NVML did not shut down: {error_name(error)}", _UNKNOWN_ERROR[1]
            ) from error
