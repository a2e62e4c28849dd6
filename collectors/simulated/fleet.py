"""The simulated fleet: demo, fixture and load generator in one, the same for the same seed.

H100, A100 and L40S nodes, MIG, training with phases, inference with day and week, jobs that hold
GPUs without using them, counter resets and gaps. L40S boards report GPU_UTIL only, as boards
without profiling metrics do.

Every training job keeps its boards busy, unless a test gives it another shape of its SM activity
and of all that is told beside it. Shapes, spread by job and reading, are assumed, not measured.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pandas as pd

from collectors.readings.board_xids import shown_xids
from collectors.shared.collector import Window
from collectors.simulated.holdings import (
    BUSIEST,
    Epoch,
    Holding,
    Settlement,
    SubmittedJob,
    capped_power,
)
from collectors.simulated.layout import (
    POWER_WATTS,
    SimulatedDevice,
    Tenant,
    lay_out_devices,
    settle_tenants,
)
from collectors.simulated.serving import SimulatedService, serving_history, simulated_services
from collectors.simulated.signals import (
    Times,
    Values,
    board_power,
    coarse_utilization,
    hashed_uniform,
    memory_ratio,
    missing,
    run_of,
    utilization,
    with_noise,
)
from collectors.simulated.simulated_xids import SimulatedXids, driver_loaded
from collectors.simulated.small_services import SmallServices
from data.base.units import SLOT_SECONDS
from data.facts.collected import Collected
from data.facts.columns import ACTIVITY, SAMPLES, check_frame, empty_frame
from data.facts.fleet import SourceReport, SourceState
from data.facts.identifiers import digest_of
from data.facts.jobs import Job, WorkloadKind

_SPREAD = 0.25
"""Half the width of how much one job differs from another of the same cause."""
_HOT_SHARE, _BADLY_COOLED = 0.05, 8_000_009
_IDLE_CELSIUS, _WARM_CELSIUS, _HOT_CELSIUS, _MEMORY_CELSIUS = 26.0, 42.0, 68.0, 8.0
"""Of an idle board, what full power adds where air is cold and where it is not, and of memory."""
_CLOCK_MHZ, _CAPPED_MHZ = 1980.0, 400.0
_FULL_WORK_RATIO = 0.6
"""Share of its usual SM activity from which on a job works as it always does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The effect of a cause on a job that would keep its SMs busy.

    `level` scales its SM activity, and `others` that of all its boards but the first. While it
    works a kernel runs for `engine` of the time; `tensor`, `dram` and `fp32` are shares of SM
    activity.
    `nvlink` and `pcie` are the largest traffic in GB/s; `throttled` is the share of readings.
    """

    level: float = 1.0
    others: float = 1.0
    engine: float = 0.97
    tensor: float = 0.45
    dram: float = 0.55
    fp32: float = 0.05
    nvlink: float = 60.0
    pcie: float = 1.2
    throttled: float = 0.0


BUSY, SERVING = Shape(), Shape(tensor=0.3, nvlink=5.0)


def usual_shape(tenant: Tenant) -> Shape:
    """Return the shape of a job that keeps its boards busy where it trains."""
    return BUSY if tenant.kind is WorkloadKind.TRAINING else SERVING


def slowed(tenant: Tenant, device: SimulatedDevice, shape: Shape) -> float:
    """Return by what the shape multiplies the SM activity of one of the tenant's devices."""
    level = shape.level if shape.level == 1.0 else _spread(tenant, 1, shape.level)
    first = device.key == tenant.devices[0].key
    return level if first or shape.others == 1.0 else level * _spread(tenant, 2, shape.others)


def readings(
    tenant: Tenant, device: SimulatedDevice, activity: Values, times: Times, shape: Shape
) -> pd.DataFrame:
    """Return the readings of a tenant's device beside its SM activity, a row a time."""
    usual = slowed(tenant, device, shape) * tenant.level
    works = np.clip(activity / max(_FULL_WORK_RATIO * usual, 0.05), 0.0, 1.0)

    def noise(stream: int, times: Times = times) -> Values:
        return np.asarray(0.94 + 0.12 * hashed_uniform(tenant.number * 64 + stream, times))

    engine = np.clip(_spread(tenant, 3, shape.engine) * works * noise(1), activity, 1.0)
    parts = {
        "engine_active": np.minimum(engine, 1.0),
        "sm_active": activity,
        "tensor_active": activity * _spread(tenant, 4, shape.tensor) * noise(2),
        "dram_active": activity * _spread(tenant, 5, shape.dram) * noise(3),
        "fp32_active": activity * _spread(tenant, 8, shape.fp32) * noise(7),
        "pcie_bytes_per_second": works * _spread(tenant, 6, shape.pcie) * noise(4) * 1e9,
        "nvlink_bytes_per_second": works * _spread(tenant, 7, shape.nvlink) * noise(5) * 1e9,
        "throttled_ratio": 1.0 * (hashed_uniform(tenant.number * 64 + 6, times) < shape.throttled),
    }
    return pd.DataFrame(parts)


def health_of(samples: pd.DataFrame, boards: npt.NDArray[np.int64]) -> pd.DataFrame:
    """Return the health of boards in a machine room, a row a sample; assumed as well.

    Warm by the power that they draw, and one board in twenty badly cooled; no memory error.
    """
    load = (samples["power_watts"] / samples["power_limit_watts"]).to_numpy()
    hot = hashed_uniform(_BADLY_COOLED, boards) < _HOT_SHARE
    temperature = _IDLE_CELSIUS + load * np.where(hot, _HOT_CELSIUS, _WARM_CELSIUS)
    return pd.DataFrame(
        {
            "temperature_celsius": temperature,
            "memory_temperature_celsius": temperature + _MEMORY_CELSIUS,
            "clock_mhz": np.where(load > 0, _CLOCK_MHZ - _CAPPED_MHZ * np.square(load), np.nan),
            "uncorrected_errors": 0.0,
            "remapped_rows": 0.0,
            "remap_failed": 0.0,
        }
    )


def by_slot(table: pd.DataFrame, start: int, end: int) -> pd.DataFrame:
    """Return the activity (columns ACTIVITY) of the slots that lie whole in [start, end], s."""
    slots = table["time"] // SLOT_SECONDS * SLOT_SECONDS
    complete = (slots >= start) & (slots + SLOT_SECONDS <= end)
    rows = table[complete].assign(slot_start=slots[complete]).drop(columns="time")
    if rows.empty:
        return empty_frame(ACTIVITY)
    means = rows.groupby(["slot_start", "gpu_uuid", "mig_instance"], as_index=False).mean()
    starts = pd.to_datetime(means["slot_start"], unit="s", utc=True).dt.as_unit("us")
    return check_frame(means.assign(slot_start=starts), ACTIVITY)


def uniform(tenant: Tenant, number: int) -> float:
    """Return a number 0..1 that belongs to the tenant."""
    return float(hashed_uniform(tenant.number * 16 + number, np.array([0]))[0])


def _spread(tenant: Tenant, number: int, value: float) -> float:
    """Return a value of the tenant's own around that of its cause."""
    return value * (1 + _SPREAD * (2 * uniform(tenant, number) - 1))


_NAME = "simulated-fleet"
_GRID_SECONDS = 300
_UTIL_ONLY_MODEL = "L40S-48GB"
_EMPTY_MEMORY = 0.004


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFleet:
    """A fleet of `nodes` nodes with eight boards each; `changes` were made to it since.

    `orders` are the jobs that were submitted to it, `small` the services on nodes of their own,
    whose readings are not the fleet's: the source has them beside it.
    `shape_of` is the shape of each job. Every reading is a function of these and its time alone, so
    that any window gives the same.
    """

    seed: int
    nodes: int
    changes: tuple[Holding, ...] = ()
    shape_of: Callable[[Tenant], Shape] = usual_shape
    orders: tuple[SubmittedJob, ...] = ()
    small: SmallServices | None = None
    devices: tuple[SimulatedDevice, ...] = field(init=False, repr=False)
    tenants: tuple[Tenant, ...] = field(init=False, repr=False)
    services: tuple[SimulatedService, ...] = field(init=False, repr=False)
    settlement: Settlement = field(init=False, repr=False)

    def __post_init__(self) -> None:
        devices = lay_out_devices(self.seed, self.nodes)
        tenants = settle_tenants(self.seed, devices)
        board_of = {device.key: device for device in devices}
        submitted = [
            order.tenant(number, [board_of[key] for key in order.places])
            for number, order in enumerate(self.orders, start=len(tenants))
        ]
        starts = [
            Holding(tenant=tenant.number, since=order.since, until=order.until, places=order.places)
            for tenant, order in zip(submitted, self.orders, strict=True)
        ]
        tenants = (*tenants, *submitted)
        object.__setattr__(self, "devices", devices)
        object.__setattr__(self, "tenants", tenants)
        object.__setattr__(self, "services", simulated_services(tenants))
        settlement = Settlement(devices, tenants, (*starts, *self.changes))
        object.__setattr__(self, "settlement", settlement)

    def _stream(self, device: SimulatedDevice) -> int:
        instance = int(device.mig_instance or 0)
        return (self.seed * 1_000_003 + device.board * 16 + instance * 2) % 2**31

    def _work_times(self, tenant: Tenant, times: Times) -> Times:
        work_time = self.settlement.own_time(tenant)
        return times if work_time is None else work_time.at(times)

    def _utilization(self, epoch: Epoch, device: SimulatedDevice, times: Times) -> Values:
        if device.key not in epoch.holder:
            return np.zeros(len(times))
        tenant, _holding, effect = epoch.holder[device.key]
        load = utilization(tenant, self._work_times(tenant, times))
        load = load * slowed(tenant, device, self.shape_of(tenant))
        if effect.load != 1:
            load = np.minimum(load * effect.load, BUSIEST)
        return with_noise(load, self._stream(device), times)

    def _power(self, board: int, times: Times) -> Values:
        watts = np.zeros(len(times))
        for epoch, inside in self.settlement.parts(times):
            watts[inside] = self._power_within(epoch, board, times[inside])
        return watts

    def _power_within(self, epoch: Epoch, board: int, times: Times) -> Values:
        devices = epoch.boards[board]
        activity = np.zeros(len(times))
        for device in devices:
            busy = self._utilization(epoch, device, times) * device.fraction
            slowness = epoch.holder[device.key][2].slowness if device.key in epoch.holder else 1.0
            activity += busy / slowness
        watts = board_power(activity, *POWER_WATTS[devices[0].gpu_model])
        return capped_power(watts, devices[0], _cap(epoch, devices))

    def _energy(self, board: int, times: Times) -> Values:
        """Return the energy counter in J: power summed on a 5 min grid since the driver's load."""
        if not len(times):
            return np.zeros(0)
        loaded = driver_loaded(np.full_like(times, board), times)
        first = int(loaded.min()) // _GRID_SECONDS * _GRID_SECONDS
        grid = np.arange(first, int(times.max()) + _GRID_SECONDS, _GRID_SECONDS, dtype=np.int64)
        total = np.concatenate([[0.0], np.cumsum(self._power(board, grid)) * _GRID_SECONDS])

        def integral(at: Times) -> Values:
            position = (at - first) / _GRID_SECONDS
            return np.asarray(np.interp(position, np.arange(len(total)), total))

        return integral(times) - integral(loaded)

    def history(self, start: datetime, end: datetime, step_seconds: int) -> pd.DataFrame:
        """Return the samples (columns SAMPLES) at every multiple of the step in (start, end]."""
        first = (int(start.timestamp()) // step_seconds + 1) * step_seconds
        times = np.arange(first, int(end.timestamp()) + 1, step_seconds, dtype=np.int64)
        return self.at_times(times)

    def at_times(self, times: Times) -> pd.DataFrame:
        """Return the samples (columns SAMPLES) at these times, in s since the epoch."""
        parts = [
            part
            for epoch, inside in self.settlement.parts(times)
            for board in epoch.boards
            for part in self._board_parts(epoch, board, times[inside])
        ]
        frame = pd.concat(parts, ignore_index=True) if parts else empty_frame(SAMPLES)
        return check_frame(frame, SAMPLES)

    def _board_parts(self, epoch: Epoch, board: int, times: Times) -> list[pd.DataFrame]:
        node = board // 8
        read_at = times[~missing(self.seed * 31 + node * 2 + 500_000_003, times)]
        if not len(read_at):
            return []
        power, energy = self._power(board, read_at), self._energy(board, read_at)
        stamps = pd.to_datetime(read_at, unit="s", utc=True).astype("datetime64[us, UTC]")
        devices = epoch.boards[board]
        limit = POWER_WATTS[devices[0].gpu_model][1]
        limit = min(limit, _cap(epoch, devices) or limit)
        parts = []
        for device in devices:
            coarse = device.gpu_model == _UTIL_ONLY_MODEL
            activity = self._utilization(epoch, device, read_at)
            used, job_ids = self._use(epoch, device, read_at)
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
                        "job_id": job_ids,
                        "utilization_ratio": coarse_utilization(activity) if coarse else activity,
                        "utilization_signal": "gpu_util" if coarse else "sm_active",
                        "memory_used_mib": np.round(used * device.memory_total_mib),
                        "memory_total_mib": device.memory_total_mib,
                        "power_watts": power,
                        "power_limit_watts": limit,
                        "energy_joules": energy,
                    }
                )
            )
        return parts

    def _use(
        self, epoch: Epoch, device: SimulatedDevice, times: Times
    ) -> tuple[Values, str | list[str]]:
        """Return the used share of the device's memory, and the job that uses it, at each time."""
        if device.key not in epoch.holder:
            return np.full(len(times), _EMPTY_MEMORY), ""
        tenant = epoch.holder[device.key][0]
        work_times = self._work_times(tenant, times)
        used = memory_ratio(tenant, work_times)
        usual = tenant.devices[0].memory_total_mib
        if device.memory_total_mib != usual:
            used = np.minimum(used * (usual / device.memory_total_mib), BUSIEST)
        runs, codes = np.unique(run_of(tenant, work_times)[0], return_inverse=True)
        names = np.array(["" if run < 0 else tenant.job_id(int(run)) for run in runs], dtype=object)
        return used, list(names[codes])

    def activity(self, samples: pd.DataFrame) -> pd.DataFrame:
        """Return the activity of the devices of samples, a row a sample, NaN if not told.

        The columns of ACTIVITY with numbers. Boards without profiling metrics tell GPU_UTIL alone.
        """
        samples = samples.reset_index(drop=True)
        times = _seconds(samples)
        names = samples["gpu_uuid"] + "/" + samples["mig_instance"]
        profiled = samples["utilization_signal"].to_numpy() == "sm_active"
        table = pd.DataFrame(np.nan, index=samples.index, columns=list(ACTIVITY.names[3:]))
        table["engine_active"] = samples["utilization_ratio"].where(~profiled)
        table["power_ratio"] = samples["power_watts"] / samples["power_limit_watts"]
        health = health_of(samples, self._boards_of(samples))
        table[health.columns] = health
        activity = samples["utilization_ratio"].to_numpy()
        for name, places in names.groupby(names).indices.items():
            key = str(name).removesuffix("/")
            for epoch, inside in self.settlement.parts(times[places]):
                holder = epoch.holder.get(key)
                rows = places[inside & profiled[places]]
                if holder is not None and len(rows):
                    part = readings(
                        holder[0],
                        self.settlement.device(key),
                        activity[rows],
                        times[rows],
                        self.shape_of(holder[0]),
                    )
                    columns = table.columns.get_indexer(part.columns)
                    table.iloc[rows, columns] = part.to_numpy()
        return table

    def _boards_of(self, samples: pd.DataFrame) -> Times:
        """Return the number of the board of each sample."""
        board_of = {device.gpu_uuid: device.board for device in self.devices}
        return np.asarray(samples["gpu_uuid"].map(board_of), dtype=np.int64)

    def last_xids(self, samples: pd.DataFrame) -> Times:
        """Return the code of the last XID error that each sample's board shows, 0 for none."""
        boards, times = self._boards_of(samples), _seconds(samples)
        count = self.devices[-1].board + 1
        return SimulatedXids(seed=self.seed, boards=count, works=self._works).last_codes(
            boards, times
        )

    def _works(self, board: int, at: int) -> bool:
        """Return whether a job does something on the board."""
        times = np.array([at], dtype=np.int64)
        return any(
            self._utilization(epoch, device, times)[0] > 0
            for epoch, _inside in self.settlement.parts(times)
            for device in epoch.boards[board]
        )

    def jobs(self, start: datetime, end: datetime) -> tuple[Job, ...]:
        """Return every job that ran in (start, end]."""
        first, last = int(start.timestamp()), int(end.timestamp())
        jobs = []
        for tenant in self.tenants:
            for run, begins, ends in self.runs(tenant, first, last):
                last_seen = min(last, ends)
                holding = self.settlement.holding_at(tenant, last_seen)
                if not holding.places:
                    last_seen = holding.since - 1
                    holding = self.settlement.holding_at(tenant, last_seen)
                if last_seen > first and holding.places:
                    device = self.settlement.device(holding.places[0])
                    count = len(holding.places)
                    jobs.append(_job(tenant, run, device, count, max(first, begins), last_seen))
        return tuple(jobs)

    def runs(self, tenant: Tenant, first: int, last: int) -> list[tuple[int, int, int]]:
        """Return (number, first second, last second) of the runs that overlap (first, last]."""
        if not tenant.period_seconds:
            return [(0, first, last)]
        clock = self.settlement.own_time(tenant)
        bounds = np.array([first, last], dtype=np.int64)
        low, high = (int(bound) for bound in (bounds if clock is None else clock.at(bounds)))
        numbers = range(
            (low + tenant.offset_seconds) // tenant.period_seconds,
            (high + tenant.offset_seconds) // tenant.period_seconds + 1,
        )
        runs = []
        for number in numbers:
            begin = number * tenant.period_seconds - tenant.offset_seconds
            end = begin + tenant.run_seconds - 1
            if clock is not None:
                begin, end = clock.when(begin), clock.when(end + 1) - 1
            if begin <= last and end > first:
                runs.append((number, begin, end))
        return runs


def _seconds(samples: pd.DataFrame) -> Times:
    """Return the times of samples in s since the epoch."""
    return np.asarray(samples["sampled_at"].dt.as_unit("s").astype("int64"), dtype=np.int64)


def _cap(epoch: Epoch, devices: list[SimulatedDevice]) -> float | None:
    """Return the lowest power cap of a board's holders, None when there is none."""
    caps = [
        epoch.holder[device.key][1].cap_watts for device in devices if device.key in epoch.holder
    ]
    return min((cap for cap in caps if cap is not None), default=None)


def _job(
    tenant: Tenant, run: int, device: SimulatedDevice, count: int, begins: int, ends: int
) -> Job:
    return Job(
        job_id=tenant.job_id(run),
        name=tenant.name,
        namespace=tenant.team,
        owner=tenant.team,
        platform=tenant.platform,
        kind=tenant.kind,
        gpu_model=device.gpu_model,
        gpu_count=count,
        mig_profile=device.mig_profile,
        gpu_memory_mib=device.memory_total_mib,
        first_seen_at=datetime.fromtimestamp(begins, tz=UTC),
        last_seen_at=datetime.fromtimestamp(ends, tz=UTC),
        source=_NAME,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFleetCollector:
    """The simulated fleet as a source; `changed` gives it with the changes made until now."""

    fleet: SimulatedFleet
    step_seconds: int
    changed: Callable[[], SimulatedFleet] | None = None
    name: str = _NAME

    def collect(self, window: Window) -> Collected:
        """Return the fleet's samples and jobs of the window. Errors: UnexpectedAnswerError."""
        fleet = self.fleet if self.changed is None else self.changed()
        samples = fleet.history(window.start, window.end, self.step_seconds)
        first, last = (int(value.timestamp()) for value in (window.start, window.end))
        steps = last // self.step_seconds - first // self.step_seconds
        expected = steps * len(fleet.devices)
        collected = Collected(
            batch_id=digest_of([_NAME, fleet.seed, fleet.nodes, window.start, window.end]),
            samples=samples,
            jobs=fleet.jobs(window.start, window.end),
            xids=shown_xids(samples, fleet.last_xids(samples)),
            activity=by_slot(
                pd.concat(
                    [
                        samples[["gpu_uuid", "mig_instance"]],
                        fleet.activity(samples).assign(time=_seconds(samples)),
                    ],
                    axis=1,
                ),
                first,
                last,
            ),
            serving=serving_history(fleet.services, fleet.settlement, window.start, window.end),
            report=SourceReport(
                source=_NAME,
                state=SourceState.RAN,
                samples=len(samples),
                completeness_ratio=min(1.0, len(samples) / expected) if expected else None,
                window_start=window.start,
                window_end=window.end,
            ),
        )
        return collected if fleet.small is None else self._with(fleet.small, collected, window)

    def _with(self, small: SmallServices, fleet: Collected, window: Window) -> Collected:
        """Return the fleet's facts with those of the small services."""
        first, last = (
            int(at.timestamp()) // self.step_seconds for at in (window.start, window.end)
        )
        times = np.arange(first + 1, last + 1, dtype=np.int64) * self.step_seconds
        samples = small.samples(times)
        return replace(
            fleet,
            samples=pd.concat([fleet.samples, samples], ignore_index=True),
            jobs=(*fleet.jobs, *small.jobs(window.start, window.end)),
            nodes=small.nodes(window.end),
            allocations=small.allocations(window.end),
            serving=pd.concat(
                [fleet.serving, small.serving(window.start, window.end)], ignore_index=True
            ),
            report=replace(fleet.report, samples=fleet.report.samples + len(samples)),
        )
