"""Fits of a batch: every series' terms, their quality, and the forecast."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from data.base.errors import ForecastError
from forecasting.prophet.rows_kernel import Answers, RowSurvey
from forecasting.prophet.terms import Floats, Integers, ProphetOptions, Seasonality, fourier_columns


class FitStatus(IntEnum):
    """The outcome of one series' fit; from TOO_FEW_POINTS on there is none and forecasts are NaN.

    THROUGH_ALL_POINTS: nothing is left of the series but rounding, so the posterior grows without
    bound as sigma goes to 0; the terms are right, sigma stands at its floor.
    """

    FITTED = 0
    CONSTANT = 1
    THROUGH_ALL_POINTS = 2
    TOO_FEW_POINTS = 3
    AS_MANY_TERMS_AS_POINTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TermGroup:
    """The series `rows` whose design has these seasonalities."""

    seasonalities: tuple[Seasonality, ...]
    rows: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class ProphetFits:
    """The fits of a batch, and their inputs; arrays are [series] unless stated.

    `first_slot` is in s since the epoch, `values` [series, slots], `scale` Prophet's y_scale.
    """

    options: ProphetOptions
    slot_seconds: int
    first_slot: Integers
    values: Floats
    survey: RowSurvey
    groups: tuple[TermGroup, ...]
    answers: Answers
    scale: Floats
    status: npt.NDArray[np.int8]

    @property
    def fitted(self) -> npt.NDArray[np.bool_]:
        """A mask of the series with a forecast."""
        return self.status < FitStatus.TOO_FEW_POINTS

    def predict(self, horizon: int) -> Floats:
        """Return Prophet's yhat of the `horizon` slots after the window: [series, horizon].

        NaN where there is no fit. Errors: ForecastError for a horizon below 1.
        """
        if horizon < 1:
            raise ForecastError(f"the horizon is {horizon}", "give at least one slot")
        slots = self.values.shape[1] + np.arange(horizon)
        span = np.maximum(self.survey.last - self.survey.first, 1)[:, None]
        t = (slots - self.survey.first[:, None]) / span
        point = np.asarray(self.answers.intercept[:, None] + self.answers.slope[:, None] * t)
        for group in self.groups:
            columns = fourier_columns(slots * self.slot_seconds, group.seasonalities)
            first = 2 if self.options.growth == "linear" else 1
            point[group.rows] += np.asarray(
                self.answers.smooth[group.rows, first : first + columns.shape[1]] @ columns.T
            )
        with np.errstate(over="ignore"):  # a scale near the largest float: infinite is the truth
            return np.asarray(point * self.scale[:, None])
