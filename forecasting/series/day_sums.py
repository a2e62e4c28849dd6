"""Forecast sums of the next days, from whole days of the past, with an interval.

The mean of the last `_LEVEL_DAYS` days, from four weeks on halfway to that of these four, times
what each weekday is of the mean. The 80 % interval is that of a sum of days whose deviations stay
alike for up to a week (long-run variance by Bartlett weights: Newey and West 1987), widened for the
mean being an estimate, and for the variance being one of fewer days than `HISTORY_DAYS`, of which
it needs no widening (Kiefer and Vogelsang 2005, table 1). Beyond as many days as are known the
level moves on in a way that they cannot tell: `_EXTRAPOLATION` is what demand of Philly asked for.
Long histories hold moves of the level that a few days ahead are spared, and months ahead see more
of: `_REACH` is what drawn bills and the power of six servers asked for. `python -m
benchmarks.statement` counts how often the interval holds.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
HISTORY_DAYS = 56
MIN_DAYS = 7
_LEVEL_DAYS = 7
_WEEKDAYS_FROM = 28
_LAGS = 7
_QUANTILE_90 = (1.2816, 1.3040, 0.5135, -0.3386)
"""Of the fixed-b limit, by powers of the share of the days that the weights reach over."""
_EXTRAPOLATION = 0.5
_REACH, _REACH_A_DAY = 0.63, 0.008
"""Factor of the interval at no day ahead, and its growth a day, where `HISTORY_DAYS` are known."""


@dataclass(frozen=True, slots=True)
class DaysAhead:
    """The next days as forecast: each, and all together as q10, central and q90."""

    days: Floats
    sums: tuple[float, float, float]


def days_ahead(
    days: Floats, *, days_left: float, weekday: int, after: float = 0.0
) -> DaysAhead | None:
    """Return the forecast of the next `days_left` days, None of fewer than a week of history.

    `days` are whole days up to yesterday, none of them unknown; `weekday` (0..6) is that of today.
    They begin with today, or with the day that begins `after` so many.
    """
    if len(days) < MIN_DAYS:
        return None
    weights = _weekday_weights(days, weekday)
    past = weights[(weekday - np.arange(len(days), 0, -1)) % 7]
    level_days = min(_LEVEL_DAYS, len(days))
    recent = level = float((days[-level_days:] / past[-level_days:]).mean())
    if len(days) >= _WEEKDAYS_FROM:
        level = (recent + float((days / past)[-_WEEKDAYS_FROM:].mean())) / 2
    count, first = int(np.ceil(days_left)), weekday + int(np.ceil(after))
    parts = np.minimum(days_left - np.arange(count), 1.0)[::-1]  # today is the part that is left
    ahead = level * weights[(first + np.arange(count)) % 7] * parts
    central = float(ahead.sum())
    spread = _reach(days - recent * past) * np.sqrt(days_left + days_left**2 / level_days)
    until = after + days_left
    long = float(np.clip(len(days) / _WEEKDAYS_FROM - 1, 0, 1))
    spread *= 1 + long * (_REACH + _REACH_A_DAY * until - 1)
    reach = float(spread) * (1 + _EXTRAPOLATION * max(0.0, until / len(days) - 1))
    return DaysAhead(ahead, (max(0.0, central - reach), central, central + reach))


def _weekday_weights(days: Floats, weekday: int) -> Floats:
    """Return each weekday's share of the mean, all 1 of fewer than four weeks."""
    if len(days) < _WEEKDAYS_FROM or not days.mean():
        return np.ones(7)
    which = (weekday - np.arange(len(days), 0, -1)) % 7
    means = np.array([days[which == day].mean() for day in range(7)])
    return np.asarray(np.maximum(means / means.mean(), 0.05), dtype=np.float64)


def _reach(deviations: Floats) -> float:
    """Return the q90 of a day's deviation, one that carries its neighbours' likeness."""
    count = len(deviations)
    lags = min(_LAGS, count - 1)
    covariances = [
        float((deviations[lag:] * deviations[: count - lag]).sum() / count)
        for lag in range(lags + 1)
    ]
    variance = covariances[0] + 2 * sum(
        (1 - lag / (lags + 1)) * covariances[lag] for lag in range(1, lags + 1)
    )
    quantile = _fixed_b((lags + 1) / count) - _fixed_b((_LAGS + 1) / HISTORY_DAYS) + _QUANTILE_90[0]
    return quantile * float(np.sqrt(max(variance, covariances[0])))


def _fixed_b(share: float) -> float:
    """Return the q90 of a mean over its standard error by weights over that share of the days."""
    return float(np.polyval(_QUANTILE_90[::-1], share))
