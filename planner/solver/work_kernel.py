"""Insertion of one job, with the search for the price of work of a job that has work to finish.

A price of work finds only paths on the convex hull of (cost, work). The two that bracket the work
are therefore crossed: one path, with a window of slots of the other, for every window whose ends
lie where the two differ. The best of all paths met counts.
"""

import math

import numpy as np

from data.base.compiled import compiled, copy_into, inner
from planner.slots.slot_problem import Floats, Path
from planner.solver.insertion_kernel import change_cost, changes_too_often, charge, shortest
from planner.solver.kernel_problem import Draft, KernelProblem


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


_GROWTH = 1.5


@inner
def cross(  # noqa: C901 - one pass over the slots: a call with these arrays costs 0.2 us
    kernel: KernelProblem, job: int, charged: Floats, ends: Path, best: float, path: Path
) -> float:
    """Fill the path [H] with the best crossing of ends [2, H] if it costs less than `best`.

    Costs are charged [H, options] and unfinished work; give the cost of the path.
    """
    slots = len(charged)
    target, top = kernel.work[job], kernel.unfinished_price[job]
    index_of = np.zeros(len(kernel.boards), dtype=np.int64)
    for index in range(kernel.option_count[job]):
        index_of[kernel.options[job, index]] = index
    passed, done = np.zeros((2, slots + 1)), np.zeros((2, slots + 1))
    into = np.zeros((2, slots + 1))
    differ = np.empty(slots, dtype=np.int64)
    count = 0
    for slot in range(slots):
        for end in range(2):
            now = ends[end, slot]
            before = ends[end, slot - 1] if slot else kernel.present[job]
            into[end, slot] = change_cost(kernel, job, before, now)
            step = into[end, slot] + charged[slot, index_of[now]]
            passed[end, slot + 1] = passed[end, slot] + step
            counted = kernel.rate[job, now] if slot < kernel.deadline[job] else 0.0
            done[end, slot + 1] = done[end, slot] + counted
        if ends[0, slot] != ends[1, slot]:
            differ[count] = slot
            count += 1
    crossing, first, last = -1, 0, 0
    for base in range(2):
        other = 1 - base
        for start in range(count):
            begin = differ[start]
            before = ends[base, begin - 1] if begin else kernel.present[job]
            head = passed[base, begin] + change_cost(kernel, job, before, ends[other, begin])
            head -= passed[other, begin] + into[other, begin]
            for stop in range(start, count):
                end = differ[stop] + 1
                cost = head + passed[other, end]
                work = done[base, begin] + done[other, end] - done[other, begin]
                if end < slots:
                    cost += change_cost(kernel, job, ends[other, end - 1], ends[base, end])
                    cost += passed[base, slots] - passed[base, end] - into[base, end]
                    work += done[base, slots] - done[base, end]
                cost += top * max(0.0, target - work)
                if cost < best:
                    best, crossing, first, last = cost, base, begin, end
    if crossing >= 0:
        copy_into(path, ends[crossing])
        copy_into(path[first:last], ends[1 - crossing, first:last])
    return best


@inner
def best_with_work(  # noqa: C901 - one pass over the slots: a call with these arrays costs 0.2 us
    kernel: KernelProblem, job: int, charged: Floats, draft: Draft, searches: int, path: Path
) -> float:
    """Fill the path [H] of a job with work; return its charged cost, unfinished work included.

    Infinite when no path fits. At most `searches` prices of work are tried, from the draft's on,
    which becomes the best one.
    """
    slots = len(charged)
    ahead = np.empty_like(charged)
    moved = np.empty((slots, len(kernel.layout_change)))
    trial = np.empty(slots, dtype=np.int16)
    ends = np.empty((2, slots), dtype=np.int16)
    target, top = kernel.work[job], kernel.unfinished_price[job]
    low_lam, low_value, low_slope = -1.0, 0.0, 0.0
    high_lam, high_value, high_slope = -1.0, 0.0, 0.0
    best, lam, best_value = math.inf, draft.lam[job], -math.inf
    for _search in range(searches):
        cost, work = shortest_within_limit(kernel, job, lam, charged, ahead, moved, trial)
        if cost == math.inf:
            return math.inf
        missing = target - work
        if cost + top * max(0.0, missing) < best:
            best = cost + top * max(0.0, missing)
            copy_into(path, trial)
        value = cost + lam * missing
        if value > best_value:
            best_value = value
            draft.lam[job] = lam
        if missing > 0:
            low_lam, low_value, low_slope = lam, value, missing
            copy_into(ends[0], trial)
        else:
            high_lam, high_value, high_slope = lam, value, missing
            copy_into(ends[1], trial)
        if missing == 0 or (missing > 0 and lam >= top) or (missing < 0 and lam <= 0):
            return best
        if low_lam < 0:
            lam = lam / _GROWTH if lam > 1e-3 * top else 0.0
        elif high_lam < 0:
            lam = min(top, max(lam * _GROWTH, 1e-3 * top))
        else:
            offset = high_value - low_value + low_slope * low_lam - high_slope * high_lam
            lam = offset / (low_slope - high_slope)
            if low_value + low_slope * (lam - low_lam) - best_value < 1e-5 * abs(best_value):
                break
            width = high_lam - low_lam
            lam = min(max(lam, low_lam + 0.02 * width), high_lam - 0.02 * width)
    if low_lam >= 0 and high_lam >= 0:
        cost = cross(kernel, job, charged, ends, best, trial)
        if cost < best and not changes_too_often(kernel, job, trial):
            best = cost
            copy_into(path, trial)
    return best


@compiled
def insert_best_path(
    kernel: KernelProblem,
    job: int,
    weight: float,
    row_price: Floats,
    node_price: Floats,
    draft: Draft,
    searches: int,
    boot_share: float,
    path: Path,
) -> bool:
    """Fill the best path [H] of one job beside the use of the others; False where none fits.

    row_price [H, R], node_price [H, G] per board; `weight` and `boot_share` are those of
    insertion_kernel.py.
    """
    slots = len(draft.used)
    charged = np.empty((slots, kernel.option_count[job]))
    charge(kernel, job, weight, row_price, node_price, draft.used, boot_share, charged)
    if kernel.work[job] > 0:
        return best_with_work(kernel, job, charged, draft, searches, path) < math.inf
    ahead = np.empty_like(charged)
    moved = np.empty((slots, len(kernel.layout_change)))
    return shortest_within_limit(kernel, job, 0.0, charged, ahead, moved, path)[0] < math.inf
