"""Settings of our rule, from random searches on one half of real pods.

`python -m benchmarks.rightsizing_replay --tune` searches so: settings are ranked by the share of
resamples of that half in which they are above a peer on slack, over-limit samples and over-limit
jobs at once. MEMORY was in 0.79 (KRR) and 0.91 (daily peaks) of them, MEMORY_TIGHT in 0.07 only.
The two for utilization are from an earlier search of the same kind and half, UTILIZATION rounded.
The other half is shown in the benchmark. Jobs without a cohort are given about what KRR gives
them, within the dead band: not tuned.
"""

from planner.rightsizing.dead_band import DeadBand
from planner.rightsizing.fleet_pooled import FleetPooled

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
