"""Forecasts for a whole fleet: one answer per job, in order, in as many processes as wanted."""

import math
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pandas as pd

from data.records.forecasts import (
    DemandForecast,
    ForecastSkipped,
    QuantilePath,
    Quantity,
)
from data.records.jobs import Job
from data.settings import PlanningSettings
from data.units import SECONDS_PER_HOUR
from forecasting.backtest import backtest
from forecasting.demand_model import DemandModel
from forecasting.demand_series import DemandSeries, regular_series
from forecasting.prophet_model import ProphetModel
from forecasting.seasonal_naive_model import SeasonalNaiveModel

Forecast = DemandForecast | ForecastSkipped
_ENDED_AFTER_SECONDS = 2 * SECONDS_PER_HOUR
_FEWEST_JOBS_FOR_A_POOL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    job: Job
    rows: pd.DataFrame
    first_slot: int
    settings: PlanningSettings


def models() -> tuple[DemandModel, ...]:
    """Give the models in use; the first is the baseline."""
    return (SeasonalNaiveModel(), ProphetModel())


def forecast_demand(
    history: pd.DataFrame,
    *,
    jobs: Sequence[Job],
    as_of: datetime,
    settings: PlanningSettings,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Forecast, ...]:
    """Give one forecast or skip reason per job, for the slots after the one that holds `as_of`.

    `history` has the columns HISTORY. The result does not depend on the number of processes.
    """
    slot_seconds = settings.slot_minutes * 60
    first_slot = (int(as_of.timestamp()) // slot_seconds + 1) * slot_seconds
    by_job = {str(job_id): rows for job_id, rows in history.groupby("job_id", sort=False)}
    tasks = [
        _Task(
            job=job,
            rows=by_job.get(job.job_id, history.iloc[:0]),
            first_slot=first_slot,
            settings=settings,
        )
        for job in jobs
    ]
    results: list[Forecast] = []
    show = progress or (lambda _done, _total: None)
    show(0, len(tasks))
    for result in _answers(tasks, settings.workers or os.cpu_count() or 1):
        results.append(result)
        show(len(results), len(tasks))
    return tuple(results)


def _answers(tasks: list[_Task], workers: int) -> "list[Forecast] | map[Forecast]":
    work = [task for task in tasks if _skip_reason(task) is None]
    if workers == 1 or len(work) < _FEWEST_JOBS_FOR_A_POOL:
        return map(_forecast_job, tasks)
    # Spawned, not forked: the parent may hold threads and an open DuckDB file.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(_forecast_job, tasks, chunksize=4))


def _skip_reason(task: _Task) -> str | None:
    rows, settings = task.rows, task.settings
    if rows.empty:
        return "no samples in the history"
    hours = len(rows) * settings.slot_minutes / 60
    if hours < settings.minimum_history_hours:
        return (
            f"only {hours:.2g} h of known history, {settings.minimum_history_hours:g} h are needed"
            " (planning.minimum_history_hours)"
        )
    last = rows["slot_start"].max().timestamp()
    quiet = task.first_slot - last - settings.slot_minutes * 60
    if quiet > max(_ENDED_AFTER_SECONDS, settings.slot_minutes * 120):
        return f"ended: no sample for {quiet / SECONDS_PER_HOUR:.1f} h"
    if not np.isfinite(rows[str(Quantity.EFFECTIVE_GPUS)]).any():
        return "no utilization reported"
    return None


def _upper_bound(job: Job, quantity: Quantity) -> float:
    if quantity is Quantity.EFFECTIVE_GPUS:
        return float(job.gpu_count)
    if quantity is Quantity.MEMORY and job.gpu_memory_mib is not None:
        return job.gpu_memory_mib
    return math.inf


def _forecast_job(task: _Task) -> Forecast:
    rows, settings = task.rows, task.settings
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
    reason = _skip_reason(task)
    if reason is not None:
        return ForecastSkipped(job_id=task.job.job_id, reason=reason, **counts)
    paths: list[QuantilePath] = []
    missing: list[tuple[Quantity, str]] = []
    for quantity in Quantity:
        if not np.isfinite(rows[str(quantity)]).any():
            missing.append((quantity, "never reported by the source"))
            continue
        series = regular_series(
            rows, quantity, slot_seconds=slot_seconds, upper=_upper_bound(task.job, quantity)
        )
        paths.append(_path(series, task.first_slot, settings.horizon_slots))
    return DemandForecast(
        job_id=task.job.job_id,
        slot_starts=tuple(
            datetime.fromtimestamp(task.first_slot + step * slot_seconds, tz=UTC)
            for step in range(settings.horizon_slots)
        ),
        paths=tuple(paths),
        missing=tuple(missing),
        **counts,
    )


def _path(series: DemandSeries, first_slot: int, horizon: int) -> QuantilePath:
    """Give the path of one quantity for `horizon` slots from `first_slot` on."""
    # The newest slot may lie before the one that holds `as_of`: forecast across, then cut.
    after = series.first_slot + len(series.values) * series.slot_seconds
    ahead = max(0, (first_slot - after) // series.slot_seconds)
    known = series.values[series.known]
    notes: tuple[str, ...] = ()
    candidates = models()
    if float(known.max() - known.min()) == 0.0:
        candidates, notes = candidates[:1], ("the history is constant",)
    chosen, tested = backtest(series, candidates, horizon)
    model = next(one for one in candidates if one.name == chosen)
    quantiles = model.forecast(series, ahead + horizon)
    return QuantilePath(
        quantity=series.quantity,
        model=chosen,
        q10=tuple(quantiles.q10[ahead:].tolist()),
        q50=tuple(quantiles.q50[ahead:].tolist()),
        q90=tuple(quantiles.q90[ahead:].tolist()),
        backtest=tested,
        notes=notes,
    )
