"""The rule that asks for a new plan once demand has left the forecast interval for good.

A calibrated q05-q95 band is missed now and then: one miss is no reason. The rule is a cumulative
sum for yes-or-no observations on each side (Reynolds, Stoumbos 1999, "A CUSUM chart for monitoring
a proportion"): a miss adds 4, a hit takes 1 off, never below 0. Its rate of false alarms is known
exactly from a Markov chain over the sums (Brook, Evans 1972), so the limit follows from the rate
that is asked for.
"""

from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Literal

import numpy as np
import numpy.typing as npt

_UP = 4
"""A miss weighs as much as four hits: the likelihood ratio of missing 4 in 10 against 1 in 20."""
_MISS_RATE = 0.05
"""The chance of a miss on one side under a calibrated band from q05 to q95."""
_MAX_LIMIT = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanTrigger:
    """The reason for a new plan; `slot` is the first at which the rule fired."""

    slot: int
    side: Literal["above", "below"]
    reason: str


def replan_trigger(
    observed: npt.ArrayLike,
    q05: npt.ArrayLike,
    q95: npt.ArrayLike,
    *,
    false_alarms_per_slot: float = 1e-3,
) -> ReplanTrigger | None:
    """Return the trigger if the slots since the last plan have left the forecast interval.

    `observed`, `q05`, `q95`: one value per slot, oldest first, same unit; a slot with an unknown
    value or a crossed band says nothing. None when they have not.
    """
    limit, rate = limit_of(false_alarms_per_slot)
    values, low, high = _aligned(observed, q05, q95)
    usable = np.isfinite(values) & np.isfinite(low) & np.isfinite(high) & (low <= high)
    sides: tuple[Literal["above", "below"], ...] = ("above", "below")
    alarms = [
        (*alarm, side)
        for missed, side in zip((values > high, values < low), sides, strict=True)
        if (alarm := _first_alarm(missed & usable, usable, limit))
    ]
    if not alarms:
        return None
    slot, misses, side = min(alarms, key=lambda alarm: alarm[0])
    total = int(usable[: slot + 1].sum())
    return ReplanTrigger(
        slot=slot,
        side=side,
        reason=f"{misses} of the last {total} known slots {side} the band, the last at slot {slot};"
        f" by chance about once in {1 / rate:.0f} slots",
    )


def _aligned(
    *series: npt.ArrayLike,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return observed, low and high cut to the shortest of them."""
    arrays = [np.asarray(like, dtype=np.float64).ravel() for like in series]
    shortest = min(len(array) for array in arrays)
    observed, low, high = (array[:shortest] for array in arrays)
    return observed, low, high


def _first_alarm(
    misses: npt.NDArray[np.bool_], usable: npt.NDArray[np.bool_], limit: int
) -> tuple[int, int] | None:
    """Return the first slot where the sum reaches the limit, and the misses since it was last 0."""
    score, missed = 0, 0
    for slot in np.flatnonzero(usable):
        if misses[slot]:
            score, missed = score + _UP, missed + 1
        elif score <= 1:
            score, missed = 0, 0
        else:
            score -= 1
        if score >= limit:
            return int(slot), missed
    return None


@cache
def limit_of(false_alarms_per_slot: float) -> tuple[int, float]:
    """Return the smallest limit with at most so many false alarms per slot, and their exact rate.

    Both sides together; the rate is one over the mean slots to an alarm from a fresh start.
    """
    for limit in count(_UP + 1):
        rate = 2 / _mean_slots_to_alarm(limit)
        if rate <= false_alarms_per_slot or limit == _MAX_LIMIT:
            return limit, rate
    raise AssertionError("count never ends")


def _mean_slots_to_alarm(limit: int) -> float:
    """Return the mean slots until one side's sum reaches the limit, from 0.

    A Markov chain over the sum; the mean times solve (I - P) t = 1.
    """
    chain = np.eye(limit)
    for score in range(limit):
        if score + _UP < limit:
            chain[score, score + _UP] -= _MISS_RATE
        chain[score, max(0, score - 1)] -= 1 - _MISS_RATE
    return float(np.linalg.solve(chain, np.ones(limit))[0])
