"""Power of a job's board if it were free: by its model, and by the job's power.

Free boards of the fleet or the catalogue give a range. What the job draws narrows it: a board that
is held draws at least what it would draw free, and at rest little more.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from data.catalogue.gpu_catalogue import GpuModel
from planner.jobs.expected_value import mean_of
from planner.jobs.power_curve import HOLDING_SHARES

_DEVIATIONS = np.linspace(-4, 4, 401)
"""Far beyond q10 and q90: the reading of a board that is unlike its model tells so."""
_Q90 = NormalDist().inv_cdf(0.9)
_OF_Q90 = _DEVIATIONS / _Q90
_DENSITY = np.exp(-(_DEVIATIONS**2) / 2)
_BOARD_DEVIATION = 0.03
"""Boards of one model differ by so much (standard deviation)."""
_COMMON_DEVIATION = 0.015
"""By so much at least the boards of a model err together, however many of them are free."""
_MAX_HELD = HOLDING_SHARES[2] + HOLDING_SHARES[0]
_HIGH_DRAW_CHANCE = 0.05
"""The chance that a board that does no work draws more than holding it explains; an assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeBoard:
    """The power of a free board, W: q10, mean and q90."""

    low: float
    mean: float
    high: float


def free_board(model: GpuModel) -> FreeBoard:
    """Return the power of a free board of a model."""
    low, middle, high = model.idle_watts_low, model.idle_watts, model.idle_watts_high
    return FreeBoard(low=low, mean=mean_of(low, middle, high), high=high)


def freed_board(
    model: GpuModel, held_watts: float, *, rests: bool, boards: float = 1.0
) -> FreeBoard:
    """Return the power of each of `boards` when free; with a job they draw `held_watts` each.

    `rests`: the job does nothing, so that the board draws what `HOLDING_SHARES` adds and hardly
    more. Else it says no more than that the board draws no more than that when it is free. By
    Bayes' rule.
    """
    low, middle, high = model.idle_watts_low, model.idle_watts, model.idle_watts_high
    watts = middle + _OF_Q90 * np.where(
        _OF_Q90 < 0,
        _half_width_of_mean(middle - low, middle, boards),
        _half_width_of_mean(high - middle, middle, boards),
    )
    watts = np.maximum(watts, 1e-6)
    added = held_watts / watts - 1
    above = np.clip((added + _BOARD_DEVIATION) / (2 * _BOARD_DEVIATION), 0, 1)
    weights = _DENSITY * above / model.tdp_watts
    if rests:
        little = (
            _DENSITY
            * above
            * np.clip((_MAX_HELD + _BOARD_DEVIATION - added) / (2 * _BOARD_DEVIATION), 0, 1)
        )
        weights = _HIGH_DRAW_CHANCE * weights + (1 - _HIGH_DRAW_CHANCE) * little / (
            _MAX_HELD * watts
        )
    if not weights.sum() > 0:
        least = min(held_watts, middle)
        return FreeBoard(
            low=(1 - _BOARD_DEVIATION) * least, mean=least, high=(1 + _BOARD_DEVIATION) * least
        )
    order = np.argsort(watts)
    shares = np.cumsum(weights[order]) - weights[order] / 2
    low, high = (
        float(entry) for entry in np.interp((0.1, 0.9), shares / weights.sum(), watts[order])
    )
    mean = min(float((weights * watts).sum() / weights.sum()), held_watts)
    return FreeBoard(low=min(low, mean), mean=mean, high=max(high, mean))


def _half_width_of_mean(width: float, middle: float, boards: float) -> float:
    """Return the half-width (q10 or q90) of the mean of several boards, from that of one.

    By what a model is not known, all of its boards are off alike; beyond that they differ.
    """
    apart = _BOARD_DEVIATION * _Q90 * middle
    alike = max(width**2 - apart**2, (_COMMON_DEVIATION * _Q90 * middle) ** 2)
    return float(min(width, (alike + apart**2 / max(boards, 1.0)) ** 0.5))
