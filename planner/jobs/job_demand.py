"""The past and forecast demand of one job, by which configurations are judged."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from data.base.errors import ImpossibleProblemError
from data.base.units import IDLE_RATIO, SAME_BOARDS, SECONDS_PER_HOUR
from data.catalogue.gpu_catalogue import GpuModel
from data.facts.fleet import BoardShare
from data.facts.job_history import NO_HISTORY, JobHistory
from data.facts.jobs import Job
from data.facts.queue_waits import QueueWait
from data.records.forecasts import DemandForecast, ForecastSkipped, Quantity
from data.records.serving import ServiceOutlook
from data.settings.all_settings import PlanningSettings
from planner.jobs.elasticity import Elasticity, JobElasticity, standing_of
from planner.jobs.job_end import Remaining, waits_for_start
from planner.jobs.power_curve import PowerCurve, learned_curve
from planner.jobs.work_returns import Rests, WorkReturn, return_of

Values = npt.NDArray[np.float64]
_WEEK, _MIN_SEEN, _WORK = timedelta(days=7), timedelta(hours=22), timedelta(hours=1)
_MIN_BUSY_SLOTS = 3
"""A restart of minutes, which loads weights, may straddle two slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDemand:
    """Demand in devices of the present configuration, per slot of the horizon.

    `demand_*` are None without a forecast, `quantiles` are then empty, else (level, path) pairs,
    ascending; memory is MiB per device, and where a phase that took more is over, what stays needed
    (`memory_freed` says so); power is W of the whole job per slot, None when never reported, around
    what it draws at rest when it has long been idle. `remaining` says in which slots the job can
    still be there, `power_curve` how its power follows activity, `queue_wait` how long it would
    wait to be started again, or still waits for its start, None where no queue is in the way.
    `peak_load_ratio` is what the requests of a service take at their peak of what it carries, None
    where unknown: activity may show less, so `demand_q90` and `quantiles` are raised until their
    peak is that share of it, at most what is there. `foreseen_devices` are those that the
    autoscaler of a service is foreseen to hold by slot; None where none scales it or its engines
    tell no requests. `seen_idle_hours` is for how long up to now it did nothing, `idle_hours` the
    same as far as it counts: 0 of a service that worked within a week. `work_return` is the chance
    that its work returns within the horizon. `share` is what the job has of boards that others are
    on too, None of one that has its devices alone. `past` is what was read of it.
    """

    job: Job
    standing: JobElasticity
    remaining: Remaining
    forecast: DemandForecast | ForecastSkipped
    demand_q10: Values | None
    demand_q50: Values | None
    demand_q90: Values | None
    quantiles: tuple[tuple[float, Values], ...]
    memory_mib: float | None
    power_q10: Values | None
    power_q50: Values | None
    power_q90: Values | None
    coverage_ratio: float
    idle_hours: float
    seen_idle_hours: float
    work_return: WorkReturn
    utilization_p95_ratio: float | None
    utilization_mean_ratio: float | None
    memory_max_mib: float | None
    power_mean_watts: float | None
    board_mean_watts: float | None
    board_max_watts: float | None
    samples: int
    window_start: datetime | None
    memory_freed: bool = False
    queue_wait: QueueWait | None = None
    power_curve: PowerCurve = PowerCurve()  # noqa: RUF009 - a frozen value
    peak_load_ratio: float | None = None
    foreseen_devices: Values | None = None
    share: BoardShare | None = None
    past: JobHistory = NO_HISTORY

    @property
    def is_fixed(self) -> bool:
        """Whether no change of it is advised: it is protected, or others are on its boards."""
        return bool(self.standing.protected) or self.share is not None

    @property
    def start_unknown(self) -> bool:
        """Whether it waits for its start and nobody knows how long."""
        forecast = self.queue_wait is not None and self.queue_wait.known
        return waits_for_start(self.job) and not forecast

    @property
    def hours_to_redo(self) -> float:
        """What a stop loses of a run, in h: its work before the present rest; 0 of a service."""
        lost = self.standing.lost
        if lost is None or self.standing.elasticity is Elasticity.SERVICE:
            return 0.0
        return max(0.0, lost.seconds[1] / SECONDS_PER_HOUR - self.work_return.present)

    def may_stop(self, planning: PlanningSettings) -> bool:
        """Return whether it is idle for long enough, and its work unlikely to return."""
        long_idle = self.idle_hours >= planning.reclaim_idle_hours
        return long_idle and self.work_return.may_stop(planning.max_return_chance)


def job_demand(
    job: Job,
    rows: JobHistory,
    forecast: DemandForecast | ForecastSkipped,
    planning: PlanningSettings,
    *,
    remaining: Remaining,
    rests: Rests,
    similar: Sequence[Values] = (),
    held_mib: float | None = None,
    queue_wait: QueueWait | None = None,
    model: GpuModel | None = None,
    service: ServiceOutlook | None = None,
    slot_starts: Sequence[datetime] = (),
    board_share: BoardShare | None = None,
) -> JobDemand:
    """Return the demand of a job from the rows of its history and its forecast.

    `model` tells how the power of its boards follows activity; `service` what its requests need in
    the slots from `slot_starts`.

    `rests` are its own, `similar` is what those of similar jobs say, of the widest group first.
    `held_mib` is what memory is held to for the horizon after a phase that took more, None where
    there was none: the largest reading then says nothing of what is to come.
    """
    peak_load_ratio = None if service is None else service.peak_load_ratio
    standing = standing_of(job, planning)
    demand = _path(forecast, Quantity.EFFECTIVE_GPUS)
    memory = _path(forecast, Quantity.MEMORY)
    power = _path(forecast, Quantity.POWER)
    largest = _largest(rows.memory_used_mib)
    forecast_memory = None if memory is None else float(memory[2].max())
    peaks = [peak for peak in (largest, forecast_memory) if peak is not None]
    span = forecast.history_slots
    # A service that answers requests is not idle, however little its GPUs show of it.
    seen_idle_hours = 0.0 if peak_load_ratio else rests.present
    is_needed = standing.elasticity is Elasticity.SERVICE and _worked_lately(rows, planning)
    idle_hours = 0.0 if is_needed else seen_idle_hours
    # With headroom all that it has, and no more: whether more replicas pay is a matter of hours.
    share = min(peak_load_ratio or 0.0, 1 / (1 + planning.headroom_ratio))
    devices = job.gpu_count * share
    high = None if demand is None else _raised(demand[2], demand[2], devices)
    power = _at_rest(power, rows, idle_hours, planning)
    return JobDemand(
        job=job,
        standing=standing,
        remaining=remaining,
        forecast=forecast,
        demand_q10=None if demand is None else demand[0],
        demand_q50=None if demand is None else demand[1],
        demand_q90=high,
        quantiles=tuple(
            (level, path if demand is None else _raised(path, demand[2], devices))
            for level, path in _quantiles(forecast)
        ),
        memory_mib=_needed_memory(peaks, held_mib),
        power_q10=None if power is None else power[0],
        power_q50=None if power is None else power[1],
        power_q90=None if power is None else power[2],
        coverage_ratio=forecast.known_slots / span if span else 0.0,
        idle_hours=idle_hours,
        seen_idle_hours=seen_idle_hours,
        work_return=return_of(rests, similar, planning.horizon_slots * planning.slot_minutes / 60),
        utilization_p95_ratio=_quantile(rows.utilization_ratio, 0.95),
        utilization_mean_ratio=_mean(rows.utilization_ratio),
        memory_max_mib=largest,
        power_mean_watts=_mean(rows.power_watts),
        board_mean_watts=_board_mean_watts(rows),
        board_max_watts=_board_max_watts(rows, job.gpu_count),
        samples=int(rows.sample_count.sum()),
        window_start=rows.slot_start[0].item().replace(tzinfo=UTC) if len(rows) else None,
        memory_freed=held_mib is not None,
        queue_wait=queue_wait,
        power_curve=learned_curve(rows, None if job.mig_profile else model),
        peak_load_ratio=peak_load_ratio,
        foreseen_devices=None
        if board_share
        else _forecast_devices(job, standing, service, slot_starts, planning),
        share=board_share,
        past=rows,
    )


def check_demand(demand: JobDemand, planning: PlanningSettings) -> None:
    """Raise ImpossibleProblemError when a path has another length or a value below zero."""
    for name in ("demand", "power"):
        for level in ("q10", "q50", "q90"):
            path = getattr(demand, f"{name}_{level}")
            if path is None:
                continue
            if len(path) != planning.horizon_slots:
                raise ImpossibleProblemError(
                    f"job {demand.job.job_id!r} has a {name} forecast of {len(path)} slots, "
                    f"{planning.horizon_slots} are planned",
                    "forecast with the same planning.horizon_slots",
                )
            wrong = np.flatnonzero(~(path >= 0))
            if len(wrong):
                raise ImpossibleProblemError(
                    f"job {demand.job.job_id!r} has a {name} {level} of {path[wrong[0]]:g} in "
                    f"slot {wrong[0]}",
                    "forecast values of at least 0, or leave the quantity out",
                )


def _forecast_devices(
    job: Job,
    standing: JobElasticity,
    service: ServiceOutlook | None,
    slot_starts: Sequence[datetime],
    planning: PlanningSettings,
) -> Values | None:
    """Return the devices that an autoscaler is foreseen to hold, within its bounds, [slots].

    At least those of one replica, and as many as now where nothing tells of a slot. Where engines
    of some of the replicas are not read, at least as many as now.
    """
    if service is None or not standing.scaled_by or job.mig_profile:
        return None
    slot, least = timedelta(minutes=planning.slot_minutes), standing.least or standing.step
    counts = [service.foreseen_between(start, start + slot) for start in slot_starts]
    devices = [job.gpu_count if count is None else count * standing.step for count in counts]
    if service.replicas * standing.step != job.gpu_count:
        devices = [max(job.gpu_count, count) for count in devices]
    return np.clip(np.array(devices, dtype=np.float64), least, standing.most)


def _raised(path: Values, high: Values, devices: float) -> Values:
    """Return a path by as much larger as `high` has to be to reach `devices` at its peak.

    Where `high` shows nothing, all of them are needed in every slot.
    """
    peak = float(high.max())
    if peak >= devices:
        return path
    return path * (devices / peak) if peak > 0 else np.full_like(path, devices)


def _needed_memory(peaks: list[float], held_mib: float | None) -> float | None:
    if not peaks or held_mib is None:
        return max(peaks, default=None)
    return min(max(peaks), held_mib)


def _path(
    forecast: DemandForecast | ForecastSkipped, quantity: Quantity
) -> tuple[Values, Values, Values] | None:
    path = None if isinstance(forecast, ForecastSkipped) else forecast.path(quantity)
    if path is None:
        return None
    return np.array(path.q10), np.array(path.q50), np.array(path.q90)


def _quantiles(forecast: DemandForecast | ForecastSkipped) -> tuple[tuple[float, Values], ...]:
    path = None if isinstance(forecast, ForecastSkipped) else forecast.path(Quantity.EFFECTIVE_GPUS)
    if path is None:
        return ()
    inner = ((0.10, path.q10), (0.50, path.q50), (0.90, path.q90))
    other = ((0.05, path.q05), (0.25, path.q25), (0.75, path.q75), (0.95, path.q95))
    every = sorted([*inner, *(pair for pair in other if pair[1])])
    return tuple((level, np.array(row)) for level, row in every)


def _finite(values: Values) -> Values:
    return values[~np.isnan(values)]


def _largest(values: Values) -> float | None:
    valid = _finite(values)
    return float(valid.max()) if len(valid) else None


def _mean(values: Values) -> float | None:
    valid = _finite(values)
    return float(valid.mean()) if len(valid) else None


def _quantile(values: Values, level: float) -> float | None:
    valid = _finite(values)
    return float(np.quantile(valid, level)) if len(valid) else None


def _board_mean_watts(rows: JobHistory) -> float | None:
    """Return the mean power of a board over all slots, on however many the job was."""
    valid = ~np.isnan(rows.power_watts) & (rows.allocated_gpus > 0)
    boards = float(rows.allocated_gpus[valid].sum())
    return float(rows.power_watts[valid].sum()) / boards if boards else None


def _board_max_watts(rows: JobHistory, gpu_count: int) -> float | None:
    """Return the most that a board drew in a slot, of those in which it held as many as now.

    On more boards, as before a change, their sum says nothing of each of fewer.
    """
    same = np.abs(rows.allocated_gpus - gpu_count) < SAME_BOARDS
    largest = _largest(rows.power_watts[same])
    return None if largest is None else largest / gpu_count


def _at_rest(
    power: tuple[Values, Values, Values] | None,
    rows: JobHistory,
    idle_hours: float,
    planning: PlanningSettings,
) -> tuple[Values, Values, Values] | None:
    """Return the power of a job, of one that has long been idle around what it draws at rest.

    Its forecast still remembers the work before. It may work again: q90 stays at least as high.
    """
    if power is None or idle_hours < planning.reclaim_idle_hours:
        return power
    slots = max(1, round(idle_hours * 60 / planning.slot_minutes))
    watts = _finite(rows.power_watts[-slots:])
    if not len(watts):
        return power
    rest = float(np.median(watts))
    return np.minimum(power[0], rest), np.full_like(power[1], rest), np.maximum(power[2], rest)


def restart_slots(job: Job, planning: PlanningSettings) -> int:
    """Return the slots of work in a row that may be a restart of a service, 0 of other jobs."""
    is_service = standing_of(job, planning).elasticity is Elasticity.SERVICE
    return (_work_slots(planning) - 1) * is_service


def _work_slots(planning: PlanningSettings) -> int:
    """Return the slots of work from which a service has worked."""
    return max(_MIN_BUSY_SLOTS, -(-_WORK // timedelta(minutes=planning.slot_minutes)))


def _worked_lately(rows: JobHistory, planning: PlanningSettings) -> bool:
    """Return whether a service worked for an hour of the last week, or was first read this day.

    Its nights and weekends are quiet: they do not tell that nobody needs it any more. A restart
    is no work.
    """
    valid = ~np.isnan(rows.utilization_max_ratio)
    if not valid.any():
        return True
    age = rows.slot_start[valid][-1] - rows.slot_start[valid]
    slot = timedelta(minutes=planning.slot_minutes)
    busy = rows.utilization_max_ratio[valid] > IDLE_RATIO
    worked = (busy & (age < _WEEK)).sum() >= _work_slots(planning)
    return bool(worked or age[0].item() + slot < _MIN_SEEN)
