"""Recorded series of several clusters, as Prophet is fitted to them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

MONDAY = 1_699_833_600
SEED = 20_260_101

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RealSet:
    """Real windows of one length: [series, slots] from `first_slot` on."""

    name: str
    values: Floats
    slot_seconds: int
    first_slot: int


def windows(values: Floats, length: int, number: int) -> Floats:
    """Return so many windows of a long series, evenly spread: [number, length]."""
    starts = np.linspace(0, len(values) - length, number).astype(int)
    return np.stack([values[start : start + length] for start in starts])


def helios(folder: Path, full: bool) -> RealSet:
    """Return hourly sums of every counted column, 28-day windows."""
    frame = pd.read_parquet(folder / "helios_venus" / "venus_10min.parquet").set_index("time")
    frame["running_gpu_est"] /= 6  # a level: its hourly mean
    hourly = frame.resample("1h").sum()
    rows = [
        windows(hourly[name].to_numpy(float), 672, 12 if full else 4) for name in hourly.columns
    ]
    # Windows keep their values, not their dates: no phase of the week changes the fit.
    return RealSet(
        name="helios, 672 x 1 h",
        values=np.concatenate(rows),
        slot_seconds=3600,
        first_slot=MONDAY,
    )


def philly(folder: Path, full: bool) -> RealSet:
    """Return the demand of every virtual cluster, 14-day windows of its well-filled months."""
    frame = pd.read_parquet(folder / "philly" / "hourly_gpu_demand_by_vc.parquet")
    frame = frame[(frame["hour"] >= "2017-10-02") & (frame["hour"] < "2017-12-09")]
    rows = []
    for _, entry in frame.groupby("cluster", observed=True):
        hourly = entry.set_index("hour")["gpu_demand"].resample("1h").sum()
        if len(hourly) >= 400:
            rows.append(windows(hourly.to_numpy(float), 336, 20 if full else 7))
    return RealSet(
        name="philly, 336 x 1 h",
        values=np.concatenate(rows),
        slot_seconds=3600,
        first_slot=MONDAY,
    )


def pods(folder: Path, full: bool) -> RealSet:
    """Return GPU utilisation of the fullest pods by the minute, gaps kept."""
    frame = pd.read_parquet(folder / "alibaba_genai_pods" / "pod_gpu_timeseries.parquet")
    frame = frame[frame["gpu_util_pct"].notna()]
    slot = (frame["t_est_real_s"] / 60).round().astype(int)
    slots = int(slot.max()) + 1
    rows = []
    for _, entry in frame.assign(slot=slot).groupby("pod", observed=True):
        row = np.full(slots, np.nan)
        row[entry["slot"]] = entry["gpu_util_pct"]
        rows.append(row)
    rows.sort(key=lambda row: -np.isfinite(row).sum())
    return RealSet(
        name="pods, 1,441 x 1 min",
        values=np.stack(rows[: 66 if full else 24]),
        slot_seconds=60,
        first_slot=MONDAY,
    )


SETS = (helios, philly, pods)
