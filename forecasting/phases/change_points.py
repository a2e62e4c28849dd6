"""Changes of a series' level: penalised least squares, exact up to a few thousand samples.

The optimum is that of `ruptures.KernelCPD(kernel="linear")` (the tests compare), but on cumulative
sums and without its quadratic cost on long quiet series.
"""

import math

import numpy as np
import numpy.typing as npt

from forecasting.phases.change_points_kernel import pelt_l2

Values = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

PENALTY_FACTOR = 2.5
"""Penalty per change is this times ln n, in units of noise variance (benchmarks/phases.py: F1 0.92
on labelled traces, 0.87 at 4 ln n, 0.72 at 10 ln n)."""
LEVEL_SHARE_OF_NOISE = 0.003
"""The noise floor as a share of the level: without it quiet plateaus shatter into pieces."""
SHORTEST = 2
"""Samples of the shortest level: a single odd reading is no change."""
_EXACT_UP_TO = 4096
_CHUNK = 1024
_OVERLAP = 128
_MIN_NOISE = 1e-12
_MAX_CORRELATION = 0.8


def noise_scale(values: Values) -> float:
    """Return the noise level s of known values, in their unit; always above 0.

    s = MAD(diff) / 0.6745 / sqrt(2 (1 - r)) + 0.3 % of the median magnitude. Differences do not see
    levels, but understate noise that resembles itself from sample to sample: r is that correlation,
    from 1 + r = Var(x[i+2] - x[i]) / Var(x[i+1] - x[i]), within 0..0.8. Recorded power has r of
    0.2-0.5; without the correction quiet noise of r = 0.5 has five changes in 1,500 samples. A
    ratio above 2 is no such noise but a ripple (the steps of training), and r is 0.
    """
    if not len(values):
        return _MIN_NOISE
    level = float(np.median(np.abs(values)))
    close, far = _deviation(values[1:] - values[:-1]), _deviation(values[2:] - values[:-2])
    ratio = (far / close) ** 2 if close > 0 else 1.0
    correlation = min(max(ratio - 1.0, 0.0), _MAX_CORRELATION) if ratio <= 2 else 0.0
    noise = close / math.sqrt(2 * (1 - correlation)) + LEVEL_SHARE_OF_NOISE * level
    return max(noise, 1e-9 * float(np.abs(values).max()), _MIN_NOISE)


def _deviation(steps: Values) -> float:
    """Return the robust standard deviation of differences, 0 for none."""
    if not len(steps):
        return 0.0
    return float(np.median(np.abs(steps - np.median(steps)))) / 0.6745


def change_points(
    values: Values,
    *,
    noise: float | None = None,
    penalty_factor: float = PENALTY_FACTOR,
    shortest: int = SHORTEST,
) -> Positions:
    """Return the first sample of every new level, ascending, without 0 and n.

    `values` are finite, shape (n,); `noise` in their unit defaults to `noise_scale`;
    every level has at least `shortest` samples. Above 4,096
    samples the candidates come from overlapping chunks and are then searched exactly (Tickle,
    Eckley, Fearnhead, Haynes 2020, "Chunk"): linear time; a change too small to be seen within
    1,280 samples is missed there.
    """
    if len(values) < 2 * shortest:
        return np.zeros(0, dtype=np.int64)
    scaled = (values - np.median(values)) / (noise or noise_scale(values))
    if len(values) <= _EXACT_UP_TO:
        return _search(scaled, np.arange(1, len(values) + 1), penalty_factor, shortest)
    blocks = [
        start + _search(part, np.arange(1, len(part) + 1), penalty_factor, shortest)
        for start in range(0, len(values), _CHUNK)
        if len(part := scaled[start : start + _CHUNK + _OVERLAP]) >= 2 * shortest
    ]
    candidates = np.append(np.unique(np.concatenate(blocks)), len(values))
    return _search(scaled, candidates, penalty_factor, shortest)


def _search(
    scaled: Values, candidates: Positions, penalty_factor: float, shortest: int
) -> Positions:
    """Return the best change points among the candidates."""
    sums = np.concatenate([[0.0], np.cumsum(scaled)])
    squares = np.concatenate([[0.0], np.cumsum(scaled * scaled)])
    penalty = penalty_factor * math.log(len(scaled))
    return np.asarray(pelt_l2(sums, squares, candidates.astype(np.int64), penalty, shortest))
