"""Ejection: a job takes the path that prices give it, and those in its way look for another.

Ruin and recreate meets a job that is badly off only by chance. Here it goes first: it takes its
best path at full prices as if there were room, jobs that overfill a row with it leave until
everything fits, and come back in the room that is left. The first of the two ways to improve after
new jobs came in.
"""

import math

import numpy as np

from data.base.compiled import compiled, copy_into, inner
from planner.slots.broken_limits import SLACK
from planner.slots.slot_problem import Floats, Indices, Path
from planner.solver.insertion_kernel import add_path
from planner.solver.kernel_problem import Draft, KernelProblem
from planner.solver.ruin_recreate_kernel import Random, random_below, settle, uses_row
from planner.solver.work_kernel import insert_best_path


@inner
def _overfull(kernel: KernelProblem, used: Floats, begin: int) -> tuple[int, int]:
    """Return the first (slot, row) from `begin` on whose hard limit is exceeded; (-1, -1): none."""
    limit, over_penalty = kernel.limit, kernel.over_penalty
    for slot in range(begin, len(used)):
        for row in range(limit.shape[1]):
            if used[slot, row] > limit[slot, row] + SLACK and math.isinf(over_penalty[slot, row]):
                return slot, row
    return -1, -1


@inner
def _in_the_way(
    kernel: KernelProblem,
    draft: Draft,
    slot: int,
    row: int,
    out: Indices,
    count: int,
    state: Random,
) -> int:
    """Return a random job that uses the row in the slot and is not out yet; -1: none."""
    jobs = len(kernel.present)
    start = random_below(state, jobs)
    for step in range(jobs):
        job = (start + step) % jobs
        if not uses_row(kernel, job, draft.path[job, slot], row):
            continue
        listed = False
        for index in range(count):
            listed = listed or out[index] == job
        if not listed:
            return job
    return -1


@compiled
def eject(  # noqa: C901 - one move with its undoing: the arrays are shared by all of it
    kernel: KernelProblem,
    uncoupled: KernelProblem,
    draft: Draft,
    focus: Indices,
    announced: Path,
    row_price: Floats,
    node_price: Floats,
    moves: int,
    churn_price: Floats,
    searches: int,
    state: Random,
) -> float:
    """Try so many ejections for random jobs of `focus`; return the fall of the cost.

    `uncoupled` has limits of infinity. At most as many jobs leave as `out` holds.
    """
    most = 24
    gained = 0.0
    before = draft.used.copy()
    saved_rows, saved_nodes = draft.row_cost.copy(), draft.node_cost.copy()
    out = np.empty(most, dtype=np.int64)
    paths = np.empty((most, len(draft.used)), dtype=np.int16)
    saved = np.empty((most, 3))
    for _move in range(moves):
        copy_into(before, draft.used)
        copy_into(saved_rows, draft.row_cost)
        copy_into(saved_nodes, draft.node_cost)
        count, slot, row = 0, 0, 0
        job = focus[random_below(state, len(focus))]
        while job >= 0 and count < most:
            out[count] = job
            copy_into(paths[count], draft.path[job])
            saved[count, 0], saved[count, 1] = draft.job_cost[job], draft.lam[job]
            saved[count, 2] = 1.0 if draft.changed[job] else 0.0
            count += 1
            add_path(kernel, job, draft.path[job], -1.0, draft.used)
            if count == 1:
                weight = 0.5 + random_below(state, 501) / 1000.0
                insert_best_path(
                    uncoupled, job, weight, row_price, node_price, draft, searches, -1.0,
                    draft.path[job],
                )  # fmt: skip
                add_path(kernel, job, draft.path[job], 1.0, draft.used)
            slot, row = _overfull(kernel, draft.used, slot)
            job = -1
            if slot >= 0:
                job = _in_the_way(kernel, draft, slot, row, out, count, state)
        fits = slot < 0
        for index in range(1, count):
            if not fits:
                break
            job = out[index]
            weight = 0.0 if index == count - 1 else random_below(state, 1001) / 1000.0
            fits = insert_best_path(
                kernel, job, weight, row_price, node_price, draft, searches, -1.0, draft.path[job]
            )
            if fits:
                add_path(kernel, job, draft.path[job], 1.0, draft.used)
        change = math.inf
        if fits:
            change = settle(kernel, draft, out[:count], announced, churn_price)
        if change <= 1e-9:
            gained -= change
            continue
        copy_into(draft.used, before)
        copy_into(draft.row_cost, saved_rows)
        copy_into(draft.node_cost, saved_nodes)
        for index in range(count):
            job = out[index]
            copy_into(draft.path[job], paths[index])
            draft.job_cost[job], draft.lam[job] = saved[index, 0], saved[index, 1]
            draft.changed[job] = saved[index, 2] > 0
    return gained
