"""The labels of jobs at given prices, and their values in float64: terms of the certified bound."""

import math
from typing import Any

import numpy as np

from data.base.compiled import compiled, inner
from planner.slots.slot_problem import Floats, Indices
from planner.solver.insertion_kernel import charge, shortest
from planner.solver.kernel_problem import Draft, KernelProblem
from planner.solver.work_kernel import best_with_work, shortest_within_limit

_PRICES = 3


@inner
def _completions(
    kernel: KernelProblem, job: int, lam: float, charged: Floats, to_go: Floats
) -> None:
    """Fill to_go [H + 1, options]: the best charged cost - lam * work from a slot on."""
    slots = len(charged)
    count = kernel.option_count[job]
    layouts = len(kernel.layout_change)
    per_layout = kernel.layout_cost[job]
    entered, moved = np.empty(layouts), np.empty(layouts)
    ahead = np.empty(count)
    to_go[slots, :] = 0.0
    for slot in range(slots - 1, -1, -1):
        counted = lam if slot < kernel.deadline[job] else 0.0
        entered[:] = math.inf
        moved[:] = math.inf
        for index in range(count):
            option = kernel.options[job, index]
            ahead[index] = (
                charged[slot, index] + to_go[slot + 1, index] - counted * kernel.rate[job, option]
            )
            layout = kernel.layout[option]
            come = ahead[index] + kernel.enter[job, option]
            entered[layout] = min(entered[layout], come)
        for layout in range(layouts):
            for other in range(layouts):
                come = entered[other] + kernel.layout_change[layout, other] * per_layout
                moved[layout] = min(moved[layout], come)
        for index in range(count):
            option = kernel.options[job, index]
            go = kernel.leave[job, option] + moved[kernel.layout[option]]
            to_go[slot, index] = min(go, ahead[index])


@inner
def _insert_label(labels: Floats, count: int, cost: float, work: float) -> int:  # noqa: C901 - one pass over the slots: a call with these arrays costs 0.2 us
    """Insert a label into a front [room, 2], ascending in both; return the new count.

    A label with at most the cost and at least the work of another makes that one superfluous. A
    full front merges its two labels that are nearest in work.
    """
    while True:
        place = 0
        while place < count and labels[place, 0] <= cost:
            place += 1
        if place > 0 and labels[place - 1, 1] >= work:
            return count
        last = place
        while last < count and labels[last, 1] <= work:
            last += 1
        if last > place:
            labels[place, 0], labels[place, 1] = cost, work
            for index in range(last, count):
                place_now = index - last + place + 1
                labels[place_now, 0], labels[place_now, 1] = labels[index, 0], labels[index, 1]
            return count - (last - place) + 1
        if count < len(labels):
            break
        nearest, gap = 1, math.inf
        for index in range(1, count):
            apart = labels[index, 1] - labels[index - 1, 1]
            if apart < gap:
                nearest, gap = index, apart
        labels[nearest - 1, 1] = labels[nearest, 1]
        count -= 1
        for index in range(nearest, count):
            labels[index, 0], labels[index, 1] = labels[index + 1, 0], labels[index + 1, 1]
    for index in range(count, place, -1):
        labels[index, 0], labels[index, 1] = labels[index - 1, 0], labels[index - 1, 1]
    labels[place, 0], labels[place, 1] = cost, work
    return count + 1


@inner
def label_bound(  # noqa: C901 - one pass over the slots: a call with these arrays costs 0.2 us
    kernel: KernelProblem, job: int, charged: Floats, lam: Floats, upper: float, room: int
) -> float:
    """Return a lower bound of the least charged cost [H, options] with unfinished work paid.

    lam [3] are prices of work to prune with, `upper` the cost of a path of the job; the result is
    `upper` itself when nothing can be better.
    """
    slots = len(charged)
    count = kernel.option_count[job]
    target, top = kernel.work[job], kernel.unfinished_price[job]
    to_go = np.empty((_PRICES, slots + 1, count))
    for index in range(_PRICES):
        _completions(kernel, job, lam[index], charged, to_go[index])
    fronts, following = np.empty((count, room, 2)), np.empty((count, room, 2))
    sizes, next_sizes = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for index in range(count):
        if kernel.options[job, index] == kernel.present[job]:
            fronts[index, 0, :] = 0.0
            sizes[index] = 1
    end = min(slots, kernel.deadline[job])
    for slot in range(end):
        next_sizes[:] = 0
        for here in range(count):
            old = kernel.options[job, here]
            for there in range(count):
                step = charged[slot, there]
                if sizes[here] == 0 or not math.isfinite(step):
                    continue
                new = kernel.options[job, there]
                if here != there:
                    change = kernel.layout_change[kernel.layout[old], kernel.layout[new]]
                    step += kernel.leave[job, old] + kernel.enter[job, new]
                    step += kernel.layout_cost[job] * change
                speed = kernel.rate[job, new]
                rest = to_go[:, slot + 1, there]
                for label in range(sizes[here]):
                    cost = fronts[here, label, 0] + step
                    work = min(target, fronts[here, label, 1] + speed)
                    missing = target - work
                    least = rest[0] + lam[0] * missing
                    least = max(least, rest[1] + lam[1] * missing)
                    least = max(least, rest[2] + lam[2] * missing)
                    if cost + least < upper - 1e-9 * abs(upper):
                        next_sizes[there] = _insert_label(
                            following[there], next_sizes[there], cost, work
                        )
        fronts, following = following, fronts
        sizes, next_sizes = next_sizes, sizes
    best = upper
    plain = np.empty((slots + 1, count))
    _completions(kernel, job, 0.0, charged, plain)
    for index in range(count):
        for label in range(sizes[index]):
            missing = max(0.0, target - fronts[index, label, 1])
            best = min(best, fronts[index, label, 0] + plain[end, index] + top * missing)
    return best


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
