"""The value of every job at given prices in float64: the terms of the published bound."""

import math
from typing import Any

import numpy as np

from data.base.compiled import compiled
from planner.slots.slot_problem import Floats, Indices
from planner.solver.changes_kernel import shortest_within_limit
from planner.solver.insertion_kernel import charge, shortest
from planner.solver.kernel_problem import Draft, KernelProblem
from planner.solver.label_kernel import label_bound
from planner.solver.work_kernel import best_with_work

_SEARCHES: Any = np.int64(12)  # not a number of Python, which is a type of its own to numba
_SPREAD = 0.1
"""Prices of work to prune with lie this far around the best one."""


@compiled
def job_values(
    kernel: KernelProblem,
    jobs: Indices,
    row_price: Floats,
    node_price: Floats,
    draft: Draft,
    room: int,
    values: Floats,
) -> None:
    """Fill values [J] of the jobs with lower bounds of their priced cost.

    `kernel` has limits of infinity and `draft` nothing in use: prices alone couple the jobs. For a
    job with work it is DP(lam) + lam * work at the lam of the draft, or with `room` > 0 the label
    bound with so many labels to a slot and configuration. The limit on changes counts where the
    program that keeps it is exact; without it the value is lower, and a bound all the same.
    """
    slots = len(draft.used)
    moved = np.empty((slots, len(kernel.layout_change)))
    path = np.empty(slots, dtype=np.int16)
    around = np.empty(3)
    for job in jobs:
        charged = np.empty((slots, kernel.option_count[job]))
        ahead = np.empty_like(charged)
        charge(kernel, job, 1.0, row_price, node_price, draft.used, -1.0, charged)
        target = kernel.work[job]
        if target <= 0:
            if kernel.change_window >= slots:
                result = shortest_within_limit(kernel, job, 0.0, charged, ahead, moved, path)
            else:
                result = shortest(kernel, job, 0.0, charged, ahead, moved, path)
            values[job] = result[0]
            continue
        best_known = math.inf
        if room > 0:
            best_known = best_with_work(kernel, job, charged, draft, _SEARCHES, path)
        lam = draft.lam[job]
        cost, work = shortest(kernel, job, lam, charged, ahead, moved, path)
        values[job] = cost + lam * (target - work)
        if room == 0:
            continue
        around[0], around[1], around[2] = lam * (1 - _SPREAD), lam, lam * (1 + _SPREAD)
        labelled = label_bound(kernel, job, charged, around, best_known, room)
        values[job] = max(values[job], labelled)
