"""Forecasts for a replay: what the mix would have foreseen at past moments, from the past only."""

from collections.abc import Callable

import numpy as np

from benchmarks.rightsizing.forecast_path import refreshed
from benchmarks.rightsizing.past import StepForecast, Values, quantile
from benchmarks.rightsizing.replay import Recorded
from data.base.units import SECONDS_PER_HOUR
from data.records.forecasts import Quantity
from forecasting.mix.model import mix_many
from forecasting.series.demand_series import DemandSeries

_PAST_DAYS = 60
_AHEAD_HOURS = 24.0
_MIN_STEPS = 4


def step_peaks(recorded: Recorded) -> Values:
    """Return the largest sample of every job and step [jobs, steps], NaN where none is known."""
    steps = [quantile(recorded.came(step), 1.0) for step in range(recorded.steps)]
    return np.stack(steps, axis=1)


def step_forecasts(
    recorded: Recorded, every: int, *, progress: Callable[[int, int], None] | None = None
) -> list[StepForecast | None]:
    """Return by step what the mix foresees of the steps' peaks, a day ahead.

    Made anew every so many steps; in between the last one is moved to what was seen.
    """
    peaks = step_peaks(recorded)
    hours = recorded.sample_hours * recorded.samples_per_step
    ahead = max(1, round(_AHEAD_HOURS / hours))
    found: list[StepForecast | None] = [None] * recorded.first_step
    for origin in range(recorded.first_step, recorded.steps, every):
        begin = max(0, origin - round(24 * _PAST_DAYS / hours))
        path = _paths(peaks[:, begin:origin], begin, ahead + every, hours)
        found += [
            refreshed(path, step - origin, peaks[:, step - 1])
            for step in range(origin, min(origin + every, recorded.steps))
        ]
        if progress is not None:
            progress(
                min(origin + every, recorded.steps) - recorded.first_step,
                recorded.steps - recorded.first_step,
            )
    return found


def _paths(peaks: Values, begin: int, slots: int, hours: float) -> Values:
    """Return the forecast paths [jobs, slots, quantiles], NaN for a job of hardly any step."""
    paths = np.full((len(peaks), slots, 5), np.nan)
    known = np.flatnonzero(np.isfinite(peaks).sum(axis=1) >= _MIN_STEPS)
    series = []
    for job in known:
        # A job's own past begins with its first reading.
        first = int(np.isfinite(peaks[job]).argmax())
        series.append(
            DemandSeries(
                quantity=Quantity.EFFECTIVE_GPUS,
                first_slot=round((begin + first) * hours * SECONDS_PER_HOUR),
                slot_seconds=round(hours * SECONDS_PER_HOUR),
                values=peaks[job, first:],
                lower=0.0,
                upper=np.inf,
            )
        )
    for job, forecast in zip(known, mix_many(series, [slots] * len(series)), strict=True):
        said = forecast.quantiles
        paths[job] = np.stack([said.q05, said.q10, said.q50, said.q90, said.q95], axis=1)
    return paths
