"""What it costs to put work off: restartable jobs may wait out the dearest hours of the horizon.

Work that is put off is done when the job ends, later by as much. When that is, nobody knows, so it
costs what a kWh costs over a whole day. Waiting is allowed only in the stretch of the horizon, as
long as the slack, in which a kWh is dearest: a job waits no longer than it may, and at most once.
"""

import numpy as np
import numpy.typing as npt

from planner.problem.terms import Terms

Values = npt.NDArray[np.float64]


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


def put_off_costs(
    active_watts: Values, rent_per_slot: float, terms: Terms, *, remaining: Values
) -> Values:
    """Return the price of doing each slot's work later, array [slots]; infinite where not allowed.

    `active_watts` is the job's power above that of its idle boards, `remaining` the share of each
    slot in which there is work to put off.
    """
    kwh = active_watts * terms.slot_hours / 1000 * terms.energy.pue
    first, last = waiting_stretch(terms)
    slots = np.arange(len(kwh))
    allowed = (first <= slots) & (slots < last)
    later = (rent_per_slot + kwh * terms.tariff.mean_per_kwh) * remaining
    return np.asarray(np.where(allowed, later, np.inf), dtype=np.float64)
