"""Series by the hour, compiled: windows cut out for a batch, and its points put back."""

from typing import Any

import numpy as np

from data.base.compiled import outer
from data.base.units import SECONDS_PER_HOUR


@outer
def by_hour(y: Any, origins: Any, horizon: int, begin: int, slot_seconds: int) -> Any:
    """Return the means of hours, and of each origin the hours before it and those of its leads.

    y: by slot, NaN unknown, from `begin` s after a full hour on. Means are NaN where nothing is
    known. `ahead` [origins, horizon] is which hour after those before the origin a slot lies in.
    """
    hours = (begin + (len(y) - 1) * slot_seconds) // SECONDS_PER_HOUR + 1
    means, counts = np.zeros(hours), np.zeros(hours)
    for slot in range(len(y)):
        if np.isfinite(y[slot]):
            hour = (begin + slot * slot_seconds) // SECONDS_PER_HOUR
            means[hour] += y[slot]
            counts[hour] += 1.0
    for hour in range(hours):
        means[hour] = means[hour] / counts[hour] if counts[hour] else np.nan
    ends = np.empty(len(origins), np.int64)
    ahead = np.empty((len(origins), horizon), np.int64)
    for place in range(len(origins)):
        ends[place] = (begin + origins[place] * slot_seconds) // SECONDS_PER_HOUR
        for lead in range(horizon):
            hour = (begin + (origins[place] + lead) * slot_seconds) // SECONDS_PER_HOUR
            ahead[place, lead] = max(hour - ends[place], 0)
    return means, ends, ahead


@outer
def longest_windows(rows: Any, ends: Any, lengths: Any, min_known_share: float) -> Any:
    """Return the longest of the ascending lengths that fits before each end, 0 where none does.

    And where less than `min_known_share` of it is known.
    """
    counts = np.zeros(len(rows) + 1, np.int64)
    for hour in range(len(rows)):
        counts[hour + 1] = counts[hour] + (1 if np.isfinite(rows[hour]) else 0)
    longest_by_end = np.zeros(len(ends), np.int64)
    for place in range(len(ends)):
        end, longest = ends[place], 0
        for length in lengths:
            longest = length if length <= end else longest
        if counts[end] - counts[end - longest] >= min_known_share * longest:
            longest_by_end[place] = longest
    return longest_by_end


@outer
def cut_windows(rows: Any, begins: Any, out: Any) -> None:
    """Write the windows of `rows` that begin there, as long as `out` [windows, hours] is wide."""
    for window in range(len(begins)):
        for hour in range(out.shape[1]):
            out[window, hour] = rows[begins[window] + hour]


@outer
def put_points(points: Any, origins: Any, ahead: Any, out: Any) -> None:
    """Write the points [windows, hours ahead] of these origins into `out` [origins, horizon]."""
    for window in range(len(origins)):
        origin = origins[window]
        for lead in range(out.shape[1]):
            out[origin, lead] = points[window, ahead[origin, lead]]
