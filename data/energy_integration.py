"""Energy of one board from its readings: the reference that the store's roll-up must equal.

Times in s, power in W, counters and results in J. The store does the same in SQL for whole fleets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

MAX_GAP_SECONDS = 300.0
"""Between two readings further apart than this nothing is known (restarts, reloads)."""

CAP_FACTOR = 1.2
"""A counter that grows faster than this times the power limit has jumped and is not believed."""

SLACK_JOULES = 100.0
"""Counters advance in steps: so much above the cap is no jump."""


def integrate_power(
    times_s: Floats, power_w: Floats, *, largest_gap_s: float = MAX_GAP_SECONDS
) -> tuple[float, float]:
    """Return (energy in J, time observed in s) by the trapezoid rule over readings in time order.

    Intervals longer than the largest gap, or with an unknown end, add neither. Repeats of a time
    add nothing. Errors: ValueError when times do not ascend or lengths differ.
    """
    import numpy as np

    if len(times_s) != len(power_w):
        raise ValueError(f"{len(times_s)} times for {len(power_w)} readings")
    seconds = np.diff(times_s)
    if (seconds < 0).any():
        raise ValueError("times must ascend")
    known = (seconds > 0) & (seconds <= largest_gap_s)
    joules = (power_w[1:] + power_w[:-1]) / 2 * seconds
    known &= np.isfinite(joules)
    return float(joules[known].sum()), float(seconds[known].sum())
