"""What a right-sizing rule may look at, and what it answers: a limit per job for the next step."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

QUANTILES = (0.05, 0.10, 0.50, 0.90, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepForecast:
    """What was foreseen at the origin of a step, in the unit of the usage; NaN is unknown.

    path [jobs, slots, quantiles] at the levels QUANTILES, one slot per step from the origin on.
    """

    path: Values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Past:
    """What is known at the origin of a step.

    usage [jobs, samples] up to the origin, NaN unknown; limits [jobs] in force, NaN for none;
    levels [jobs, K], ascending, the limits that can be given; cohorts [jobs], the same number for
    jobs that do the same; forecast None where nobody forecasts.
    """

    usage: Values
    limits: Values
    levels: Values
    sample_hours: float
    samples_per_step: int
    cohorts: Indices
    forecast: StepForecast | None = None

    def recent(self, hours: float) -> Values:
        """Return the usage of the last so many hours, at least one sample."""
        if not np.isfinite(hours):
            return self.usage
        return self.usage[:, -max(1, round(hours / self.sample_hours)) :]

    def kept(self) -> Values:
        """Return the limits in force, for a job without one the largest sample it has shown."""
        return np.where(np.isnan(self.limits), quantile(self.usage, 1.0), self.limits)


class LimitRule(Protocol):
    """A rule as a plain value; the same past gives the same limits."""

    @property
    def name(self) -> str:
        """The word for it in tables."""

    def recommend(self, past: Past) -> Values:
        """Return the wished limit [jobs] of the next step, NaN where the rule cannot tell."""


def quantile(usage: Values, level: float) -> Values:
    """Return a quantile of the known samples of every job [jobs], NaN where none is known."""
    found = np.full(len(usage), np.nan)
    known = np.isfinite(usage).any(axis=1)
    if known.any():
        found[known] = np.nanquantile(usage[known], level, axis=1)
    return found
