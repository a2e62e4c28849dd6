"""Abilities and gaps of NVML on this machine, for `trimtab doctor`."""

from pathlib import Path

import pynvml

from collectors.nvml.activity import GpmActivity
from collectors.nvml.calls import DeviceLostError, NvmlCalls
from collectors.nvml.devices import Board, find_boards
from collectors.nvml.library import nvml_session
from collectors.nvml.process_jobs import ProcessJobs
from collectors.nvml.xid_events import XidEvents
from collectors.shared.collector import Finding
from data.base.errors import CollectorError, scrub
from data.settings.sources import NvmlSettings

_LOST = "see `dmesg | grep -i xid`; reset the board or reboot the node"
_HOST_PIDS = "run with the host's PID namespace (Kubernetes: hostPID: true, Docker: --pid=host)"
_GPM_FIX = (
    "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0 (modprobe option)"
)
_XID_FIX = "its errors stay unknown; run dcgm-exporter, or look into the kernel log"
_FIXES = {
    "NoPermission": "run as root (or with CAP_SYS_ADMIN)",
    "NotSupported": "this board or driver does not have it; nothing to do",
    "FunctionNotFound": "the driver is older than the call: update it",
}


def nvml_findings(settings: NvmlSettings, *, proc_root: Path = Path("/proc")) -> list[Finding]:
    """Return findings of the library, driver, boards, permissions, processes and mapping files."""
    try:
        with nvml_session(settings):
            rows = [("NVML library", "ok", "loads and starts"), *_driver_and_boards()]
    except CollectorError as error:
        return [("NVML library", "missing", str(error))]
    return [*rows, _processes(settings, proc_root), *_mapping(settings)]


def _driver_and_boards() -> list[Finding]:
    calls = NvmlCalls()
    version = ""
    try:
        version = calls.read(pynvml.nvmlSystemGetDriverVersion) or ""
    except DeviceLostError as lost:
        calls.missing[lost.reason] += 1
    count, boards = find_boards(calls)
    rows: list[Finding] = [
        ("NVIDIA driver", "ok", scrub(version))
        if version
        else ("NVIDIA driver", "missing", "its version is not told; see `nvidia-smi`")
    ]
    if not count:
        rows.append(("GPUs", "missing", "the driver sees none; give this machine or container one"))
    elif len(boards) < count:
        reasons = ", ".join(sorted(calls.missing))
        rows.append(
            ("GPUs", "missing", f"{len(boards)} of {count} can be named ({reasons}); {_LOST}")
        )
    for board in boards:
        rows += _board(board)
    return [*rows, *_xid_events(boards)]


def _board(board: Board) -> list[Finding]:
    what = f"GPU {board.index}"
    calls = NvmlCalls()
    calls_by_name = {
        "power": pynvml.nvmlDeviceGetPowerUsage,
        "energy counter": pynvml.nvmlDeviceGetTotalEnergyConsumption,
        "power limit": pynvml.nvmlDeviceGetEnforcedPowerLimit,
        "memory": pynvml.nvmlDeviceGetMemoryInfo,
        "processes": pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
    }
    try:
        refused = {
            name: reason
            for name, call in calls_by_name.items()
            if (reason := calls.attempt(call, board.handle)[1])
        }
        mig = _mig(board) if board.in_mig_mode else _utilization(calls, board)
    except DeviceLostError as lost:
        return [(what, "missing", f"{lost.reason}: {_LOST}")]
    model = scrub(f"{board.name} {board.uuid}", limit=120)
    rows: list[Finding] = [(what, "ok", f"{model} answers"), mig]
    for name, reason in refused.items():
        fix = _FIXES.get(reason.partition(": ")[2], "see `nvidia-smi -q`")
        rows.append((f"{what} {name}", "missing", f"{reason}: {fix}"))
    return rows


def _xid_events(boards: tuple[Board, ...]) -> list[Finding]:
    """Name the boards whose XID errors NVML does not report."""
    calls, events = NvmlCalls(), XidEvents()
    try:
        events.watch(calls, boards)
        events.rows(calls, boards, node="", at=0.0)
    finally:
        events.close()
    refused = [
        (f"GPU {board.index} XID events", "missing", f"{events.refused[board.uuid]}: {_XID_FIX}")
        for board in boards
        if board.uuid in events.refused
    ]
    # a lost board has its own finding
    others = [entry for entry in calls.missing if not entry.endswith(": GpuIsLost")]
    return [*refused, *(("XID events", "missing", f"{other}: {_XID_FIX}") for other in others)]


def _mig(board: Board) -> Finding:
    what = f"GPU {board.index} MIG"
    if not board.instances:
        return (what, "missing", "on, but without instances; create them: `nvidia-smi mig -cgi`")
    listed = ", ".join(
        f"{instance.instance}={instance.profile or '?'}" for instance in board.instances
    )
    return (what, "ok", f"{len(board.instances)} instances: {listed}")


def _utilization(calls: NvmlCalls, board: Board) -> Finding:
    what = f"GPU {board.index} utilisation"
    activity = GpmActivity()
    try:
        if activity.begin(calls, board.handle, board.uuid, ""):
            return (what, "ok", "SM activity (GPM)")
    finally:
        activity.close()
    if calls.missing:
        refused = ", ".join(calls.missing)
        return (what, "missing", f"{refused}: {_GPM_FIX}; until then gpu_util is used")
    _, reason = calls.attempt(pynvml.nvmlDeviceGetUtilizationRates, board.handle)
    if reason:
        return (what, "missing", f"{reason}: run dcgm-exporter for this board")
    return (what, "ok", "gpu_util only: a busy kernel counts as all; GPM needs Hopper or newer")


def _processes(settings: NvmlSettings, proc_root: Path) -> Finding:
    what, folder = "jobs of GPU processes", settings.mapping_directory
    if not ProcessJobs(proc_root).sees_the_host():
        hidden = "this is not the host's PID namespace"
        if folder and Path(folder).is_dir():
            return (what, "ok", f"{hidden}; the files of nvml.mapping_directory name the jobs")
        other = "" if folder else ", or set nvml.mapping_directory"
        return (what, "missing", f"{hidden}: {_HOST_PIDS}{other}")
    return (what, "ok", "process ids are the host's")


def _mapping(settings: NvmlSettings) -> list[Finding]:
    if not settings.mapping_directory:
        return []
    what = "nvml.mapping_directory"
    folder = Path(settings.mapping_directory)
    if not folder.is_dir():
        return [(what, "missing", f"{scrub(str(folder))} is no folder: let the prolog make it")]
    return [(what, "ok", f"{scrub(str(folder))} is there")]
