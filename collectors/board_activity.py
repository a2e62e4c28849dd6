"""What kept devices at work or from it: readings of exporters as means of five minutes.

Whole slots of the asked window alone, so that a slot is the same whenever it is asked for. The
engine's activity is GR_ENGINE_ACTIVE, else GPU_UTIL, which means the same in coarser steps.
"""

from collections.abc import Iterable

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

SLOT_SECONDS = 300
_SLOWED_BY_HEAT_OR_BRAKE = 0x8 | 0x20 | 0x40 | 0x80
"""NVML clock event reasons: HW slowdown, SW thermal, HW thermal, HW power brake. Not the power cap
(0x4): a board at work reaches its limit, and a cap is a decision.
"""
_KEY = ["slot_start", "gpu_uuid", "mig_instance"]
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
    rows: list[tuple[object, ...]] = []
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
        starts, inverse = np.unique(slots[whole], return_inverse=True)
        sums = np.bincount(inverse, weights=values[whole], minlength=len(starts))
        counts = np.bincount(inverse, minlength=len(starts))
        named = (device.gpu_uuid, device.mig_instance, meaning[0].quantity)
        rows += [(at, *named, mean) for at, mean in zip(starts, sums / counts, strict=True)]
    if not rows:
        return empty_frame(ACTIVITY)
    told = pd.DataFrame(rows, columns=[*_KEY, "quantity", "value"])
    return _frame(told.pivot_table(index=_KEY, columns="quantity", values="value", aggfunc="mean"))


def _slowed(reasons: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return 1 where heat or a power brake slows the clocks, 0 elsewhere."""
    named = reasons.astype(np.int64) & _SLOWED_BY_HEAT_OR_BRAKE
    return np.asarray(named != 0, dtype=np.float64)


def _frame(means: pd.DataFrame) -> pd.DataFrame:
    """Return the columns ACTIVITY of the means of each quantity."""
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
    starts = pd.to_datetime(made["slot_start"], unit="s", utc=True).dt.as_unit("us")
    return check_frame(made.assign(slot_start=starts), ACTIVITY)
