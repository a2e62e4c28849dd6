"""Our limit: a job's own recent quantile, pulled to and held above what its fellows show.

A job's past says too little of its next hours, and that of jobs that do the same says more: on real
pods most excesses are of jobs that for the first time do what others did before. So a quantile,
over the jobs of a cohort, of their own quantiles is a floor under every limit, and a share of it. A
wide dead band then leaves a limit alone for as long as it is not plainly wrong.

Its settings are from random searches on one half of real pods.

`python -m benchmarks.rightsizing_replay --tune` searches so: settings are ranked by the share of
resamples of that half in which they are above a peer on slack, over-limit samples and over-limit
jobs at once. MEMORY was in 0.79 (KRR) and 0.91 (daily peaks) of them, MEMORY_TIGHT in 0.07 only.
The two for utilization are from an earlier search of the same kind and half, UTILIZATION rounded.
The other half is shown in the benchmark. Jobs without a cohort are given about what KRR gives
them, within the dead band: not tuned.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.rightsizing.dead_band import DeadBand
from benchmarks.rightsizing.past import Past, Values, quantile

MIN_FELLOWS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPooled:
    """need = max((1 - pull) own_factor Q_own(last own_hours) + pull F, floor_factor F).

    F is the `fleet_level` quantile over a cohort's jobs of their `fleet_of` quantiles of all
    history. A job of a cohort of fewer than 8 has need = alone_factor Q_alone of all its history.
    """

    own_level: float
    own_hours: float
    own_factor: float
    fleet_of: float
    fleet_level: float
    pull: float = 0.0
    floor_factor: float = 0.0
    alone_level: float = 1.0
    alone_factor: float = 1.15
    band: DeadBand
    name: str = "Trimtab"

    def need(self, past: Past) -> Values:
        """Return what every job is estimated to need [jobs], NaN for one without known samples."""
        own = quantile(past.recent(self.own_hours), self.own_level)
        # A job silent for the whole window is judged by all that it has shown.
        own = np.where(np.isnan(own), quantile(past.usage, self.own_level), own)
        everyones = quantile(past.usage, self.fleet_of)
        need = self.alone_factor * quantile(past.usage, self.alone_level)
        for cohort in np.unique(past.cohorts):
            members = (past.cohorts == cohort) & np.isfinite(everyones)
            if members.sum() >= MIN_FELLOWS:
                need[members] = self.mixed(own[members], everyones[members])
        return need

    def mixed(self, own: Values, everyones: Values) -> Values:
        """Return a cohort's needs from the jobs' own quantiles and those that the fleet's is of."""
        fleet = float(np.nanquantile(everyones, self.fleet_level))
        mixed = (1 - self.pull) * self.own_factor * own + self.pull * fleet
        return np.asarray(np.maximum(mixed, self.floor_factor * fleet))

    def recommend(self, past: Past) -> Values:
        """Return the limits that the dead band makes of the needs."""
        return self.band.held(self.need(past), past.limits)


MEMORY = FleetPooled(
    own_level=0.99,
    own_hours=3.0,
    own_factor=1.1,
    fleet_of=0.98,
    fleet_level=0.9,
    pull=0.3,
    floor_factor=0.963,
    band=DeadBand(raise_ratio=0.1, lower_ratio=0.3),
)
"""Memory that must not run out: below KRR's and the autoscaler's slack, with fewer jobs over."""

MEMORY_TIGHT = FleetPooled(
    own_level=0.9,
    own_hours=12.0,
    own_factor=1.267,
    fleet_of=0.99,
    fleet_level=0.7,
    pull=0.495,
    alone_level=0.99,
    alone_factor=1.05,
    band=DeadBand(raise_ratio=0.17, lower_ratio=0.5),
    name="Trimtab, tight",
)
"""Memory that may spill: about where the autoscaler's rule over every sample works."""

UTILIZATION = FleetPooled(
    own_level=0.95,
    own_hours=3.0,
    own_factor=1.0,
    fleet_of=0.95,
    fleet_level=0.5,
    alone_level=0.95,
    alone_factor=1.0,
    band=DeadBand(raise_ratio=0.05, headroom_ratio=0.1, lower_ratio=0.5),
    name="Trimtab, following",
)
"""Utilization of jobs whose load drifts through the day; a few changes a day."""

UTILIZATION_CALM = FleetPooled(
    own_level=0.9,
    own_hours=float("inf"),
    own_factor=1.354,
    fleet_of=0.85,
    fleet_level=0.7,
    pull=0.34,
    alone_level=0.95,
    alone_factor=1.05,
    band=DeadBand(raise_ratio=0.17, lower_ratio=0.5),
    name="Trimtab, calm",
)
"""The same with hardly a change."""
