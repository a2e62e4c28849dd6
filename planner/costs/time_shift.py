"""Costs of putting work off: restartable jobs may wait out the dearest hours of the horizon.

A job that waits for its start, or whose end is near, is put off as a whole: it goes on some slots
later, in hours that are known, and what it saves is exact. Of any other job the work that is put
off is done when the job ends, later by as much. When that is, nobody knows, so it costs what a kWh
costs over a whole day. It may wait only in the stretch of the horizon, as long as the slack, in
which a kWh is dearest. Either way a job waits no longer than it may, and at most once.
"""

import numpy as np
import numpy.typing as npt

from planner.costs.terms import Terms
from planner.jobs.job_demand import JobDemand
from planner.jobs.job_end import Remaining, waits_for_start

Values = npt.NDArray[np.float64]
_SPREAD = (0.1, 0.9)
_NEAR_END_CHANCE = 0.5
"""Chance that a job outlasts the horizon below which its end counts as near."""


def is_delayed(demand: JobDemand) -> bool:
    """Return whether a pause puts off all that is left of a job, from the first slot on."""
    return waits_for_start(demand.job) or float(demand.remaining.central[-1]) < _NEAR_END_CHANCE


def delay_slots(remaining: Remaining, slots: float) -> tuple[float, float, float]:
    """Return the delay, in slots, of a job that begins `slots` from now at the earliest.

    As low, central and high over its likely starts: one that would begin after that is not put off.
    """
    likely = remaining.likely
    there = likely > 0
    rows, first = np.arange(len(likely)), there.argmax(axis=1)
    goes_on = there[rows, np.minimum(first + 1, likely.shape[1] - 1)]
    starts = first + np.where(goes_on, 1 - likely[rows, first], 0.0)
    later = np.where(there.any(axis=1), np.clip(slots - starts, 0.0, None), 0.0)
    central = float(later.mean())
    low, high = (float(value) for value in np.quantile(later, _SPREAD))
    return min(low, central), central, max(high, central)


def delay_cost(kwh: Values, there: Values, slots: int, ahead: Values, mean: float) -> float:
    """Return the further cost of a job that goes on `slots` later; below 0 it saves.

    `kwh` is its work by slot while it is there, [T], `there` the share of each slot in which it is
    expected to be. `ahead` [2 T] is what a kWh costs, or what it emits. Where the job outlasts the
    horizon, nobody knows when it ends: `mean` counts there, for the first `slots` from its start.
    """
    lasts = np.minimum(there, there[-1])
    moved = ahead[slots : slots + len(kwh)] - ahead[: len(kwh)]
    ends = float((kwh * (there - lasts)) @ moved)
    first = lasts - np.concatenate([np.zeros(slots), lasts])[: len(lasts)]
    return ends + float((kwh * first) @ (mean - ahead[: len(kwh)]))


def _begun_later(
    kwh: Values, remaining: Remaining, slots: int, ahead: Values, mean: float
) -> float:
    """Return the further cost of a job's start in slot `slots`, or later as it would anyway."""
    begins = (remaining.likely > 0).argmax(axis=1)
    if not begins.any():
        return delay_cost(kwh, remaining.central, slots, ahead, mean)
    rows = zip(remaining.likely, begins.tolist(), strict=True)
    costs = [delay_cost(kwh, row, slots - at, ahead, mean) for row, at in rows if slots > at]
    return sum(costs) / len(begins)


def work_means(there: Values, slots: int, ahead: Values, mean: float) -> tuple[float, float]:
    """Return the mean price or emissions of a job's kWh, at once and `slots` later."""
    now = float((there * ahead[: len(there)]).sum() / there.sum())
    return now, now + delay_cost(np.ones(len(there)), there, slots, ahead, mean) / float(
        there.sum()
    )


def best_shift(kwh: Values, remaining: Remaining, terms: Terms) -> tuple[int, float]:
    """Return by how many slots a job should go on later, and what that saves; (0, 0) where not.

    It goes on within the horizon, the earlier of two shifts that save the same.
    """
    tariff = terms.tariff
    ahead, mean = tariff.per_kwh_ahead, tariff.mean_per_kwh
    shifts = range(1, min(terms.slack_slots, len(kwh) - 1) + 1)
    costs = [_begun_later(kwh, remaining, slots, ahead, mean) for slots in shifts]
    if not costs or min(costs) >= 0:
        return 0, 0.0
    best = int(np.argmin(np.round(costs, 12)))
    return shifts[best], -costs[best]


def waiting_stretch(terms: Terms) -> tuple[int, int]:
    """Return dearest stretch of slots [first, last) of the slack's length, the earliest of them.

    It is shorter than the horizon: a job that never runs within it does not wait.
    """
    prices = terms.tariff.per_kwh
    length = min(terms.slack_slots, len(prices) - 1)
    sums = np.convolve(prices, np.ones(length), mode="valid")
    # Rounding must not choose between equal stretches.
    first = int(np.argmax(sums >= sums.max() - 1e-9 * max(1.0, abs(sums.max()))))
    return first, first + length


def put_off_costs(demand: JobDemand, kwh: Values, rent_per_slot: float, terms: Terms) -> Values:
    """Return the price of doing each slot's work later, array [slots]; infinite where not allowed.

    `kwh` is the site energy of the job's work by slot, beyond that of its idle boards. What a shift
    of the whole job saves is spread over its slots by the work in them: all of them bring it.
    """
    there, tariff = demand.remaining.central, terms.tariff
    slots = np.arange(len(kwh))
    if is_delayed(demand):
        last, saved = best_shift(kwh, demand.remaining, terms)
        now = rent_per_slot + kwh * tariff.per_kwh - saved / max(1e-9, float(there[:last].sum()))
        return np.where(slots < last, now * there, np.inf)
    first, last = waiting_stretch(terms)
    allowed = (first <= slots) & (slots < last)
    later = (rent_per_slot + kwh * tariff.mean_per_kwh) * there
    return np.asarray(np.where(allowed, later, np.inf), dtype=np.float64)
