"""Use of an autoscaler's bounds: replicas kept above need, and need above the most.

What was needed is what the service model says of the requests that came: the replicas for the rate
of each slot and those within a cold start after it, and never fewer than a rule on requests in
flight would have asked.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from data.base.units import SECONDS_PER_HOUR, SLOT_SECONDS
from data.records.recommendations import Range
from data.records.serving import BoundsUse
from planner.serving.queueing import WaitObjective
from planner.serving.service_model import (
    Floats,
    ReplicaCarries,
    ServiceReadings,
    Times,
    replicas_for_rates,
)

Flags = npt.NDArray[np.bool_]
_LEVELS = 200
"""Rates are rounded up to this part of the highest, so that few of them are sized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedRules:
    """The promise of a service, and the rules of reactive scaling and cold starts beside it."""

    objective: WaitObjective
    reactive_ratio: float
    cold_start_seconds: float


def bounds_use(
    readings: ServiceReadings,
    replicas: Floats,
    carries: ReplicaCarries,
    rules: NeedRules,
    *,
    min_replicas: int,
    max_replicas: int | None,
) -> BoundsUse | None:
    """Return the use of bounds of now in all slots read; None when none is wholly known.

    `replicas` are those there by slot. The doubt of what was spare is that of the seconds of
    service, at their high (low) end more (fewer) replicas are needed. Errors:
    ImpossibleProblemError when a rate keeps more slots busy than a cycle sizes.
    """
    rates = readings.arrivals / SLOT_SECONDS
    valid = np.isfinite(rates) & np.isfinite(readings.running) & np.isfinite(replicas)
    if not valid.any():
        return None
    seconds = carries.service_seconds
    by_rate = [
        _needed(readings, rates, valid, replace(carries, service_seconds=_point(at)), rules)
        for at in (seconds.high, seconds.central, seconds.low)
    ]
    most, middle, least = (
        np.fmax(needed, _reactive(readings, carries, rules)) for needed in by_rate
    )
    floor = max(1, int(most[valid].min()))
    at_minimum = valid & (replicas <= min_replicas)
    hours = SLOT_SECONDS / SECONDS_PER_HOUR
    low, central, high = (
        np.where(at_minimum, np.maximum(replicas - np.maximum(needed, floor), 0.0), 0.0)
        for needed in (most, middle, least)
    )
    late = readings.mean_waits > rules.objective.wait_seconds
    short = valid & late & (replicas >= (np.inf if max_replicas is None else max_replicas))
    return BoundsUse(
        min_replicas=min_replicas,
        max_replicas=max_replicas,
        span_hours=(int(readings.starts[-1] - readings.starts[0]) + SLOT_SECONDS)
        / SECONDS_PER_HOUR,
        known_hours=float(valid.sum()) * hours,
        replica_hours=float(replicas[valid].sum()) * hours,
        spare_hours=float((central > 0).sum()) * hours,
        spare_replica_hours=Range(
            low=float(low.sum()) * hours,
            central=float(central.sum()) * hours,
            high=float(high.sum()) * hours,
            unit="replica-h",
        ),
        least_needed=floor,
        times_at_max=_spells(short, readings.starts),
        hours_at_max=float(short.sum()) * hours,
        # The queue of then is what the maximum made of it: with more replicas it had not grown.
        most_needed=int(by_rate[1][short].max()) if short.any() else 0,
    )


def _point(value: float) -> Range:
    return Range(low=value, central=value, high=value, unit="s")


def _needed(
    readings: ServiceReadings,
    rates: Floats,
    valid: Flags,
    carries: ReplicaCarries,
    rules: NeedRules,
) -> Floats:
    """Return the replicas needed for the requests that came, by slot; NaN where not known."""
    level = float(rates[valid].max()) / _LEVELS or 1.0
    sized = (np.ceil(rates[valid] / level) * level).tolist()
    needed = np.full(len(rates), np.nan)
    needed[valid] = replicas_for_rates(carries.load(0.0), sized, rules.objective)
    return _ahead(needed, readings.starts, -int(-rules.cold_start_seconds // SLOT_SECONDS))


def _reactive(readings: ServiceReadings, carries: ReplicaCarries, rules: NeedRules) -> Floats:
    """Return the replicas that a rule on the requests in flight would have asked for, by slot."""
    inside = readings.running + np.nan_to_num(readings.waiting)
    return np.asarray(np.ceil(inside / (rules.reactive_ratio * carries.slots)))


def _ahead(needed: Floats, starts: Times, slots: int) -> Floats:
    """Return the most needed in each slot and so many after it, of those that were read."""
    at = (starts - starts[0]) // SLOT_SECONDS
    by_slot = np.full(int(at[-1]) + 1 + slots, np.nan)
    by_slot[at] = needed
    return np.asarray(np.fmax.reduce([by_slot[at + step] for step in range(slots + 1)]))


def _spells(flags: Flags, starts: Times) -> int:
    """Return the number of spells of flagged slots: each begins after one without, or not read."""
    follows = np.diff(starts, prepend=starts[0] - 2 * SLOT_SECONDS) == SLOT_SECONDS
    before = np.concatenate([[False], flags[:-1]]) & follows
    return int((flags & ~before).sum())
