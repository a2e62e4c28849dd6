"""Workloads: services and recurring jobs, each forecast for a week and a month.

A single run ends before a week is over, but a service and the runs of a recurring job go on. What
they held is a series like that of a group, in which the time between two runs is zero.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import pandas as pd

from data.base.units import SECONDS_PER_HOUR
from data.facts.cluster_names import named_in
from data.facts.columns import GROUP_HISTORY, check_frame
from data.facts.jobs import Job, WorkloadKind
from data.records.forecasts import (
    GroupForecast,
    GroupKind,
    Quantity,
    WorkloadForecast,
    WorkloadTotal,
)
from data.records.recommendations import Range
from data.settings.all_settings import PlanningSettings
from forecasting.groups.group_forecasts import forecast_series
from forecasting.series.day_sums import HISTORY_DAYS, Floats, days_ahead
from forecasting.series.demand_series import DemandSeries
from forecasting.series.group_series import GroupSeries, group_series
from forecasting.series.job_keys import name_stem

MAX_WORKLOADS = 100
"""Those that held most GPU-hours; the others have no forecast of a week."""
MIN_RUNS = 5
MAX_RUNS = 400
"""Newest runs that a forecast names."""
TOTAL_DAYS = (7, 30)
_ALIVE_FOR = {True: timedelta(days=1), False: timedelta(days=7)}
"""A service is gone a day after its last sample, a recurring job after a week without a run."""
_PRICED = timedelta(days=7)
_HOURS_PER_DAY = 24
_SUM_UNITS = {
    Quantity.ALLOCATED_GPUS: ("GPU-h", 1.0),
    Quantity.EFFECTIVE_GPUS: ("GPU-h", 1.0),
    Quantity.POWER: ("kWh", 1e-3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRuns:
    """A service, or the runs of a recurring job, the newest last."""

    name: str
    is_service: bool
    jobs: tuple[Job, ...]


def workload_name(job: Job) -> str:
    """Return the name that all runs of a job share: namespace, owner and user, and the name's stem.

    The GPU model is no part of it: a job that moves to another one stays the same workload.
    """
    user = job.scheduling.user
    who = dict.fromkeys((job.namespace, job.owner, user))  # often one name for two of them
    return named_in("/".join([*filter(None, who), name_stem(job.name)]), job.cluster)


def workloads_of(jobs: Iterable[Job], as_of: datetime) -> tuple[WorkloadRuns, ...]:
    """Return the services and the recurring jobs that are alive at `as_of`, by name.

    A job is recurring from `MIN_RUNS` runs on that held GPUs.
    """
    runs: dict[str, list[Job]] = {}
    for job in jobs:
        runs.setdefault(workload_name(job), []).append(job)
    return alive(runs, as_of)


def alive(runs: Mapping[str, Iterable[Job]], as_of: datetime) -> tuple[WorkloadRuns, ...]:
    """Return those workloads of jobs by name that are alive at `as_of`, as `workloads_of` does."""
    workloads = []
    for name, jobs in sorted(runs.items()):
        members = sorted(jobs, key=lambda job: (job.last_seen_at, job.job_id))
        if not members:
            continue
        is_service = members[-1].kind is WorkloadKind.INFERENCE
        is_alive = members[-1].last_seen_at >= as_of - _ALIVE_FOR[is_service]
        if is_alive and (is_service or len(members) >= MIN_RUNS):
            workloads.append(WorkloadRuns(name=name, is_service=is_service, jobs=tuple(members)))
    return tuple(workloads)


def workload_history(
    workloads: Sequence[WorkloadRuns], allocated: pd.DataFrame, fleet: pd.DataFrame
) -> pd.DataFrame:
    """Return the history (columns GROUP_HISTORY) of the workloads, and of the fleet beside them.

    `allocated` has the columns job_id, slot_start, allocated_gpus, effective_gpus and power_watts
    by the hour; `fleet` is the fleet's history by the hour, with which slots were observed.
    """
    name_of = {job.job_id: workload.name for workload in workloads for job in workload.jobs}
    rows = allocated.assign(name=allocated["job_id"].map(name_of)).drop(columns="job_id")
    sums = rows.groupby(["name", "slot_start"], as_index=False).sum(min_count=1)
    boards = fleet[["slot_start", "boards"]]
    mine = sums.merge(boards, on="slot_start").assign(kind=str(GroupKind.WORKLOAD))
    return check_frame(pd.concat([fleet, mine], ignore_index=True), GROUP_HISTORY)


def models_of(
    workloads: Sequence[WorkloadRuns], allocated: pd.DataFrame, as_of: datetime
) -> dict[str, dict[str, float]]:
    """Return by workload the shares of its GPU-hours of the last week by GPU model, if any."""
    jobs = {
        job.job_id: (workload.name, job.gpu_model)
        for workload in workloads
        for job in workload.jobs
    }
    week = allocated[(allocated["slot_start"] >= as_of - _PRICED) & allocated["job_id"].isin(jobs)]
    hours = week.groupby("job_id")["allocated_gpus"].sum()
    sums: dict[str, dict[str, float]] = {}
    for job_id, gpu_hours in hours[hours > 0].items():
        name, model = jobs[str(job_id)]
        mine = sums.setdefault(name, {})
        mine[model] = mine.get(model, 0.0) + float(gpu_hours)
    return {
        name: {model: hours / sum(mine.values()) for model, hours in mine.items()}
        for name, mine in sums.items()
    }


def forecast_workloads(
    workloads: Sequence[WorkloadRuns],
    allocated: pd.DataFrame,
    fleet: pd.DataFrame,
    *,
    as_of: datetime,
    settings: PlanningSettings,
    ray_address: str = "",
) -> tuple[WorkloadForecast, ...]:
    """Return the forecasts of workloads, the largest first; frames as for `workload_history`.

    A workload of which nothing was held has none; at most `MAX_WORKLOADS` have one.
    """
    by_name = {workload.name: workload for workload in workloads}
    name_of = {job.job_id: workload.name for workload in workloads for job in workload.jobs}
    history = workload_history(workloads, allocated, fleet)
    shares = models_of(workloads, allocated, as_of)
    jobs = [job for workload in workloads for job in workload.jobs]
    groups = [
        since_first(group)
        for group in group_series(
            history,
            SECONDS_PER_HOUR,
            jobs=jobs,
            names_of=lambda job: (name_of[job.job_id],),
            max_groups=MAX_WORKLOADS + 1,
        )
        if group.kind is GroupKind.WORKLOAD
    ][:MAX_WORKLOADS]
    paths: dict[str, list[GroupForecast]] = {}
    for forecast in forecast_series(
        groups, as_of=as_of, settings=settings, ray_address=ray_address
    ):
        paths.setdefault(forecast.name, []).append(forecast)
    return tuple(
        _forecast(
            by_name[group.name],
            group,
            paths.get(group.name, ()),
            tuple(sorted(shares.get(group.name, {}).items())),
        )
        for group in groups
    )


def since_first(group: GroupSeries) -> GroupSeries:
    """Return the series from the first slot on in which the group held something."""
    allocated = next(
        (entry for entry in group.series if entry.quantity is Quantity.ALLOCATED_GPUS), None
    )
    if allocated is None or not (allocated.values > 0).any():
        return group
    first = int(np.argmax(allocated.values > 0))
    series = tuple(
        replace(
            entry,
            values=entry.values[first:],
            first_slot=entry.first_slot + first * entry.slot_seconds,
        )
        for entry in group.series
    )
    return replace(group, series=series, known_slots=int(series[0].known.sum()))


def totals_of(series: Sequence[DemandSeries]) -> tuple[WorkloadTotal, ...]:
    """Return the sums of the next 7 and 30 days from the end of series by the hour.

    Days are of 24 hours, counted back from the end; a day less than half known is unknown, and
    only days after the last unknown one count. None of fewer than a week of them.
    """
    days = {entry.quantity: _whole_days(entry) for entry in series}
    totals = []
    for ahead in TOTAL_DAYS:
        sums: dict[Quantity, Range] = {}
        before: dict[Quantity, float] = {}
        for quantity, past in days.items():
            unit, factor = _SUM_UNITS[quantity]
            outlook = days_ahead(past[-HISTORY_DAYS:], days_left=float(ahead), weekday=0)
            if outlook is not None:
                low, central, high = (factor * total for total in outlook.sums)
                sums[quantity] = Range(low=low, central=central, high=high, unit=unit)
            if len(past) >= ahead:
                before[quantity] = factor * float(past[-ahead:].sum())
        totals.append(
            WorkloadTotal(days=ahead, sums=tuple(sums.items()), before=tuple(before.items()))
        )
    return tuple(totals)


def _whole_days(series: DemandSeries) -> Floats:
    """Return the sums of the last whole days without an unknown one among them, newest last."""
    count = len(series.values) // _HOURS_PER_DAY
    hours = series.values[len(series.values) - count * _HOURS_PER_DAY :]
    hours = hours.reshape(count, _HOURS_PER_DAY)
    measured = np.isfinite(hours).sum(axis=1)
    sums = np.nansum(hours, axis=1) * _HOURS_PER_DAY / np.maximum(measured, 1)
    unknown = np.flatnonzero(2 * measured < _HOURS_PER_DAY)
    return np.asarray(sums[unknown[-1] + 1 :] if len(unknown) else sums)


def _forecast(
    workload: WorkloadRuns,
    group: GroupSeries,
    horizons: Sequence[GroupForecast],
    models: tuple[tuple[str, float], ...],
) -> WorkloadForecast:
    newest = workload.jobs[-1]
    runs = workload.jobs[-MAX_RUNS:]
    return WorkloadForecast(
        name=workload.name,
        job_ids=tuple(job.job_id for job in runs),
        namespace=newest.namespace,
        owner=newest.owner,
        gpu_models=models or ((newest.gpu_model, 1.0),),
        is_service=workload.is_service,
        runs=len(workload.jobs),
        known_days=group.known_slots / _HOURS_PER_DAY,
        totals=totals_of(group.series),
        horizons=tuple(horizons),
    )
