"""One fit of a batch as Prophet would have it: its design, its parameters and its bands.

Prophet draws future changes of slope: at every future step, with probability q = S dt, one from a
Laplace of scale L = mean |delta| + 1e-8, which is half felt at its own step. So h steps ahead the
trend is off by U = dt sum_m e_m (h - m + 1/2), and noise of variance s comes on top:

    V  = s + dt^2 2 q L^2 sum_m (m - 1/2)^2
    k4 = dt^4 (24 q - 3 (2 q)^2) L^4 sum_m (m - 1/2)^4        m = 1 .. h

The quantile is yhat + sqrt(V) (z + k4 / V^2 (z^3 - 3 z) / 24): Cornish and Fisher (1938) up to the
fourth cumulant; the odd ones vanish.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from forecasting.prophet.batch import ProphetFits
from forecasting.prophet.terms import (
    CHANGE_SCALE,
    Floats,
    Integers,
    Seasonality,
    auto_seasonalities,
    fourier_columns,
    shifted,
    smooth_precision,
)
from forecasting.prophet.terms_kernel import CHANGEPOINTS, changepoint_rows

_MIN_CHANGE = 1e-8
"""Prophet adds it to the scale of future changes of slope."""
_MAX_KURTOSIS = 6.0
"""Of the correction; from 8 it would put quantiles out of order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProphetDesign:
    """The design of one history; columns are [k, m, seasonal, delta].

    `precision` is 1 / variance of the normal priors, per column before delta; `changepoints` are
    in units of t. The Laplace prior of delta has the scale `tau`.
    """

    start: int
    span_seconds: int
    changepoints: Floats
    seasonalities: tuple[Seasonality, ...]
    precision: Floats
    tau: float

    def unit_times(self, times: Integers) -> Floats:
        """Return t of Prophet: 0 at the first known point, 1 at the last."""
        return np.asarray((times - self.start) / self.span_seconds)

    def columns(self, times: Integers) -> Floats:
        """Return the rows of the design at any times: [times, columns]."""
        t = self.unit_times(times)
        return np.concatenate(
            [
                np.stack([t, np.ones(len(t))], axis=1),
                fourier_columns(times, self.seasonalities),
                np.maximum(t[:, None] - self.changepoints, 0.0),
            ],
            axis=1,
        )


def prophet_design(times: Integers) -> ProphetDesign:
    """Return the design that Prophet makes of two or more known points at these ascending times."""
    span = int(times[-1] - times[0])
    seasonalities = auto_seasonalities(span, int(np.diff(times).min()))
    rows = changepoint_rows(len(times))
    return ProphetDesign(
        start=int(times[0]),
        span_seconds=span,
        changepoints=(times[rows] - times[0]) / span,
        seasonalities=seasonalities,
        precision=smooth_precision(seasonalities),
        tau=CHANGE_SCALE,
    )


def design_of(fits: ProphetFits, series: int) -> ProphetDesign:
    """Return the design of one series of a batch."""
    slots = np.flatnonzero(np.isfinite(fits.values[series]))
    return prophet_design(fits.first_slot[series] + slots * fits.slot_seconds)


def parameters(fits: ProphetFits, series: int) -> dict[str, Floats | float]:
    """Return one fit as Prophet's params: k, m, delta, beta, sigma_obs.

    They start Prophet where we ended: `Prophet().fit(history, init=parameters)`.
    """
    design, answers = design_of(fits, series), fits.answers
    beta = answers.smooth[series : series + 1, 2 : len(design.precision)]
    start = fits.first_slot[series : series + 1]
    return {
        "k": float(answers.smooth[series, 0]),
        "m": float(answers.smooth[series, 1]),
        "delta": answers.delta[series, : len(design.changepoints)].copy(),
        "beta": shifted(beta, design.seasonalities, start)[0],
        "sigma_obs": float(np.sqrt(answers.variance[series])),
    }


def bands(
    fits: ProphetFits, horizon: int, quantiles: tuple[float, ...] = (0.1, 0.5, 0.9)
) -> Floats:
    """Return the quantiles of a forecast as Prophet draws them: [quantiles, series, horizon].

    Of a single slot ahead Prophet takes the mean known step.
    """
    answers, survey = fits.answers, fits.survey
    steps = survey.counts - 1 if horizon == 1 else survey.last - survey.first
    step = 1.0 / np.maximum(steps, 1)
    number = np.minimum(CHANGEPOINTS, np.floor(0.8 * survey.counts) - 1)
    # Where none is possible, Prophet has a stand-in without any change.
    mean = np.where(number > 0, np.abs(answers.delta).sum(axis=1) / np.maximum(number, 1), 0.0)
    change = step * (mean + _MIN_CHANGE)
    rate = np.minimum(np.maximum(number, 1) * step, 1.0)
    middles = np.arange(horizon) + 0.5
    second, fourth = np.cumsum(middles**2), np.cumsum(middles**4)
    variance = answers.variance[:, None] + np.outer(2 * rate * change**2, second)
    cumulant = np.outer((24 * rate - 12 * rate**2) * change**4, fourth)
    kurtosis = np.minimum(cumulant / variance**2, _MAX_KURTOSIS)
    spread = np.sqrt(variance)
    normal = [NormalDist().inv_cdf(quantile) for quantile in quantiles]
    apart = np.stack([spread * (z + kurtosis * ((z**3 - 3 * z) / 24)) for z in normal])
    with np.errstate(over="ignore"):  # a scale near the largest float: infinite is the truth
        return np.asarray(fits.predict(horizon) + apart * fits.scale[:, None])
