"""Memory that grows steadily towards its board, read off the newest hour alone.

A forecast of quarter-hours learns of a leak when it has lasted for hours. A line is seen sooner,
and is followed no further ahead than it was seen.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.base.units import SLOT_SECONDS

Floats = npt.NDArray[np.float64]

WINDOW_SLOTS = 12
GROWTH_CHANCE = 1 / 3
"""Least chance that such growth reaches the limit in time, for work that loads and frees memory in
steps, of which it foresees one limit in ten: `python -m benchmarks.memory_growth`, on recorded pods
of inference. A steady leak always reaches it."""
_MIN_SLOTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The growth of memory: its speed, the observed time, and the hours until it is full."""

    mib_per_hour: float
    seen_hours: float
    full_in_hours: float
    expected_mib: float
    """What it comes to when it goes on for as long as it was seen, MiB."""


def growth_towards(used_mib: Floats, limit_mib: float) -> Growth | None:
    """Return the growth that reaches a limit within the time over which it was seen, or None.

    `used_mib` [slots of 5 min, the newest last] is the largest memory of each, NaN where unknown;
    the last hour of it counts. The slope is the least of the whole, its older and its newer half,
    each by least squares, so one step up is no growth.
    """
    recent = used_mib[-WINDOW_SLOTS:]
    valid = np.flatnonzero(np.isfinite(recent))
    if len(valid) < _MIN_SLOTS or valid[-1] != len(recent) - 1:
        return None
    hours = valid * SLOT_SECONDS / 3600
    used = recent[valid]
    slope = steady_slope(hours, used)
    seen_hours = float(hours[-1] - hours[0])
    newest = float(used[-1])
    if newest >= limit_mib or newest + slope * seen_hours < limit_mib:
        return None
    return Growth(
        mib_per_hour=slope,
        seen_hours=seen_hours,
        full_in_hours=(limit_mib - newest) / slope,
        expected_mib=newest + slope * seen_hours,
    )


def steady_slope(hours: Floats, used: Floats) -> float:
    """Return the least slope of the whole, its older and its newer half; 0 of too few readings."""
    if len(used) < _MIN_SLOTS:
        return 0.0
    newer = hours >= np.median(hours)
    return min(_slope(hours[part], used[part]) for part in (newer | ~newer, newer, ~newer))


def _slope(hours: Floats, used: Floats) -> float:
    centred = hours - hours.mean()
    return float((centred * used).sum() / (centred * centred).sum())
