"""The robust levels of a series: its noise and its plateau."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forecasting.phases.change_points import noise_scale

Values = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

LEAVE_NOISES = 5.0
LEAVE_SHARE = 0.04
"""A sample is off the plateau beyond max(5 s, 4 % of the plateau)."""
MAX_VALUE = 1e15
"""Readings beyond this magnitude are no readings: their squares would not add up."""
MIN_VALUE = 1e-12
_BINS = 256
_MIN_UPPER_SHARE = 0.1
_TAIL = 0.001
_MIN_RANGE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The plateau of work, the noise around it, and the distance at which it counts as left."""

    plateau: float
    noise: float

    @property
    def leave(self) -> float:
        """The distance from the plateau beyond which a single sample has left it."""
        return max(LEAVE_NOISES * self.noise, LEAVE_SHARE * abs(self.plateau))

    def leave_of(self, samples: int) -> float:
        """Return the distance beyond which the mean of so many samples has left the plateau.

        Noise averages out, the 4 % stay: 5 s for one sample, never below 2 s.
        """
        noises = max(2.0, LEAVE_NOISES / math.sqrt(max(1, samples)))
        return max(noises * self.noise, LEAVE_SHARE * abs(self.plateau))


def known_of(values: npt.ArrayLike) -> tuple[Values, Flags]:
    """Return any series as floats, and which are readings: finite and of a possible magnitude.

    Traces of a unit (below 1e-12) are 0: nothing can be divided by them.
    """
    flat = np.asarray(values, dtype=np.float64).ravel()
    size = np.abs(flat)
    return np.where(size < MIN_VALUE, 0.0, flat), np.asarray(size <= MAX_VALUE)


def levels_of(readings: Values, *, noise: float | None = None) -> Levels:
    """Return plateau and noise of known values, at least one.

    The plateau is the median of the upper class of Otsu's two (1979, "A threshold selection
    method"), or of all values where the classes are no further apart than noise. An upper class
    below 10 % of the samples is spikes, not the plateau, and is left out.
    """
    scale = noise_scale(readings) if noise is None else noise
    low, high = np.quantile(readings, [_TAIL, 1 - _TAIL])
    values = np.clip(readings, low, high)
    for _ in range(2):
        upper = values > _otsu_threshold(values)
        share = float(upper.mean())
        if share in (0.0, 1.0):
            break
        levels = Levels(plateau=float(np.median(values[upper])), noise=scale)
        if levels.plateau - float(np.median(values[~upper])) <= levels.leave:
            break
        if share >= _MIN_UPPER_SHARE:
            return levels
        values = values[~upper]
    return Levels(plateau=float(np.median(values)), noise=scale)


def _otsu_threshold(values: Values) -> float:
    """Return the threshold between two classes with the largest variance between them."""
    low, high = float(values.min()), float(values.max())
    if high - low <= _MIN_RANGE * max(abs(high), abs(low)):
        return high
    counts, edges = np.histogram(values, bins=_BINS, range=(low, high))
    centres = (edges[:-1] + edges[1:]) / 2
    below = np.cumsum(counts)[:-1].astype(float)
    above = len(values) - below
    mass = np.cumsum(counts * centres)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = mass[:-1] / below - (mass[-1] - mass[:-1]) / above
        between = np.where((below > 0) & (above > 0), below * above * distance**2, 0.0)
    best = np.flatnonzero(between >= between.max() * (1 - 1e-12))
    return float(edges[1 + best[len(best) // 2]])
