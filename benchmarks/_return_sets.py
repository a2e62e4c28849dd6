"""Recorded jobs and when they worked: pods of a service, its clients, servers of a university."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pandas as pd

Values = npt.NDArray[np.float64]
IDLE_PERCENT = 1.0
_SERVEGEN_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkSet:
    """Jobs on one grid of slots: first slot, and by slot 1 where it worked, 0 idle, NaN unknown.

    `groups` are those of similar jobs, the widest first; `moments` the slots at which it is asked
    who works again, with what was seen before them.
    """

    slot_hours: float
    jobs: Mapping[str, tuple[int, Values]]
    groups: Mapping[str, Sequence[str]]
    moments: Sequence[int]


def genai_pods(data: Path) -> WorkSet:
    """Return the pods by five minutes of one day: work is a reading above one percent."""
    frame = pd.read_parquet(data / "alibaba_genai_pods" / "pod_gpu_timeseries.parquet")
    frame = frame.dropna(subset=["gpu_util_pct"])
    busiest = frame.groupby([frame["pod"], frame["t_est_real_s"] // 300])["gpu_util_pct"].max()
    series = {str(pod): rows.droplevel(0) > IDLE_PERCENT for pod, rows in busiest.groupby(level=0)}
    return _on_slots(series, hours=1 / 12, every=0.5, after=4.0)


def servegen_clients(data: Path, *, tuned: bool) -> WorkSet:
    """Return the clients of a half by ten minutes of eight days: work is any request."""
    frame = pd.read_parquet(data / "serving" / "servegen_10min_by_client.parquet")
    frame = frame[frame["req_per_s"] > 0]
    ends = frame.groupby("model")["t_s"].max() // _SERVEGEN_SECONDS
    series = {}
    for (model, client), rows in frame.groupby(["model", "client"]):
        name = f"{model}/{client}"
        if (crc32(name.encode()) % 2 == 0) == tuned:
            slots = rows["t_s"].astype(int) // _SERVEGEN_SECONDS
            grid = np.arange(slots.min(), int(ends[model]) + 1)
            series[name] = pd.Series(np.isin(grid, slots), index=grid)
    return _on_slots(series, hours=1 / 6, every=5.0, after=24.0)


def first_day_of_clients(data: Path, *, tuned: bool) -> WorkSet:
    """Return the clients of a half, asked at the moments of one day at which pods are."""
    clients = servegen_clients(data, tuned=tuned)
    slots = round(1 / clients.slot_hours)
    first = min(first for first, _work in clients.jobs.values())
    moments = range(first + 4 * slots, first + 24 * slots, slots // 2)
    return replace(clients, moments=moments)


def university_servers(data: Path) -> WorkSet:
    """Return six servers by the hour of up to two years and a half."""
    frame = pd.read_parquet(data / "facility" / "biohpc_gpu_hourly.parquet")
    frame = frame.dropna(subset=["gpu_util_max_pct"])
    slots = (frame["time_local"] - frame["time_local"].min()) // pd.Timedelta(hours=1)
    busiest = frame.groupby([frame["server"], slots])["gpu_util_max_pct"].max()
    series = {
        str(server): rows.droplevel(0) > IDLE_PERCENT for server, rows in busiest.groupby(level=0)
    }
    return _on_slots(series, hours=1.0, every=5.0, after=72.0)


def _on_slots(
    series: Mapping[str, "pd.Series[bool]"], *, hours: float, every: float, after: float
) -> WorkSet:
    jobs = {}
    for name, works in series.items():
        first = int(works.index.min())
        work = np.full(int(works.index.max()) - first + 1, np.nan)
        work[works.index.to_numpy() - first] = works.to_numpy(dtype=np.float64)
        jobs[name] = (first, work)
    begin = min(first for first, _work in jobs.values())
    end = max(first + len(work) for first, work in jobs.values())
    moments = range(begin + round(after / hours), end, round(every / hours))
    groups = {name: (name.partition("/")[0] if "/" in name else "all",) for name in jobs}
    return WorkSet(slot_hours=hours, jobs=jobs, groups=groups, moments=moments)
