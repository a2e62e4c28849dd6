"""Every job on its own optimum, as if nothing were shared: the unconstrained demand."""

import numpy as np

from planner.slots.coupling_rows import CouplingRows
from planner.slots.dp_kernel import price_blocks
from planner.slots.lanes import LANES, pack
from planner.slots.slot_problem import Floats, SlotProblem, pinned_cost
from planner.slots.survey_kernel import survey


def free_use(problem: SlotProblem, rows: CouplingRows) -> Floats:
    """Return the use [H, R] of all rows when every job takes its cheapest path.

    It says what tenants ask for: a guarantee should be no more than their column of it.
    """
    cost = pinned_cost(problem.jobs)
    costs = survey(cost, problem.grid.gpu_type, problem.grid.boards, problem.fleet.capacity)
    lanes = pack(problem, cost, costs)
    blocks = len(lanes.rows)
    slots, types = problem.slots, rows.types
    used = np.zeros((slots, len(rows.names)))
    nothing = np.zeros((slots, types), dtype=np.float32)
    tenants = len(rows.names) - types - rows.domains
    price_blocks(
        lanes,
        np.arange(blocks),
        nothing,
        nothing,
        np.zeros((slots, tenants + 1), dtype=np.float32),
        rows.members,
        8,
        0.3 * lanes.unfinished_price,
        np.zeros((blocks, LANES)),
        used,
    )
    return used
