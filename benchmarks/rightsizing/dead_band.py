"""Hysteresis: a limit stays until what is needed has left a band around it."""

from dataclasses import dataclass

import numpy as np

from benchmarks.rightsizing.past import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadBand:
    """Raise when the need is above the limit by more than `raise_ratio`, to need + `headroom`.

    Lower when need with headroom is below the limit by more than `lower_ratio`. All shares.
    """

    raise_ratio: float = 0.0
    headroom_ratio: float = 0.0
    lower_ratio: float = 0.0

    def held(self, need: Values, limits: Values) -> Values:
        """Return the limits [jobs] that follow; a job without one gets its need with headroom.

        An unknown need leaves the limit as it is.
        """
        wished = need * (1 + self.headroom_ratio)
        leaves = np.isnan(limits)
        leaves |= need > limits * (1 + self.raise_ratio)
        leaves |= wished < limits * (1 - self.lower_ratio)
        return np.where(leaves & np.isfinite(need), wished, limits)
