"""A training job's epoch in its forecast: used only where it has lately forecast better.

On recorded training power, ten-second slots two minutes ahead, the level that a job's phases make
likely halves the error of the last value and beats the median of the run so far by a third where
the epoch is known. Where it is not, that median is better, and no level is told.

The mix knows hours of the day; a training job dips at the ends of its epochs, whatever the hour.
When its dips recur, the level that its phases make likely is compared with the mix at past moments,
each from its own past, and takes the place of the mix's middle, or half of it, if that was better.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forecasting.mix.model import MIN_KNOWN, mix
from forecasting.models.demand_model import Quantiles
from forecasting.phases.detect import find_phases
from forecasting.phases.phase_profile import MIN_SLOTS_PER_EPOCH, PhaseProfile, phase_profile
from forecasting.phases.records import Phases, Signal
from forecasting.series.demand_series import DemandSeries, Values

_LIKELY = 0.5


def phase_forecast(profile: PhaseProfile, slot_values: npt.ArrayLike) -> Values | None:
    """Return one level per future slot, or None where the epoch is unknown or no slot is.

    `slot_values` are the means of the profile's past slots, oldest first, NaN unknown; the unit is
    theirs. A slot that is most likely of one kind has that kind's level, another the mixture that
    is expected.
    """
    observed = np.asarray(slot_values, dtype=np.float64)[: len(profile.past_shares)]
    if not profile.knows_epoch or not np.isfinite(observed).any():
        return None
    levels = _levels(profile.past_shares[: len(observed)], observed)
    shares = profile.future_shares
    total = shares.sum(axis=1)
    mixed = np.divide(shares @ levels, total, out=np.full(len(total), np.nan), where=total > 0)
    likely = shares.max(axis=1, initial=0.0) > _LIKELY * total
    return np.asarray(np.where(likely & (total > 0), levels[shares.argmax(axis=1)], mixed))


def _levels(shares: Values, slot_values: Values) -> Values:
    """Return the level of each kind: the median of slots, weighted by the cube of the kind's share.

    Means of slots, not levels of segments: a ripple of training steps puts the one 2 % below the
    other. The cube leaves the slots that are wholly of a kind to speak for it.
    """
    finite = np.isfinite(slot_values)
    order = np.argsort(slot_values[finite])
    values = slot_values[finite][order]
    weights = np.cumsum(shares[finite][order] ** 3, axis=0)
    middle = [
        int(np.searchsorted(column, column[-1] / 2)) if column[-1] > 0 else len(values) // 2
        for column in weights.T
    ]
    return np.asarray(values[np.minimum(middle, len(values) - 1)])


_MOMENTS = 8
_JUDGED_SLOTS = 24
_WORTH_RATIO = 0.95
"""The middle is replaced only when that errs less than this share of the mix's error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseAdjustment:
    """The quantiles moved to follow the epoch, and why."""

    quantiles: Quantiles
    note: str


def phase_adjusted(series: DemandSeries, base: Quantiles, signal: Signal) -> PhaseAdjustment | None:
    """Return the quantiles with the epoch in them.

    None where it is unknown or foretells nothing.
    """
    horizon = len(base.q50)
    phases, levels = _from_epoch(series, horizon, signal)
    if levels is None:
        return None
    errors = _errors(series, min(horizon, _JUDGED_SLOTS), signal)
    if errors is None:
        return None
    plain, half, full = errors
    best, share = min((half, 0.5), (full, 1.0))
    if not best < _WORTH_RATIO * plain:
        return None
    move = np.where(np.isfinite(levels), share * (levels - base.q50), 0.0)
    rows = np.stack([base.q05, base.q10, base.q50, base.q90, base.q95]) + move
    rows = np.clip(rows, series.lower, series.upper)
    seconds = phases.epoch.seconds or 0.0
    return PhaseAdjustment(
        quantiles=Quantiles(q05=rows[0], q10=rows[1], q50=rows[2], q90=rows[3], q95=rows[4]),
        note=f"follows dips every {seconds / 60:.0f} min: error {best / plain:.2f} of the mix's at"
        f" {_MOMENTS} past moments",
    )


def _from_epoch(series: DemandSeries, horizon: int, signal: Signal) -> tuple[Phases, Values | None]:
    """Return the phases and the level they make likely in each slot ahead."""
    phases = find_phases(series.values, series.slot_seconds, signal=signal)
    seconds = phases.epoch.seconds
    if seconds is None or seconds < MIN_SLOTS_PER_EPOCH * series.slot_seconds:
        return phases, None
    profile = phase_profile(phases, slot_seconds=series.slot_seconds, horizon=horizon)
    return phases, phase_forecast(profile, series.values)


def _errors(series: DemandSeries, ahead: int, signal: Signal) -> tuple[float, float, float] | None:
    """Return the mean absolute error of the mix, of half and of all of the phases' word."""
    length = len(series.values)
    moments = np.unique(np.linspace(length // 2, length - ahead, _MOMENTS).round().astype(int))
    sums = []
    for moment in moments[moments >= MIN_KNOWN]:
        past = series.head(int(moment))
        truth = series.values[moment : moment + ahead]
        if int(past.known.sum()) < MIN_KNOWN or not np.isfinite(truth).any():
            continue
        _, levels = _from_epoch(past, ahead, signal)
        middle = mix(past, ahead).quantiles.q50
        level = middle if levels is None else np.where(np.isfinite(levels), levels, middle)
        sums.append(
            [
                float(np.nanmean(np.abs(truth - value)))
                for value in (middle, 0.5 * (middle + level), level)
            ]
        )
    if len(sums) < _MOMENTS // 2:
        return None
    plain, half, full = np.mean(sums, axis=0)
    return float(plain), float(half), float(full)
