"""The rule of Prophet's design that compiled loops need as well as `terms`."""

import numpy as np
import numpy.typing as npt

from data.base.compiled import outer


@outer
def changepoint_rows(points: int, changepoints: int, share: float) -> npt.NDArray[np.int64]:
    """Return the rows, among the known points, on which Prophet sets its changepoints.

    They are spread evenly over the first `share` of the points, the first point left out. With none
    possible or wanted: one at the first point, as Prophet's stand-in.
    """
    history = int(np.floor(points * share))
    number = min(changepoints, history - 1)
    if number <= 0:
        return np.zeros(1, np.int64)
    rows = np.empty(number, np.int64)
    step = (history - 1) / number
    for i in range(number):
        rows[i] = int(np.rint((i + 1) * step))
    return rows
