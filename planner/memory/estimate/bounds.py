"""Upper bounds of a measured peak over its estimate, by the stated part of the recipe.

The factors are quantiles of measured over estimated on published runs of many frameworks. They
cover runs of a source that was left out within two points of their nominal share
(benchmarks/memory.py). Where the recipe is not stated the factor of the 99 % bound is above 1.75,
because the missing field itself may double the peak.
"""

from enum import StrEnum

from planner.memory.estimate.calibration import Correction
from planner.memory.step.assumptions import Recipe

MARGIN = 1.03
"""Allocated bytes above their estimate that are still let in; refuses 2 % of runs that fit."""

USABLE_RATIO = 0.985
"""Share of the board's memory that a program can have: the driver keeps the rest."""

FIT_PROBABILITY = 0.95
"""A plan is offered as fitting when its peak stays within the usable memory with this probability.

The peak is what the allocator reserves, with the CUDA context: see `bound_factor`.
"""

SHARES = (0.90, 0.95, 0.99)
"""The shares of measured peaks that bounds are stated for."""

_ENOUGH_RUNS = 10


class Tier(StrEnum):
    """The stated part of the recipe: A all, B all but lengths vary, C not all."""

    A = "A"
    B = "B"
    C = "C"


_FACTORS = {
    Tier.A: {0.90: 1.13, 0.95: 1.22, 0.99: 1.36},
    Tier.B: {0.90: 1.15, 0.95: 1.29, 0.99: 2.10},
    Tier.C: {0.90: 1.31, 0.95: 1.60, 0.99: 2.20},
}

_SPREADS = {0.90: 2.5, 0.95: 4.8, 0.99: 13.0}
"""Standard deviations that cover these shares of runs after ten others: the tails are heavy."""


def tier_of(recipe: Recipe) -> Tier:
    """Return the tier of a recipe."""
    if recipe.missing:
        return Tier.C
    return Tier.B if recipe.length_varies else Tier.A


def bound_factor(tier: Tier, share: float, correction: Correction | None = None) -> float:
    """Return the factor on the estimate below which that share of measured peaks lies.

    `share` is 0.90, 0.95 or 0.99. Finished runs of the family can only narrow the factor, by
    their own spread, fully from ten runs on.
    """
    usual = _FACTORS[tier][share]
    if correction is None or correction.sample_count == 0:
        return usual
    local = min(usual, 1 + _SPREADS[share] * correction.spread)
    weight = min(correction.sample_count / _ENOUGH_RUNS, 1.0)
    return (1 - weight) * usual + weight * local
