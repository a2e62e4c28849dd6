"""Shares of common resources by part, in proportion to use at the last prices.

At prices near the best ones the mean of the jobs' answers nearly fits, so a share is close to what
the part takes in the plan of the whole. What no other part can use belongs to one part.
"""

import numpy as np
import numpy.typing as npt

from planner.partitions.split import Shares
from planner.slots.coupling_rows import CouplingRows
from planner.slots.slot_problem import Floats, SlotFleet

_CERTAIN = 1e-9


def shares_of(
    used: Floats,
    touches: npt.NDArray[np.bool_],
    rows: CouplingRows,
    fleet: SlotFleet,
    *,
    integral: bool,
) -> Shares:
    """Return the shares of parts that use used [P, H, R] and may use touches [P, R].

    `integral`: configurations hold whole boards, so boards are shared out whole.
    """
    ratio = _ratios(used, touches)
    free, limit = ratio * rows.free, ratio * rows.limit
    if integral:
        boards = np.ones(len(rows.names), dtype=np.bool_)
        boards[rows.types : rows.types + rows.domains] = False
        limit[:, :, boards] = _rounded(limit[:, :, boards], rows.limit[:, boards])
        free[:, :, boards] = np.minimum(free[:, :, boards], limit[:, :, boards])
        # Capacity has no room between what is free and the limit.
        free[:, :, : rows.types] = limit[:, :, : rows.types]
    return Shares(
        floor=ratio * rows.floor,
        free=free,
        limit=limit,
        nodes_on=ratio[:, 0, : rows.types] * fleet.nodes_on,
    )


def _ratios(used: Floats, touches: npt.NDArray[np.bool_]) -> Floats:
    """Return the share [P, H, R] of every part: of a row that nobody may use, the first has all."""
    may = touches.copy()
    may[0, ~touches.any(axis=0)] = True
    use = np.where(may[:, None, :], used, 0.0)
    total = use.sum(axis=0)
    even = may / may.sum(axis=0)
    proportional = np.divide(use, total, where=total > _CERTAIN, out=np.zeros_like(use))
    return np.asarray(np.where(total > _CERTAIN, proportional, even[:, None, :]))


def _rounded(shares: Floats, total: Floats) -> Floats:
    """Return whole numbers [P, H, R] summing to the whole part of the total: largest rest first."""
    down = np.floor(shares + _CERTAIN)
    rest = np.floor(total + _CERTAIN) - down.sum(axis=0)
    order = np.argsort(-(shares - down), axis=0, kind="stable")
    rank = np.argsort(order, axis=0, kind="stable")
    return np.asarray(down + (rank < rest))
