"""Real demand as series by the hour or, of pods, by 5 min; a simulated fleet's by 15 min."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pandas as pd

from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from data.settings.all_settings import PlanningSettings
from data.store import open_store
from forecasting.jobs.job_tasks import JobTask, first_slot_after, job_tasks
from forecasting.series.demand_series import DemandSeries

Values = npt.NDArray[np.float64]
HELIOS_SUMS = ("submit_gpu_num", "start_gpu_num", "end_gpu_num", "submit_gpu_job")
PHILLY_FROM, PHILLY_UNTIL = "2017-10-02", "2017-12-08"
_MIN_DAYS = 50
_MIN_INSTANCES, _MIN_CHANGES = 4, 48


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandSet:
    """Named series on one grid of slots; `first` is the slot of each one's first value, 0 if not.

    Series may differ in length: a cluster is seen from its first job on.
    """

    name: str
    slot_seconds: int
    series: dict[str, Values]
    first: dict[str, int] = field(default_factory=dict)


def on_one_clock(demand: DemandSet) -> tuple[tuple[str, ...], Values]:
    """Return the names and the series as rows [series, slots], NaN where one was not recorded."""
    names = tuple(sorted(demand.series))
    first = [demand.first.get(name, 0) for name in names]
    ends = [start + len(demand.series[name]) for start, name in zip(first, names, strict=True)]
    rows = np.full((len(names), max(ends) - min(first)), np.nan)
    for row, name, start, end in zip(rows, names, first, ends, strict=True):
        row[start - min(first) : end - min(first)] = demand.series[name]
    return names, rows


def helios(data: Path) -> DemandSet:
    """Return flows of GPUs and jobs per hour and the GPUs running (relative, may be negative)."""
    frame = pd.read_parquet(data / "helios_venus" / "venus_10min.parquet").set_index("time")
    hours = frame.resample("1h")
    series = {name: hours[name].sum().to_numpy(float) for name in HELIOS_SUMS}
    series["running_gpu_est"] = hours["running_gpu_est"].mean().to_numpy(float)
    return DemandSet(name="helios", slot_seconds=3600, series=series)


def philly(data: Path) -> DemandSet:
    """Return the GPUs wanted per hour by virtual cluster, from 2017-10-02 on."""
    frame = pd.read_parquet(data / "philly" / "hourly_gpu_demand_by_vc.parquet")
    series, first = {}, {}
    for name, rows in frame.groupby("cluster"):
        demand = rows.set_index("hour")["gpu_demand"].sort_index()
        demand = demand.loc[PHILLY_FROM:PHILLY_UNTIL].asfreq("h", fill_value=0.0)
        if len(demand) > 24 * _MIN_DAYS:
            series[str(name)] = demand.to_numpy(float)
            begin = demand.index[0] - pd.Timestamp(PHILLY_FROM)
            first[str(name)] = round(begin.total_seconds() / 3600)
    return DemandSet(name="philly", slot_seconds=3600, series=series, first=first)


def facility(data: Path) -> DemandSet:
    """Return mean power (W) and utilization (%) of a board of six servers, months to years."""
    frame = pd.read_parquet(data / "facility" / "biohpc_gpu_hourly.parquet")
    series = {}
    for server, rows in frame.groupby("server"):
        times = pd.to_datetime(rows["time_local"])
        hours = rows.set_index(times)[lambda found: ~found.index.duplicated()].sort_index()
        hours = hours.asfreq("h")
        series[f"{server} power"] = hours["gpu_power_avg_w"].to_numpy(float)
        series[f"{server} utilization"] = hours["gpu_util_avg_pct"].to_numpy(float)
    return DemandSet(name="facility", slot_seconds=3600, series=series)


def recommenders(data: Path) -> DemandSet:
    """Return GPUs held per hour by apps of Alibaba's recommender fleet that changed, 31 days."""
    frame = pd.read_parquet(data / "alibaba_dlrm2025" / "dlrm_instances.parquet")
    frame = frame[frame["gpu_request"] > 0]
    end = int(frame[["scheduled_time", "deletion_time"]].max().max() // 3600) + 1
    edges = np.arange(end + 1.0)
    series = {}
    for app, rows in frame.groupby("app_name"):
        start = rows["scheduled_time"].fillna(0).to_numpy()[:, None] / 3600
        until = rows["deletion_time"].fillna(end * 3600).to_numpy()[:, None] / 3600
        inside = np.clip(np.minimum(until, edges[1:]) - np.maximum(start, edges[:-1]), 0, None)
        held = inside.sum(axis=0)
        if held.max() >= _MIN_INSTANCES and np.count_nonzero(np.diff(held)) >= _MIN_CHANGES:
            series[str(app)] = held
    return DemandSet(name="recommenders", slot_seconds=3600, series=series)


def simulated_jobs() -> list[DemandSeries]:
    """Return utilization, memory and power of a simulated fleet's jobs: two weeks by 15 min."""
    end = datetime(2026, 1, 15, 10, tzinfo=UTC)
    with TemporaryDirectory() as folder, open_store(f"duckdb:///{folder}/b.duckdb") as store:
        collector = SimulatedFleetCollector(fleet=SimulatedFleet(seed=7, nodes=8), step_seconds=900)
        store.keep(collector.collect(Window(start=end - timedelta(days=14), end=end)))
        view = store.reader.planning_view(end, slot_seconds=900, history_days=14)
    tasks = job_tasks(
        view.history,
        jobs=view.jobs,
        first_slot=first_slot_after(view.as_of, 900),
        settings=PlanningSettings(),
    )
    return [entry for task in tasks if isinstance(task, JobTask) for entry in task.series]


def pods(data: Path, column: str, *, slot_seconds: int = 300) -> DemandSet:
    """Return a column of every pod by slot: mean utilization (%) or largest memory (GiB).

    Pods on the time axis `t_est_real_s` (the published axis is 57 s for every real minute); a slot
    without a reading is unknown.
    """
    frame = pd.read_parquet(data / "alibaba_genai_pods" / "pod_gpu_timeseries.parquet")
    frame = frame.dropna(subset=[column])
    slot = frame["t_est_real_s"] // slot_seconds
    grouped = frame.groupby([frame["pod"], slot])[column]
    values = grouped.mean() if column == "gpu_util_pct" else grouped.max() / 2**30
    series, first = {}, {}
    for name, rows in values.groupby(level=0):
        index = rows.index.get_level_values(1).to_numpy()
        row = np.full(int(index.max() - index.min()) + 1, np.nan)
        row[index - index.min()] = rows.to_numpy()
        series[str(name)] = row
        first[str(name)] = int(index.min())
    return DemandSet(name=f"pods {column}", slot_seconds=slot_seconds, series=series, first=first)
