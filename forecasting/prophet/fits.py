"""What fitting a batch gives: every series' terms, how good they are, and the forecast."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from data.errors import ForecastError
from forecasting.prophet.bands import TrendNoise, deviations
from forecasting.prophet.rows_kernel import Answers, RowSurvey
from forecasting.prophet.terms import (
    Floats,
    Integers,
    ProphetDesign,
    ProphetOptions,
    Seasonality,
    fourier_columns,
    prophet_design,
    turned,
)

_MIN_CHANGE = 1e-8
"""Prophet adds it to the scale of future changes of slope."""


class FitStatus(IntEnum):
    """How the fit of one series went; from TOO_FEW_POINTS on there is none and forecasts are NaN.

    THROUGH_ALL_POINTS: nothing is left of the series but rounding, so the posterior grows without
    bound as sigma goes to 0; the terms are right, sigma stands at its floor.
    """

    FITTED = 0
    CONSTANT = 1
    THROUGH_ALL_POINTS = 2
    TOO_FEW_POINTS = 3
    AS_MANY_TERMS_AS_POINTS = 4
    REGRESSOR_UNKNOWN = 5


REASONS = {
    FitStatus.FITTED: "fitted",
    FitStatus.CONSTANT: "constant: the value is repeated",
    FitStatus.THROUGH_ALL_POINTS: "the model passes through every known point",
    FitStatus.TOO_FEW_POINTS: "not fitted: fewer than two known points",
    FitStatus.AS_MANY_TERMS_AS_POINTS: (
        "not fitted: the model has as many free terms as there are known points"
    ),
    FitStatus.REGRESSOR_UNKNOWN: "not fitted: a regressor is unknown at a known point",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProphetForecast:
    """`point` is Prophet's yhat [series, horizon]; `bands` [quantiles, series, horizon]."""

    point: Floats
    quantiles: tuple[float, ...]
    bands: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class TermGroup:
    """The series `rows` whose design has these seasonalities."""

    seasonalities: tuple[Seasonality, ...]
    rows: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class ProphetFits:
    """The fits of a batch, and what they were made from; arrays are [series] unless said.

    `first_slot` is in s since the epoch, `values` [series, slots], `regressors`
    [1 or series, slots, regressors], `scale` Prophet's y_scale.
    """

    options: ProphetOptions
    slot_seconds: int
    first_slot: Integers
    values: Floats
    regressors: Floats
    survey: RowSurvey
    groups: tuple[TermGroup, ...]
    answers: Answers
    scale: Floats
    status: npt.NDArray[np.int8]

    @property
    def sigma(self) -> Floats:
        """Prophet's sigma_obs: the noise of y / y_scale."""
        return np.sqrt(self.answers.variance)

    @property
    def objective(self) -> Floats:
        """The negative log posterior, without constants, at its minimum.

        NaN where it has none: the series is constant, or the model passes through it.
        """
        return self.answers.objective

    @property
    def kkt_residual(self) -> Floats:
        """The largest violation of the optimality conditions; a kink weighs 1 / tau = 20 there."""
        return self.answers.residual

    @property
    def lone_optimum(self) -> Integers:
        """1: proved to be the only stationary point; 0: the better of two; -1: `starts` was 1."""
        return self.answers.lone

    @property
    def fitted(self) -> npt.NDArray[np.bool_]:
        """Which series have a forecast."""
        return self.status < FitStatus.TOO_FEW_POINTS

    def design(self, series: int) -> ProphetDesign:
        """Return the design of one series. Errors: ForecastError below two known points."""
        slots = np.flatnonzero(np.isfinite(self.values[series]))
        own = self.regressors[series if len(self.regressors) > 1 else 0]
        times = self.first_slot[series] + slots * self.slot_seconds
        return prophet_design(times, self.options, own[slots])

    def parameters(self, series: int) -> dict[str, Floats | float]:
        """Return one fit as Prophet's params: k, m, delta, beta, sigma_obs.

        They start Prophet where we ended: `Prophet().fit(history, init=parameters)`.
        """
        design, trend = self.design(series), self._trend_columns
        beta = self.answers.smooth[series : series + 1, trend : len(design.precision)]
        start = self.first_slot[series : series + 1]
        return {
            "k": float(self.answers.smooth[series, 0]) if trend == 2 else 0.0,
            "m": float(self.answers.smooth[series, trend - 1]),
            "delta": self.answers.delta[series, : len(design.changepoints)].copy(),
            "beta": turned(beta, design.seasonalities, start)[0],
            "sigma_obs": float(np.sqrt(self.answers.variance[series])),
        }

    def predict(
        self,
        horizon: int,
        quantiles: tuple[float, ...] = (0.1, 0.5, 0.9),
        regressors: Floats | None = None,
    ) -> ProphetForecast:
        """Return the forecast of the `horizon` slots after the window, NaN where there is no fit.

        `regressors` at those slots, as in `fit_batch`. Errors: ForecastError for a horizon below 1,
        a quantile not strictly between 0 and 1, or other regressors than those of the fit.
        """
        if horizon < 1:
            raise ForecastError(f"the horizon is {horizon}", "give at least one slot")
        if not all(0 < quantile < 1 for quantile in quantiles):
            raise ForecastError(f"quantiles are {quantiles}", "give them between 0 and 1")
        ahead = regressor_block(regressors, len(self.values), horizon)
        if ahead.shape[2] != self.regressors.shape[2]:
            raise ForecastError(
                f"{ahead.shape[2]} regressors ahead, {self.regressors.shape[2]} in the fit",
                "give the same columns",
            )
        slots = self.values.shape[1] + np.arange(horizon)
        point = self._trend(slots)
        for group in self.groups:
            point[group.rows] += self._beside_trend(group, slots, ahead)
        apart = deviations(self._trend_noise(horizon), horizon, quantiles)
        with np.errstate(over="ignore"):  # a scale near the largest float: infinite is the truth
            bands = (point + apart) * self.scale[:, None]
            point *= self.scale[:, None]
        return ProphetForecast(point=point, quantiles=quantiles, bands=bands)

    @property
    def _trend_columns(self) -> int:
        return 2 if self.options.growth == "linear" else 1

    def _trend(self, slots: Integers) -> Floats:
        """Return the trend at slots after the last changepoint: [series, slots], of y / y_scale."""
        span = np.maximum(self.survey.last - self.survey.first, 1)[:, None]
        t = (slots - self.survey.first[:, None]) / span
        return np.asarray(self.answers.intercept[:, None] + self.answers.slope[:, None] * t)

    def _beside_trend(self, group: TermGroup, slots: Integers, ahead: Floats) -> Floats:
        """Return seasonality and regression of one group: [rows, slots], of y / y_scale."""
        columns = fourier_columns(slots * self.slot_seconds, group.seasonalities)
        first = self._trend_columns
        after = first + columns.shape[1]
        result = self.answers.smooth[group.rows, first:after] @ columns.T
        for r in range(ahead.shape[2]):
            mean = self.answers.regressor_mean[group.rows, r, None]
            deviation = self.answers.regressor_deviation[group.rows, r, None]
            raw = ahead[:, :, r] if len(ahead) == 1 else ahead[group.rows, :, r]
            result += self.answers.smooth[group.rows, after + r, None] * ((raw - mean) / deviation)
        return np.asarray(result)

    def _trend_noise(self, horizon: int) -> TrendNoise:
        """Return what spreads the bands.

        Of a single slot ahead Prophet takes the mean known step.
        """
        steps = self.survey.known - 1 if horizon == 1 else self.survey.last - self.survey.first
        step = 1.0 / np.maximum(steps, 1)
        change = self.answers.change_scale + _MIN_CHANGE
        linear = self.options.growth == "linear"
        return TrendNoise(
            variance=self.answers.variance,
            change=change if linear else np.zeros(len(change)),
            rate=self.answers.changes * step,
            step=step,
        )


def regressor_block(regressors: Floats | None, series: int, slots: int) -> Floats:
    """Return regressors as [1 or series, slots, regressors]; without any, the last is 0 long.

    Errors: ForecastError when they are for another number of series or slots.
    """
    if regressors is None:
        return np.zeros((1, slots, 0))
    block = np.ascontiguousarray(regressors, dtype=np.float64)
    if block.ndim == 2:
        block = block[None]
    if block.ndim != 3 or block.shape[0] not in (1, series) or block.shape[1] != slots:
        raise ForecastError(
            f"regressors have the shape {np.shape(regressors)}",
            f"give [{slots}, regressors] or [{series}, {slots}, regressors]",
        )
    return block
