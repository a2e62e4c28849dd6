"""Course of a job without a change, from the day before and from what it did since.

A service would have had the same demand: its power is read off its own line of power over work of
the day before, at the work done since. A job with an end would have done the same work in less or
more time, at the mean power of the day before. One that stood idle would have gone on as at the
same hours of the day before, one that was stopped as it was last, for as long as it was expected to
last when the change was recommended.

Boards given up stay powered, so energy counts beyond what as many free boards draw. A range is q10
to q90 of errors taken as independent: how stretches as long of the day before lay about the same
rule, what free boards draw, how much faster another GPU is (10 %), and how a board's energy is
shared.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from data.base.units import SECONDS_PER_HOUR
from data.records.recommendations import Range

Values = npt.NDArray[np.float64]
NO_WORK_RATIO = 0.01
"""Work below this share of the GPU-hours is no work to measure by: the job stood idle."""
_SPEED_ERROR = 0.1
_MIN_SPREAD = 0.02
"""Spread of work over the slots, in boards held, from which a slope of power can be read."""
_TAIL = 0.1
_DAY = pd.Timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBoards:
    """Use of boards by a job on one side of a change.

    `share` is boards per device (less than 1: a MIG slice, a shared board), `speed` the work of a
    device in full use, in boards of now; `free_watts` is what a free board of the model draws.
    """

    share: float
    speed: float
    free_watts: Range


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryAfter:
    """History of a job after a change (columns HISTORY), and board energy in kWh.

    `rows` are its known slots; none for a job that is stopped, which would have lasted `hours`,
    with `sooner` and `later` the sides of their range.
    """

    rows: pd.DataFrame
    hours: float
    energy_kwh: Range | None
    sooner: float = 0.0
    later: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSaving:
    """GPU-hours and board energy saved, None where unknown.

    `hours_without` are the board-hours that the job would have held, `hours_with` those it held.
    """

    gpu_hours: Range
    energy_kwh: Range | None
    hours_without: float
    hours_with: float


def saved(
    before: pd.DataFrame,
    since: HistoryAfter,
    *,
    now: HeldBoards,
    then: HeldBoards,
    has_end: bool,
    counts_new_boards: bool,
    slot_seconds: int,
) -> MeasuredSaving:
    """Return the savings of a change, against the same job without it.

    `before` are the known slots of the day before (columns HISTORY), at least one. `has_end`: the
    job does a given work. Not `counts_new_boards`: boards of another model are no GPU-hours of
    this one, as in what was promised.
    """
    day = _Day.of(before, now)
    slot_hours = slot_seconds / SECONDS_PER_HOUR
    slots = max(1, round(since.hours / slot_hours))
    since_work = since.rows["effective_gpus"].to_numpy(dtype=np.float64) * then.speed
    then_hours = float(since.rows["allocated_gpus"].sum()) * then.share * slot_hours
    alike = _same_hours(before, since.rows, slots)
    worked = day.worked and len(since_work) > 0
    speed_error = _SPEED_ERROR if now.speed != then.speed else 0.0
    hours, hours_error = since.hours, 0.0
    if has_end and worked:
        rate = float(day.work.mean())
        hours = float(since_work.sum()) * slot_hours / rate
        apart = _apart(day.work, slots) / rate
        hours_error = hours * float(np.hypot(max(np.abs(apart)), speed_error))
    boards = float(day.gpus[alike].mean())  # of a job that is stopped: what it held last
    held_apart = _apart(day.gpus, slots) * hours
    given_back = then_hours if counts_new_boards else 0.0
    own_error = boards * hours_error
    end_error = (boards * since.sooner, boards * since.later)
    gpu_hours = _around(
        boards * hours - given_back,
        [(own_error, own_error), _sides(held_apart), end_error],
        "GPU-h",
    )
    if since.energy_kwh is None or np.isnan(day.power).any():
        return MeasuredSaving(
            gpu_hours=gpu_hours,
            energy_kwh=None,
            hours_without=boards * hours,
            hours_with=then_hours,
        )
    errors = []
    if has_end and worked:
        watts = float(day.power.mean())
        errors.append((watts * hours_error, watts * hours_error))
    elif worked:
        slope, resting = _line(day, now)
        watts = float((resting + slope * since_work).mean())
        residual = day.power - resting - slope * day.work
        own_error = slope * float(since_work.mean()) * speed_error * hours
        errors += [_sides(_apart(residual, slots) * hours), (own_error, own_error)]
    else:
        watts = float(day.power[alike].mean())
        errors.append(_sides(_apart(day.power, slots) * hours))
    used = since.energy_kwh
    free_now, free_then = now.free_watts, then.free_watts
    net = watts * hours - boards * hours * free_now.central + then_hours * free_then.central
    errors += _free_errors(boards * hours, then_hours, free_now, free_then)
    errors.append((1000 * (used.high - used.central), 1000 * (used.central - used.low)))
    beyond = abs(watts - boards * free_now.central)
    errors.append((beyond * since.sooner, beyond * since.later))
    kwh = [(low / 1000, high / 1000) for low, high in errors]
    return MeasuredSaving(
        gpu_hours=gpu_hours,
        energy_kwh=_around(net / 1000 - used.central, kwh, "kWh"),
        hours_without=boards * hours,
        hours_with=then_hours,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Day:
    """The day before by slot: boards held, work in boards of now, board power in W."""

    gpus: Values
    work: Values
    power: Values

    @classmethod
    def of(cls, rows: pd.DataFrame, now: HeldBoards) -> "_Day":
        """Return it from known slots of a history."""
        names = ("allocated_gpus", "effective_gpus", "power_watts")
        allocated, work, power = (rows[name].to_numpy(dtype=np.float64) for name in names)
        return cls(gpus=allocated * now.share, work=work * now.speed, power=power)

    @property
    def worked(self) -> bool:
        """Return whether there is work to measure by."""
        return bool(self.work.sum() > NO_WORK_RATIO * self.gpus.sum())


def remaining_part(
    expected_hours: float, horizon_hours: float, hours: float
) -> tuple[float, float, float]:
    """Return the part of the `hours` after a change that a job would have run: low, mean, high.

    It was expected to be there for so many hours of the plan's horizon; it is taken to end in any
    hour alike. Four of five times lie between low and high, all above low where a tenth or more
    last to the end.
    """
    share = expected_hours / horizon_hours
    if not 0 < share < 1:
        return hours, hours, hours
    rate = _rate_of(share) / horizon_hours
    mean = hours * _mean_left(rate * hours)
    outlasts = math.exp(-rate * hours) > _TAIL
    low = -math.log(1 - (2 * _TAIL if outlasts else _TAIL)) / rate
    high = hours if outlasts else -math.log(_TAIL) / rate
    return min(low, mean), mean, high


def _mean_left(ended: float) -> float:
    """Return the mean of exp(-t) for t from 0 to `ended`."""
    return -math.expm1(-ended) / ended if ended > 0 else 1.0


def _rate_of(share: float) -> float:
    """Return the `ended` of which `_mean_left` is a number between 0 and 1, exclusively."""
    low, high = 0.0, 1.0 / share
    for _halving in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _mean_left(middle) > share else (low, middle)
    return low


def _line(day: _Day, now: HeldBoards) -> tuple[float, float]:
    """Return power over work as (W per board of work, W at none).

    Where the work hardly varied, the line goes through what free boards draw.
    """
    boards, work, power = float(day.gpus.mean()), day.work, day.power
    middle, mean = float(work.mean()), float(power.mean())
    slope = max(0.0, (mean - boards * now.free_watts.central) / middle)
    if float(work.std()) > _MIN_SPREAD * boards:
        fit = float(((work - middle) * (power - mean)).mean() / work.var())
        slope = min(max(0.0, fit), 2 * slope)
    return slope, mean - slope * middle


def _same_hours(before: pd.DataFrame, after: pd.DataFrame, slots: int) -> npt.NDArray[np.bool_]:
    """Return the slots of the day before at the same hours; where none are, the last ones."""
    moments = {moment - _DAY for moment in after["slot_start"]}
    alike = before["slot_start"].isin(moments).to_numpy()
    return alike if alike.any() else np.arange(len(before)) >= len(before) - slots


def _apart(values: Values, slots: int) -> Values:
    """Return the distance of runs of so many slots from the mean of all: q10 and q90."""
    size = min(slots, len(values))
    means = np.convolve(values, np.ones(size) / size, mode="valid")
    low, high = np.quantile(means - values.mean(), (0.1, 0.9))
    return np.array([low, high])


def _sides(apart: Values) -> tuple[float, float]:
    """Return the reach of a range below and above."""
    return max(0.0, -float(apart[0])), max(0.0, float(apart[1]))


def _free_errors(
    now_hours: float, then_hours: float, now: Range, then: Range
) -> list[tuple[float, float]]:
    """Return the errors (below, above) of what free boards draw; one where it is one model."""
    up_now, down_now = now.high - now.central, now.central - now.low
    up_then, down_then = then.high - then.central, then.central - then.low
    if now != then:
        return [(now_hours * up_now, now_hours * down_now),
                (then_hours * down_then, then_hours * up_then)]  # fmt: skip
    net = now_hours - then_hours
    return [(net * up_now, net * down_now) if net > 0 else (-net * down_now, -net * up_now)]


def _around(central: float, errors: list[tuple[float, float]], unit: str) -> Range:
    """Return the range of independent errors, each as far below and above."""
    below, above = (float(np.hypot.reduce([side[at] for side in errors])) for at in (0, 1))
    return Range(low=central - below, central=central, high=central + above, unit=unit)
