"""Packing anew in every step, looking neither ahead nor back: first fit decreasing."""

from dataclasses import dataclass

import numpy as np

from planner.rightsizing.past import Past, Values, quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class PerSlotRepack:
    """Every job gets the smallest level above its last step's peak, the largest jobs first.

    From a pool of `capacity` units; what does not fit gets the largest level that does.
    """

    capacity: float = np.inf
    name: str = "per-slot first fit decreasing"

    def recommend(self, past: Past) -> Values:
        """Return the levels; a job that was not seen in the last step keeps its limit."""
        peak = quantile(past.usage[:, -past.samples_per_step :], 1.0)
        need = np.where(np.isnan(peak), past.limits, peak)
        wish = np.full(len(need), np.nan)
        left = self.capacity
        for job in np.argsort(-np.nan_to_num(need), kind="stable"):
            if np.isnan(need[job]):
                continue
            fitting = past.levels[job][past.levels[job] <= left]
            enough = fitting[fitting >= need[job]]
            wish[job] = enough[0] if len(enough) else (fitting[-1] if len(fitting) else 0.0)
            left -= wish[job]
        return wish
