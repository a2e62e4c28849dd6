"""The chance that memory lies above a limit, read off a forecast's quantiles and its peak."""

import numpy as np
import numpy.typing as npt

from data.records.forecasts import QuantilePath, WindowPeak

Floats = npt.NDArray[np.float64]


def exceedance_of(path: QuantilePath, limit: float) -> Floats:
    """Return the chance [slots] that a quantity lies above a limit.

    Linear between the quantiles that the path has; beyond the outermost the chance halves with
    every quarter of its distance to the median, as that of a normal variable does there.
    """
    levels = [0.1, 0.5, 0.9]
    rows = [path.q10, path.q50, path.q90]
    if path.q95:
        levels, rows = [0.05, *levels, 0.95], [path.q05, *rows, path.q95]
    quantiles = np.array(rows, dtype=np.float64)
    chances = np.empty(quantiles.shape[1])
    for slot, values in enumerate(quantiles.T):
        chances[slot] = _chance_in_slot(values, np.array(levels), limit)
    return chances


def _chance_in_slot(values: Floats, levels: Floats, limit: float) -> float:
    outermost = 1 - float(levels[-1])
    if limit >= values[-1]:
        spread = float(values[-1] - values[len(values) // 2])
        if spread <= 0:
            return outermost if limit == values[-1] else 0.0
        return float(outermost * 2.0 ** (-4 * (limit - float(values[-1])) / spread))
    if limit <= values[0]:
        return 1 - float(levels[0])
    return 1 - float(np.interp(limit, values, levels))


def chance_above(peak: WindowPeak, limit: float) -> float:
    """Return the least chance that the calibrated peak of a window lies above a limit."""
    if limit < peak.q90:
        return 0.1
    return 0.05 if limit < peak.q95 else 0.0
