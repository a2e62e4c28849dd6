"""How much longer work takes under a power cap, from the Zeus traces.

You, Chung, Chowdhury, NSDI 2023; V100, RTX 6000, P100; Apache-2.0: one average power and time per
epoch for each network, batch size and cap. The catalogue has it by generation.
"""

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

_RATIOS = (0.430, 0.481, 0.530, 0.584, 0.632, 0.674, 0.731, 0.781, 0.830, 0.882, 0.931, 0.967, 1.0)
_SLOWDOWNS = (
    (1.471, 1.363, 1.184, 1.127, 1.106, 1.064, 1.065, 1.050, 1.020, 0.992, 0.997, 0.999, 1.0),
    (2.007, 1.504, 1.385, 1.272, 1.195, 1.129, 1.095, 1.074, 1.048, 1.027, 1.018, 1.009, 1.0),
    (2.649, 1.917, 1.581, 1.438, 1.284, 1.187, 1.119, 1.114, 1.067, 1.052, 1.024, 1.032, 1.0),
)
"""Time per epoch under a cap over time without, q10, q50 and q90 of 397 configurations, by the
ratio of power under the cap to power without (medians of bins of 0.05)."""


def slowdown_under_cap(power_ratio: npt.ArrayLike) -> tuple[Values, Values, Values]:
    """Return time under a cap over time without: q10, q50, q90 over the configurations of Zeus.

    `power_ratio` is the board power under the cap over that without, 0..1. Below 0.43 nothing was
    measured: NaN.
    """
    ratio = np.asarray(power_ratio, dtype=np.float64)
    found = [np.interp(ratio, _RATIOS, row) for row in _SLOWDOWNS]
    low, middle, high = (np.where(ratio < _RATIOS[0], np.nan, row) for row in found)
    return low, middle, high
