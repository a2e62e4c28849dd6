"""The rule of Prophet's design that compiled loops need as well as `terms`."""

import numpy as np
import numpy.typing as npt

from data.base.compiled import outer

CHANGEPOINTS, _SHARE = 25, 0.8
"""Prophet's defaults: at most so many, over the first share of the points."""


@outer
def changepoint_rows(points: int) -> npt.NDArray[np.int64]:
    """Return the rows, among the known points, on which Prophet sets its changepoints.

    They are spread evenly, the first point left out. With none possible: one at the first point, as
    Prophet's stand-in.
    """
    history = int(np.floor(points * _SHARE))
    number = min(CHANGEPOINTS, history - 1)
    if number <= 0:
        return np.zeros(1, np.int64)
    rows = np.empty(number, np.int64)
    step = (history - 1) / number
    for i in range(number):
        rows[i] = int(np.rint((i + 1) * step))
    return rows
