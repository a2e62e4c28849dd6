"""The threshold autoscaler: one level up when busy, one down when idle."""

from dataclasses import dataclass

import numpy as np

from planner.rightsizing.past import Past, Values, quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Reactive:
    """Up above `high` of the limit in the last step, down below `low`: by `step_ratio`."""

    high: float = 0.9
    low: float = 0.5
    step_ratio: float = 0.5
    name: str = "reactive 0.9 / 0.5"

    def recommend(self, past: Past) -> Values:
        """Return the limits moved by a step; a new job gets the peak that it has shown."""
        load = quantile(past.usage[:, -past.samples_per_step :], 1.0)
        limits = past.limits
        moved = np.where(load > self.high * limits, limits * (1 + self.step_ratio), limits)
        moved = np.where(load < self.low * limits, limits * (1 - self.step_ratio), moved)
        return np.where(np.isnan(limits), quantile(past.usage, 1.0), moved)
