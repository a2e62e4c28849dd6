"""The future of a drawn fleet, played twice from one draw: with a change and without it.

A job's boards count as long as it holds them; the energy is what they draw beyond what they would
draw free, since a freed board stays powered. Work of jobs that end is done in full: slowed work
takes longer, and what it takes beyond the horizon counts, except past a limit that ends the job.
A service does what it can, and what it misses is lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri  # type: ignore[import-untyped]
from scipy.stats import beta  # type: ignore[import-untyped]

from benchmarks._promised_fleet import NOW, PER_DAY, PER_HOUR, STEP, DrawnFleet, DrawnJob, Values
from data.catalogue.gpu_catalogue import GpuModel, load_gpu_catalogue
from data.records.actions import Action
from data.records.plans import Configuration
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings
from planner.costs.configurations import Option
from planner.costs.transitions import moving
from planner.jobs.elasticity import Elasticity, lost_work_of, standing_of

_HOURS = STEP / 3_600
HIDDEN_SHARE, IDLE_BOARDS = 0.5, 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """What a change saved in truth: GPU-hours, site energy in kWh, money. `used_kwh` without it."""

    gpu_hours: float
    kwh: float
    money: float
    used_kwh: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What holds for all of a fleet: the price of a kWh by hour of the day, and its horizon.

    `left_at`: the step in which jobs leave their boards as recommended to them. `hidden`: nothing
    tells of checkpoints, and half of the runs write one an hour.
    """

    prices: tuple[float, ...]
    horizon: int
    base_watts_per_gpu: float
    boot_steps: int
    left_at: Mapping[str, float]
    hidden: bool = False

    def price(self, steps: int) -> Values:
        """Return the price of each step of the future; `NOW` is at nine."""
        hours = (9 + np.arange(steps) // PER_HOUR) % 24
        return np.asarray(self.prices)[hours]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The job's boards under a change, of the work that it does then.

    `boards` in whole boards of `model`, `service` in boards of now, `watts` [steps] beyond free
    boards, `stretch` [steps] how much longer each step's work takes.
    """

    model: GpuModel
    boards: float
    watts: Values
    stretch: Values


def drawn_between(chance: float, low: float, middle: float, high: float) -> float:
    """Return a number whose q10, q50 and q90 are these, from a number 0..1; not below 0."""
    z = float(ndtri(chance)) / 1.2816
    return max(0.0, middle + z * (high - middle if z > 0 else middle - low))


def came_of(fleet: DrawnFleet, advice: Recommendation, setting: Setting) -> Came:
    """Return what the change of a recommendation saves, against the same future without it."""
    if advice.action is Action.CONSOLIDATE:
        return _node_off(fleet, advice, setting)
    job = fleet.job(advice.job_id)
    held = _held(fleet, advice, setting)
    if advice.action is Action.SHIFT_IN_TIME:
        return _put_off(fleet, job, advice, held, setting)
    return played(fleet, job, advice, advice.proposed, held, setting)


def no_change(fleet: DrawnFleet, advice: Recommendation, setting: Setting) -> Came:
    """Return what a change to the present configuration saves that takes no time."""
    job = fleet.job(advice.job_id)
    still = replace(advice, proposed=advice.now, transition=None)
    return played(fleet, job, still, advice.now, _held(fleet, advice, setting), setting)


def _held(fleet: DrawnFleet, advice: Recommendation, setting: Setting) -> Values:
    """Return 1 where the change is held [steps of the horizon]."""
    first, last = 0, setting.horizon
    if advice.starts_at is not None:
        first = round((advice.starts_at - NOW).total_seconds() / STEP)
    if advice.ends_at is not None:
        last = round((advice.ends_at - NOW).total_seconds() / STEP)
    steps = np.arange(setting.horizon)
    return ((first <= steps) & (steps < last)).astype(np.float64)


def future_of(fleet: DrawnFleet, values: Values, setting: Setting) -> Values:
    return values[fleet.past : fleet.past + setting.horizon]


def now_of(fleet: DrawnFleet, job: DrawnJob, setting: Setting) -> Changed:
    """Return the job as it is."""
    model, count = load_gpu_catalogue().get(job.job.gpu_model), job.job.gpu_count
    free = fleet.idle_watts[model.name]
    used = np.minimum(future_of(fleet, job.wanted, setting) / count, 1.0)
    return Changed(
        model=model,
        boards=count,
        watts=count * (free * (job.held_idle - 1) + job.work_watts(model, used)),
        stretch=np.ones(setting.horizon),
    )


def played(
    fleet: DrawnFleet,
    job: DrawnJob,
    advice: Recommendation,
    wanted: Configuration,
    held: Values,
    setting: Setting,
) -> Came:
    now = now_of(fleet, job, setting)
    then = changed(fleet, job, now, wanted, advice, setting)
    alive = future_of(fleet, job.alive(), setting)
    price = setting.price(setting.horizon) * fleet.site.pue / 1000
    stretch = np.ones_like(alive) if job.killed else then.stretch
    before = alive * held
    after = alive * held * stretch
    # What a limit cuts off has to be done again: its energy is no saving.
    watts = before * now.watts - alive * held * then.stretch * then.watts
    rent = before * now.boards * now.model.price_per_hour
    rent = rent - after * then.boards * then.model.price_per_hour
    same = then.model.name == now.model.name or not then.boards
    relief = advice.action in (Action.LARGER_GPU, Action.SPREAD)
    given = then.boards if same or relief else 0.0
    hours = float((before * now.boards - after * given).sum()) * _HOURS
    taken, taken_kwh, taken_rent = _transition(fleet, job, advice, now, then, setting)
    kwh = float(watts.sum()) * _HOURS / 1000 * fleet.site.pue - taken_kwh
    return Came(
        gpu_hours=hours - taken,
        kwh=kwh,
        money=float((rent + watts * price).sum()) * _HOURS
        - taken_rent
        - taken_kwh * float(np.mean(setting.prices)),
        used_kwh=float((alive * now.watts).sum()) * _HOURS / 1000 * fleet.site.pue,
    )


def changed(
    fleet: DrawnFleet,
    job: DrawnJob,
    now: Changed,
    wanted: Configuration,
    advice: Recommendation,
    setting: Setting,
) -> Changed:
    """Return the job under another configuration."""
    model = load_gpu_catalogue().get(wanted.gpu_model)
    count, chance = wanted.gpu_count, job.chance
    nothing = np.zeros(setting.horizon)
    if not count:
        return Changed(model=now.model, boards=0.0, watts=nothing, stretch=nothing)
    if wanted == advice.now:
        return now
    if wanted.power_cap_watts is not None:
        return _capped(fleet, job, now, wanted.power_cap_watts)
    error = 1 + 0.1 / 1.2816 * float(ndtri(chance[0]))
    speed = model.relative_speed / now.model.relative_speed
    boards, service, together = float(count), count * speed, 1.0
    if model.name != now.model.name:
        service *= 1 + 0.1 / 1.2816 * float(ndtri(chance[1]))
    profile = model.mig_profile(wanted.mig_profile) if wanted.mig_profile else None
    if profile is not None:
        boards, service = model.board_share(profile), profile.compute_fraction
    if wanted.shared_with:
        boards, together = 0.5, drawn_between(chance[2], 0.8, 0.95, 1.0)
        service = min(together, 1.0)
    work = future_of(fleet, job.wanted, setting)
    if advice.action is not Action.SCALE_OUT:
        work = np.minimum(work, now.boards)
    stretch = np.ones(setting.horizon)
    if has_end(job):
        worst = 1.7 ** np.log2(job.job.gpu_count / count) / min(speed, 1.0)
        worst = max(worst, 1 / service) if profile or wanted.shared_with else worst
        slow = 1 + float(beta.ppf(chance[3], 0.4, 1.6)) * max(0.0, worst - 1)
        stretch = np.maximum(np.maximum(work / service, 1.0), slow)
        work = work / stretch
    # What a slice or a half of a board does, the whole board draws for: in its share of it.
    share = boards / count
    used = np.minimum(work / service, 1.0) * (service if profile or wanted.shared_with else 1.0)
    free = fleet.idle_watts[model.name]
    active = job.work_watts(model, used) * count * error
    return Changed(
        model=model,
        boards=boards,
        watts=share * count * free * (job.held_idle - 1) + active,
        stretch=stretch,
    )


def has_end(job: DrawnJob) -> bool:
    """Say whether a job does a given work; a service does not."""
    return "/deployment/" not in job.job.job_id


def _capped(fleet: DrawnFleet, job: DrawnJob, now: Changed, cap_watts: float) -> Changed:
    """Return the job under a cap: each step's power by the law, its time by a drawn quantile."""
    law, count = now.model.cap_law, job.job.gpu_count
    free = fleet.idle_watts[now.model.name]
    board = now.watts / count + free
    reached = law.reach * cap_watts
    settled = (board**-law.sharpness + reached**-law.sharpness) ** (-1 / law.sharpness)
    ratio = np.minimum(settled / board, 1.0)
    rows = [
        np.interp(ratio, law.power_ratios, row)
        for row in (law.slowdown_low, law.slowdown, law.slowdown_high)
    ]
    z = float(ndtri(job.chance[4])) / 1.2816
    slowed = rows[1] + z * np.where(z > 0, rows[2] - rows[1], rows[1] - rows[0])
    slowed = np.maximum(slowed, 1.0)
    watts = count * (board * ratio * slowed - free)
    if not has_end(job):
        return replace(now, watts=watts)
    # `watts` is of the step's work: what a stretched step draws is that much less.
    return replace(now, watts=watts / slowed, stretch=slowed)


def _transition(
    fleet: DrawnFleet,
    job: DrawnJob,
    advice: Recommendation,
    now: Changed,
    then: Changed,
    setting: Setting,
) -> tuple[float, float, float]:
    """Return board-hours, site kWh and rent of making the change, of its drawn seconds."""
    change = advice.transition
    lost = _lost_hours(job, advice, future_of(fleet, job.wanted * job.alive(), setting), setting)
    boards, watts = now.boards * lost, float(now.watts.mean())
    redo = boards, lost * watts / 1000 * fleet.site.pue, boards * now.model.price_per_hour
    if change is None or change.seconds.high <= 0:
        return redo
    whole = sum(seconds for what, seconds in change.parts if what == _WHOLE_RUN)
    low, middle, high = change.seconds.low, change.seconds.central, change.seconds.high
    middle, high = middle - whole, high - whole
    hours = drawn_between(job.chance[5], low, middle, high) / 3_600
    leaving = sum(s for what, s in change.parts if what in _LEAVING) / max(1e-9, middle)
    boards = leaving * now.boards + (1 - leaving) * then.boards
    rent = leaving * now.boards * now.model.price_per_hour
    rent += (1 - leaving) * then.boards * then.model.price_per_hour
    taken = hours * boards, hours * watts / 1000 * fleet.site.pue, hours * rent
    return taken[0] + redo[0], taken[1] + redo[1], taken[2] + redo[2]


_LEAVING = ("write a checkpoint", "redo the work since a checkpoint")
_WHOLE_RUN = "redo the work since its start"


def _lost_hours(job: DrawnJob, advice: Recommendation, work: Values, setting: Setting) -> float:
    """Return the hours of its run that a job does again; one that is stopped, if work returns.

    `work` is what it does over the horizon, in boards [steps].
    """
    starts = advice.transition is not None and advice.transition.seconds.high > 0
    stops = not advice.proposed.gpu_count and work.max() > IDLE_BOARDS
    if not setting.hidden or not has_end(job) or not (starts or stops):
        return 0.0
    run = lost_work_of(job.job, PlanningSettings(checkpointed_jobs="none")).hours
    return min(float(job.chance[9]), run) if job.chance[8] < HIDDEN_SHARE else run


def _put_off(
    fleet: DrawnFleet, job: DrawnJob, advice: Recommendation, held: Values, setting: Setting
) -> Came:
    """Return what waiting saves: the work of the pause at the price of other hours of a day."""
    now = now_of(fleet, job, setting)
    alive = future_of(fleet, job.alive(), setting)
    paused = held * alive
    taken, kwh, rent = _transition(fleet, job, advice, now, now, setting)
    first = int(job.chance[6] * PER_DAY)
    later = setting.price(3 * PER_DAY)[first : first + max(1, int(paused.sum()))].mean()
    saved = paused * now.watts * (setting.price(setting.horizon) - later) * fleet.site.pue / 1000
    return Came(
        gpu_hours=-taken,
        kwh=-kwh,
        money=float(saved.sum()) * _HOURS - rent - kwh * float(np.mean(setting.prices)),
        used_kwh=float((alive * now.watts).sum()) * _HOURS / 1000 * fleet.site.pue,
    )


def _node_off(fleet: DrawnFleet, advice: Recommendation, setting: Setting) -> Came:
    """Return what a node that is off saves: idle boards and the server, less the moves off it.

    One that is needed again boots before.
    """
    node = next(node for node in fleet.nodes if node.name == advice.job_name)
    held = _held(fleet, advice, setting)
    base = fleet.site.base_watts_share * setting.base_watts_per_gpu
    draws = node.gpu_count * (fleet.idle_watts[node.gpu_model] + base) / 1000 * fleet.site.pue
    off = held.copy()
    if advice.ends_at is not None:
        off[np.flatnonzero(held)[-setting.boot_steps :]] = 0.0
    moves = [
        _moved(fleet, job, setting)
        for job in _moved_off(fleet, advice, int(held.argmax()), setting)
    ]
    hours, taken_kwh, rent = np.array(moves).reshape(-1, 3).sum(axis=0)
    price = setting.price(setting.horizon)
    return Came(
        gpu_hours=-hours,
        kwh=float(off.sum()) * _HOURS * draws - taken_kwh,
        money=float((off * price).sum()) * _HOURS * draws
        - rent
        - taken_kwh * float(np.mean(setting.prices)),
        used_kwh=float(held.sum()) * _HOURS * draws,
    )


def _moved_off(
    fleet: DrawnFleet, advice: Recommendation, first: int, setting: Setting
) -> list[DrawnJob]:
    """Return the jobs on a node that are still there in step `first` and start again elsewhere."""
    there = [job for job in fleet.jobs if any(name == advice.job_name for name, _ in job.boards)]
    return [
        job
        for job in there
        if fleet.past + first < job.ends and setting.left_at.get(job.job.job_id, np.inf) > first
    ]


def _moved(fleet: DrawnFleet, job: DrawnJob, setting: Setting) -> tuple[float, float, float]:
    """Return board-hours, site kWh and rent of a start on other nodes, of its drawn seconds."""
    now = now_of(fleet, job, setting)
    wanted = Configuration(gpu_model=now.model.name, gpu_count=job.job.gpu_count)
    present = Option(configuration=wanted, boards=now.boards, service=now.boards)
    standing = standing_of(job.job, PlanningSettings(checkpointed_jobs="*"))
    kind = Elasticity.RESTARTABLE if has_end(job) else Elasticity.SERVICE
    parts = moving(replace(standing, elasticity=kind), present)
    ends = (sum(getattr(part, end) for part in parts) for end in ("low", "central", "high"))
    hours = drawn_between(job.chance[7], *ends) * now.boards / 3_600
    kwh = hours / now.boards * float(now.watts.mean()) / 1000 * fleet.site.pue
    return hours, kwh, hours * now.model.price_per_hour
