"""What kept devices at work or from it: readings of exporters as means of five minutes.

Whole slots of the asked window alone, so that a slot is the same whenever it is asked for. The
engine's activity is GR_ENGINE_ACTIVE, else GPU_UTIL, which means the same in coarser steps.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from collectors.base import Window
from collectors.dcgm_readings import (
    FIRST_SECOND,
    LAST_SECOND,
    Dropped,
    Series,
    info_labels,
    readable,
)
from collectors.device_labels import device_of
from collectors.metric_dialects import BY_NAME
from collectors.plausible_values import plausible
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.columns import ACTIVITY, check_frame, empty_frame

Floats = npt.NDArray[np.float64]
_Readings = tuple[npt.NDArray[np.int64], Floats, Floats]
"""Device number, slot in s since the epoch, value."""
SLOT_SECONDS = 300
_SLOWED_BY_HEAT_OR_BRAKE = 0x8 | 0x20 | 0x40 | 0x80
"""NVML clock event reasons: HW slowdown, SW thermal, HW thermal, HW power brake. Not the power cap
(0x4): a board at work reaches its limit, and a cap is a decision.
"""
_PLAIN = ("sm_active", "tensor_active", "dram_active")
_OF_BOARD = ("clock_event_reasons", "power_watts", "power_instant_watts", "power_limit_watts")
_LINKS = {
    "pcie_bytes_per_second": ("pcie_sent_bytes", "pcie_received_bytes"),
    "nvlink_bytes_per_second": ("nvlink_sent_bytes", "nvlink_received_bytes"),
}
_READ = frozenset((*_PLAIN, *_OF_BOARD, "gr_engine_active", "gpu_util", *sum(_LINKS.values(), ())))


def activity_of(
    series: Iterable[Series], catalogue: GpuCatalogue, window: Window, dropped: Dropped
) -> pd.DataFrame:
    """Return the activity (columns ACTIVITY) of the whole slots of a window.

    What is no reading is counted in `dropped`, but for what samples are made of, counted there.
    """
    everything = list(readable(series, Dropped()))
    info = info_labels(everything)
    start, end = (at.timestamp() for at in (window.start, window.end))
    numbers: dict[tuple[str, str], int] = {}
    told: dict[str, list[_Readings]] = {}
    for entry in everything:
        meaning = BY_NAME.get(entry.metric)
        if meaning is None or meaning[0].quantity not in _READ:
            continue
        device = device_of(entry.labels, catalogue, info)
        if device is None or (device.mig_instance and meaning[0].quantity == "gpu_util"):
            continue
        refused = Dropped().counts if meaning[0].used else dropped.counts
        values, kept = plausible(*meaning, entry.values, refused)
        kept &= (entry.times >= FIRST_SECOND) & (entry.times <= LAST_SECOND)
        times, values = entry.times[kept], values[kept]
        slots = np.floor(times / SLOT_SECONDS) * SLOT_SECONDS
        whole = (slots >= start) & (slots + SLOT_SECONDS <= end)
        if meaning[0].quantity == "clock_event_reasons":
            values = _slowed(values)
        number = numbers.setdefault((device.gpu_uuid, device.mig_instance), len(numbers))
        of_device = np.full(int(whole.sum()), number, dtype=np.int64)
        parts = told.setdefault(meaning[0].quantity, [])
        parts.append((of_device, slots[whole], values[whole]))
    means = pd.DataFrame({quantity: _means(parts) for quantity, parts in told.items()})
    return empty_frame(ACTIVITY) if means.empty else _frame(means, list(numbers))


def _means(parts: Sequence[_Readings]) -> pd.Series:
    """Return the mean of a quantity by device number and slot."""
    device, slot, value = (np.concatenate(column) for column in zip(*parts, strict=True))
    rows = pd.DataFrame({"device": device, "slot": slot, "value": value})
    return rows.groupby(["device", "slot"])["value"].mean()


def _slowed(reasons: Floats) -> Floats:
    """Return 1 where heat or a power brake slows the clocks, 0 elsewhere."""
    named = reasons.astype(np.int64) & _SLOWED_BY_HEAT_OR_BRAKE
    return np.asarray(named != 0, dtype=np.float64)


def _frame(means: pd.DataFrame, devices: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Return the columns ACTIVITY of the means of each quantity by device number and slot."""
    unknown = pd.Series(np.nan, index=means.index)

    def of(*names: str) -> pd.Series:
        found = unknown
        for name in names:
            found = found.fillna(means[name]) if name in means else found
        return found

    power, limit = of("power_watts", "power_instant_watts"), of("power_limit_watts")
    made = pd.DataFrame(
        {
            "engine_active": of("gr_engine_active", "gpu_util"),
            **{name: of(name) for name in _PLAIN},
            **{name: of(sent) + of(received) for name, (sent, received) in _LINKS.items()},
            "throttled_ratio": of("clock_event_reasons"),
            "power_ratio": (power / limit.where(limit > 0)).clip(upper=1.0),
        }
    ).reset_index()
    named = pd.DataFrame(devices, columns=["gpu_uuid", "mig_instance"]).iloc[made["device"]]
    starts = pd.to_datetime(made["slot"], unit="s", utc=True).dt.as_unit("us")
    whole = made.drop(columns=["device", "slot"]).join(named.reset_index(drop=True))
    return check_frame(whole.assign(slot_start=starts), ACTIVITY)
