"""The prior of a framework without measurements: a middle of those with some.

Frameworks are dialects of the same step. A job whose framework is not told, or was never measured,
is estimated in each of them, and a fixed quantile of the estimates is taken. It lies below the
median, for an error counts relative to the peak: too high costs more than too low.
"""

from collections.abc import Sequence
from functools import cache

from planner.memory.step.framework_traits import (
    GENERIC,
    FrameworkTraits,
    framework_traits,
    known_frameworks,
)
from planner.memory.step.training_job import Method, Sharding, TrainingJob

_QUANTILE = 0.35
_OTHER_SITUATION_WEIGHT = 0.25
"""Weight of a framework in a situation that it is not used for; chosen, as the quantile is."""

_OWN = 0.5
"""Weight of what is known of a framework without a measurement, over all measured ones."""

Dialects = tuple[tuple[FrameworkTraits, float], ...]
"""Traits with their weights."""

_STAGES = (Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3)


def situation_of(job: TrainingJob) -> str:
    """Return the use of a framework: the term of `used_for` that tells most of a job."""
    spread = job.parallelism
    if job.method is not Method.FULL:
        return "adapter"
    if spread.tensor > 1 or (spread.pipeline > 1 and not spread.sequential):
        return "model-parallel"
    if spread.sharding is Sharding.NONE:
        return "replicated"
    return "zero" if spread.sharding in _STAGES else "fsdp"


@cache
def _dialects(framework: str, situation: str, unseen: frozenset[str]) -> Dialects:
    local = framework_traits(framework, measured=framework not in unseen)
    stated = framework == local.name
    if stated and (framework == GENERIC or not (local.borrowed or framework in unseen)):
        return ((local, 1.0),)
    others = [framework_traits(name) for name in known_frameworks() if name not in unseen]
    lent = tuple(
        (
            traits,
            traits.prior_weight
            * (1.0 if situation in traits.used_for else _OTHER_SITUATION_WEIGHT),
        )
        for traits in others
        if traits.prior_weight and not traits.borrowed
    )
    return (*(((local, _OWN * sum(weight for _, weight in lent)),) if stated else ()), *lent)


def dialects_of(job: TrainingJob, *, unseen: frozenset[str] = frozenset()) -> Dialects:
    """Return the dialects to estimate a job in: its framework's own where that was measured.

    Frameworks that are `unseen` lend nothing of what was measured of them.

    An engine that serves has its own table alone: no trainer keeps what it does.
    """
    if job.method is Method.INFERENCE:
        traits = framework_traits(job.framework)
        if traits.name == job.framework and traits.borrowed:
            return ((traits, 1.0),)
    return _dialects(job.framework, situation_of(job), unseen)


def quantile_index(estimates: Sequence[float], weights: Sequence[float]) -> int:
    """Return the index of the estimate at the quantile that is taken."""
    order = sorted(range(len(estimates)), key=estimates.__getitem__)
    goal, passed = _QUANTILE * sum(weights), 0.0
    for index in order:
        passed += weights[index]
        if passed >= goal:
            break
    return index
