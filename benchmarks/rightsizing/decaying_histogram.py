"""The histogram of the Vertical Pod Autoscaler: exponential buckets, weights that halve with age.

Bucket n starts at first * (ratio^n - 1) / (ratio - 1); a percentile is the end of the bucket in
which the weights reach it, as the autoscaler's documentation has it (5 % wider per bucket).
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.rightsizing.past import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayingHistogram:
    """`first` is the width of the first bucket in the unit of the samples."""

    first: float
    ratio: float = 1.05
    half_life_hours: float = 24.0

    def percentile(self, samples: Values, ages_hours: Values, level: float) -> Values:
        """Return the percentile [jobs] of samples [jobs, n] of these ages [n]; NaN without one."""
        known = np.isfinite(samples)
        filled = np.where(known, np.maximum(samples, 0.0), 0.0)
        bucket = (np.log1p(filled / self.first * (self.ratio - 1)) / np.log(self.ratio)).astype(
            np.int64
        )
        weights = np.where(known, 0.5 ** (ages_hours / self.half_life_hours), 0.0)
        width = int(bucket.max(initial=0)) + 1
        rows = np.arange(len(samples))[:, None] * width
        sums = np.bincount(
            (rows + bucket).ravel(), weights.ravel(), minlength=len(samples) * width
        ).reshape(len(samples), width)
        reached = np.cumsum(sums, axis=1)
        total = reached[:, -1:]
        chosen = (reached < level * total - 1e-12 * total).sum(axis=1)
        ends = self.first * (self.ratio ** (chosen + 1.0) - 1) / (self.ratio - 1)
        return np.where(total[:, 0] > 0, ends, np.nan)
