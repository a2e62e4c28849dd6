"""The rules of Prophet's design that compiled loops need as well as `prophet_terms`."""

import numpy as np
import numpy.typing as npt

from data.compiled import outer


@outer
def changepoint_rows(known: int, changepoints: int, share: float) -> npt.NDArray[np.int64]:
    """Return the rows, among the known points, on which Prophet sets its changepoints.

    They are spread evenly over the first `share` of the points, the first point left out. With none
    possible or wanted: one at the first point, as Prophet's stand-in.
    """
    history = int(np.floor(known * share))
    number = min(changepoints, history - 1)
    if number <= 0:
        return np.zeros(1, np.int64)
    rows = np.empty(number, np.int64)
    step = (history - 1) / number
    for i in range(number):
        rows[i] = int(np.rint((i + 1) * step))
    return rows


@outer
def regressor_scale(column: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return what Prophet subtracts from and divides out of a regressor at the known points.

    Its mean and standard deviation (n - 1); 0 and 1 when it is constant or exactly {0, 1}.
    """
    binary, low, high, total = True, np.inf, -np.inf, 0.0
    for value in column:
        binary = binary and (value == 0.0 or value == 1.0)
        low, high, total = min(low, value), max(high, value), total + value
    if binary or low == high:
        return 0.0, 1.0
    mean, squares = total / len(column), 0.0
    for value in column:
        squares += (value - mean) * (value - mean)
    return mean, np.sqrt(squares / (len(column) - 1))
