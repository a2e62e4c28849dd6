"""Reservations made once from the first readings and never changed, as users make them."""

from dataclasses import dataclass

import numpy as np

from planner.rightsizing.past import Past, Values


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPeak:
    """The largest sample seen before the first step."""

    name: str = "static peak"

    def recommend(self, past: Past) -> Values:
        """Return the limits in force, or the peak where there is none."""
        return past.kept()


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMean:
    """The mean of the samples before the first step."""

    name: str = "static mean"

    def recommend(self, past: Past) -> Values:
        """Return the limits in force, or the mean where there is none."""
        counts = np.isfinite(past.usage).sum(axis=1)
        sums = np.nansum(past.usage, axis=1)
        mean = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
        return np.where(np.isnan(past.limits), mean, past.limits)
