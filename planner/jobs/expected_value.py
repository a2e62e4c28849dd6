"""The mean of a quantity with q10, median and q90 (Hurst, Brown and Swanson, AAPG 2000).

Costs and savings add up by their means: what is skewed, as the seconds of a restart are, costs more
on average than its median.
"""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

_WEIGHTS = (0.3, 0.4, 0.3)
_Number = TypeVar("_Number", float, npt.NDArray[np.float64])


def mean_of(low: _Number, median: _Number, high: _Number) -> _Number:
    """Return the mean by Swanson's weights."""
    return _WEIGHTS[0] * low + _WEIGHTS[1] * median + _WEIGHTS[2] * high
