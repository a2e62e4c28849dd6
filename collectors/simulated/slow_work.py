"""Causes of slow jobs in the simulated fleet, and the readings of their boards.

Without `slow_jobs` every training job keeps its boards busy. With it each has a cause, drawn from
its number, which shapes its SM activity and all that is told beside it. The shapes are what each
cause is said to look like, spread by job and reading: they are assumed, not measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from collectors.simulated.layout import SimulatedDevice, Tenant
from collectors.simulated.signals import Times, Values, hashed_uniform
from data.base.units import SLOT_SECONDS
from data.facts.columns import ACTIVITY, check_frame, empty_frame
from data.facts.jobs import WorkloadKind
from data.records.slow_work import SlowCause

_SPREAD = 0.25
"""Half the width of how much one job differs from another of the same cause."""
_HOT_SHARE, _BADLY_COOLED = 0.05, 8_000_009
_IDLE_CELSIUS, _WARM_CELSIUS, _HOT_CELSIUS, _MEMORY_CELSIUS = 26.0, 42.0, 68.0, 8.0
"""Of an idle board, what full power adds where air is cold and where it is not, and of memory."""
_CLOCK_MHZ, _CAPPED_MHZ = 1980.0, 400.0
_AT_WORK = 0.6
"""Share of its usual SM activity from which on a job works as it always does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The effect of one cause on a job that would keep its SMs busy.

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


SHAPES: Mapping[SlowCause, Shape] = {
    SlowCause.BUSY: Shape(),
    SlowCause.STARVED: Shape(level=0.45, engine=0.5, nvlink=20.0, pcie=3.0),
    SlowCause.SMALL_BATCH: Shape(level=0.38, engine=0.93, tensor=0.3, dram=0.3, nvlink=10.0),
    SlowCause.WAITING: Shape(others=0.5),
    SlowCause.COMMUNICATION: Shape(level=0.75, tensor=0.15, dram=0.4, nvlink=280.0, pcie=24.0),
    SlowCause.NO_TENSOR: Shape(tensor=0.02, dram=0.2, fp32=0.6, nvlink=30.0),
    SlowCause.THROTTLED: Shape(throttled=0.6, tensor=0.4),
}

_OF_SEVERAL = frozenset({SlowCause.WAITING, SlowCause.COMMUNICATION})
_SERVING = Shape(engine=0.97, tensor=0.3, nvlink=5.0)


def cause_of(tenant: Tenant, *, slow_jobs: bool) -> SlowCause:
    """Return the cause of a job's slowness; a job that does not train has none of these."""
    if tenant.kind is not WorkloadKind.TRAINING:
        return SlowCause.UNKNOWN
    if not slow_jobs:
        return SlowCause.BUSY
    drawn = [cause for cause in SHAPES if len(tenant.devices) > 1 or cause not in _OF_SEVERAL]
    return drawn[int(_uniform(tenant, 0) * len(drawn))]


def slowed(tenant: Tenant, device: SimulatedDevice, *, slow_jobs: bool) -> float:
    """Return by what the cause multiplies the SM activity of one of the tenant's devices."""
    shape = _shape(tenant, slow_jobs=slow_jobs)
    level = shape.level if shape.level == 1.0 else _spread(tenant, 1, shape.level)
    first = device.key == tenant.devices[0].key
    return level if first or shape.others == 1.0 else level * _spread(tenant, 2, shape.others)


def readings(
    tenant: Tenant, device: SimulatedDevice, activity: Values, times: Times, *, slow_jobs: bool
) -> pd.DataFrame:
    """Return the readings of a tenant's device beside its SM activity, a row a time."""
    shape = _shape(tenant, slow_jobs=slow_jobs)
    usual = slowed(tenant, device, slow_jobs=slow_jobs) * tenant.level
    works = np.clip(activity / max(_AT_WORK * usual, 0.05), 0.0, 1.0)

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


def _shape(tenant: Tenant, *, slow_jobs: bool) -> Shape:
    return SHAPES.get(cause_of(tenant, slow_jobs=slow_jobs), _SERVING)


def _uniform(tenant: Tenant, number: int) -> float:
    """Return a number 0..1 that belongs to the tenant."""
    return float(hashed_uniform(tenant.number * 16 + number, np.array([0]))[0])


def _spread(tenant: Tenant, number: int, value: float) -> float:
    """Return a value of the tenant's own around that of its cause."""
    return value * (1 + _SPREAD * (2 * _uniform(tenant, number) - 1))
