"""What a power cap does: board power and slowdown of work that would draw more.

Both laws were fitted on the Zeus traces (You, Chung, Chowdhury, NSDI 2023; V100, RTX 6000, P100;
Apache-2.0): one average power and time per epoch for each network, batch size and cap. Hopper and
Blackwell were not measured.
"""

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

REACH = 0.96
SHARPNESS = 8.0
"""Under a cap c, work that would draw P0 draws (P0^-8 + (0.96 c)^-8)^(-1/8): boards settle a
little below the cap, and feel it a little before they reach it."""
_RATIOS = (0.430, 0.481, 0.530, 0.584, 0.632, 0.674, 0.731, 0.781, 0.830, 0.882, 0.931, 0.967, 1.0)
_SLOWDOWNS = (
    (1.471, 1.363, 1.184, 1.127, 1.106, 1.064, 1.065, 1.050, 1.020, 0.992, 0.997, 0.999, 1.0),
    (2.007, 1.504, 1.385, 1.272, 1.195, 1.129, 1.095, 1.074, 1.048, 1.027, 1.018, 1.009, 1.0),
    (2.649, 1.917, 1.581, 1.438, 1.284, 1.187, 1.119, 1.114, 1.067, 1.052, 1.024, 1.032, 1.0),
)
"""Time per epoch under a cap over time without, q10, q50 and q90 of 397 configurations, by the
ratio of power under the cap to power without (medians of bins of 0.05)."""


def power_under_cap(
    demand_watts: npt.ArrayLike, cap_watts: npt.ArrayLike, *, reach: float = REACH
) -> Values:
    """Return the board power in W of work that draws `demand_watts` without the cap.

    `reach` is the share of the cap that the board settles at. NaN and infinite caps are no cap;
    demand of 0 or less stays.
    """
    demand = np.asarray(demand_watts, dtype=np.float64)
    reached = reach * np.asarray(cap_watts, dtype=np.float64)
    demand, reached = np.broadcast_arrays(demand, reached)
    capped = np.isfinite(reached) & (reached > 0) & (demand > 0)
    ratio = np.divide(demand, reached, out=np.zeros(demand.shape), where=capped)
    # The larger of the two is divided out, so that the power of -8 neither over- nor underflows.
    below = (1 + np.minimum(ratio, 1.0) ** SHARPNESS) ** (-1 / SHARPNESS)
    above = (1 + np.maximum(ratio, 1.0) ** -SHARPNESS) ** (-1 / SHARPNESS)
    settled = np.where(ratio <= 1, demand * below, reached * above)
    return np.asarray(np.where(capped, settled, demand), dtype=np.float64)


def slowdown_under_cap(power_ratio: npt.ArrayLike) -> tuple[Values, Values, Values]:
    """Return time under a cap over time without: q10, q50, q90 over the configurations of Zeus.

    `power_ratio` is the board power under the cap over that without, 0..1. Below 0.43 nothing was
    measured: NaN.
    """
    ratio = np.asarray(power_ratio, dtype=np.float64)
    found = [np.interp(ratio, _RATIOS, row) for row in _SLOWDOWNS]
    low, middle, high = (np.where(ratio < _RATIOS[0], np.nan, row) for row in found)
    return low, middle, high
