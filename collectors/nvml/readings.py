"""One reading of every GPU of this machine: rows as SAMPLES wants them, and what was missing."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pynvml

from collectors.nvml.activity import GpmActivity
from collectors.nvml.calls import DeviceLostError, NvmlCalls
from collectors.nvml.devices import Board, Instance, find_boards
from collectors.nvml.job_mapping_files import MappingFiles
from collectors.nvml.process_jobs import ProcessJobs
from collectors.nvml.xid_events import XidEvents
from collectors.readings.board_activity import PLAIN, THERMAL_OR_BRAKE_REASONS
from collectors.readings.metric_names import UTILIZATION_PREFERENCE
from data.base.errors import scrub
from data.base.units import bytes_to_mib
from data.catalogue.gpu_catalogue import GpuCatalogue

Row = Mapping[str, object]

_BLANK_INT32 = 2_147_483_632.0
"""From here up an int32 reading is a sentinel (0x7ffffff0 and above)."""
_BLANK_INT64 = 9.2e18
_BLANK_BYTES = float(2**60)
_MAX_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The rows of one moment, boards seen and read, and what was missing, by reason.

    `xids` are the codes that boards showed since the session began, with their first and last time;
    `activity` has a row a device, with columns of ACTIVITY but the slot.
    `at` is exact, so that a reading falls in one window; its rows are stamped in whole seconds.
    """

    at: datetime
    rows: tuple[Row, ...]
    boards: int
    boards_read: int
    missing: Counter[str]
    xids: tuple[Row, ...] = ()
    activity: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlReader:
    """Reads inside an open NVML session.

    `gpm_gap_seconds` is how far apart the two samples of a first GPM reading are.
    """

    node: str
    catalogue: GpuCatalogue
    processes: ProcessJobs
    mapping: Callable[[], MappingFiles | None]
    activity: GpmActivity = field(default_factory=GpmActivity)
    events: XidEvents = field(default_factory=XidEvents)
    gpm_gap_seconds: float = 0.2

    def read(self, clock: Callable[[], datetime]) -> Reading:
        """Read every board once; a board that is lost on the way gives no row, others stay."""
        calls = NvmlCalls()
        count, boards = find_boards(calls)
        self.events.watch(calls, boards)
        self._begin(calls, boards)
        at = clock()
        mapping = self.mapping()
        sees_the_host = self.processes.sees_the_host()
        rows: list[Row] = []
        activity: list[Row] = []
        boards_read = 0
        for board in boards:
            reading = _BoardReading(self, calls, board, mapping, sees_the_host)
            try:
                samples, active = reading.rows()
            except DeviceLostError as lost:
                calls.missing[lost.reason] += 1
                self.activity.forget(board.uuid)
                continue
            rows += samples
            activity += active
            boards_read += 1
        calls.missing.update(mapping.reasons if mapping else ())
        xids = self.events.rows(calls, boards, node=self.node, at=at.timestamp())
        return Reading(
            at=at,
            rows=tuple(rows),
            boards=count,
            boards_read=boards_read,
            missing=calls.missing,
            xids=xids,
            activity=tuple(activity),
        )

    def _begin(self, calls: NvmlCalls, boards: tuple[Board, ...]) -> None:
        """Take the first GPM samples, and wait once for all of them."""
        begun = False
        for board in boards:
            for instance in [entry.instance for entry in board.instances] or [""]:
                if board.in_mig_mode and not instance:
                    continue
                try:
                    begun |= self.activity.begin(calls, board.handle, board.uuid, instance)
                except DeviceLostError:
                    # counted once, when the board itself is read
                    break
        if begun:
            time.sleep(self.gpm_gap_seconds)


@dataclass(frozen=True, slots=True)
class _BoardReading:
    reader: NvmlReader
    calls: NvmlCalls
    board: Board
    mapping: MappingFiles | None
    sees_the_host: bool

    def rows(self) -> tuple[list[Row], list[Row]]:
        """Return a row per GPU instance (or the board) and holder, and the activity of each."""
        shared = self._board_level()
        of_board = self._activity_of_board(shared)
        rows: list[Row] = []
        activity: list[Row] = []
        for instance in self.board.instances or (None,):
            means = self.reader.activity.means(
                self.calls,
                self.board.handle,
                self.board.uuid,
                instance.instance if instance else "",
            )
            device = self._device_level(instance, means)
            holders = self._holders(instance) or ("",)
            rows += [{**shared, **device, "job_id": holder} for holder in holders]
            activity.append({**of_board, **_activity_of_device(device, means)})
        return rows, activity

    def _activity_of_board(self, board: Row) -> dict[str, object]:
        """Return the activity of the board as a whole: power of its limit, and slowed clocks."""
        power, limit = (float(str(board[name])) for name in ("power_watts", "power_limit_watts"))
        reasons, why_not = self.calls.attempt(
            pynvml.nvmlDeviceGetCurrentClocksEventReasons, self.board.handle
        )
        if why_not.endswith(": FunctionNotFound"):
            # drivers before 535 call it so
            reasons, _ = self.calls.attempt(
                pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, self.board.handle
            )
        return {
            "gpu_uuid": board["gpu_uuid"],
            "throttled_ratio": math.nan
            if reasons is None
            else float(reasons & THERMAL_OR_BRAKE_REASONS != 0),
            # NaN stays: it is not below 1
            "power_ratio": min(power / limit, 1.0),
            **self._health(),
        }

    def _health(self) -> dict[str, float]:
        """Return temperatures, clock and memory errors; what a board has no sensor for is NaN."""
        board = self.board.handle
        ecc = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        queries = {
            "temperature_celsius": (
                pynvml.nvmlDeviceGetTemperature, (pynvml.NVML_TEMPERATURE_GPU,)
            ),
            "clock_mhz": (pynvml.nvmlDeviceGetClockInfo, (pynvml.NVML_CLOCK_SM,)),
            "uncorrected_errors": (pynvml.nvmlDeviceGetTotalEccErrors, ecc),
        }  # fmt: skip
        values = {
            name: self.calls.attempt(call, board, *arguments)[0]
            for name, (call, arguments) in queries.items()
        }
        values["memory_temperature_celsius"] = self._field(pynvml.NVML_FI_DEV_MEMORY_TEMP)
        rows = self.calls.attempt(pynvml.nvmlDeviceGetRemappedRows, board)[0]
        if rows is not None:
            _, values["remapped_rows"], _, values["remap_failed"] = rows
        return {name: math.nan if value is None else float(value) for name, value in values.items()}

    def _board_level(self) -> dict[str, object]:
        calls, handle = self.calls, self.board.handle
        limit = calls.read(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        energy = calls.read(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        return {
            "gpu_uuid": scrub(self.board.uuid, limit=_MAX_NAME),
            "node": self.reader.node,
            "gpu_index": self.board.index,
            "gpu_model": self.reader.catalogue.recognise(scrub(self.board.name, limit=_MAX_NAME)),
            "power_watts": calls.number(
                "power", self._power(), blank=_BLANK_INT32, scale=1000, zero_is_unknown=True
            ),
            # no board runs on a limit of zero: that is the word for none
            "power_limit_watts": calls.number(
                "power limit", limit or None, blank=_BLANK_INT32, scale=1000
            ),
            "energy_joules": calls.number("energy", energy, blank=_BLANK_INT64, scale=1000),
        }

    def _power(self) -> float | None:
        """Return the power in mW: the driver's mean over 1 s where it has one."""
        mean = self._field(pynvml.NVML_FI_DEV_POWER_AVERAGE)
        if mean is not None:
            return mean
        return self.calls.read(pynvml.nvmlDeviceGetPowerUsage, self.board.handle)

    def _field(self, number: int) -> float | None:
        """Return the value of a field of the board, None when it is not told."""
        call, board = pynvml.nvmlDeviceGetFieldValues, self.board.handle
        fields, _ = self.calls.attempt(call, board, [number])
        if fields is None or fields[0].nvmlReturn != pynvml.NVML_SUCCESS:
            return None
        value = fields[0]
        # By the declared type of the field, NVML's nvmlValueType_t.
        name = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal")
        if value.valueType >= len(name):
            return None
        return float(getattr(value.value, name[value.valueType]))

    def _device_level(
        self, instance: Instance | None, means: Mapping[str, float]
    ) -> dict[str, object]:
        used, total = self._memory(instance.handles[0] if instance else self.board.handle)
        counters = self._counters(means)
        signal = next((name for name in UTILIZATION_PREFERENCE if name in counters), "")
        return {
            "mig_instance": instance.instance if instance else "",
            "mig_profile": instance.profile if instance else "",
            "memory_used_mib": used,
            "memory_total_mib": total,
            "utilization_ratio": counters.get(signal, math.nan),
            "utilization_signal": signal,
            "counters": counters,
        }

    def _memory(self, handle: Any) -> tuple[float, float]:
        """Return (used, total) in MiB; before driver 510 used includes what the driver reserves."""
        calls = self.calls
        memory = calls.read(
            pynvml.nvmlDeviceGetMemoryInfo,
            handle,
            pynvml.nvmlMemory_v2,
            name="nvmlDeviceGetMemoryInfo_v2",
        ) or calls.read(pynvml.nvmlDeviceGetMemoryInfo, handle)
        if memory is None:
            return math.nan, math.nan
        total = calls.number("memory total", memory.total or None, blank=_BLANK_BYTES)
        used = calls.number("memory used", memory.used, blank=_BLANK_BYTES)
        if used > total:
            calls.missing["memory used: more than there is"] += 1
            used = math.nan
        return bytes_to_mib(used), bytes_to_mib(total)

    def _counters(self, means: Mapping[str, float]) -> dict[str, float]:
        """Return the device's activity counters, by the names of `metric_names`."""
        calls, board = self.calls, self.board
        counters = {
            "gr_engine_active" if name == "engine_active" else name: means[name]
            for name in ("sm_active", "engine_active", "tensor_active", "dram_active")
            if name in means
        }
        if board.in_mig_mode:
            # the driver's rates are of the whole board, and not given in MIG mode
            if "sm_active" not in counters:
                calls.missing["utilization: none on MIG"] += 1
            return counters
        if "sm_active" in counters:
            rates, _ = calls.attempt(pynvml.nvmlDeviceGetUtilizationRates, board.handle)
            percent = math.nan if rates is None or rates.gpu > 100 else float(rates.gpu)
        else:
            rates = calls.read(pynvml.nvmlDeviceGetUtilizationRates, board.handle)
            percent = calls.number("utilization", rates.gpu if rates else None, blank=101, scale=1)
        return counters | ({"gpu_util": percent / 100} if math.isfinite(percent) else {})

    def _holders(self, instance: Instance | None) -> tuple[str, ...]:
        """Return the holders of the device: the jobs of its processes, else of the prolog's files.

        Files are believed as a whole when no process contradicts them: a job may hold a device
        without running anything on it.
        """
        running = self._running(instance)
        if self.mapping is None:
            return tuple(sorted(running))
        index = self.board.index
        # by UUID first: ordinals are only the driver's when CUDA_DEVICE_ORDER=PCI_BUS_ID
        names = (
            (*instance.uuids, f"{index}.{instance.instance}")
            if instance
            else (self.board.uuid, index)
        )
        mapped = set(self.mapping.holders(tuple(name for name in names if _is_plain(name))))
        if running and mapped.isdisjoint(running):
            if mapped:
                self.calls.missing["mapping file: contradicted by running processes"] += 1
            return tuple(sorted(running))
        return tuple(sorted(running | mapped))

    def _running(self, instance: Instance | None) -> set[str]:
        holders: set[str] = set()
        for handle in instance.handles if instance else (self.board.handle,):
            for process in self._processes(handle):
                if not self.sees_the_host:
                    self.calls.missing["process: not in the host's PID namespace"] += 1
                    continue
                holder, reason = self.reader.processes.holder(process.pid)
                if reason:
                    self.calls.missing[reason] += 1
                if holder:
                    holders.add(holder)
        return holders

    def _processes(self, handle: Any) -> list[Any]:
        return self.calls.read(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle) or []


def _activity_of_device(device: Row, means: Mapping[str, float]) -> dict[str, object]:
    """Return the activity that only the device has: GPM's, else the driver's own utilization."""
    busy = device["utilization_ratio"] if device["utilization_signal"] == "gpu_util" else math.nan

    def both(link: str) -> float:
        sent, received = (means.get(f"{link}_{way}", math.nan) for way in ("sent", "received"))
        return sent + received

    return {
        "mig_instance": device["mig_instance"],
        "engine_active": means.get("engine_active", busy),
        **{name: means.get(name, math.nan) for name in PLAIN},
        "pcie_bytes_per_second": both("pcie"),
        "nvlink_bytes_per_second": both("nvlink"),
    }


def _is_plain(name: str) -> bool:
    """Return whether a name stays in its folder: it comes from the driver."""
    return bool(name) and "/" not in name and "\0" not in name and not name.startswith(".")
