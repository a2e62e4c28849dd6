"""Our limit: a job's own recent quantile, pulled to and held above what the fleet's jobs show.

A job's past says too little of its next hours, and its peers' say more: on real pods most excesses
are of jobs that for the first time do what others did before. So the fleet's quantile of the jobs'
own quantiles is a floor under every limit, and a share of it. The wide dead band then leaves a
limit alone for as long as it is not plainly wrong.
"""

from dataclasses import dataclass

import numpy as np

from planner.rightsizing.dead_band import DeadBand
from planner.rightsizing.past import Past, Values, quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPooled:
    """need = max((1 - pull) own_factor Q_own(last own_hours) + pull F, floor_factor F).

    F is the `fleet_level` quantile over the jobs of their own `fleet_of` quantiles of all history.
    """

    own_level: float
    own_hours: float
    own_factor: float
    fleet_of: float
    fleet_level: float
    pull: float = 0.0
    floor_factor: float = 0.0
    band: DeadBand
    name: str = "Trimtab"

    def need(self, past: Past) -> Values:
        """Give what every job is thought to need [jobs], NaN for a job without known samples."""
        own = quantile(past.recent(self.own_hours), self.own_level)
        # A job silent for the whole window is judged by all that it has shown.
        own = np.where(np.isnan(own), quantile(past.usage, self.own_level), own)
        return self.mixed(own, quantile(past.usage, self.fleet_of))

    def mixed(self, own: Values, everyones: Values) -> Values:
        """Give the needs from the jobs' own quantiles [jobs] and those that the fleet's is of."""
        if not np.isfinite(everyones).any():
            return own
        fleet = float(np.nanquantile(everyones, self.fleet_level))
        mixed = (1 - self.pull) * self.own_factor * own + self.pull * fleet
        return np.asarray(np.maximum(mixed, self.floor_factor * fleet))

    def recommend(self, past: Past) -> Values:
        """Give the limits that the dead band makes of the needs."""
        return self.band.held(self.need(past), past.limits)
