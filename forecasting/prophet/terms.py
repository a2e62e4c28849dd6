"""The terms of Prophet's additive model, made exactly as Prophet makes them.

    y / y_scale = m + k t + sum_j delta_j max(t - c_j, 0) + sum_l beta_l x_l + noise

(Taylor and Letham 2018, section 3; names as in Prophet's Stan program). Time t runs from 0 at the
first known point to 1 at the last; changepoints c_j lie on known points of the first 80 %; x are
Fourier pairs of the clock. Times are whole seconds since the epoch, UTC.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.base.units import SECONDS_PER_DAY

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

TREND_SCALE = 5.0
"""Standard deviation of the normal priors of k and m, fixed in Prophet's Stan program."""
SEASON_SCALE = 10.0
CHANGE_SCALE = 0.05
"""Prophet's default scales: of the seasons' normal prior, and of the changes' Laplace prior."""


@dataclass(frozen=True, slots=True)
class Seasonality:
    """A period of the clock, its Fourier pairs, and the span from which Prophet has it; in s."""

    name: str
    period_seconds: int
    order: int
    least_span_seconds: int


_BUILT_IN = (
    Seasonality("yearly", 31_557_600, 10, 730 * SECONDS_PER_DAY),
    Seasonality("weekly", 7 * SECONDS_PER_DAY, 3, 14 * SECONDS_PER_DAY),
    Seasonality("daily", SECONDS_PER_DAY, 4, 2 * SECONDS_PER_DAY),
)


def auto_seasonalities(span_seconds: int, closest_seconds: int) -> tuple[Seasonality, ...]:
    """Return the seasonalities of a history, in Prophet's order: yearly, weekly, daily.

    They need a span (first to last known point) of 730, 14 or 2 days; weekly and daily also two
    points closer than the period.
    """
    return tuple(
        entry
        for entry in _BUILT_IN
        if span_seconds >= entry.least_span_seconds
        and (entry.name == "yearly" or closest_seconds < entry.period_seconds)
    )


def fourier_columns(times: Integers, seasonalities: tuple[Seasonality, ...]) -> Floats:
    """Return sin, cos of 2 pi i time / period, i = 1..order, per seasonality: [times, 2 x orders].

    The clock is reduced to one period in whole seconds first, so nothing is lost to large epochs.
    """
    columns = [np.empty((len(times), 0))]
    for seasonality in seasonalities:
        turn = (times % seasonality.period_seconds) * (2 * np.pi / seasonality.period_seconds)
        angles = turn[:, None] * np.arange(1, seasonality.order + 1)
        columns.append(np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(len(times), -1))
    return np.concatenate(columns, axis=1)


def shifted(beta: Floats, seasonalities: tuple[Seasonality, ...], seconds: Integers) -> Floats:
    """Return the Fourier coefficients of the same curve once the clock's zero moves back.

    `beta` is [series, columns]; the value at time u becomes the value at time
    u + seconds, one shift per series. A pair turns as a whole, so its normal prior does not see
    it: the fit is the same for every phase of the window, and one Gram matrix serves all of them.
    """
    result = beta.copy()
    column = 0
    for seasonality in seasonalities:
        turn = (seconds % seasonality.period_seconds) * (2 * np.pi / seasonality.period_seconds)
        for i in range(1, seasonality.order + 1):
            sine, cosine = np.sin(i * turn), np.cos(i * turn)
            first, second = beta[:, column], beta[:, column + 1]
            result[:, column] = first * cosine + second * sine
            result[:, column + 1] = second * cosine - first * sine
            column += 2
    return result


def smooth_precision(seasonalities: tuple[Seasonality, ...]) -> Floats:
    """Return 1 / variance of the normal priors of [k, m, seasonal]."""
    seasonal = sum(2 * seasonality.order for seasonality in seasonalities)
    return np.asarray(1.0 / np.square([TREND_SCALE] * 2 + [SEASON_SCALE] * seasonal))
