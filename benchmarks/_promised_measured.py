"""What Savings measures after a change to a drawn fleet, and the truth of the same slots."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from benchmarks._promised_fleet import NOW, PER_DAY, STEP, DrawnFleet, Values
from benchmarks._promised_future import (
    Came,
    Changed,
    Setting,
    changed,
    future_of,
    has_end,
    now_of,
    played,
)
from dashboard.apply.worker.verification import compare
from data.catalogue.gpu_catalogue import GpuCatalogue, load_gpu_catalogue
from data.records.actions import Action
from data.records.plans import Configuration
from data.records.recommendations import Range, Recommendation
from data.settings.all_settings import Settings

_HOURS = STEP / 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured, None where it could not be, and the truth of the same slots.

    `nothing_kwh` is what would be measured had nothing been changed, `used_kwh` what was used.
    """

    gpu_hours: Range | None
    kwh: Range | None
    truth: Came
    nothing_kwh: float
    used_kwh: float


def measured_of(
    fleet: DrawnFleet,
    advice: Recommendation,
    setting: Setting,
    settings: Settings,
    catalogue: GpuCatalogue,
) -> Measured | None:
    """Return the measurement of a change that holds from the first slot, None of any other.

    The truth is of the work done in these slots, as the measurement is: of a job that a change
    slows down, less than it would have done.
    """
    if advice.starts_at or advice.ends_at or advice.action is Action.SHIFT_IN_TIME:
        return None
    slot = settings.planning.slot_minutes * 60 // STEP
    first, last = slot, min(setting.horizon, slot * (1 + settings.apply.verify_slots))
    job = fleet.job(advice.job_id)
    now = now_of(fleet, job, setting)
    then = changed(fleet, job, now, advice.proposed, advice, setting)
    alive = future_of(fleet, job.alive(), setting)
    kept = advice.proposed.gpu_count > 0
    if kept and not alive[first:last].all():
        return None
    window = np.zeros(setting.horizon)
    window[first:last] = 1
    if kept and has_end(job):
        window[first:last] /= np.maximum(then.stretch[first:last], 1e-9)
    truth = played(fleet, job, replace(advice, transition=None), advice.proposed, window, setting)
    slots = (last - first) // slot
    after = _history(fleet, job.job.job_id, advice.proposed, then, setting, slot)
    same = _history(fleet, job.job.job_id, advice.now, now, setting, slot)
    past = replace_past(fleet)
    day = replace(setting, horizon=PER_DAY)
    before = _history(
        past, job.job.job_id, advice.now, now_of(past, job, day), day, slot, NOW - _DAY
    )
    energy = None
    if kept and advice.proposed.mig_profile:
        free = fleet.idle_watts[then.model.name]
        watts = then.watts + then.boards * free
        kwh = float(watts[first:last].sum()) * _HOURS / 1000
        energy = Range(low=kwh, central=kwh, high=kwh, unit="kWh")
    found, nothing = (
        compare(
            before,
            rows,
            recommendation=entry,
            slots=slots,
            is_over=True,
            split_kwh=split,
            catalogue=catalogue,
            settings=settings,
        )
        for entry, rows, split in (
            (advice, after[1 : 1 + slots] if kept else after[:0], energy),
            (replace(advice, proposed=advice.now), same[1 : 1 + slots], None),
        )
    )
    zero = nothing.realised_energy_kwh
    used = same["power_watts"][1 : 1 + slots].sum() * slot * _HOURS / 1000
    return Measured(
        gpu_hours=found.realised_gpu_hours,
        kwh=found.realised_energy_kwh,
        truth=truth,
        nothing_kwh=0.0 if zero is None else zero.central,
        used_kwh=float(used) * settings.energy.pue,
    )


_DAY = pd.Timedelta(hours=24)


def _history(
    fleet: DrawnFleet,
    job_id: str,
    configuration: Configuration,
    held: Changed,
    setting: Setting,
    slot: int,
    start: pd.Timestamp = NOW,
) -> pd.DataFrame:
    """Return what a history (columns HISTORY) tells of a job in a configuration, by slot."""
    job = fleet.job(job_id)
    count, catalogue = configuration.gpu_count, load_gpu_catalogue()
    own = catalogue.get(job.job.gpu_model)
    profile = held.model.mig_profile(configuration.mig_profile or "none")
    speed = held.model.relative_speed / own.relative_speed
    speed *= 1.0 if profile is None else profile.compute_fraction
    work = np.minimum(future_of(fleet, job.wanted, setting), job.job.gpu_count)
    effective = np.minimum(work / np.maximum(held.stretch, 1e-9) / speed, count)
    watts = held.watts + held.boards * fleet.idle_watts[held.model.name]

    def by_slot(values: Values) -> Values:
        return values[: len(values) // slot * slot].reshape(-1, slot).mean(axis=1)

    return pd.DataFrame(
        {
            "slot_start": [start + pd.Timedelta(seconds=number * slot * STEP)
                           for number in range(setting.horizon // slot)],
            "effective_gpus": by_slot(effective),
            "allocated_gpus": float(count),
            "power_watts": by_slot(watts),
        }
    )  # fmt: skip


def replace_past(fleet: DrawnFleet) -> DrawnFleet:
    """Return the fleet as of a day earlier."""
    return replace(fleet, past=fleet.past - PER_DAY)
