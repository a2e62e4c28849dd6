"""What a change really brought: the slots after it against those before, per unit of work.

Work is effective GPU-hours (utilization times allocated GPUs). Had the job gone on as before, the
work done since would have cost GPU-hours and energy at the old rate per unit of work; the saving is
that minus what it did cost. The range also spans the reading by time alone (the old rate per hour),
which is the better one where the allocation would not have followed the load.

A change made for memory is judged by memory alone: whether what the job took since stays below what
its devices offer. A climb that begins anew after the restart is the next cycles' to foresee.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pandas as pd

from dashboard.apply.progress import Progress
from dashboard.apply.task import Task
from data.catalogue.carbon_table import load_carbon_table
from data.clock import floor_to_slot
from data.records.commands import Measurement, Work
from data.records.decisions import FOR_MEMORY, Action, Range, Recommendation, Savings
from data.records.lifecycle import Event
from data.settings import EnergySettings, Settings
from data.units import GRAMS_PER_KILOGRAM, SECONDS_PER_HOUR

_BEFORE = timedelta(hours=24)
_NO_WORK_RATIO = 0.01
"""Work below this share of the GPU-hours is no work to measure by: the job stood idle."""
_SATURATED_RATIO = 0.85
"""Utilization from which less work after a change is put down to the change, not to demand."""
_GIVE_UP = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What a job held, did and used over `hours` of known slots; energy None when unknown."""

    hours: float
    gpu_hours: float
    work: float
    energy_kwh: float | None
    coverage_ratio: float


def stretch_of(rows: pd.DataFrame, *, slot_seconds: int, slots: int) -> Stretch:
    """Sum a job's history (columns HISTORY) of one stretch of `slots` slots."""
    known = rows[rows["effective_gpus"].notna() & rows["allocated_gpus"].notna()]
    hours = slot_seconds / SECONDS_PER_HOUR
    power = known["power_watts"]
    return Stretch(
        hours=len(known) * hours,
        gpu_hours=float(known["allocated_gpus"].sum()) * hours,
        work=float(known["effective_gpus"].sum()) * hours,
        energy_kwh=float(power.sum()) * hours / 1000
        if power.notna().all() and len(known)
        else None,
        coverage_ratio=len(known) / slots if slots else 0.0,
    )


def measured_window(settings: Settings, concluded_at: datetime) -> tuple[datetime, datetime]:
    """Give the whole slots after a change; the one in which it was made belongs to neither side."""
    seconds = settings.planning.slot_minutes * 60
    start = floor_to_slot(concluded_at, seconds) + timedelta(seconds=seconds)
    return start, start + timedelta(seconds=settings.apply.verify_slots * seconds)


def is_measurable(task: Task, progress: Progress) -> bool:
    """Tell whether samples have come for the time after the change, or will no longer come."""
    now = task.clock()
    _start, end = measured_window(task.settings(), progress.concluded_at or now)
    latest = task.store.reader.latest_sample_at()
    return now >= end + _GIVE_UP or (latest is not None and latest >= end)


def measure(task: Task, progress: Progress) -> tuple[Event | Work, Measurement]:
    """Give the verdict and the measurement of a change that was concluded."""
    settings, recommendation = task.settings(), task.recommendation
    slot_seconds = settings.planning.slot_minutes * 60
    concluded = progress.concluded_at or task.clock()
    start, end = measured_window(settings, concluded)
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

    def stretch(first: datetime, last: datetime) -> Stretch:
        rows = history(first, last)
        slots = round((last - first).total_seconds() / slot_seconds)
        return stretch_of(rows, slot_seconds=slot_seconds, slots=slots)

    after = stretch(start, end)
    if recommendation.proposed.gpu_count == 0 and not after.hours:
        hours = (end - start) / timedelta(hours=1)
        latest = reader.latest_sample_at()
        if latest is not None and latest >= end:
            after = Stretch(hours=hours, gpu_hours=0, work=0, energy_kwh=0.0, coverage_ratio=1.0)
    measurement = compare(
        stretch(changed - _BEFORE, changed),
        after,
        predicted=recommendation.savings,
        least_coverage=settings.planning.minimum_coverage_ratio,
        energy=settings.energy,
    )
    if recommendation.action in FOR_MEMORY:
        return _by_memory(measurement, history(start, end), recommendation)
    capped = recommendation.action is Action.POWER_CAP
    return _verdict(measurement, settings.apply.throughput_loss_ratio, capped=capped), measurement


def _by_memory(
    one: Measurement, after: pd.DataFrame, recommendation: Recommendation
) -> tuple[Event | Work, Measurement]:
    """Judge a change by the largest memory per device since."""
    largest = float(after["memory_used_mib"].max()) if len(after) else float("nan")
    if largest != largest:
        unknown = replace(one, reasons=(*one.reasons, "no memory was read after the change"))
        return Work.UNMEASURED, unknown
    limit = float(dict(recommendation.details)["memory_limit_mib"])
    read = replace(one, memory_peak_mib=largest, memory_limit_mib=limit)
    return Event.VERIFIED if largest < limit else Event.FELL_SHORT, read


def _verdict(one: Measurement, loss: float, *, capped: bool) -> Event | Work:
    if one.realised_gpu_hours is None and one.realised_energy_kwh is None:
        return Work.UNMEASURED
    # A capped board is slower at the same utilization: its throughput cannot be told from it.
    slower = one.throughput_ratio is not None and one.throughput_ratio < 1 - loss
    return Event.FELL_SHORT if slower and one.saturated and not capped else Event.VERIFIED


def compare(
    before: Stretch,
    after: Stretch,
    *,
    predicted: Savings,
    least_coverage: float,
    energy: EnergySettings,
) -> Measurement:
    """Set two stretches side by side. What cannot be known is None with its reason."""
    reasons = []
    if before.coverage_ratio < least_coverage and before.hours < after.hours:
        reasons.append("too little is known of the time before the change")
    if after.coverage_ratio < least_coverage:
        reasons.append(f"only {100 * after.coverage_ratio:.0f} % of the slots after are known")
    if not before.hours or reasons:
        return _unmeasured(after.hours, (*reasons, *(() if before.hours else ("no history",))))
    worked = before.work > _NO_WORK_RATIO * before.gpu_hours
    if not worked:
        reasons.append("the job did no work to measure by: compared by time")
    gpu_hours = _saved(
        before, after, before.gpu_hours, after.gpu_hours, worked=worked, unit="GPU-h"
    )
    board = None
    if before.energy_kwh is None or after.energy_kwh is None:
        reasons.append("power was not reported all the time, so energy is unknown")
    else:
        board = _saved(
            before, after, before.energy_kwh, after.energy_kwh, worked=worked, unit="kWh"
        )
    pue = (max(1.0, energy.pue - energy.pue_uncertainty), energy.pue)
    site = board and _times(board, (*pue, energy.pue + energy.pue_uncertainty), "kWh")
    carbon = load_carbon_table().get(energy.region)
    grams = (carbon.low, carbon.gco2e_per_kwh, carbon.high)
    share = after.hours / predicted.horizon_hours
    return Measurement(
        hours=after.hours,
        work_before=before.work,
        work_after=after.work,
        throughput_ratio=_ratio(after.work / after.hours, before.work / before.hours)
        if worked
        else None,
        saturated=after.work >= _SATURATED_RATIO * after.gpu_hours if after.gpu_hours else None,
        predicted_gpu_hours=predicted.gpu_hours and _times(predicted.gpu_hours, (share,) * 3),
        realised_gpu_hours=gpu_hours,
        predicted_energy_kwh=predicted.energy_kwh and _times(predicted.energy_kwh, (share,) * 3),
        realised_energy_kwh=site,
        realised_emissions_kgco2e=site
        and _times(
            site,
            (
                grams[0] / GRAMS_PER_KILOGRAM,
                grams[1] / GRAMS_PER_KILOGRAM,
                grams[2] / GRAMS_PER_KILOGRAM,
            ),
            "kgCO2e",
        ),
        reasons=tuple(reasons),
    )


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


def _saved(
    before: Stretch,
    after: Stretch,
    cost_before: float,
    cost_after: float,
    *,
    worked: bool,
    unit: str,
) -> Range:
    by_time = cost_before / before.hours * after.hours - cost_after
    by_work = cost_before / before.work * after.work - cost_after if worked else by_time
    return Range(low=min(by_time, by_work), central=by_work, high=max(by_time, by_work), unit=unit)


def _times(value: Range, factors: tuple[float, float, float], unit: str = "") -> Range:
    """Scale a range by a factor that is a range itself."""
    central = value.central * factors[1]
    ends = [one * factor for one in (value.low, value.high) for factor in (factors[0], factors[2])]
    return Range(
        low=min(*ends, central), central=central, high=max(*ends, central), unit=unit or value.unit
    )
