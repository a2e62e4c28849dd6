"""Joint effect of several independent errors on a saving: the q10 and q90 of their sum.

An error is given by what it does to a saving at evenly spaced levels. Errors are put together in
fixed random orders, so that the same facts give the same range.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from data.records.recommendations import Range
from planner.jobs.expected_value import mean_of

Values = npt.NDArray[np.float64]

DRAWS = 1_999
_LEFT_OUT, _ROUNDING = 0.2, 0.002
_RATES = 16
"""Number of the first order of errors of power: no others are put together in it."""
_LEVELS = (np.arange(DRAWS) + 0.5) / DRAWS
_NORMAL = np.array([NormalDist().inv_cdf(level) for level in _LEVELS])
_OF_Q90 = _NORMAL / NormalDist().inv_cdf(0.9)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Error:
    """Effect of one error on GPU-hours, site energy (kWh) and rent saved, at each level.

    `lasting`: the hours that the change is held over the expected ones.
    """

    gpu_hours: Values | float = 0.0
    kwh: Values | float = 0.0
    rent: Values | float = 0.0
    lasting: Values | float = 1.0

    def with_rates(self, rates: Sequence["Error"]) -> "Error":
        """Return this error with those of power: what is drawn wrongly is so for as long as held.

        They are of the expected hours, independent of it and of each other.
        """
        drawn = [
            rate.kwh[_order(_RATES + number)]
            for number, rate in enumerate(rates)
            if isinstance(rate.kwh, np.ndarray)
        ]
        return replace(self, kwh=np.asarray(self.kwh + self.lasting * np.sum(drawn, axis=0)))


def two_sided_error(down: float, up: float) -> Values:
    """Return an error whose q10 is -`down`, whose median is 0 and whose q90 is `up` [levels]."""
    return np.where(_OF_Q90 < 0, _OF_Q90 * down, _OF_Q90 * up)


def above_zero(low: float, median: float, high: float) -> Values:
    """Return the deviations from its mean of a figure that is never negative [levels].

    Its q10, median and q90 are `low`, `median` and `high`.
    """
    values = np.maximum(median + two_sided_error(median - low, high - median), 0.0)
    return values - mean_of(low, median, high)


def with_chance(chance: float) -> Values:
    """Return an event of this chance less its mean: 1 where it comes, 0 elsewhere [levels]."""
    return np.where(chance > 1.0 - _LEVELS, 1.0, 0.0) - chance


def equally_likely(values: Sequence[float] | Values) -> Values:
    """Return equally likely values, ascending [levels]."""
    return in_order(np.sort(np.asarray(values, dtype=np.float64)))


def in_order(values: Values) -> Values:
    """Return equally likely values in the order given: figures of one error go together."""
    return np.asarray(values[(_LEVELS * len(values)).astype(np.int64)])


def range_of(central: float, errors: Sequence[Values | float], unit: str) -> Range:
    """Return the range that holds 80 % of a figure with these errors, with its central inside.

    From q10 to q90, unless more than a tenth lie on an end itself, as of a job that probably runs
    into its limit: then that end leaves nothing out, and the other as much more.
    """
    total = np.full(DRAWS, central)
    for number, error in enumerate(errors):
        if isinstance(error, np.ndarray):
            total += error[_order(number)]
    low, high = np.quantile(total, (0.1, 0.9))
    nearly = 1e-9 * max(1.0, abs(low), abs(high))
    below, above = float(np.mean(total < low - nearly)), float(np.mean(total > high + nearly))
    if above < _LEFT_OUT / 2 <= below + _ROUNDING:
        low = np.quantile(total, _LEFT_OUT - above)
    elif below < _LEFT_OUT / 2 <= above + _ROUNDING:
        high = np.quantile(total, 1 - _LEFT_OUT + below)
    low, high = float(low), float(high)
    return Range(low=min(low, central), central=central, high=max(high, central), unit=unit)


@lru_cache(maxsize=32)
def _order(number: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(number).permutation(DRAWS)
