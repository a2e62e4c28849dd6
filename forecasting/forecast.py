"""Forecasts for a fleet: one answer per job, in order, even where single series fail.

A job too young for one of its own gets the spread of similar jobs' use. Every lender counts the
same, however long it ran; the job's own few slots count as they grow in number. Bands are wider
than named: q10 and q90 are the lenders' 5 and 95 %.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np
import pandas as pd

from data.base.units import SECONDS_PER_HOUR
from data.facts.jobs import Job
from data.records.forecasts import (
    MIN_HISTORY_HOURS,
    DemandForecast,
    ForecastSkipped,
    QuantilePath,
    Quantity,
    WindowPeak,
)
from data.settings.all_settings import PlanningSettings
from forecasting.jobs.forecast_path import PathTask, path_of
from forecasting.jobs.job_tasks import JobTask, first_slot_after, job_tasks
from forecasting.jobs.path_pool import paths_of
from forecasting.models.demand_model import Quantiles
from forecasting.series.demand_series import DemandSeries, Values
from forecasting.series.job_keys import lenders
from forecasting.series.window_peaks import PeakSubject, window_peaks

OUTER_LEVELS = np.array([0.02, 0.05, 0.50, 0.95, 0.98])
"""Levels of the pooled values that become q05, q10, q50, q90, q95."""
_HALF_WEIGHT_SLOTS = 16
"""Known slots of its own at which a job's own spread weighs as much as its lenders'."""
BORROWED = "borrowed"


def borrowed(
    history: Values, lent: Sequence[Values], horizon: int, *, lower: float, upper: float
) -> Quantiles | None:
    """Return the same quantiles for each of `horizon` slots; None without any known value.

    history: the job's values so far; lent: an array of values per lender, in the same unit (per GPU
    values multiplied by the job's GPUs). NaN is unknown.
    """
    runs = [run[np.isfinite(run)] for run in lent]
    runs = [run for run in runs if len(run)]
    mine = history[np.isfinite(history)]
    if not runs:
        return None
    values = np.concatenate(runs)
    weights = np.concatenate([np.full(len(run), 1 / len(run)) for run in runs])
    levels = _weighted_quantiles(values, weights)
    if len(mine):
        share = len(mine) / (len(mine) + _HALF_WEIGHT_SLOTS)
        levels = share * np.quantile(mine, OUTER_LEVELS) + (1 - share) * levels
    rows = np.tile(np.clip(levels, lower, upper)[:, None], horizon)
    return Quantiles(q05=rows[0], q10=rows[1], q50=rows[2], q90=rows[3], q95=rows[4])


def _weighted_quantiles(values: Values, weights: Values) -> Values:
    order = np.argsort(values)
    share = np.cumsum(weights[order])
    middle = (share - 0.5 * weights[order]) / share[-1]
    return np.asarray(np.interp(OUTER_LEVELS, middle, values[order]))


Forecast = DemandForecast | ForecastSkipped
_PEAK_QUANTITIES = (Quantity.EFFECTIVE_GPUS, Quantity.MEMORY)
_PEAK_HOURS = 24


def forecast_demand(
    history: pd.DataFrame,
    *,
    jobs: Sequence[Job],
    as_of: datetime,
    settings: PlanningSettings,
    ray_address: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Forecast, ...]:
    """Return one forecast or skip reason per job, for the slots after the one that holds `as_of`.

    `history` has the columns HISTORY. The result does not depend on the number of workers.
    """
    first_slot = first_slot_after(as_of, settings.slot_minutes * 60)
    tasks = job_tasks(history, jobs=jobs, first_slot=first_slot, settings=settings)
    forecastable = [task for task in tasks if isinstance(task, JobTask)]
    established = [task for task in forecastable if not task.young]
    paths = iter(
        paths_of(
            [
                PathTask(
                    series=entry,
                    first_slot=first_slot,
                    horizon=settings.horizon_slots,
                )
                for task in established
                for entry in task.series
            ],
            settings=settings,
            ray_address=ray_address,
            progress=progress,
        )
    )
    starts = tuple(
        datetime.fromtimestamp(first_slot + step * settings.slot_minutes * 60, tz=UTC)
        for step in range(settings.horizon_slots)
    )
    forecasts: dict[str, Forecast] = {}
    peaks = _peaks(forecastable, settings)
    # The paths come back in the order of the tasks, so each job takes as many as it has series.
    for task in established:
        mine = tuple(next(paths) for _ in task.series)
        forecasts[task.job.job_id] = _forecast(
            task, mine, starts, peaks=peaks.get(task.job.job_id, ())
        )
    for task in forecastable:
        if task.young:
            forecasts[task.job.job_id] = _young(task, forecastable, starts, settings)
    return tuple(
        task if isinstance(task, ForecastSkipped) else forecasts[task.job.job_id] for task in tasks
    )


def _forecast(
    task: JobTask,
    paths: tuple[QuantilePath, ...],
    slot_starts: tuple[datetime, ...],
    *,
    peaks: tuple[WindowPeak, ...] = (),
    borrowed_from: str = "",
) -> DemandForecast:
    return DemandForecast(
        job_id=task.job.job_id,
        slot_starts=slot_starts,
        paths=paths,
        missing=task.missing,
        samples=task.samples,
        history_slots=task.history_slots,
        known_slots=task.known_slots,
        peaks=peaks,
        borrowed_from=borrowed_from,
    )


def _young(
    task: JobTask,
    tasks: Sequence[JobTask],
    slot_starts: tuple[datetime, ...],
    settings: PlanningSettings,
) -> Forecast:
    """Return the forecast of a job with too little history, by that of similar jobs."""
    others = {job_task.job.job_id: job_task for job_task in tasks if not job_task.young}
    words, kin = lenders(task.job, [other.job for other in others.values()])
    paths = tuple(
        path
        for entry in task.series
        if (path := _borrowed_path(task.job, entry, [others[job.job_id] for job in kin], settings))
        is not None
    )
    if not paths:
        hours = task.known_slots * settings.slot_minutes / 60
        return ForecastSkipped(
            job_id=task.job.job_id,
            reason=f"only {hours:.2g} h of known history, {MIN_HISTORY_HOURS:g} h are "
            "needed, and no job of its kind has more",
            samples=task.samples,
            history_slots=task.history_slots,
            known_slots=task.known_slots,
        )
    return _forecast(task, paths, slot_starts, borrowed_from=words)


def _borrowed_path(
    job: Job, demand: DemandSeries, kin: Sequence[JobTask], settings: PlanningSettings
) -> QuantilePath | None:
    per_gpu = demand.quantity is not Quantity.MEMORY
    lent = [
        series.values * (job.gpu_count / task.job.gpu_count if per_gpu else 1.0)
        for task in kin
        if (series := task.one(demand.quantity)) is not None
    ]
    quantiles = borrowed(
        demand.values, lent, settings.horizon_slots, lower=demand.lower, upper=demand.upper
    )
    return None if quantiles is None else path_of(demand, quantiles, BORROWED)


def _peaks(
    tasks: Sequence[JobTask], settings: PlanningSettings
) -> Mapping[str, tuple[WindowPeak, ...]]:
    window = round(_PEAK_HOURS * SECONDS_PER_HOUR / (settings.slot_minutes * 60))
    window = min(window, settings.horizon_slots)
    peaks: dict[str, tuple[WindowPeak, ...]] = {}
    for quantity in _PEAK_QUANTITIES:
        subjects = [
            PeakSubject(
                job_id=task.job.job_id,
                cohort=f"{task.job.kind} jobs",
                series=series,
                scale=_scale(task.job, series),
            )
            for task in tasks
            if (series := task.one(quantity)) is not None
        ]
        for job_id, peak in window_peaks(subjects, quantity=quantity, window_slots=window).items():
            peaks[job_id] = (*peaks.get(job_id, ()), peak)
    return peaks


def _scale(job: Job, series: DemandSeries) -> float:
    """Return the scale that makes the peaks of jobs comparable: GPUs, or the memory of one."""
    if series.quantity is Quantity.MEMORY:
        return job.gpu_memory_mib or float(np.nanmax(series.values)) or 1.0
    return float(job.gpu_count)
