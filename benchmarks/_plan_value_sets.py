"""Demand of services to plan for: recorded clusters, jobs, pods and requests, and a drawn fleet."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from benchmarks._plan_value_replay import ValueCase
from benchmarks.demand_sets import DemandSet, Values, helios, on_one_clock, philly, pods
from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from data.facts.jobs import WorkloadKind
from data.store import open_store

_POD_GROUPS, _POD_UNITS = 8, 16
_SERVED_PER_GPU = 20.0
_HELIOS_RUNNING_AT_START = 765


def philly_cases(data: Path) -> list[ValueCase]:
    """Return two windows of the GPUs wanted by Philly's virtual clusters: 72 and 60 h."""
    demand = philly(data)
    return [
        _case("philly, window 1", "philly", demand, hours=72, before_end=792),
        _case("philly, window 2", "philly", demand, hours=60, before_end=288),
    ]


def helios_cases(data: Path) -> list[ValueCase]:
    """Return the GPUs running on Helios Venus, and those submitted, started and ended per hour."""
    demand = helios(data)
    series = {name: np.maximum(row, 0.0) for name, row in demand.series.items()}
    series["running_gpu_est"] = np.maximum(
        demand.series["running_gpu_est"] + _HELIOS_RUNNING_AT_START, 0.0
    )
    del series["submit_gpu_job"]
    return [_case("helios", "helios", _hourly("helios", series), hours=36, before_end=400)]


def acme_cases(data: Path) -> list[ValueCase]:
    """Return the GPUs that Acme's Kalos ran per hour, pretraining and other jobs."""
    frame = pd.read_csv(data / "acme" / "kalos_completed_gpu_jobs_first60pct.csv")
    hours = int(frame["submit_offset_s"].max() // 3600) + 1
    edges = np.arange(hours + 1) * 3600.0
    series = {}
    for pretrains, rows in frame.groupby("is_pretrain"):
        start = rows["submit_offset_s"].to_numpy()[:, None]
        end = start + rows["duration_s"].to_numpy()[:, None]
        inside = np.clip(np.minimum(end, edges[1:]) - np.maximum(start, edges[:-1]), 0, None)
        series["pretraining" if pretrains else "other"] = rows["gpu_num"].to_numpy() @ inside / 3600
    return [_case("acme, kalos", "acme", _hourly("acme", series), hours=36, before_end=240)]


def pod_cases(data: Path) -> list[ValueCase]:
    """Return groups of Alibaba's one-GPU pods by 5 min, taken as hours, in sixteenths of a GPU."""
    single = pods(data, "gpu_util_pct")
    names, rows = on_one_clock(single)
    series = {
        f"pods {group}": _POD_UNITS * np.nansum(rows[group::_POD_GROUPS], axis=0) / 100
        for group in range(min(_POD_GROUPS, len(names)))
    }
    return [_case("alibaba pods", "alibaba", _hourly("pods", series), hours=36, before_end=96)]


def serving_cases(data: Path) -> list[ValueCase]:
    """Return the requests of three models per hour, ServeGen, 20 requests a second on a GPU."""
    frame = pd.read_csv(data / "serving" / "servegen_10min_by_model.csv")
    series = {}
    for model, rows in frame.groupby("model"):
        slots = rows.set_index("t_s")["req_per_s"].sort_index()
        if len(slots) < 6 * 24 * 5:
            continue
        # A window of no request at all is a reading that failed.
        slots = slots.replace(0.0, np.nan).groupby(slots.index // 3600).mean()
        slots = slots.reindex(range(int(slots.index.max()) + 1))
        series[str(model)] = slots.to_numpy() / _SERVED_PER_GPU
    return [_case("servegen", "servegen", _hourly("servegen", series), hours=36, before_end=36)]


def simulated_cases(_data: Path) -> list[ValueCase]:
    """Return the services of a simulated fleet of two weeks, by the hour."""
    end = datetime(2026, 1, 15, 10, tzinfo=UTC)
    with TemporaryDirectory() as folder, open_store(f"duckdb:///{folder}/b.duckdb") as store:
        collector = SimulatedFleetCollector(
            fleet=SimulatedFleet(seed=7, nodes=8), step_seconds=1800
        )
        store.keep(collector.collect(Window(start=end - timedelta(days=14), end=end)))
        view = store.reader.planning_view(end, slot_seconds=3600, history_days=14)
    serve = {job.job_id for job in view.jobs if job.kind is WorkloadKind.INFERENCE}
    rows = view.history[view.history["job_id"].isin(serve)]
    wide = rows.pivot_table(index="slot_start", columns="job_id", values="effective_gpus")
    wide = wide.asfreq("h")
    # Tens of GPUs each, so that whole GPUs do not decide.
    series = {f"s{number}": 10 * wide[name].to_numpy() for number, name in enumerate(wide)}
    return [_case("simulated", "simulated", _hourly("simulated", series), hours=36, before_end=36)]


SOURCES: dict[str, Callable[[Path], list[ValueCase]]] = {
    "philly": philly_cases,
    "helios": helios_cases,
    "acme": acme_cases,
    "alibaba": pod_cases,
    "servegen": serving_cases,
    "simulated": simulated_cases,
}


def cases(data: Path, only: str | None = None) -> tuple[list[ValueCase], list[str]]:
    """Return the cases of a folder, and a line for every source that is not there."""
    found: list[ValueCase] = []
    absent = []
    for source, make in SOURCES.items():
        if only not in (None, source):
            continue
        try:
            found += make(data)
        except FileNotFoundError:
            absent.append(f"* {source}: its files are not in the folder given by --data.")
    return found, absent


def _hourly(name: str, series: dict[str, Values]) -> DemandSet:
    return DemandSet(name=name, slot_seconds=3600, series=series)


def _case(name: str, source: str, demand: DemandSet, *, hours: int, before_end: int) -> ValueCase:
    """Return a window of a set that ends `before_end` - `hours` hours before its last.

    A set that is too short for it is judged on its last quarter at most.
    """
    services, rows = on_one_clock(demand)
    length = rows.shape[1]
    first = max(length - before_end, length - length // 4)
    return ValueCase(
        name=name,
        source=source,
        services=services,
        demand=rows,
        first=first,
        hours=min(hours, length - first),
    )
