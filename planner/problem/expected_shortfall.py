"""How much demand a capacity is expected to miss, from the quantiles of a forecast."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]


def quantile_curve(quantiles: Sequence[tuple[float, Values]]) -> tuple[Values, Values]:
    """Return levels [K] from 0 to 1 and the values there [K, slots].

    Between the known levels the quantile function is taken as straight; beyond them it goes on as
    steeply as in the outermost stretch, not below 0. `quantiles` ascend, at least two.
    """
    levels = np.array([level for level, _values in quantiles])
    values = np.array([row for _level, row in quantiles])
    first = (values[1] - values[0]) / (levels[1] - levels[0])
    last = (values[-1] - values[-2]) / (levels[-1] - levels[-2])
    least = np.maximum(values[0] - first * levels[0], 0.0)
    most = values[-1] + last * (1 - levels[-1])
    return (
        np.concatenate([[0.0], levels, [1.0]]),
        np.vstack([np.minimum(least, values[0])[None], values, most[None]]),
    )


def expected_shortfall(levels: Values, values: Values, capacity: float) -> Values:
    """Return E[(D - capacity)+] per slot, array [slots].

    The integral of (Q(u) - capacity)+ over the level u, exactly, for a quantile function that is
    straight between `levels` [K]: a trapezoid where both ends are above, a triangle where one is.
    """
    above = values - capacity
    low, high = above[:-1], above[1:]
    rise = np.maximum(high - low, 1e-300)
    triangle = np.clip(high, 0.0, None) ** 2 / (2 * rise)
    area = np.where(low >= 0, (low + high) / 2, triangle)
    return np.asarray((np.diff(levels)[:, None] * area).sum(axis=0), dtype=np.float64)
