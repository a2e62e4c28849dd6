"""Ruin and recreate: a few jobs around a scarce slot leave the plan and come back better.

Greedy: a move is kept when the true cost, nodes and soft limits and the price of changing an
announced path included, is not higher. The random numbers are a xorshift of the given state, so
the same state gives the same plan.
"""

import math

import numpy as np
import numpy.typing as npt

from data.base.compiled import compiled, copy_into, inner
from planner.slots.slot_problem import Floats, Indices, Path
from planner.solver.insertion_kernel import add_path, node_total, path_cost, row_total
from planner.solver.kernel_problem import Draft, KernelProblem
from planner.solver.work_kernel import insert_best_path

Random = npt.NDArray[np.uint64]
_TRIES = 48
_SHARES = (-1.0, -1.0, -1.0, 0.0, 0.05, 0.3)
"""How nodes are charged in a move (insertion_kernel.charge): half of the time by their price."""


@inner
def random_below(state: Random, below: int) -> int:
    """Return the next random integer in [0, below) of a 64-bit xorshift state [1]."""
    value = state[0]
    value ^= value << np.uint64(13)
    value ^= value >> np.uint64(7)
    value ^= value << np.uint64(17)
    state[0] = value
    return int(value >> np.uint64(33)) % below


@inner
def uses_row(kernel: KernelProblem, job: int, option: int, row: int) -> bool:
    """Return whether a configuration of a job uses a row."""
    domains, types = kernel.members.shape
    kind = kernel.gpu_type[option]
    if kind < 0:
        return False
    if row < types:
        return bool(row == kind)
    if row < types + domains:
        return bool(kernel.members[row - types, kind])
    return bool(kernel.tenant[job] == row - types - domains)


@inner
def _could_touch(kernel: KernelProblem, job: int, slot: int, row: int) -> bool:
    for index in range(kernel.option_count[job]):
        option = kernel.options[job, index]
        if math.isfinite(kernel.cost[job, slot, option]) and uses_row(kernel, job, option, row):
            return True
    return False


@inner
def _pick(
    kernel: KernelProblem,
    draft: Draft,
    slot: int,
    row: int,
    using: bool,
    movable: Indices,
    state: Random,
) -> int:
    """Return a random job that uses the row in the slot, or does not but could; -1 if none met."""
    start = random_below(state, len(movable))
    for step in range(min(_TRIES, len(movable))):
        job = movable[(start + step) % len(movable)]
        uses = uses_row(kernel, job, draft.path[job, slot], row)
        if uses == using and (uses or _could_touch(kernel, job, slot, row)):
            return int(job)
    return -1


@compiled
def settle(
    kernel: KernelProblem, draft: Draft, jobs: Indices, announced: Path, churn_price: Floats
) -> float:
    """Bring the costs of a draft up to date after these jobs moved; return the change of the sum.

    churn_price [J] is paid by a job whose path is not the announced one.
    """
    domains, types = kernel.members.shape
    change = 0.0
    for job in jobs:
        cost = path_cost(kernel, job, draft.path[job])
        changed = False
        for slot in range(len(draft.used)):
            if draft.path[job, slot] != announced[job, slot]:
                changed = True
                break
        change += cost - draft.job_cost[job]
        if changed != draft.changed[job]:
            change += churn_price[job] if changed else -churn_price[job]
        draft.job_cost[job] = cost
        draft.changed[job] = changed
    for kind in range(types):
        cost = node_total(kernel, kind, draft.used)
        change += cost - draft.node_cost[kind]
        draft.node_cost[kind] = cost
    for row in range(types, kernel.limit.shape[1]):
        tenant = row - types - domains
        touched = tenant < 0
        for job in jobs:
            touched = touched or kernel.tenant[job] == tenant
        if kernel.priced[row] and touched:
            cost = row_total(kernel, row, draft.used)
            change += cost - draft.row_cost[row]
            draft.row_cost[row] = cost
    return change


@inner
def _choose(
    kernel: KernelProblem,
    draft: Draft,
    spot: npt.NDArray[np.int64],
    movable: Indices,
    most: int,
    state: Random,
    jobs: Indices,
) -> int:
    """Fill `jobs` with distinct ones around the (slot, row); in random order; return the number."""
    target = 2 + random_below(state, most - 1)
    count = 0
    using = random_below(state, 2) == 0
    for _attempt in range(2 * target):
        job = _pick(kernel, draft, spot[0], spot[1], using, movable, state)
        using = not using
        listed = job < 0
        for index in range(count):
            listed = listed or jobs[index] == job
        if not listed:
            jobs[count] = job
            count += 1
        if count == target:
            break
    for index in range(count):
        other = index + random_below(state, count - index)
        jobs[index], jobs[other] = jobs[other], jobs[index]
    return count


@inner
def _bar(
    kernel: KernelProblem, used: Floats, barred: Floats, state: Random
) -> tuple[int, int, int]:
    """Fill a random type up for a random window of slots; return (type, first, last + 1).

    barred [H] keeps what was used. Prices cannot say "not then" to one job where cost is not
    convex, as on a fleet of few nodes.
    """
    slots, types = kernel.node_cost.shape
    kind = random_below(state, types)
    first = random_below(state, slots)
    last = min(slots, first + 1 + random_below(state, max(1, slots // 3)))
    for slot in range(first, last):
        barred[slot] = used[slot, kind]
        used[slot, kind] = kernel.limit[slot, kind]
    return kind, first, last


@compiled
def ruin_and_recreate(  # noqa: C901 - one pass over the slots: a call with these arrays costs 0.2 us
    kernel: KernelProblem,
    draft: Draft,
    spots: npt.NDArray[np.int64],
    movable: Indices,
    announced: Path,
    row_price: Floats,
    node_price: Floats,
    moves: int,
    most: int,
    churn_price: Floats,
    searches: int,
    state: Random,
) -> float:
    """Try so many moves on the draft; return the fall of the cost.

    spots [N, 2] are scarce (slot, row); `most` jobs (2 or more) leave together; the last to come
    back is charged true cost alone, the others a random share of the prices.
    """
    gained = 0.0
    before = draft.used.copy()
    saved_rows, saved_nodes = draft.row_cost.copy(), draft.node_cost.copy()
    jobs = np.empty(most, dtype=np.int64)
    barred = np.empty(len(draft.used))
    saved_paths = np.empty((most, len(draft.used)), dtype=np.int16)
    saved = np.empty((most, 3))
    for _move in range(moves):
        spot = spots[random_below(state, len(spots))]
        count = _choose(kernel, draft, spot, movable, most, state, jobs)
        if count == 0:
            continue
        copy_into(before, draft.used)
        copy_into(saved_rows, draft.row_cost)
        copy_into(saved_nodes, draft.node_cost)
        for index in range(count):
            job = jobs[index]
            copy_into(saved_paths[index], draft.path[job])
            saved[index, 0], saved[index, 1] = draft.job_cost[job], draft.lam[job]
            saved[index, 2] = 1.0 if draft.changed[job] else 0.0
            add_path(kernel, job, draft.path[job], -1.0, draft.used)
        fits = True
        share = _SHARES[random_below(state, len(_SHARES))]
        for index in range(count):
            job = jobs[index]
            last = index == count - 1
            weight = 0.0 if last else random_below(state, 1001) / 1000.0
            kind, first, end = 0, 0, 0
            if index == 0 and not last and random_below(state, 8) == 0:
                kind, first, end = _bar(kernel, draft.used, barred, state)
            fits = insert_best_path(
                kernel, job, weight, row_price, node_price, draft, searches, share,
                draft.path[job],
            )  # fmt: skip
            for slot in range(first, end):
                draft.used[slot, kind] = barred[slot]
            if not fits:
                break
            add_path(kernel, job, draft.path[job], 1.0, draft.used)
        change = math.inf
        if fits:
            change = settle(kernel, draft, jobs[:count], announced, churn_price)
        if change <= 1e-9:
            gained -= change
            continue
        copy_into(draft.used, before)
        copy_into(draft.row_cost, saved_rows)
        copy_into(draft.node_cost, saved_nodes)
        for index in range(count):
            job = jobs[index]
            copy_into(draft.path[job], saved_paths[index])
            draft.job_cost[job], draft.lam[job] = saved[index, 0], saved[index, 1]
            draft.changed[job] = saved[index, 2] > 0
    return gained
