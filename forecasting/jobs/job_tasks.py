"""The series to forecast of each job, and the reasons why some jobs are skipped."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pandas as pd

from data.base.units import SAME_BOARDS, SECONDS_PER_HOUR
from data.boards.unplanned_jobs import is_quiet, quiet_seconds
from data.facts.jobs import Job, JobState
from data.records.feasible_changes import AUTOSCALERS
from data.records.forecasts import JOB_QUANTITIES, ForecastSkipped, Quantity
from data.settings.all_settings import PlanningSettings
from forecasting.series.demand_series import DemandSeries, regular_series

MIN_HISTORY_HOURS = 6.0
"""Fewer show no course of a day: a job then borrows the forecast of similar ones."""
_AWAY = {JobState.PENDING: "it waits", JobState.SUSPENDED: "it is suspended"}
NEVER_REPORTED = "never reported by the source"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTask:
    """One job's series, by quantity that was reported; `young`: too short to stand alone.

    `power_forgotten` is why no power is known of the boards of now, '' where some is.
    """

    job: Job
    series: tuple[DemandSeries, ...]
    samples: int
    history_slots: int
    known_slots: int
    young: bool
    power_forgotten: str = ""

    def one(self, quantity: Quantity) -> DemandSeries | None:
        """Return the series of a quantity, None when it was never reported."""
        return next((entry for entry in self.series if entry.quantity is quantity), None)

    @property
    def missing(self) -> tuple[tuple[Quantity, str], ...]:
        """The quantities of which nothing is known, each with the reason."""
        forgotten = {Quantity.POWER: self.power_forgotten} if self.power_forgotten else {}
        return tuple(
            (quantity, forgotten.get(quantity, NEVER_REPORTED))
            for quantity in JOB_QUANTITIES
            if self.one(quantity) is None
        )


def first_slot_after(as_of: datetime, slot_seconds: int) -> int:
    """Return the start (s, epoch) of the slot after the one that holds `as_of`."""
    return (int(as_of.timestamp()) // slot_seconds + 1) * slot_seconds


def job_tasks(
    history: pd.DataFrame,
    *,
    jobs: Sequence[Job],
    first_slot: int,
    settings: PlanningSettings,
) -> list[JobTask | ForecastSkipped]:
    """Return per job what to forecast, or the reason why nothing can be.

    `history` has the columns HISTORY.
    """
    by_job: Mapping[str, pd.DataFrame] = {
        str(job_id): rows for job_id, rows in history.groupby("job_id", sort=False)
    }
    nothing = history.iloc[:0]
    return [_task(job, by_job.get(job.job_id, nothing), first_slot, settings) for job in jobs]


def _task(
    job: Job, rows: pd.DataFrame, first_slot: int, settings: PlanningSettings
) -> JobTask | ForecastSkipped:
    slot_seconds = settings.slot_minutes * 60
    span = 0
    if not rows.empty:
        edges = rows["slot_start"].agg(["min", "max"])
        span = int((edges["max"] - edges["min"]).total_seconds()) // slot_seconds + 1
    counts = {
        "samples": int(rows["sample_count"].sum()),
        "history_slots": span,
        "known_slots": len(rows),
    }
    reason = _skip_reason(job, rows, first_slot, slot_seconds)
    if reason:
        return ForecastSkipped(job_id=job.job_id, reason=reason, **counts)
    power, forgotten = _power_of_now(job, rows, settings)
    rows = rows.assign(power_watts=power)
    series = tuple(
        regular_series(rows, quantity, slot_seconds=slot_seconds, upper=_upper_bound(job, quantity))
        for quantity in JOB_QUANTITIES
        if np.isfinite(rows[str(quantity)]).any()
    )
    hours = len(rows) * settings.slot_minutes / 60
    young = hours < MIN_HISTORY_HOURS
    return JobTask(job=job, series=series, young=young, power_forgotten=forgotten, **counts)


def _power_of_now(
    job: Job, rows: pd.DataFrame, settings: PlanningSettings
) -> tuple["pd.Series[float]", str]:
    """Return a job's power in the slots on as many boards as now, and why in none of them.

    What other numbers of boards drew, as before a change, says nothing of these. Those of an
    autoscaler come again, and boards that nobody reads are no other number.
    """
    power, gpus = rows["power_watts"], rows["allocated_gpus"]
    managed_by = () if job.scheduler is None else job.scheduler.managed_by
    if any(name in AUTOSCALERS for name in managed_by):
        return power, ""
    same = (gpus - job.gpu_count).abs() < SAME_BOARDS
    other = gpus.notna() & ~same if same.any() else gpus > job.gpu_count + SAME_BOARDS
    current = power.where(~other)
    hours = float(current.notna().sum()) * settings.slot_minutes / 60
    if hours >= MIN_HISTORY_HOURS or not power[other].notna().any():
        return current, ""
    return pd.Series(np.nan, index=power.index), (
        f"only {hours:.2g} h on {job.gpu_count} GPUs are known, {MIN_HISTORY_HOURS:g} h are needed"
    )


def _skip_reason(job: Job, rows: pd.DataFrame, first_slot: int, slot_seconds: int) -> str:
    if rows.empty:
        return "no samples in the history"
    last = rows["slot_start"].max()
    if is_quiet(last, first_slot, slot_seconds):
        state = None if job.scheduler is None else job.scheduler.state
        if state in _AWAY and not is_quiet(job.last_seen_at, first_slot, slot_seconds):
            return f"{_AWAY[state]}; its last reading is of {last:%Y-%m-%d %H:%M} UTC"
        quiet = quiet_seconds(last, first_slot, slot_seconds)
        return f"ended: no sample for {quiet / SECONDS_PER_HOUR:.1f} h"
    if not np.isfinite(rows[str(Quantity.EFFECTIVE_GPUS)]).any():
        return "no utilization reported"
    return ""


def _upper_bound(job: Job, quantity: Quantity) -> float:
    if quantity is Quantity.EFFECTIVE_GPUS:
        return float(job.gpu_count)
    if quantity is Quantity.MEMORY and job.gpu_memory_mib is not None:
        return job.gpu_memory_mib
    return math.inf
