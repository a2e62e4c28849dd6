"""A new plan without the paths that found no room on nodes. Pure."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from planner.nodes.node_runs import Stretch
from planner.slots.slot_problem import SlotProblem
from planner.solver.replan import WarmStart
from planner.solver.solved_plan import SolvedPlan

REPAIR_CHURN_PRICE = 1e6
"""Churn price in repairs: no other job is to lose the place that it has found."""


def all_but(solved: SolvedPlan, failed: Collection[Stretch]) -> WarmStart:
    """Return the start from a plan that changes the failed jobs and, if it can, no other."""
    mask = np.ones(len(solved.paths), dtype=np.bool_)
    mask[[stretch.job for stretch in failed]] = False
    return WarmStart(
        prices=solved.prices, announced=solved.paths, kept=mask, churn_price=REPAIR_CHURN_PRICE
    )


def without_failed(
    slots: SlotProblem, failed: Collection[Stretch], again: Collection[int]
) -> SlotProblem | None:
    """Forbid paths without room; jobs that failed `again` stay as they are; None: nothing to do.

    A present configuration is never forbidden: for one whose node is away others make room, as the
    boards that it lacks are taken from the count.
    """
    changed = [stretch for stretch in failed if stretch.option != 0]
    displaced = [stretch for stretch in failed if stretch.option == 0 and stretch.displaced]
    if not changed and not displaced:
        return None
    capacity = slots.fleet.capacity.copy()
    for entry in displaced:
        free = capacity[entry.pool, entry.start : entry.end]
        free[:] = np.maximum(free - entry.gpus, 0.0)
    cost = slots.jobs.base_cost.copy()
    required = np.full(cost.shape[:2], -1, dtype=np.int16)
    if slots.jobs.required is not None:
        required[:] = slots.jobs.required
    for entry in changed:
        cost[entry.job, entry.start : entry.end, entry.row] = np.inf
        pins = required[entry.job, entry.start : entry.end]
        pins[pins == entry.row] = -1
    for job in again:
        present = int(slots.jobs.present[job])
        required[job, np.isfinite(cost[job, :, present])] = present
    return replace(
        slots,
        jobs=replace(slots.jobs, base_cost=cost, required=required),
        fleet=replace(slots.fleet, capacity=capacity),
    )
