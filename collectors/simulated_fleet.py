"""The simulated fleet: demo, fixture and load generator in one, the same for the same seed.

H100, A100 and L40S nodes, MIG, training with phases, inference with day and week, jobs that hold
GPUs without using them, counter resets and gaps. L40S boards report GPU_UTIL only, as boards
without profiling metrics do.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd

from collectors.base import Window
from collectors.simulated_layout import (
    POWER_WATTS,
    Device,
    Tenant,
    lay_out_devices,
    settle_tenants,
)
from collectors.simulated_signals import (
    Times,
    Values,
    board_power,
    memory_ratio,
    missing,
    noisy,
    run_of,
    utilization,
)
from data.collected import Collected
from data.columns import SAMPLES, check_frame, empty_frame
from data.records.cluster import SourceReport, SourceState
from data.records.identifiers import digest_of
from data.records.jobs import Job

SOURCE = "simulated-fleet"
_GRID_SECONDS = 300
_DRIVER_LIFE_SECONDS = 3 * 86_400
_UTIL_ONLY_MODEL = "L40S-48GB"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFleet:
    """A fleet of `nodes` nodes with eight boards each."""

    seed: int
    nodes: int
    devices: tuple[Device, ...] = field(init=False, repr=False)
    tenants: tuple[Tenant, ...] = field(init=False, repr=False)
    tenant_of: dict[tuple[str, str], Tenant] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        devices = lay_out_devices(self.seed, self.nodes)
        tenants = settle_tenants(self.seed, devices)
        object.__setattr__(self, "devices", devices)
        object.__setattr__(self, "tenants", tenants)
        object.__setattr__(
            self,
            "tenant_of",
            {(one.gpu_uuid, one.mig_instance): t for t in tenants for one in t.devices},
        )

    def _stream(self, device: Device) -> int:
        instance = int(device.mig_instance or 0)
        return (self.seed * 1_000_003 + device.board * 16 + instance * 2) % 2**31

    def _utilization(self, device: Device, times: Times) -> Values:
        tenant = self.tenant_of.get((device.gpu_uuid, device.mig_instance))
        if tenant is None:
            return np.zeros(len(times))
        return noisy(utilization(tenant, times), self._stream(device), times)

    def _boards(self) -> dict[int, list[Device]]:
        boards: dict[int, list[Device]] = {}
        for device in self.devices:
            boards.setdefault(device.board, []).append(device)
        return boards

    def _power(self, board: list[Device], times: Times) -> Values:
        activity = sum(
            (one.fraction * self._utilization(one, times) for one in board),
            start=np.zeros(len(times)),
        )
        return board_power(activity, *POWER_WATTS[board[0].gpu_model])

    def _energy(self, board: list[Device], times: Times) -> Values:
        """Give the energy counter in J: power summed on a 5 min grid since the driver's load."""
        if not len(times):
            return np.zeros(0)
        offset = board[0].board // 8 * 7_919 % _DRIVER_LIFE_SECONDS
        loaded = (times + offset) // _DRIVER_LIFE_SECONDS * _DRIVER_LIFE_SECONDS - offset
        first = int(loaded.min()) // _GRID_SECONDS * _GRID_SECONDS
        grid = np.arange(first, int(times.max()) + _GRID_SECONDS, _GRID_SECONDS, dtype=np.int64)
        total = np.concatenate([[0.0], np.cumsum(self._power(board, grid)) * _GRID_SECONDS])

        def integral(at: Times) -> Values:
            position = (at - first) / _GRID_SECONDS
            return np.asarray(np.interp(position, np.arange(len(total)), total))

        return integral(times) - integral(loaded)

    def history(self, start: datetime, end: datetime, step_seconds: int) -> pd.DataFrame:
        """Give the samples (columns SAMPLES) at every multiple of the step in (start, end]."""
        first = (int(start.timestamp()) // step_seconds + 1) * step_seconds
        times = np.arange(first, int(end.timestamp()) + 1, step_seconds, dtype=np.int64)
        return self.at_times(times)

    def at_times(self, times: Times) -> pd.DataFrame:
        """Give the samples (columns SAMPLES) at these times, in s since the epoch."""
        parts = [
            part for board in self._boards().values() for part in self._board_parts(board, times)
        ]
        frame = pd.concat(parts, ignore_index=True) if parts else empty_frame(SAMPLES)
        return check_frame(frame, SAMPLES)

    def _board_parts(self, board: list[Device], times: Times) -> list[pd.DataFrame]:
        node = board[0].board // 8
        seen = times[~missing(self.seed * 31 + node * 2 + 500_000_003, times)]
        if not len(seen):
            return []
        power, energy = self._power(board, seen), self._energy(board, seen)
        stamps = pd.to_datetime(seen, unit="s", utc=True).astype("datetime64[us, UTC]")
        parts = []
        for device in board:
            tenant = self.tenant_of.get((device.gpu_uuid, device.mig_instance))
            used = np.full(len(seen), 0.004) if tenant is None else memory_ratio(tenant, seen)
            coarse = device.gpu_model == _UTIL_ONLY_MODEL
            activity = self._utilization(device, seen)
            parts.append(
                pd.DataFrame(
                    {
                        "sampled_at": stamps,
                        "gpu_uuid": device.gpu_uuid,
                        "mig_instance": device.mig_instance,
                        "mig_profile": device.mig_profile,
                        "node": device.node,
                        "gpu_index": str(device.index),
                        "gpu_model": device.gpu_model,
                        "job_id": "" if tenant is None else self._job_ids(tenant, seen),
                        "utilization_ratio": coarse_utilization(activity) if coarse else activity,
                        "utilization_signal": "gpu_util" if coarse else "sm_active",
                        "memory_used_mib": np.round(used * device.memory_total_mib),
                        "memory_total_mib": device.memory_total_mib,
                        "power_watts": power,
                        "power_limit_watts": POWER_WATTS[device.gpu_model][1],
                        "energy_joules": energy,
                    }
                )
            )
        return parts

    def _job_ids(self, tenant: Tenant, times: Times) -> list[str]:
        runs, codes = np.unique(run_of(tenant, times)[0], return_inverse=True)
        names = np.array(["" if run < 0 else tenant.job_id(int(run)) for run in runs], dtype=object)
        return list(names[codes])

    def jobs(self, start: datetime, end: datetime) -> tuple[Job, ...]:
        """Give every job that ran in (start, end]."""
        first, last = int(start.timestamp()), int(end.timestamp())
        found = []
        for tenant in self.tenants:
            for run, begins, ends in _runs(tenant, first, last):
                found.append(_job(tenant, run, max(first, begins), min(last, ends)))
        return tuple(found)


def coarse_utilization(activity: Values) -> Values:
    """Give what GPU_UTIL says for an SM activity: any kernel in the period counts, so it is high.

    Whole percents, as the exporter reports them.
    """
    return np.asarray(np.round(np.clip(activity * 1.6, 0, 1), 2))


def _runs(tenant: Tenant, first: int, last: int) -> list[tuple[int, int, int]]:
    if not tenant.period_seconds:
        return [(0, first, last)]
    numbers = range(
        (first + tenant.offset_seconds) // tenant.period_seconds,
        (last + tenant.offset_seconds) // tenant.period_seconds + 1,
    )
    begins = [number * tenant.period_seconds - tenant.offset_seconds for number in numbers]
    return [
        (number, begin, begin + tenant.run_seconds - 1)
        for number, begin in zip(numbers, begins, strict=True)
        if begin <= last and begin + tenant.run_seconds - 1 > first
    ]


def _job(tenant: Tenant, run: int, begins: int, ends: int) -> Job:
    device = tenant.devices[0]
    return Job(
        job_id=tenant.job_id(run),
        name=tenant.name,
        namespace=tenant.team,
        owner=tenant.team,
        platform=tenant.platform,
        kind=tenant.kind,
        gpu_model=device.gpu_model,
        gpu_count=len(tenant.devices),
        mig_profile=device.mig_profile,
        gpu_memory_mib=device.memory_total_mib,
        first_seen_at=datetime.fromtimestamp(begins, tz=UTC),
        last_seen_at=datetime.fromtimestamp(ends, tz=UTC),
        source=SOURCE,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFleetCollector:
    """The simulated fleet as a source."""

    fleet: SimulatedFleet
    step_seconds: int
    name: str = SOURCE

    def collect(self, window: Window) -> Collected:
        """Give the fleet's samples and jobs of the window."""
        samples = self.fleet.history(window.start, window.end, self.step_seconds)
        steps = (window.end - window.start) / timedelta(seconds=self.step_seconds)
        expected = steps * len(self.fleet.devices)
        return Collected(
            batch_id=digest_of(
                [SOURCE, self.fleet.seed, self.fleet.nodes, window.start, window.end]
            ),
            samples=samples,
            jobs=self.fleet.jobs(window.start, window.end),
            report=SourceReport(
                source=SOURCE,
                state=SourceState.RAN,
                reason="",
                samples=len(samples),
                dropped=(),
                completeness_ratio=min(1.0, len(samples) / expected) if expected else None,
                warnings=(),
                window_start=window.start,
                window_end=window.end,
            ),
        )
