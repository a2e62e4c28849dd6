"""The best path of one job that changes its configuration no more often than is allowed.

The path without the limit comes first: where it keeps the limit it is the best one. Else the
program of insertion_kernel.py runs once more over (slot, changes left, configuration). Changes that
are left come back after a whole window without a change. That is exact where the window covers the
horizon; beyond it a path may be dearer than the best one, and never breaks the limit.
"""

import math

import numpy as np

from data.base.compiled import inner
from planner.slots.slot_problem import Floats, Path
from planner.solver.insertion_kernel import change_cost, changes_too_often, shortest
from planner.solver.kernel_problem import KernelProblem


@inner
def shortest_within_limit(
    kernel: KernelProblem,
    job: int,
    lam: float,
    charged: Floats,
    ahead: Floats,
    moved: Floats,
    path: Path,
) -> tuple[float, float]:
    """Fill the path [H]; return its charged cost without lam (infinite: none) and its work."""
    cost, work = shortest(kernel, job, lam, charged, ahead, moved, path)
    if math.isfinite(cost) and changes_too_often(kernel, job, path):
        return _with_changes_left(kernel, job, lam, charged, path)
    return cost, work


@inner
def _with_changes_left(  # noqa: C901 - one pass over the slots: a call with these arrays costs 0.2 us
    kernel: KernelProblem, job: int, lam: float, charged: Floats, path: Path
) -> tuple[float, float]:
    """Fill the path [H] of the program over changes left; return its cost and its work."""
    slots, count, most = len(charged), charged.shape[1], kernel.max_changes
    window = kernel.change_window
    step = charged.copy()
    change = np.empty((count, count))
    at = 0
    for index in range(count):
        option = kernel.options[job, index]
        for slot in range(min(slots, kernel.deadline[job])):
            step[slot, index] -= lam * kernel.rate[job, option]
        for other in range(count):
            change[index, other] = change_cost(kernel, job, option, kernel.options[job, other])
        if option == kernel.present[job]:
            at = index
    # value: before the choice of a slot; ahead: once it is made; rested: best held for a window
    value = np.zeros((slots + 1, most + 1, count))
    ahead = np.empty((slots, most + 1, count))
    rested = np.zeros((slots, most + 1, count), dtype=np.bool_)
    stay, banned = np.zeros(count), np.zeros(count, dtype=np.int64)
    for slot in range(slots - 1, -1, -1):
        later = slot + window
        for index in range(count):
            if math.isfinite(step[slot, index]):
                stay[index] += step[slot, index]
            else:
                banned[index] += 1
            if later < slots:
                if math.isfinite(step[later, index]):
                    stay[index] -= step[later, index]
                else:
                    banned[index] -= 1
            for remaining in range(most + 1):
                best = step[slot, index] + value[slot + 1, remaining, index]
                if later < slots and remaining < most and banned[index] == 0:
                    rest = stay[index] + value[later, most, index]
                    if rest < best:
                        best = rest
                        rested[slot, remaining, index] = True
                ahead[slot, remaining, index] = best
        for remaining in range(most + 1):
            for index in range(count):
                best = ahead[slot, remaining, index]
                if remaining:
                    for other in range(count):
                        best = min(best, ahead[slot, remaining - 1, other] + change[index, other])
                value[slot, remaining, index] = best
    cost, work, slot, remaining = value[0, most, at], 0.0, 0, most
    if not math.isfinite(cost):
        return math.inf, 0.0
    while slot < slots:
        best, target = ahead[slot, remaining, at], at
        if remaining:
            for other in range(count):
                come = ahead[slot, remaining - 1, other] + change[at, other]
                if come < best:
                    best, target = come, other
        if target != at:
            at, remaining = target, remaining - 1
        end = slot + 1
        if rested[slot, remaining, at]:
            end, remaining = slot + window, most
        option = kernel.options[job, at]
        path[slot:end] = option
        work += kernel.rate[job, option] * max(0, min(end, kernel.deadline[job]) - slot)
        slot = end
    return cost + lam * work, work
