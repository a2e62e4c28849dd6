"""The series to forecast of each job, and the reasons why some jobs are skipped."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pandas as pd

from data.base.units import SAME_BOARDS, SECONDS_PER_HOUR
from data.boards.unplanned_jobs import is_quiet, quiet_seconds
from data.facts.job_history import NO_HISTORY, JobHistory, job_histories
from data.facts.jobs import Job, JobState
from data.records.feasible_changes import AUTOSCALERS
from data.records.forecasts import (
    JOB_QUANTITIES,
    MIN_HISTORY_HOURS,
    ForecastSkipped,
    Quantity,
)
from data.settings.all_settings import PlanningSettings
from forecasting.series.demand_series import DemandSeries, Values, regular_series

_STATES_WITHOUT_READINGS = {JobState.PENDING: "it waits", JobState.SUSPENDED: "it is suspended"}
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
    by_job = job_histories(history)
    return [_task(job, by_job.get(job.job_id, NO_HISTORY), first_slot, settings) for job in jobs]


def _task(
    job: Job, rows: JobHistory, first_slot: int, settings: PlanningSettings
) -> JobTask | ForecastSkipped:
    slot_seconds = settings.slot_minutes * 60
    starts = rows.slot_start.astype("datetime64[s]").astype(np.int64)
    span = int(starts[-1] - starts[0]) // slot_seconds + 1 if len(starts) else 0
    counts = {
        "samples": int(rows.sample_count.sum()),
        "history_slots": span,
        "known_slots": len(rows),
    }
    reason = _skip_reason(job, rows, first_slot, slot_seconds)
    if reason:
        return ForecastSkipped(job_id=job.job_id, reason=reason, **counts)
    power, forgotten = _power_of_now(job, rows, settings)
    series = tuple(
        regular_series(
            starts,
            amounts,
            quantity,
            slot_seconds=slot_seconds,
            upper=_upper_bound(job, quantity),
        )
        for quantity in JOB_QUANTITIES
        for amounts in (power if quantity is Quantity.POWER else getattr(rows, quantity),)
        if np.isfinite(amounts).any()
    )
    hours = len(rows) * settings.slot_minutes / 60
    young = hours < MIN_HISTORY_HOURS
    return JobTask(job=job, series=series, young=young, power_forgotten=forgotten, **counts)


def _power_of_now(job: Job, rows: JobHistory, settings: PlanningSettings) -> tuple[Values, str]:
    """Return a job's power in the slots on as many boards as now, and why in none of them.

    What other numbers of boards drew, as before a change, says nothing of these. Those of an
    autoscaler come again, and boards that nobody reads are no other number.
    """
    power, gpus = rows.power_watts, rows.allocated_gpus
    managed_by = job.scheduling.managed_by
    if any(name in AUTOSCALERS for name in managed_by):
        return power, ""
    same = np.abs(gpus - job.gpu_count) < SAME_BOARDS
    other = ~np.isnan(gpus) & ~same if same.any() else gpus > job.gpu_count + SAME_BOARDS
    current = np.where(other, np.nan, power)
    hours = float((~np.isnan(current)).sum()) * settings.slot_minutes / 60
    if hours >= MIN_HISTORY_HOURS or np.isnan(power[other]).all():
        return current, ""
    return np.full(len(power), np.nan), (
        f"only {hours:.2g} h on {job.gpu_count} GPUs are known, {MIN_HISTORY_HOURS:g} h are needed"
    )


def _skip_reason(job: Job, rows: JobHistory, first_slot: int, slot_seconds: int) -> str:
    if not len(rows):
        return "no samples in the history"
    last = datetime.fromtimestamp(float(rows.slot_start[-1].astype(np.int64)) / 1e6, tz=UTC)
    if is_quiet(last, first_slot, slot_seconds):
        state = None if job.scheduler is None else job.scheduler.state
        if state in _STATES_WITHOUT_READINGS and not is_quiet(
            job.last_seen_at, first_slot, slot_seconds
        ):
            state_text = _STATES_WITHOUT_READINGS[state]
            return f"{state_text}; its last reading is of {last:%Y-%m-%d %H:%M} UTC"
        quiet = quiet_seconds(last, first_slot, slot_seconds)
        return f"ended: no sample for {quiet / SECONDS_PER_HOUR:.1f} h"
    if not np.isfinite(rows.effective_gpus).any():
        return "no utilization reported"
    return ""


def _upper_bound(job: Job, quantity: Quantity) -> float:
    if quantity is Quantity.EFFECTIVE_GPUS:
        return float(job.gpu_count)
    if quantity is Quantity.MEMORY and job.gpu_memory_mib is not None:
        return job.gpu_memory_mib
    return math.inf
