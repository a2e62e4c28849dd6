"""The Vertical Pod Autoscaler's target: P90 of a decaying histogram plus 15 %.

CPU: every sample counts. Memory: the peak of every day counts, as one sample that grows. History
of eight days, half-life 24 h, buckets 5 % wider each.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.rightsizing.decaying_histogram import DecayingHistogram
from benchmarks.rightsizing.past import Past, Values, quantile

HISTORY_HOURS = 192.0
_DAY_HOURS = 24.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VpaSamples:
    """The CPU rule: every sample of the past counts by its age."""

    histogram: DecayingHistogram
    level: float = 0.90
    margin_ratio: float = 0.15
    name: str = "VPA (P90 + 15 %)"

    def recommend(self, past: Past) -> Values:
        """Return the target."""
        samples = past.recent(HISTORY_HOURS)
        ages = np.arange(samples.shape[1], dtype=np.float64)[::-1] * past.sample_hours
        return self.histogram.percentile(samples, ages, self.level) * (1 + self.margin_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class VpaPeaks:
    """The memory rule: the peak of every day counts by its age."""

    histogram: DecayingHistogram
    level: float = 0.90
    margin_ratio: float = 0.15
    name: str = "VPA memory (daily peaks)"

    def recommend(self, past: Past) -> Values:
        """Return the target; days are counted back from the origin."""
        samples = past.recent(HISTORY_HOURS)
        per_day = max(1, round(_DAY_HOURS / past.sample_hours))
        cuts = range(samples.shape[1], 0, -per_day)
        peaks = np.stack([quantile(samples[:, max(0, cut - per_day) : cut], 1.0) for cut in cuts])
        ages = np.arange(len(peaks), dtype=np.float64) * _DAY_HOURS
        return self.histogram.percentile(peaks.T, ages, self.level) * (1 + self.margin_ratio)
