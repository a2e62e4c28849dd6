"""When demand has left the forecast interval for good, so that a new plan is worth its trouble.

A calibrated q05-q95 band is missed now and then: one miss is no reason. The rule is a cumulative
sum for yes-or-no observations on each side (Reynolds, Stoumbos 1999, "A CUSUM chart for monitoring
a proportion"): a miss adds 4, a hit takes 1 off, never below 0. Its rate of false alarms is known
exactly from a Markov chain over the sums (Brook, Evans 1972), so the limit follows from the rate
that is asked for.
"""

import math
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Literal

import numpy as np
import numpy.typing as npt

_UP = 4
"""A miss weighs as much as four hits: the likelihood ratio of missing 4 in 10 against 1 in 20."""
_MAX_LIMIT = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanTrigger:
    """Whether to plan again, why, and how often that would be asked for without a cause.

    `slot` is the first slot at which the rule fired, None when it did not. `false_alarms_per_slot`
    is the exact rate under calibrated bands, `slots_to_notice` how many misses in a row fire it.
    """

    triggered: bool
    slot: int | None
    side: Literal["above", "below"] | None
    misses: int
    slots_seen: int
    reason: str
    false_alarms_per_slot: float
    slots_to_notice: int


def replan_trigger(
    observed: npt.ArrayLike,
    q05: npt.ArrayLike,
    q95: npt.ArrayLike,
    *,
    false_alarms_per_slot: float = 1e-3,
    miss_rate: float = 0.05,
    persistence: float | None = None,
) -> ReplanTrigger:
    """Say whether the slots observed since the last plan have left the forecast interval.

    `observed`, `q05`, `q95`: one value per slot, oldest first, same unit; a slot with an unknown
    value or a crossed band says nothing. `miss_rate` is the chance of a miss on one side under a
    calibrated band (0.1 for q10-q90). `persistence` is the chance that a miss follows a miss on the
    same side (None: misses are independent, `miss_rate`); take it from the backtest, since errors
    of one forecast issue come in runs. Errors: ValueError naming the parameter out of range.
    """
    again = miss_rate if persistence is None else max(persistence, miss_rate)
    for name, value in (
        ("false_alarms_per_slot", false_alarms_per_slot),
        ("miss_rate", miss_rate),
        ("persistence", again),
    ):
        if not 0 < value < 1:
            raise ValueError(f"{name} is {value}; it must lie between 0 and 1")
    limit, rate = limit_of(false_alarms_per_slot, miss_rate, again)
    seen, low, high = _aligned(observed, q05, q95)
    usable = np.isfinite(seen) & np.isfinite(low) & np.isfinite(high) & (low <= high)
    alarms = [
        (*_first_alarm(misses & usable, usable, limit), side)
        for misses, side in ((seen > high, "above"), (seen < low, "below"))
    ]
    slot, misses, side = min(alarms, key=lambda alarm: math.inf if alarm[0] is None else alarm[0])
    known = int(usable.sum()) if slot is None else int(usable[: slot + 1].sum())
    if slot is None:
        missed = int(((seen > high) | (seen < low))[usable].sum())
        return ReplanTrigger(
            triggered=False,
            slot=None,
            side=None,
            misses=missed,
            slots_seen=known,
            reason=f"inside the band: {missed} of {known} slots missed, no run of them",
            false_alarms_per_slot=rate,
            slots_to_notice=math.ceil(limit / _UP),
        )
    return ReplanTrigger(
        triggered=True,
        slot=slot,
        side="above" if side == "above" else "below",
        misses=misses,
        slots_seen=known,
        reason=f"{misses} of the last {known} known slots {side} the band, the last at slot {slot};"
        f" by chance about once in {1 / rate:.0f} slots",
        false_alarms_per_slot=rate,
        slots_to_notice=math.ceil(limit / _UP),
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
) -> tuple[int | None, int]:
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
    return None, missed


@cache
def limit_of(
    false_alarms_per_slot: float, miss_rate: float, persistence: float
) -> tuple[int, float]:
    """Return the smallest limit with at most so many false alarms per slot, and their exact rate.

    Both sides together; the rate is one over the mean slots to an alarm from a fresh start.
    """
    for limit in count(_UP + 1):
        rate = 2 / _mean_slots_to_alarm(limit, miss_rate, persistence)
        if rate <= false_alarms_per_slot or limit == _MAX_LIMIT:
            return limit, rate
    raise AssertionError("count never ends")


def _mean_slots_to_alarm(limit: int, miss_rate: float, persistence: float) -> float:
    """Return the mean slots until one side's sum reaches the limit, from 0.

    A Markov chain over (sum, missed last), misses having the stationary rate `miss_rate`; the mean
    times solve (I - P) t = 1.
    """
    after_hit = miss_rate * (1 - persistence) / (1 - miss_rate)
    chain = np.eye(2 * limit)
    for score in range(limit):
        for missed, chance in ((0, after_hit), (1, persistence)):
            row = 2 * score + missed
            if score + _UP < limit:
                chain[row, 2 * (score + _UP) + 1] -= chance
            chain[row, 2 * max(0, score - 1)] -= 1 - chance
    return float(np.linalg.solve(chain, np.ones(2 * limit))[0])
