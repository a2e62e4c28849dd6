"""What Savings measures after a change to a drawn fleet, and the truth of the same slots."""

from dataclasses import dataclass, replace

import numpy as np

from benchmarks._promised_fleet import PER_DAY, STEP, DrawnFleet
from benchmarks._promised_future import Came, Setting, changed, future_of, now_of, played
from dashboard.apply.verification import Stretch, compare
from data.records.decisions import Action, Range, Recommendation
from data.settings import Settings

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
    fleet: DrawnFleet, advice: Recommendation, setting: Setting, settings: Settings
) -> Measured | None:
    """Return the measurement of a change that holds from the first slot, None of any other."""
    if advice.starts_at is not None or advice.action is Action.SHIFT_IN_TIME:
        return None
    slot = settings.planning.slot_minutes * 60 // STEP
    first, last = slot, min(setting.horizon, slot * (1 + settings.apply.verify_slots))
    job = fleet.job(advice.job_id)
    window = np.zeros(setting.horizon)
    window[first:last] = 1
    truth = played(fleet, job, replace(advice, transition=None), advice.proposed, window, setting)
    now = now_of(fleet, job, setting)
    then = changed(fleet, job, now, advice.proposed, advice, setting)
    alive = future_of(fleet, job.alive(), setting) * window
    if not alive.sum() and advice.proposed.gpu_count:
        return None
    work = np.minimum(future_of(fleet, job.wanted, setting), now.boards)
    speed = then.model.relative_speed / now.model.relative_speed
    count, hours = advice.proposed.gpu_count, (last - first) * _HOURS
    kept = count > 0
    free = fleet.idle_watts[then.model.name]
    activity = work / np.maximum(then.stretch, 1e-9) / speed if kept else work * 0
    after = Stretch(
        hours=hours,
        gpu_hours=float(alive.sum()) * count * _HOURS,
        work=float((activity * alive).sum()) * _HOURS,
        energy_kwh=float(((then.watts + then.boards * free) * alive).sum()) * _HOURS / 1000,
        coverage_ratio=1.0,
    )
    still_free = fleet.idle_watts[now.model.name]
    unchanged = Stretch(
        hours=hours,
        gpu_hours=float(alive.sum()) * now.boards * _HOURS,
        work=float((work * alive).sum()) * _HOURS,
        energy_kwh=float(((now.watts + now.boards * still_free) * alive).sum()) * _HOURS / 1000,
        coverage_ratio=1.0,
    )
    before = _before(fleet, job.job.job_id)
    found, nothing = (
        compare(
            before,
            one,
            predicted=advice.savings,
            least_coverage=settings.planning.minimum_coverage_ratio,
            energy=settings.energy,
        )
        for one in (after, unchanged)
    )
    zero = nothing.realised_energy_kwh
    return Measured(
        gpu_hours=found.realised_gpu_hours,
        kwh=found.realised_energy_kwh,
        truth=truth,
        nothing_kwh=0.0 if zero is None else zero.central,
        used_kwh=(unchanged.energy_kwh or 0.0) * settings.energy.pue,
    )


def _before(fleet: DrawnFleet, job_id: str) -> Stretch:
    """Return the day before the change."""
    job = fleet.job(job_id)
    past = replace_past(fleet)
    setting = Setting(prices=(), horizon=PER_DAY, base_watts_per_gpu=0)
    now = now_of(past, job, setting)
    work = np.minimum(future_of(past, job.wanted, setting), now.boards)
    free = fleet.idle_watts[now.model.name] * now.boards
    return Stretch(
        hours=24.0,
        gpu_hours=24.0 * now.boards,
        work=float(work.sum()) * _HOURS,
        energy_kwh=float((now.watts + free).sum()) * _HOURS / 1000,
        coverage_ratio=1.0,
    )


def replace_past(fleet: DrawnFleet) -> DrawnFleet:
    """Return the fleet as of a day earlier."""
    return replace(fleet, past=fleet.past - PER_DAY)
