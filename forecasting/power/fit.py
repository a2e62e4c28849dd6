"""Robust, non-negative least squares that lean on a prior, and their error on groups left out."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forecasting.power.cap import power_under_cap
from forecasting.power.records import PowerError

Values = npt.NDArray[np.float64]

PRIOR_WEIGHT = 10.0
"""The prior counts as much as ten readings."""
FOLDS = 5
_HUBER = 1.345
_ROUNDS = 15
_FIRMEST = 0.01
_SETTLED = 1e-5
_AT_CAP = 0.93
_MIN_SPREAD_WATTS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Design:
    """Rows to fit: columns, power and caps in W (columns already times TDP - idle)."""

    columns: Values
    idle_watts: float
    power_watts: Values
    cap_watts: Values
    reach: float
    group: npt.NDArray[np.int64]

    def rows(self, keep: npt.NDArray[np.bool_]) -> "Design":
        """Return some of the rows."""
        return Design(
            columns=self.columns[keep],
            idle_watts=self.idle_watts,
            power_watts=self.power_watts[keep],
            cap_watts=self.cap_watts[keep],
            reach=self.reach,
            group=self.group[keep],
        )


def fit(design: Design, prior: Values, *, prior_weight: float = PRIOR_WEIGHT) -> Values:
    """Return the coefficients, each 0 or more, shape (terms,).

    Huber's weights at 1.345 robust deviations, refitted until they settle; the prior adds
    `prior_weight` readings' worth of pull to each coefficient. A reading at its cap says only that
    the work would draw at least that much: it counts only while the fit gives less.
    """
    target = design.power_watts - design.idle_watts
    at_cap = design.power_watts >= _AT_CAP * design.reach * design.cap_watts
    coefficients = prior
    weights = np.ones(len(target))
    size = (design.columns**2).mean(axis=0) if len(target) else np.ones(len(prior))
    if not size.any():
        return prior  # boards that stood idle at every reading say nothing of work
    # A term that no reading moves still leans on its prior, firmly enough for the fit to see it.
    pull = prior_weight * np.maximum(size, _FIRMEST * size.max())
    for _ in range(_ROUNDS):
        residual = target - design.columns @ coefficients
        weights = _weights(residual)
        weights[at_cap & (residual < 0)] = 0.0
        weighted = design.columns * weights[:, None]
        normal = weighted.T @ design.columns + np.diag(pull)
        solution = _not_negative(normal, weighted.T @ target + pull * prior)
        settled = np.abs(solution - coefficients).max() <= _SETTLED
        coefficients = solution
        if settled:
            break
    return coefficients


def _not_negative(normal: Values, right_side: Values) -> Values:
    """Return the least squares of normal equations with no coefficient below 0."""
    solution = np.asarray(np.linalg.solve(normal, right_side), dtype=np.float64)
    if (solution >= 0).all():
        return solution
    # Deferred: it takes as long to load as many fits, and few of them need it.
    from scipy.optimize import nnls  # type: ignore[import-untyped]

    factor = np.linalg.cholesky(normal).T
    return np.asarray(nnls(factor, np.linalg.solve(factor.T, right_side))[0])


def _weights(residual: Values) -> Values:
    """Return Huber's weights for residuals in W."""
    if not len(residual):
        return np.ones(0)
    spread = max(1.4826 * float(np.median(np.abs(residual))), _MIN_SPREAD_WATTS)
    return np.asarray(np.minimum(1.0, _HUBER * spread / np.maximum(np.abs(residual), 1e-9)))


def predict(design: Design, coefficients: Values) -> Values:
    """Return the board power in W under the caps."""
    demand = design.idle_watts + design.columns @ coefficients
    return power_under_cap(demand, design.cap_watts, reach=design.reach)


def left_out_predictions(design: Design, prior: Values) -> Values:
    """Return the prediction of every row from a fit without its group's fold.

    NaN with one group.
    """
    names, number = np.unique(design.group, return_inverse=True)
    folds = min(FOLDS, len(names))
    predicted = np.full(len(design.power_watts), np.nan)
    if folds < 2:
        return predicted
    for fold in range(folds):
        out = number % folds == fold
        predicted[out] = predict(design.rows(out), fit(design.rows(~out), prior))
    return predicted


def error_of(design: Design, predicted: Values) -> PowerError | None:
    """Return the error of left-out predictions, None where there are none."""
    finite = np.isfinite(predicted)
    if not finite.any():
        return None
    missed = np.abs(predicted[finite] - design.power_watts[finite])
    return PowerError(
        mae_watts=float(missed.mean()),
        samples=int(finite.sum()),
    )
