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
_RATIOS = (0.40, 0.45, 0.53, 0.63, 0.72, 0.81, 0.87, 0.95, 1.0)
_SLOWDOWNS = (
    (1.35, 1.21, 1.19, 1.10, 1.07, 1.035, 1.015, 0.99, 1.0),
    (2.45, 2.05, 1.42, 1.19, 1.11, 1.065, 1.03, 1.01, 1.0),
    (2.70, 2.60, 1.57, 1.28, 1.16, 1.10, 1.065, 1.045, 1.0),
)
"""Time per epoch under a cap over time without, q10, q50 and q90 over configurations, by the ratio
of power under the cap to power without."""


def power_under_cap(
    demand_watts: npt.ArrayLike, cap_watts: npt.ArrayLike, *, reach: float = REACH
) -> Values:
    """Give the board power in W of work that draws `demand_watts` without the cap.

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
    """Give time under a cap over time without: q10, q50, q90 over the configurations of Zeus.

    `power_ratio` is the board power under the cap over that without, 0..1. Below 0.4 nothing was
    measured: NaN.
    """
    ratio = np.asarray(power_ratio, dtype=np.float64)
    found = [np.interp(ratio, _RATIOS, row) for row in _SLOWDOWNS]
    low, middle, high = (np.where(ratio < _RATIOS[0], np.nan, row) for row in found)
    return low, middle, high
