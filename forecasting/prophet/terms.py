"""The terms of Prophet's additive model, made exactly as Prophet makes them.

    y / y_scale = m + k t + sum_j delta_j max(t - c_j, 0) + sum_l beta_l x_l + noise

(Taylor and Letham 2018, section 3; names as in Prophet's Stan program). Time t runs from 0 at the
first known point to 1 at the last; changepoints c_j lie on known points of the first 80 %; x are
Fourier pairs of the clock. Times are whole seconds since the epoch, UTC.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from data.base.errors import ForecastError
from data.base.units import SECONDS_PER_DAY

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Growth = Literal["linear", "flat"]
Order = int | Literal["auto"]

TREND_SCALE = 5.0
"""Standard deviation of the normal priors of k and m, fixed in Prophet's Stan program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProphetOptions:
    """Prophet's own arguments and defaults; `starts` is the solver's.

    Orders of seasonality: "auto" follows Prophet's rule (`auto_seasonalities`), 0 is off.
    `starts=2` searches the noise variance from below as well (docs/internals/forecasting.md).
    Errors: ForecastError for a scale that is not positive or an unknown growth.
    """

    growth: Growth = "linear"
    changepoints: int = 25
    changepoint_range: float = 0.8
    changepoint_prior_scale: float = 0.05
    yearly: Order = "auto"
    weekly: Order = "auto"
    daily: Order = "auto"
    seasonality_prior_scale: float = 10.0
    starts: Literal[1, 2] = 1

    def __post_init__(self) -> None:
        if self.growth not in ("linear", "flat"):
            raise ForecastError(f"growth is {self.growth!r}", "give linear or flat")
        for name in ("changepoint_prior_scale", "seasonality_prior_scale"):
            if not getattr(self, name) > 0:
                raise ForecastError(f"{name} is {getattr(self, name)}", "give a scale above 0")
        if not 0 <= self.changepoint_range <= 1:
            raise ForecastError(
                f"changepoint_range is {self.changepoint_range}", "give a share from 0 to 1"
            )
        if self.starts not in (1, 2):
            raise ForecastError(f"starts is {self.starts}", "give 1 or 2")
        for name in ("changepoints", "yearly", "weekly", "daily"):
            order = getattr(self, name)
            if order != "auto" and order < 0:
                raise ForecastError(f"{name} is {order}", "give a number from 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seasonality:
    """A period of the clock in seconds and its number of Fourier pairs."""

    name: str
    period_seconds: int
    order: int


@dataclass(frozen=True, slots=True)
class _BuiltIn:
    """A seasonality of Prophet: its rule and default order."""

    name: Literal["yearly", "weekly", "daily"]
    period_seconds: int
    order: int
    least_span_seconds: int


_BUILT_IN = (
    _BuiltIn("yearly", 31_557_600, 10, 730 * SECONDS_PER_DAY),
    _BuiltIn("weekly", 7 * SECONDS_PER_DAY, 3, 14 * SECONDS_PER_DAY),
    _BuiltIn("daily", SECONDS_PER_DAY, 4, 2 * SECONDS_PER_DAY),
)


def auto_seasonalities(
    span_seconds: int, closest_seconds: int, options: ProphetOptions
) -> tuple[Seasonality, ...]:
    """Return the seasonalities of a history, in Prophet's order: yearly, weekly, daily.

    Automatic ones need a span (first to last known point) of 730, 14 or 2 days; weekly and daily
    also two points closer than the period.
    """
    seasonalities = []
    for built_in in _BUILT_IN:
        order = getattr(options, built_in.name)
        if order == "auto":
            dense = built_in.name == "yearly" or closest_seconds < built_in.period_seconds
            order = built_in.order if span_seconds >= built_in.least_span_seconds and dense else 0
        if order:
            seasonalities.append(
                Seasonality(name=built_in.name, period_seconds=built_in.period_seconds, order=order)
            )
    return tuple(seasonalities)


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


def turned(beta: Floats, seasonalities: tuple[Seasonality, ...], seconds: Integers) -> Floats:
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


def smooth_precision(seasonalities: tuple[Seasonality, ...], options: ProphetOptions) -> Floats:
    """Return 1 / variance of the normal priors of [k (linear only), m, seasonal]."""
    seasonal = sum(2 * seasonality.order for seasonality in seasonalities)
    scales = [TREND_SCALE] * (2 if options.growth == "linear" else 1)
    scales += [options.seasonality_prior_scale] * seasonal
    return np.asarray(1.0 / np.square(scales))
