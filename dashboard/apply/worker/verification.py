"""Measured effect of a change: the job since, against the same job without the change.

What it would have held and drawn is read off the day before (`counterfactual.py`).

A change made for memory is judged by memory alone: whether what the job took since stays below what
its devices offer. A climb that begins anew after the restart is the next cycles' to foresee.
Of a job that took a share the memory of its board is judged too, and how long its requests take,
since readings of a shared board mirror all of its holders. What is not read is unknown.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pandas as pd

from dashboard.apply.worker.counterfactual import (
    NO_WORK_RATIO,
    HeldBoards,
    HistoryAfter,
    remaining_part,
    saved,
)
from dashboard.apply.worker.progress import Progress
from dashboard.apply.worker.task import Task
from data.base.clock import floor_to_slot
from data.base.units import GRAMS_PER_KILOGRAM, MIN_COVERAGE_RATIO, SECONDS_PER_HOUR
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import GpuCatalogue, GpuModel, load_gpu_catalogue
from data.facts.jobs import Job
from data.records.actions import FOR_MEMORY
from data.records.commands import Measurement, Work
from data.records.feasible_changes import unit_of
from data.records.lifecycle import LifecycleEvent
from data.records.plans import Configuration
from data.records.recommendations import Range, Recommendation
from data.settings.all_settings import Settings
from data.settings.energy import PUE_UNCERTAINTY, EnergySettings
from data.store import StoreReader
from forecasting.power.free_boards import with_measured_idle
from planner.costs.free_boards import freed_board

BASELINE_WINDOW = timedelta(hours=24)
_BY_TIME = "the job did no work to measure by: compared by time"
_SHARES = "it shares its GPUs: their readings mirror all holders"
_NOTHING = Range(low=0, central=0, high=0, unit="W")
MAX_READINGS = 20_000
_SATURATED_RATIO = 0.85
"""Utilization from which less work after a change is put down to the change, not to demand."""
_VERIFICATION_TIMEOUT = timedelta(hours=24)
_EDGE = 1e-6
_SPEED_WATCH = timedelta(days=2)
"""For so long at most a share is watched whose speed beside the others is not sure yet."""
_LEAST_REQUESTS, _LEAST_SERVED = 30, 8
"""Requests, and slots with any, on each side of a change that tell a speed."""
_UNTIMED = "no engine timed enough requests to tell whether it is slower beside others"


def measured_window(settings: Settings, concluded_at: datetime) -> tuple[datetime, datetime]:
    """Return the whole slots after a change.

    The one in which it was made belongs to neither side.
    """
    seconds = settings.planning.slot_minutes * 60
    start = floor_to_slot(concluded_at, seconds) + timedelta(seconds=seconds)
    return start, start + timedelta(seconds=settings.apply.verify_slots * seconds)


def _window(task: Task, progress: Progress) -> tuple[datetime, datetime]:
    """Return the slots to measure by: of a share to the newest one, once its speed is sure."""
    settings, reader = task.settings(), task.store.reader
    start, end = measured_window(settings, progress.concluded_at or task.clock())
    latest = reader.latest_sample_at()
    shares = task.recommendation.action.spec.shares and task.recommendation.job_id
    if not shares or latest is None or latest < end:
        return start, end
    last = start + _SPEED_WATCH
    newest = min(last, floor_to_slot(latest, settings.planning.slot_minutes * 60))
    sides = _served_sides(reader, task.recommendation, progress.since or start, start, newest)
    return start, last if is_undecided(*sides, 1 - settings.apply.throughput_loss_ratio) else newest


def _served_sides(
    reader: StoreReader,
    recommendation: Recommendation,
    changed: datetime,
    start: datetime,
    end: datetime,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the traffic of the job's service in the day before the change, and since."""
    served = reader.service(recommendation.job_id, "", start=changed - BASELINE_WINDOW, end=end)
    at = served["slot_start"]
    return served[at < changed], served[at >= start]


def is_measurable(task: Task, progress: Progress) -> bool:
    """Return whether samples have come for the time after the change, or will no longer come."""
    now = task.clock()
    _start, end = _window(task, progress)
    latest = task.store.reader.latest_sample_at()
    return now >= end + _VERIFICATION_TIMEOUT or (latest is not None and latest >= end)


def measure(task: Task, progress: Progress) -> tuple[LifecycleEvent | Work, Measurement]:
    """Return the verdict and the measurement of a change that was concluded."""
    settings, recommendation = task.settings(), task.recommendation
    slot_seconds = settings.planning.slot_minutes * 60
    concluded = progress.concluded_at or task.clock()
    start, end = _window(task, progress)
    if not recommendation.job_id:
        hours = (end - start) / timedelta(hours=1)
        reason = "a change of the fleet has no job of its own to measure"
        return Work.UNMEASURED, _unmeasured(hours, (reason,))
    changed = floor_to_slot(progress.since or concluded, slot_seconds)
    reader = task.store.reader

    def history(first: datetime, last: datetime) -> pd.DataFrame:
        return reader.job_history(
            recommendation.job_id, start=first, end=last, slot_seconds=slot_seconds
        )

    rows, latest = history(start, end), reader.latest_sample_at()
    readings = reader.power_readings(
        start=changed - BASELINE_WINDOW, end=changed, most=MAX_READINGS
    )
    measurement = compare(
        history(changed - BASELINE_WINDOW, changed),
        rows,
        recommendation=recommendation,
        slots=round((end - start).total_seconds() / slot_seconds),
        is_over=latest is not None and latest >= end,
        split_kwh=split_energy(reader, recommendation, start, end),
        catalogue=with_measured_idle(load_gpu_catalogue(), readings),
        settings=settings,
    )
    if stays := _unmoved(recommendation, rows, reader.job(recommendation.job_id)):
        measurement = replace(measurement, reasons=(*measurement.reasons, stays))
    spec = recommendation.action.spec
    if recommendation.action in FOR_MEMORY or spec.shares:
        event, measurement = _by_memory(measurement, rows, recommendation)
        if spec.shares:
            speeds = request_speed(*_served_sides(reader, recommendation, changed, start, end))
            speed, why = (speeds[0], ()) if speeds else (None, (_UNTIMED,))
            measurement = replace(
                measurement, throughput_ratio=speed, reasons=(*measurement.reasons, *why)
            )
            if speed is not None and speed < 1 - settings.apply.throughput_loss_ratio:
                event = LifecycleEvent.FELL_SHORT
        if recommendation.action in FOR_MEMORY or event is not LifecycleEvent.VERIFIED:
            return event, measurement
    less = spec.caps_power
    return _verdict(measurement, settings.apply.throughput_loss_ratio, less=less), measurement


def _unmoved(recommendation: Recommendation, after: pd.DataFrame, job: Job | None) -> str:
    """Return that an autoscaler stayed within its old bound since, '' of all other changes."""
    bound = dict(recommendation.details).get("bound_now", "")
    gpus = after["allocated_gpus"].dropna()
    if not bound or job is None or gpus.empty:
        return ""
    edge, raised = float(bound) * unit_of(job), recommendation.action.spec.serves
    if gpus.max() > edge + _EDGE if raised else gpus.min() < edge - _EDGE:
        return ""
    beyond, brought = ("above", "served") if raised else ("below", "saved")
    return f"its autoscaler has not gone {beyond} {bound} replicas yet: nothing {brought} so far"


def _by_memory(
    measurement: Measurement, after: pd.DataFrame, recommendation: Recommendation
) -> tuple[LifecycleEvent | Work, Measurement]:
    """Judge a change by the largest memory per device since."""
    largest = float(after["memory_used_mib"].max()) if len(after) else float("nan")
    if largest != largest:
        unknown = replace(
            measurement, reasons=(*measurement.reasons, "no memory was read after the change")
        )
        return Work.UNMEASURED, unknown
    limit = float(dict(recommendation.details)["memory_limit_mib"])
    read = replace(measurement, memory_peak_mib=largest, memory_limit_mib=limit)
    return LifecycleEvent.VERIFIED if largest < limit else LifecycleEvent.FELL_SHORT, read


def request_speed(before: pd.DataFrame, after: pd.DataFrame) -> tuple[float, float] | None:
    """Return the speed of a service's requests in shares of that before a change, and its error.

    From `ServiceReader.service`: seconds a token, or a request where no tokens are told; the error
    is a standard one, by how slots differ. None of too few requests.
    """
    sides = [rows[rows["request_seconds"].notna() & (rows["request_count"] > 0)]
             for rows in (before, after)]  # fmt: skip
    if any(
        len(rows) < _LEAST_SERVED or rows["request_count"].sum() < _LEAST_REQUESTS for rows in sides
    ):
        return None
    unit = "generation_tokens"
    if not all((rows[unit] > 0).all() for rows in sides):
        unit = "request_count"
    pace, error = [], []
    for rows in sides:
        seconds, work = rows["request_seconds"].to_numpy(float), rows[unit].to_numpy(float)
        pace.append(seconds.sum() / work.sum())
        error.append(np.linalg.norm(seconds - pace[-1] * work) / seconds.sum())
    speed = pace[0] / pace[1]
    return float(speed), float(speed * np.hypot(*error))


def is_undecided(before: pd.DataFrame, after: pd.DataFrame, least: float) -> bool:
    """Return whether a speed is not told yet, or within a standard error of `least`."""
    if request_speed(before, before) is None or after["request_seconds"].isna().all():
        return False
    speeds = request_speed(before, after)
    return speeds is None or abs(speeds[0] - least) < speeds[1]


def _verdict(measurement: Measurement, loss: float, *, less: bool) -> LifecycleEvent | Work:
    if measurement.realised_gpu_hours is None and measurement.realised_energy_kwh is None:
        return Work.UNMEASURED
    # A capped board is slower at the same utilization: its throughput cannot be told from it. Of
    # boards that are given back less work is meant.
    slower = measurement.throughput_ratio is not None and measurement.throughput_ratio < 1 - loss
    return (
        LifecycleEvent.FELL_SHORT
        if slower and measurement.saturated and not less
        else LifecycleEvent.VERIFIED
    )


def compare(
    before: pd.DataFrame,
    after: pd.DataFrame,
    *,
    recommendation: Recommendation,
    slots: int,
    is_over: bool,
    split_kwh: Range | None,
    catalogue: GpuCatalogue,
    settings: Settings,
) -> Measurement:
    """Return the savings in the `slots` after a change. What cannot be known is None, and why.

    `before` is the job's history of the day before, `after` of the slots since (columns HISTORY);
    `is_over`: all samples of them have come. `split_kwh` is its energy since where its boards are
    shared. Idle power is that of `catalogue`.
    """
    slot_seconds = settings.planning.slot_minutes * 60
    before, after = _measured(before), _measured(after)
    slot_hours = slot_seconds / SECONDS_PER_HOUR
    stopped = recommendation.proposed.gpu_count == 0 and not len(after) and is_over
    hours = slots * slot_hours if stopped else len(after) * slot_hours
    reasons = _too_little(before, hours, slots, slot_seconds)
    if reasons:
        return _unmeasured(hours, reasons)
    now, then, why = _sides(recommendation, catalogue)
    if stopped and not why:
        now = _at_rest(now, before, slots, catalogue.get(recommendation.now.gpu_model))
    energy = Range(low=0, central=0, high=0, unit="kWh") if stopped else split_kwh
    if energy is None and not why and not stopped:
        energy, why = _board_energy(before, after, slot_hours)
    horizon = settings.planning.horizon_slots * slot_hours
    expected = recommendation.savings.horizon_hours if stopped else horizon
    low, mean, high = remaining_part(expected, horizon, hours)
    gain = saved(
        before,
        HistoryAfter(
            rows=after,
            hours=mean,
            energy_kwh=None if why else energy,
            sooner=mean - low,
            later=high - mean,
        ),
        now=now,
        then=then,
        has_end=recommendation.delay_hours is not None and not recommendation.proposed.shared_with,
        counts_new_boards=_counts_new_boards(recommendation),
        slot_seconds=slot_seconds,
    )
    work_before = float(before["effective_gpus"].sum()) * slot_hours * now.speed
    work_after = float(after["effective_gpus"].sum()) * slot_hours * then.speed
    held_before = float(before["allocated_gpus"].sum()) * slot_hours
    worked = work_before > NO_WORK_RATIO * held_before
    site = gain.energy_kwh and _times(gain.energy_kwh, _pue(settings.energy), "kWh")
    carbon = load_carbon_table().get(settings.energy.region)
    grams = (carbon.low, carbon.gco2e_per_kwh, carbon.high)
    predicted = recommendation.savings
    share = (hours / predicted.horizon_hours,) * 3
    return Measurement(
        hours=hours,
        work_before=work_before,
        work_after=work_after,
        throughput_ratio=_ratio(work_after / hours, work_before / (len(before) * slot_hours))
        if worked
        else None,
        saturated=_saturated(after),
        predicted_gpu_hours=predicted.gpu_hours and _times(predicted.gpu_hours, share),
        realised_gpu_hours=gain.gpu_hours,
        predicted_energy_kwh=predicted.energy_kwh and _times(predicted.energy_kwh, share),
        realised_energy_kwh=site,
        realised_emissions_kgco2e=site
        and _times(site, tuple(gram / GRAMS_PER_KILOGRAM for gram in grams), "kgCO2e"),
        reasons=(*((why,) if why else ()), *(() if worked else (_BY_TIME,))),
        board_hours_without=gain.hours_without,
        board_hours_with=gain.hours_with,
    )


def _measured(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["effective_gpus"].notna() & rows["allocated_gpus"].notna()]


def _too_little(
    before: pd.DataFrame, hours: float, slots: int, slot_seconds: int
) -> tuple[str, ...]:
    """Return the reasons that too little is known to measure by, () for none."""
    slot_hours = slot_seconds / SECONDS_PER_HOUR
    measured = len(before) * slot_hours
    reasons = [] if len(before) else ["no history"]
    if measured < MIN_COVERAGE_RATIO * (BASELINE_WINDOW / timedelta(hours=1)) and measured < hours:
        reasons.append("too little is known of the time before the change")
    if hours < MIN_COVERAGE_RATIO * slots * slot_hours:
        share = 100 * hours / (slots * slot_hours) if slots else 0
        reasons.append(f"only {share:.0f} % of the slots after are known")
    return tuple(reasons)


def _sides(
    recommendation: Recommendation, catalogue: GpuCatalogue
) -> tuple[HeldBoards, HeldBoards, str]:
    """Return the job's use of boards before and after, and the reason where energy is unknown."""
    now, proposed = recommendation.now, recommendation.proposed
    model = catalogue.find(now.gpu_model)
    target = proposed if proposed.gpu_count else now
    other = catalogue.find(target.gpu_model)
    if model is None or other is None:
        unknown = HeldBoards(share=1.0, speed=1.0, free_watts=_NOTHING)
        return unknown, unknown, "what a free board of its GPU model draws is not known"
    why = ""
    if proposed.shared_with or now.shared_with:
        why = _SHARES
    elif now.mig_profile:
        why = "the power of a MIG slice before the change is not known"
    then = _boards(target, other, model)
    if recommendation.action.spec.shares and proposed.boards is not None:
        then = replace(then, share=proposed.boards / proposed.gpu_count)
        why = _SHARES
    return _boards(now, model, model), then, why


def _at_rest(now: HeldBoards, before: pd.DataFrame, slots: int, model: GpuModel) -> HeldBoards:
    """Return the boards of a job that did nothing at last: they hint at what is free."""
    last = before.iloc[-slots:]
    gpus = float(last["allocated_gpus"].sum())
    if not gpus > 0 or float(last["effective_gpus"].sum()) > NO_WORK_RATIO * gpus:
        return now
    watts = float(last["power_watts"].sum()) / gpus
    if not watts > 0:
        return now
    free = freed_board(model, watts / now.share, rests=True)
    return replace(now, free_watts=Range(low=free.low, central=free.mean, high=free.high, unit="W"))


def _boards(configuration: Configuration, model: GpuModel, base: GpuModel) -> HeldBoards:
    """Return a configuration's use of boards of a model, its speed in boards of `base`."""
    profile = model.mig_profile(configuration.mig_profile) if configuration.mig_profile else None
    speed = model.relative_speed / base.relative_speed
    share = 0.5 if configuration.shared_with else 1.0
    if profile is not None:
        share, speed = model.board_share(profile), speed * profile.compute_fraction
    watts = Range(
        low=model.idle_watts_low,
        central=model.idle_watts,
        high=model.idle_watts_high,
        unit="W",
    )
    return HeldBoards(share=share, speed=speed, free_watts=watts)


def _counts_new_boards(recommendation: Recommendation) -> bool:
    """Return whether boards after the change are GPU-hours of the model before it, as promised."""
    same = recommendation.now.gpu_model == recommendation.proposed.gpu_model
    return same or recommendation.action in FOR_MEMORY


def _board_energy(
    before: pd.DataFrame, after: pd.DataFrame, slot_hours: float
) -> tuple[Range | None, str]:
    """Return the board energy since in kWh, or why it is not known."""
    if before["power_watts"].isna().any() or after["power_watts"].isna().any():
        return None, "power was not reported all the time, so energy is unknown"
    kwh = float(after["power_watts"].sum()) * slot_hours / 1000
    return Range(low=kwh, central=kwh, high=kwh, unit="kWh"), ""


def split_energy(
    reader: StoreReader, recommendation: Recommendation, start: datetime, end: datetime
) -> Range | None:
    """Return a slice's part of the energy of its boards in kWh, None of whole boards."""
    if not recommendation.proposed.mig_profile:
        return None
    rows = reader.energy(start=start, end=end, by="job")
    mine = rows[rows["key"] == recommendation.job_id]
    if mine.empty or mine["energy_kwh"].isna().any():
        return None
    low, central, high = (
        float(mine[name].iloc[0]) for name in ("energy_low_kwh", "energy_kwh", "energy_high_kwh")
    )
    return Range(low=low, central=central, high=high, unit="kWh")


def _saturated(after: pd.DataFrame) -> bool | None:
    gpus = float(after["allocated_gpus"].sum())
    return float(after["effective_gpus"].sum()) >= _SATURATED_RATIO * gpus if gpus else None


def _pue(energy: EnergySettings) -> tuple[float, float, float]:
    low = max(1.0, energy.pue - PUE_UNCERTAINTY)
    return low, energy.pue, energy.pue + PUE_UNCERTAINTY


def _unmeasured(hours: float, reasons: tuple[str, ...]) -> Measurement:
    return Measurement(
        hours=hours,
        work_before=None,
        work_after=None,
        throughput_ratio=None,
        saturated=None,
        predicted_gpu_hours=None,
        realised_gpu_hours=None,
        predicted_energy_kwh=None,
        realised_energy_kwh=None,
        realised_emissions_kgco2e=None,
        reasons=reasons,
    )


def _ratio(one: float, other: float) -> float | None:
    return one / other if other > 0 else None


def _times(value: Range, factors: Sequence[float], unit: str = "") -> Range:
    """Scale a range by a factor that is a range itself."""
    central = value.central * factors[1]
    ends = [
        entry * factor for entry in (value.low, value.high) for factor in (factors[0], factors[2])
    ]
    return Range(
        low=min(*ends, central), central=central, high=max(*ends, central), unit=unit or value.unit
    )
