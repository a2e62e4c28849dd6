"""Activity and limits of devices: readings of exporters as means of five minutes.

Whole slots of the asked window alone, so that a slot is the same whenever it is asked for. The
engine's activity is GR_ENGINE_ACTIVE, else GPU_UTIL, which means the same in coarser steps.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from collectors.readings.dcgm_readings import (
    FIRST_SECOND,
    LAST_SECOND,
    DroppedReadings,
    Series,
    info_labels,
    readable,
)
from collectors.readings.device_labels import device_of
from collectors.readings.metric_names import BY_NAME, HEALTH_QUANTITIES, INFOS, LARGEST
from collectors.readings.plausible_values import plausible
from collectors.shared.collector import Window
from data.base.units import SLOT_SECONDS
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.columns import ACTIVITY, check_frame, empty_frame

Floats = npt.NDArray[np.float64]
_Readings = tuple[npt.NDArray[np.int64], Floats, Floats]
"""Device number, time or slot in s since the epoch, value."""
THERMAL_OR_BRAKE_REASONS = 0x8 | 0x20 | 0x40 | 0x80
"""NVML clock event reasons: HW slowdown, SW thermal, HW thermal, HW power brake. Not the power cap
(0x4): a board at work reaches its limit, and a cap is a decision.
"""
PLAIN = ("sm_active", "tensor_active", "dram_active", "fp32_active")
_OF_BOARD = ("clock_event_reasons", "power_watts", "power_instant_watts", "power_limit_watts")
_LINKS = {
    "pcie_bytes_per_second": ("pcie_sent_bytes", "pcie_received_bytes"),
    "nvlink_bytes_per_second": ("nvlink_sent_bytes", "nvlink_received_bytes"),
}
_READ = frozenset(
    (
        *(*PLAIN, *_OF_BOARD, *HEALTH_QUANTITIES, "gr_engine_active", "gpu_util"),
        *sum(_LINKS.values(), ()),
    )
)


def activity_of(
    series: Iterable[Series], catalogue: GpuCatalogue, window: Window, dropped: DroppedReadings
) -> pd.DataFrame:
    """Return the activity (columns ACTIVITY) of the whole slots of a window.

    What is no reading is counted in `dropped`, but for what samples are made of, counted there.
    """
    rows = (entry for entry in series if entry.metric in INFOS or _quantity(entry.metric) in _READ)
    everything = list(readable(rows, DroppedReadings()))
    info = info_labels(everything)
    numbers: dict[tuple[str, str], int] = {}
    by_metric: dict[str, list[_Readings]] = {}
    for entry in everything:
        quantity = _quantity(entry.metric)
        device = device_of(entry.labels, catalogue, info) if quantity in _READ else None
        if device is None or (device.mig_instance and quantity == "gpu_util"):
            continue
        number = numbers.setdefault((device.gpu_uuid, device.mig_instance), len(numbers))
        of_device = np.full(len(entry.times), number, dtype=np.int64)
        by_metric.setdefault(entry.metric, []).append((of_device, entry.times, entry.values))
    by_name: dict[str, list[_Readings]] = {}
    for metric, parts in by_metric.items():
        by_name.setdefault(_quantity(metric), []).append(_valid(metric, parts, window, dropped))
    means = pd.DataFrame({name: _by_slot(parts, name) for name, parts in by_name.items()})
    return empty_frame(ACTIVITY) if means.empty else _frame(means, list(numbers))


def _quantity(metric: str) -> str:
    meaning = BY_NAME.get(metric)
    return "" if meaning is None else meaning[0].quantity


def _valid(
    metric: str, parts: Sequence[_Readings], window: Window, dropped: DroppedReadings
) -> _Readings:
    """Return the plausible readings of a metric in whole slots of the window."""
    device, times, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    meaning = BY_NAME[metric]
    refused = DroppedReadings().counts if meaning[0].used else dropped.counts
    # Of a percentage or a ratio one whole series tells which it is.
    blocks = [part[2] for part in parts] if meaning[0].percent_or_ratio else [values]
    read = [plausible(*meaning, raw, refused) for raw in blocks]
    values, valid = (np.concatenate(column) for column in zip(*read, strict=True))
    slots = np.floor(times / SLOT_SECONDS) * SLOT_SECONDS
    valid &= (times >= FIRST_SECOND) & (times <= LAST_SECOND)
    valid &= slots >= window.start.timestamp()
    valid &= slots + SLOT_SECONDS <= window.end.timestamp()
    if meaning[0].quantity == "clock_event_reasons":
        values = _slowed(np.where(valid, values, 0.0))
    return device[valid], slots[valid], values[valid]


def _by_slot(parts: Sequence[_Readings], quantity: str) -> pd.Series:
    """Return the mean of a quantity by device number and slot, of a count the largest."""
    device, slot, value = (np.concatenate(column) for column in zip(*parts, strict=True))
    rows = pd.DataFrame({"device": device, "slot": slot, "value": value})
    values = rows.groupby(["device", "slot"])["value"]
    return values.max() if quantity in LARGEST else values.mean()


def _slowed(reasons: Floats) -> Floats:
    """Return 1 where heat or a power brake slows the clocks, 0 elsewhere."""
    bits = reasons.astype(np.int64) & THERMAL_OR_BRAKE_REASONS
    return np.asarray(bits != 0, dtype=np.float64)


def _frame(means: pd.DataFrame, devices: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Return the columns ACTIVITY of the means of each quantity by device number and slot."""
    unknown = pd.Series(np.nan, index=means.index)

    def of(*names: str) -> pd.Series:
        values = unknown
        for name in names:
            values = values.fillna(means[name]) if name in means else values
        return values

    power, limit = of("power_watts", "power_instant_watts"), of("power_limit_watts")
    table = pd.DataFrame(
        {
            "engine_active": of("gr_engine_active", "gpu_util"),
            **{name: of(name) for name in PLAIN},
            **{name: of(sent) + of(received) for name, (sent, received) in _LINKS.items()},
            "throttled_ratio": of("clock_event_reasons"),
            "power_ratio": (power / limit.where(limit > 0)).clip(upper=1.0),
            **{name: of(name) for name in HEALTH_QUANTITIES},
        }
    ).reset_index()
    labels = pd.DataFrame(devices, columns=["gpu_uuid", "mig_instance"]).iloc[table["device"]]
    starts = pd.to_datetime(table["slot"], unit="s", utc=True).dt.as_unit("us")
    joined = table.drop(columns=["device", "slot"]).join(labels.reset_index(drop=True))
    return check_frame(joined.assign(slot_start=starts), ACTIVITY)
