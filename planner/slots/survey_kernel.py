"""One pass over all costs: allowed configurations of every job, and the first fault."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from data.base.compiled import compiled
from planner.slots.broken_limits import SLACK
from planner.slots.slot_problem import Floats, Indices, Singles

SOUND, UNKNOWN_COST, NOTHING_ALLOWED, TOO_LARGE = 0, 1, 2, 3


class CostSurvey(NamedTuple):
    """A survey of the costs [J, H, S].

    allowed [J, S] in some slot; movable [J]: a choice in some slot; pausable [J]: may hold nothing
    in every slot; forced [H, G]: boards of jobs that every choice of the slot holds of one type.
    fault (job, slot, one of the constants above) is the first contradiction met.
    """

    allowed: npt.NDArray[np.bool_]
    movable: npt.NDArray[np.bool_]
    pausable: npt.NDArray[np.bool_]
    forced: Floats
    fault: tuple[int, int, int]


@compiled
def scan(
    cost: Singles,
    gpu_type: Indices,
    boards: Floats,
    capacity: Floats,
    allowed: npt.NDArray[np.bool_],
    movable: npt.NDArray[np.bool_],
    pausable: npt.NDArray[np.bool_],
    forced: Floats,
) -> tuple[int, int, int]:  # fmt: skip
    """Fill the arrays of a survey for capacity [G, H]; return the fault."""
    jobs, slots, size = cost.shape
    pausable[:] = True
    for job in range(jobs):
        for slot in range(slots):
            choices, fitting, kind, least = 0, 0, -2, math.inf
            for option in range(size):
                value = cost[job, slot, option]
                if math.isnan(value) or value == -math.inf:
                    return job, slot, UNKNOWN_COST
                if value == math.inf:
                    continue
                choices += 1
                allowed[job, option] = True
                type_of = gpu_type[option]
                kind = type_of if kind in (-2, type_of) else -1
                least = min(least, boards[option])
                if type_of < 0 or boards[option] <= capacity[type_of, slot] + SLACK:
                    fitting += 1
            if choices == 0:
                return job, slot, NOTHING_ALLOWED
            if fitting == 0:
                return job, slot, TOO_LARGE
            movable[job] = movable[job] or choices > 1
            pausable[job] = pausable[job] and least == 0
            if kind >= 0:
                forced[slot, kind] += least
    return -1, -1, SOUND


def survey(cost: Singles, gpu_type: Indices, boards: Floats, capacity: Floats) -> CostSurvey:
    """Return the survey of base costs; stops at the first fault."""
    jobs, slots, size = cost.shape
    allowed = np.zeros((jobs, size), dtype=np.bool_)
    movable, pausable = np.zeros(jobs, dtype=np.bool_), np.zeros(jobs, dtype=np.bool_)
    forced = np.zeros((slots, len(capacity)))
    fault = scan(
        cost,
        gpu_type.astype(np.int64),
        boards.astype(np.float64),
        np.ascontiguousarray(capacity, dtype=np.float64),
        allowed,
        movable,
        pausable,
        forced,
    )
    return CostSurvey(
        allowed=allowed, movable=movable, pausable=pausable, forced=forced, fault=fault
    )
