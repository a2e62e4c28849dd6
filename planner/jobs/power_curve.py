"""The power of a job's boards by their activity, learned from its own readings.

Power beyond rest is taken as activity to an exponent. Where work is put on fewer boards or on
slower ones, activity rises, and a job whose boards are hot at little activity saves energy by it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.catalogue.gpu_catalogue import GpuModel
from data.facts.job_history import JobHistory
from planner.jobs.expected_value import mean_of

Values = npt.NDArray[np.float64]

HOLDING_SHARES = (0.025, 0.125, 0.225)
"""What a process that holds a board adds to its idle power, as shares of it: low, central, high.
An assumption: boards with a context keep higher clocks, by how much differs by model and driver."""
CURVE = 0.19
"""Half-width (q10-q90) of the exponent of a job of which nothing was learned, around 1; an
assumption."""

_OF_Q90 = 1.2816
_MIN_SLOTS = 12
_ACTIVE, _SATURATED = 0.02, 0.98
_RANGE, _LEAST, _MIN_VARIANCE, _READING = (0.1, 2.0), 0.03, 1e-6, 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCurve:
    """The exponent by which power follows activity, with its half-width (q10-q90)."""

    exponent: float = 1.0
    half_width: float = CURVE

    def rise(self, ratio: float) -> float:
        """Return the mean factor of power above rest at `ratio` times the activity."""
        log = float(np.log(ratio))
        return float(np.exp(self.exponent * log + (self.half_width / _OF_Q90 * log) ** 2 / 2))


def learned_curve(rows: JobHistory, model: GpuModel | None) -> PowerCurve:
    """Return the curve that the rows of a job's history on boards of a model show.

    A regression of log power beyond rest on log activity, drawn towards 1 the more, the less the
    activity varied. What rest is, is not known: `HOLDING_SHARES` leaves the exponent as unsure as
    it does.
    """
    if model is None or len(rows) < _MIN_SLOTS:
        return PowerCurve()
    boards = np.maximum(rows.allocated_gpus, 1e-9)
    activity, watts = rows.effective_gpus / boards, rows.power_watts / boards
    usable = np.isfinite(activity + watts) & (activity > _ACTIVE) & (activity < _SATURATED)
    activity, watts = activity[usable], watts[usable]
    idle = (model.idle_watts_low, model.idle_watts, model.idle_watts_high)
    rests = [(1 + share) * model.idle_watts for share in HOLDING_SHARES]
    rests += [(1 + HOLDING_SHARES[1]) * idle[0], (1 + HOLDING_SHARES[1]) * idle[2]]
    fits = [entry for rest in rests if (entry := _fit(activity, watts - rest)) is not None]
    if len(fits) < len(rests):
        return PowerCurve()
    (low, _), (slope, error), (high, _), (free_low, _), (free_high, _) = fits
    # The fit rises faster with rest than it falls: its mean over what rest may be, not the middle.
    slope = mean_of(low, slope, high) + mean_of(free_low, slope, free_high) - slope
    unsure = [error, _LEAST, (high - low) / 2 / _OF_Q90, (free_high - free_low) / 2 / _OF_Q90]
    variance, prior = float(np.sum(np.square(unsure))), (CURVE / _OF_Q90) ** 2
    weight = prior / (prior + variance)
    return PowerCurve(
        exponent=float(np.clip(1 + weight * (slope - 1), *_RANGE)),
        half_width=_OF_Q90 * (weight * variance) ** 0.5,
    )


def _fit(activity: Values, watts: Values) -> tuple[float, float] | None:
    """Return exponent and its standard error, None where activity did not vary."""
    there = watts > 0
    x, y = np.log(activity[there]), np.log(watts[there])
    if len(x) < _MIN_SLOTS or not x.var() > _MIN_VARIANCE:
        return None
    slope = float(((x - x.mean()) * (y - y.mean())).mean() / x.var())
    residual = y - y.mean() - slope * (x - x.mean())
    variance = max(float(residual.var()), _MIN_VARIANCE)
    # Neighbouring slots err alike: so many of them count as one.
    alike = float(np.clip((residual[1:] * residual[:-1]).mean() / variance, 0, 0.99))
    count = len(x) * (1 - alike) / (1 + alike)
    error = (variance / x.var() / max(count - 2, 0.5)) ** 0.5
    # What readings of activity err by flattens the slope where activity itself hardly varied.
    return slope, float(np.hypot(error, _READING**2 / x.var()))
