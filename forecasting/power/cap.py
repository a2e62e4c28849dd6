"""Board power under a power cap, of work that would draw more.

The law was fitted on the Zeus traces (You, Chung, Chowdhury, NSDI 2023; V100, RTX 6000, P100;
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
