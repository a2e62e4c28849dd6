"""Readings between two collections: a small thread reads NVML every few seconds.

With one reading a cycle the store sees one moment of many minutes; with these it sees power and
SM activity over all of the time, GPM giving the mean between two readings. Its session stays open,
so no XID error between two readings or collections is lost.

Abilities and gaps of NVML on this machine, for `trimtab doctor`.

GPU telemetry of this machine from its driver (NVML), where no exporter runs.

NVML knows only now: a collection is one reading, stamped with the end of the window when that is
now. Utilisation is SM activity on boards with GPM (Hopper and newer), else the driver's own rate.
XID errors are those since the session began (see `xid_events`): of one reading, its own moment's.
"""

import platform
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pynvml

from collectors.nvml.activity import GpmActivity
from collectors.nvml.calls import DeviceLostError, NvmlCalls
from collectors.nvml.devices import Board, find_boards
from collectors.nvml.job_mapping_files import MappingFiles, booted_at
from collectors.nvml.library import nvml_session
from collectors.nvml.process_jobs import POD_LABEL, ProcessJobs
from collectors.nvml.readings import NvmlReader, Reading
from collectors.nvml.xid_events import XidEvents
from collectors.readings.board_xids import merged_xids
from collectors.readings.contradictions import COUNTERS, believed_samples, without_counters
from collectors.readings.dcgm_readings import jobs_of
from collectors.readings.metric_names import LARGEST
from collectors.shared.collector import Finding, Source, Window
from data.base.clock import floor_to_slot, utc_now
from data.base.errors import CollectorError, SourceUnreachableError, scrub
from data.base.units import SLOT_SECONDS
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.collected import Collected
from data.facts.columns import ACTIVITY, CONTRADICTIONS, SAMPLES, check_frame, empty_frame
from data.facts.fleet import SourceReport, SourceState
from data.facts.identifiers import digest_of
from data.settings.all_settings import Settings
from data.settings.sources import NvmlSettings

NOW = timedelta(seconds=5)
"""A window that ended no longer ago ends now."""
_SHOWN_REASONS = 5
_NO_GPU = "no GPU on this machine"
_NO_BOARD = "no board answers"
_NO_PROCESSES = (
    "processes are not seen, so samples name no job: run as root and with the host's PID "
    "namespace (Kubernetes: hostPID: true), or set nvml.mapping_directory"
)


@dataclass(frozen=True, slots=True)
class NvmlCollector:
    """The GPUs of this machine. `node` is the name that schedulers call it by."""

    settings: NvmlSettings
    catalogue: GpuCatalogue
    node: str
    clock: Callable[[], datetime] = utc_now
    proc_root: Path = Path("/proc")
    gpm_gap_seconds: float = 0.2

    @property
    def name(self) -> str:
        """The source's name in reports."""
        return f"nvml {self.node}"

    def collect(self, window: Window) -> Collected:
        """Return one reading of every GPU, taken now. Errors: CollectorError.

        It knows of XID errors only what happens while it is taken: `NvmlSampler` sees all.
        """
        with self.reading() as read:
            return self.collected([read(lambda: self._stamp(window))], window)

    @contextmanager
    def reading(self) -> Any:
        """Hold NVML open and give the function that takes a reading. Errors: CollectorError."""
        activity, events = GpmActivity(), XidEvents()
        reader = NvmlReader(
            node=self.node,
            catalogue=self.catalogue,
            processes=ProcessJobs(self.proc_root),
            mapping=self._mapping,
            activity=activity,
            events=events,
            gpm_gap_seconds=self.gpm_gap_seconds,
        )
        with nvml_session(self.settings):
            try:
                yield reader.read
            finally:
                events.close()
                activity.close()

    def collected(
        self, readings: Sequence[Reading], window: Window, *, overflowed: int = 0
    ) -> Collected:
        """Return readings as one Collected. Errors: SourceUnreachableError when nothing is known.

        That no board answers is told as a warning where their XID errors are known: they say why.
        `overflowed` readings were lost because nobody collected them.
        """
        missing: Counter[str] = Counter()
        for entry in readings:
            missing.update(entry.missing)
        boards = sum(reading.boards for reading in readings)
        boards_read = sum(reading.boards_read for reading in readings)
        xids = merged_xids([dict(row) for reading in readings for row in reading.xids])
        if not boards_read and (boards or missing) and xids.empty:
            raise SourceUnreachableError(
                f"{self.name}: none of {boards} boards could be read: {_reasons(missing)}",
                "See whether `nvidia-smi` answers; `dmesg | grep -i xid` names a lost board.",
            )
        missing["sampler: not collected in time"] += overflowed
        rows = [row for reading in readings for row in _stamped(reading)]
        samples, contradictions = _samples(rows, self.catalogue)
        activity = without_counters(_activity(readings, window), contradictions)
        texts = [frame.to_csv(index=False) for frame in (samples, xids, activity, contradictions)]
        of_jobs = samples[~samples["job_id"].str.startswith(POD_LABEL)]
        return Collected(
            batch_id=digest_of([self.name, window.start, window.end, *texts]),
            samples=samples,
            jobs=jobs_of(of_jobs, self.name),
            xids=xids,
            activity=activity,
            contradictions=contradictions,
            report=SourceReport(
                source=self.name,
                state=SourceState.RAN,
                reason="" if len(samples) else _NO_BOARD if boards else _NO_GPU,
                samples=len(samples),
                dropped=tuple(sorted((+missing).items())),
                completeness_ratio=boards_read / boards if boards else None,
                warnings=_warnings(boards - boards_read, missing),
                window_start=window.start,
                window_end=window.end,
            ),
        )

    def _stamp(self, window: Window) -> datetime:
        now = self.clock()
        return window.end if timedelta(0) <= now - window.end <= NOW else now

    def _mapping(self) -> MappingFiles | None:
        if not self.settings.mapping_directory:
            return None
        return MappingFiles(Path(self.settings.mapping_directory), booted_at(self.proc_root))


def _stamped(reading: Reading) -> list[dict[str, object]]:
    at = reading.at.replace(microsecond=0)
    return [{"sampled_at": at, **row} for row in reading.rows]


def _samples(
    rows: list[dict[str, object]], catalogue: GpuCatalogue
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the samples without counters that others contradict, and these by slot."""
    if not rows:
        return empty_frame(SAMPLES), empty_frame(CONTRADICTIONS)
    frame = pd.DataFrame(rows)
    counters = pd.DataFrame(frame.pop("counters").tolist(), columns=list(COUNTERS), dtype=float)
    return believed_samples(
        check_frame(frame, SAMPLES),
        {name: counters[name].to_numpy() for name in COUNTERS if name != "power_watts"},
        catalogue,
    )


def _activity(readings: Sequence[Reading], window: Window) -> pd.DataFrame:
    """Return the mean of the readings of each device in each whole slot of the window."""
    width = timedelta(seconds=SLOT_SECONDS)
    rows = [
        {"slot_start": start, **row}
        for reading in readings
        if (start := floor_to_slot(reading.at, SLOT_SECONDS)) >= window.start
        and start + width <= window.end
        for row in reading.activity
    ]
    if not rows:
        return empty_frame(ACTIVITY)
    by_slot = pd.DataFrame(rows).groupby(["slot_start", "gpu_uuid", "mig_instance"])
    means = by_slot.mean()
    largest = [name for name in LARGEST if name in means]
    return check_frame(means.assign(**by_slot[largest].max()).reset_index(), ACTIVITY)


def _reasons(missing: Counter[str]) -> str:
    return ", ".join(f"{reason} ({count})" for reason, count in missing.most_common(_SHOWN_REASONS))


def _warnings(boards_lost: int, missing: Counter[str]) -> tuple[str, ...]:
    lost = [f"{boards_lost} readings of boards failed: {_reasons(missing)}"] if boards_lost else []
    hidden = any(
        reason.startswith("process: ")
        or reason == "nvmlDeviceGetComputeRunningProcesses_v3: NoPermission"
        for reason in missing
    )
    return tuple([*lost, _NO_PROCESSES] if hidden else lost)


_LOST_BOARD_FIX = "see `dmesg | grep -i xid`; reset the board or reboot the node"
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
            (
                "GPUs",
                "missing",
                f"{len(boards)} of {count} can be named ({reasons}); {_LOST_BOARD_FIX}",
            )
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
        return [(what, "missing", f"{lost.reason}: {_LOST_BOARD_FIX}")]
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
        return [(what, "missing", f"{scrub(str(folder))} is not a folder: let the prolog make it")]
    return [(what, "ok", f"{scrub(str(folder))} is there")]


_CLOSING_SECONDS = 10.0
_INTERVAL_SECONDS = 10.0
"""Six readings a minute: those of a slot are thirty."""


class NvmlSampler:
    """A collector that gives all readings of the window since it was started.

    Readings stay until a window starts after them, so a collection that was not kept can be asked
    for again. At most `capacity` are held; the oldest go first and are counted. Where it was not
    started, a collection is one reading.
    """

    def __init__(
        self,
        collector: NvmlCollector,
        *,
        interval_seconds: float = _INTERVAL_SECONDS,
        capacity: int = 8640,
    ) -> None:
        if not 0 < interval_seconds <= 3600 or capacity < 1:
            raise ValueError(
                f"interval_seconds must be in (0, 3600], got {interval_seconds}; "
                f"capacity at least 1, got {capacity}"
            )
        self._collector = collector
        self._interval = interval_seconds
        self._readings: deque[Reading] = deque(maxlen=capacity)
        self._overflowed = 0
        self._failure: CollectorError | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def name(self) -> str:
        """The source's name in reports: that of the collector it stands in for."""
        return self._collector.name

    def start(self) -> None:
        """Start reading. Twice is once."""
        if self._thread is None:
            self._stopping.clear()
            # daemon: a call into a driver that hangs must not keep the process from ending
            self._thread = threading.Thread(target=self._run, name="nvml-sampler", daemon=True)
            self._thread.start()

    def stop(self) -> bool:
        """Stop reading; False when the driver held the thread for longer than 10 s."""
        thread, self._thread = self._thread, None
        if thread is None:
            return True
        self._stopping.set()
        thread.join(_CLOSING_SECONDS)
        return not thread.is_alive()

    def __enter__(self) -> "NvmlSampler":
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def collect(self, window: Window) -> Collected:
        """Return the readings in (start, end], or one taken now where there is none.

        Errors: CollectorError, also why the thread cannot read.
        """
        with self._lock:
            while self._readings and self._readings[0].at <= window.start:
                self._readings.popleft()
            readings = [reading for reading in self._readings if reading.at <= window.end]
            overflowed, self._overflowed = self._overflowed, 0
            failure = self._failure
        if readings:
            return self._collector.collected(readings, window, overflowed=overflowed)
        if failure is not None:
            raise failure
        return self._collector.collect(window)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._read_until_it_fails()
            except CollectorError as error:
                with self._lock:
                    self._failure = error
            self._stopping.wait(self._interval)

    def _read_until_it_fails(self) -> None:
        """Read on in one NVML session; return when no board answers, for a new session."""
        with self._collector.reading() as read:
            while not self._stopping.is_set():
                reading = read(self._collector.clock)
                self._keep(reading)
                if not reading.boards_read:
                    return
                self._stopping.wait(self._interval)

    def _keep(self, reading: Reading) -> None:
        with self._lock:
            if len(self._readings) == self._readings.maxlen:
                self._overflowed += 1
            self._readings.append(reading)
            self._failure = None


def _build(settings: Settings, catalogue: GpuCatalogue) -> NvmlSampler:
    nvml = settings.nvml
    host = nvml.node or platform.node()
    collector = NvmlCollector(nvml, catalogue, host, proc_root=Path(nvml.proc_root))
    return NvmlSampler(collector)


SOURCE = Source(build=_build, findings=lambda settings, _now: nvml_findings(settings.nvml))
