"""What a board of a job would draw if it were free: from its model, and from what the job draws.

Free boards of the fleet or the catalogue give a range. What the job draws narrows it: a board that
is held draws at least what it would draw free, and at rest little more.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from data.catalogue.gpu_catalogue import GpuModel
from planner.problem.expected_value import mean_of
from planner.problem.power_curve import HELD

_LEVELS = (np.arange(41) + 0.5) / 41
_OF_Q90 = np.array([NormalDist().inv_cdf(level) for level in _LEVELS]) / NormalDist().inv_cdf(0.9)
_UNLIKE = 0.03
"""Boards of one model differ by so much."""
_MOST_HELD = HELD[2] + HELD[0]
_BUSY_AT_REST = 0.05
"""The chance that a board that does no work draws more than holding it explains; an assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeBoard:
    """What a board draws free, W: q10, mean and q90."""

    low: float
    mean: float
    high: float


def free_board(model: GpuModel) -> FreeBoard:
    """Return what a free board of a model draws."""
    low, middle, high = model.idle_watts_low, model.idle_watts, model.idle_watts_high
    return FreeBoard(low=low, mean=mean_of(low, middle, high), high=high)


def freed_board(model: GpuModel, held_watts: float, *, rests: bool) -> FreeBoard:
    """Return what a board draws free that draws `held_watts` while a job holds it.

    `rests`: the job does nothing, so that the board draws what `HELD` adds and hardly more. Else
    it says no more than that the board draws no more than that when it is free. By Bayes' rule.
    """
    low, middle, high = model.idle_watts_low, model.idle_watts, model.idle_watts_high
    watts = middle + _OF_Q90 * np.where(_OF_Q90 < 0, middle - low, high - middle)
    watts = np.maximum(watts, 1e-6)
    added = held_watts / watts - 1
    above = np.clip((added + _UNLIKE) / (2 * _UNLIKE), 0, 1)
    weights = above / model.tdp_watts
    if rests:
        little = above * np.clip((_MOST_HELD + _UNLIKE - added) / (2 * _UNLIKE), 0, 1)
        weights = _BUSY_AT_REST * weights + (1 - _BUSY_AT_REST) * little / (_MOST_HELD * watts)
    if not weights.sum() > 0:
        least = min(held_watts, middle)
        return FreeBoard(low=(1 - _UNLIKE) * least, mean=least, high=(1 + _UNLIKE) * least)
    order = np.argsort(watts)
    shares = np.cumsum(weights[order]) - weights[order] / 2
    low, high = (float(one) for one in np.interp((0.1, 0.9), shares / weights.sum(), watts[order]))
    mean = min(float((weights * watts).sum() / weights.sum()), held_watts)
    return FreeBoard(low=min(low, mean), mean=mean, high=max(high, mean))
