"""The best path of one job in the room that the others leave, and the true cost of a plan.

The same recursion as dp_kernel.py for one job, with configurations that do not fit forbidden.
A job is charged for its node in full; for what is scarce by `weight` times the row's price, and by
1 - weight of what a soft row would really cost more. Weight 1 leaves the rest of the fleet what it
is worth; weight 0 takes whatever is free.
"""

import math

import numpy as np

from data.base.compiled import compiled, inner
from planner.slots.broken_limits import SLACK
from planner.slots.slot_problem import Floats, Path
from planner.solver.kernel_problem import KernelProblem


@inner
def use_cost(
    used: float,
    floor: float,
    floor_price: float,
    free: float,
    price: float,
    limit: float,
    over_penalty: float,
) -> float:
    """Return the cost of a use of one row in one slot (CouplingRows.cost_of_use)."""
    if used < floor:
        return floor_price * (floor - used)
    cost = 0.0
    if used > free:
        cost = price * (min(used, limit) - free)
    if used > limit:
        if math.isinf(over_penalty):
            return math.inf if used > limit + SLACK else cost
        cost += over_penalty * (used - limit)
    return cost


@inner
def row_total(kernel: KernelProblem, row: int, used: Floats) -> float:
    """Return the cost of the use [H, R] of one row over all slots."""
    floor, floor_price, free = kernel.floor, kernel.floor_price, kernel.free
    price, limit, over_penalty = kernel.price, kernel.limit, kernel.over_penalty
    total = 0.0
    for slot in range(len(used)):
        total += use_cost(
            used[slot, row],
            floor[slot, row],
            floor_price[slot, row],
            free[slot, row],
            price[slot, row],
            limit[slot, row],
            over_penalty[slot, row],
        )
    return total


@compiled
def node_total(kernel: KernelProblem, kind: int, used: Floats) -> float:
    """Return the least cost of the nodes of one type, kept on over a gap where that is cheaper."""
    boot = kernel.boot_cost[kind]
    now = int(kernel.nodes_on[kind])
    per_node = kernel.boards_per_node[kind]
    most = now
    for slot in range(len(used)):
        most = max(most, math.ceil(used[slot, kind] / per_node - 1e-6))
    if most == 0:
        return 0.0
    idle_since = np.full(most, -1.0)
    idle_since[:now] = 0.0
    total, passed, on = 0.0, 0.0, 0
    for slot in range(len(used)):
        needed = math.ceil(used[slot, kind] / per_node - 1e-6)
        for layer in range(on, needed):
            idle = passed - idle_since[layer]
            total += min(idle, boot) if idle_since[layer] >= 0 else boot
        for layer in range(needed, on):
            idle_since[layer] = passed
        on = needed
        passed += kernel.node_cost[slot, kind]
        total += needed * kernel.node_cost[slot, kind]
    return total


@inner
def change_cost(kernel: KernelProblem, job: int, before: int, after: int) -> float:
    """Return the cost of a job's change of configuration."""
    if before == after:
        return 0.0
    layouts = kernel.layout_change[kernel.layout[before], kernel.layout[after]]
    direct = kernel.leave[job, before] + kernel.enter[job, after]
    cost: float = direct + kernel.layout_cost[job] * layouts
    return cost


@compiled
def changes_too_often(kernel: KernelProblem, job: int, path: Path) -> bool:
    """Return whether a path [H] has more changes within some window of slots than are allowed."""
    if kernel.max_changes <= 0:
        return False
    changes = 0
    for slot in range(len(path)):
        before = path[slot - 1] if slot else kernel.present[job]
        changes += path[slot] != before
        first = slot - kernel.change_window
        if first >= 0:
            before = path[first - 1] if first else kernel.present[job]
            changes -= path[first] != before
        if changes > kernel.max_changes:
            return True
    return False


@inner
def path_cost(kernel: KernelProblem, job: int, path: Path) -> float:
    """Return the cost of a path [H] of one job, unfinished work included."""
    before = kernel.present[job]
    total, work = 0.0, 0.0
    for slot in range(len(path)):
        now = path[slot]
        total += kernel.cost[job, slot, now] + change_cost(kernel, job, before, now)
        if slot < kernel.deadline[job]:
            work += kernel.rate[job, now]
        before = now
    missing: float = max(0.0, kernel.work[job] - work)
    unfinished: float = kernel.unfinished_price[job] * missing
    return total + unfinished


@compiled
def add_path(kernel: KernelProblem, job: int, path: Path, sign: float, used: Floats) -> None:
    """Add (sign 1) or take back (sign -1) the use of a path [H] of one job."""
    domains, types = kernel.members.shape
    tenant = kernel.tenant[job]
    for slot in range(len(path)):
        now = path[slot]
        kind = kernel.gpu_type[now]
        if kind < 0:
            continue
        used[slot, kind] += sign * kernel.boards[now]
        for domain in range(domains):
            if kernel.members[domain, kind]:
                used[slot, types + domain] += sign * kernel.power[job, now]
        if tenant >= 0:
            used[slot, types + domains + tenant] += sign * kernel.boards[now]


@compiled
def path_fits(kernel: KernelProblem, job: int, path: Path, used: Floats) -> bool:
    """Return whether a path [H] of one job fits beside the use [H, R] of the others."""
    if changes_too_often(kernel, job, path):
        return False
    domains, types = kernel.members.shape
    limit, over_penalty, tenant = kernel.limit, kernel.over_penalty, kernel.tenant[job]
    for slot in range(len(path)):
        now = path[slot]
        kind = kernel.gpu_type[now]
        if not math.isfinite(kernel.cost[job, slot, now]):
            return False
        for row in range(limit.shape[1]):
            if kind < 0 or not math.isinf(over_penalty[slot, row]):
                continue
            more = 0.0
            if row == kind or (tenant >= 0 and row == types + domains + tenant):
                more = kernel.boards[now]
            elif types <= row < types + domains and kernel.members[row - types, kind]:
                more = kernel.power[job, now]
            if more > 0 and used[slot, row] + more > limit[slot, row] + SLACK:
                return False
    return True


@inner
def charge(  # noqa: C901 - one pass over the slots: a call with these arrays costs 0.2 us
    kernel: KernelProblem,
    job: int,
    weight: float,
    row_price: Floats,
    node_price: Floats,
    used: Floats,
    boot_share: float,
    charged: Floats,
) -> None:
    """Fill charged [H, options]: own cost and prices, infinite where it does not fit.

    With a boot_share >= 0 a job pays for the whole nodes that it makes necessary, and that share
    of a boot for each of them in every slot, instead of node_price.
    """
    slots = len(used)
    domains, types = kernel.members.shape
    tenant = kernel.tenant[job]
    quota = types + domains + tenant
    board_price, board_room = np.empty(types), np.empty(types)
    kw_price, kw_room = np.empty(types), np.empty(types)
    soft_quota = tenant >= 0 and kernel.priced[quota] and weight < 1
    soft_power = False
    others, now, floor, floor_price = 0.0, 0.0, 0.0, 0.0
    free, price, limit, over_penalty = 0.0, 0.0, 0.0, 0.0
    for domain in range(domains):
        soft_power = soft_power or (kernel.priced[types + domain] and weight < 1)
    for slot in range(slots):
        shared_price, shared_room = 0.0, math.inf
        if tenant >= 0:
            shared_price = weight * row_price[slot, quota]
            others = used[slot, quota]
            floor, floor_price = kernel.floor[slot, quota], kernel.floor_price[slot, quota]
            free, price = kernel.free[slot, quota], kernel.price[slot, quota]
            limit, over_penalty = kernel.limit[slot, quota], kernel.over_penalty[slot, quota]
            now = use_cost(others, floor, floor_price, free, price, limit, over_penalty)
            if math.isinf(over_penalty):
                shared_room = limit - others
        for kind in range(types):
            board_price[kind] = shared_price + weight * row_price[slot, kind]
            if boot_share < 0:
                board_price[kind] += node_price[slot, kind]
            board_room[kind] = min(shared_room, kernel.limit[slot, kind] - used[slot, kind]) + SLACK
            kw_price[kind], kw_room[kind] = 0.0, math.inf
            for domain in range(domains):
                if kernel.members[domain, kind]:
                    row = types + domain
                    kw_price[kind] += weight * row_price[slot, row]
                    if math.isinf(kernel.over_penalty[slot, row]):
                        room = kernel.limit[slot, row] - used[slot, row] + SLACK
                        kw_room[kind] = min(kw_room[kind], room)
        for index in range(kernel.option_count[job]):
            option = kernel.options[job, index]
            cost = float(kernel.cost[job, slot, option])
            kind = kernel.gpu_type[option]
            if kind >= 0:
                boards, power = kernel.boards[option], kernel.power[job, option]
                if boards > board_room[kind] or power > kw_room[kind]:
                    charged[slot, index] = math.inf
                    continue
                cost += boards * board_price[kind] + power * kw_price[kind]
                if boot_share >= 0:
                    per_node = kernel.boards_per_node[kind]
                    more = math.ceil((used[slot, kind] + boards) / per_node - 1e-6)
                    more -= math.ceil(used[slot, kind] / per_node - 1e-6)
                    boot = boot_share * kernel.boot_cost[kind]
                    cost += more * (kernel.node_cost[slot, kind] + boot)
                if soft_quota:
                    more = use_cost(
                        others + boards, floor, floor_price, free, price, limit, over_penalty
                    )
                    cost += (1 - weight) * (more - now)
                if soft_power:
                    cost += (1 - weight) * _soft_power(kernel, slot, kind, power, used)
            charged[slot, index] = cost


@inner
def _soft_power(kernel: KernelProblem, slot: int, kind: int, power: float, used: Floats) -> float:
    """Return the cost of so many kW more in the soft power domains of a type."""
    domains, types = kernel.members.shape
    total = 0.0
    for domain in range(domains):
        row = types + domain
        over_penalty = kernel.over_penalty[slot, row]
        if kernel.members[domain, kind] and not math.isinf(over_penalty):
            limit, others = kernel.limit[slot, row], used[slot, row]
            total += over_penalty * (max(0.0, others + power - limit) - max(0.0, others - limit))
    return total


@inner
def shortest(  # noqa: C901 - one pass over the slots: a call with these arrays costs 0.2 us
    kernel: KernelProblem,
    job: int,
    lam: float,
    charged: Floats,
    ahead: Floats,
    moved: Floats,
    path: Path,
) -> tuple[float, float]:
    """Fill the path [H]; return its charged cost without lam (infinite: none) and its work."""
    slots = len(charged)
    count = kernel.option_count[job]
    layouts = len(kernel.layout_change)
    per_layout = kernel.layout_cost[job]
    value = np.zeros(count)
    entered = np.empty(layouts)
    for slot in range(slots - 1, -1, -1):
        counted = lam if slot < kernel.deadline[job] else 0.0
        entered[:] = math.inf
        for index in range(count):
            option = kernel.options[job, index]
            at = charged[slot, index] + value[index] - counted * kernel.rate[job, option]
            ahead[slot, index] = at
            come = at + kernel.enter[job, option]
            layout = kernel.layout[option]
            entered[layout] = min(entered[layout], come)
        for layout in range(layouts):
            moved[slot, layout] = math.inf
        for other in range(layouts):
            if entered[other] < math.inf:
                for layout in range(layouts):
                    come = entered[other] + kernel.layout_change[layout, other] * per_layout
                    moved[slot, layout] = min(moved[slot, layout], come)
        for index in range(count):
            option = kernel.options[job, index]
            go = kernel.leave[job, option] + moved[slot, kernel.layout[option]]
            value[index] = min(go, ahead[slot, index])
    at = 0
    while kernel.options[job, at] != kernel.present[job]:
        at += 1
    if not math.isfinite(value[at]):
        return math.inf, 0.0
    work, reward = 0.0, value[at]
    for slot in range(slots):
        option = kernel.options[job, at]
        go = kernel.leave[job, option] + moved[slot, kernel.layout[option]]
        if go < ahead[slot, at]:
            best = math.inf
            here = kernel.layout[option]
            for index in range(count):
                other = kernel.options[job, index]
                come = ahead[slot, index] + kernel.enter[job, other]
                come += kernel.layout_change[here, kernel.layout[other]] * per_layout
                if come < best:
                    best, at = come, index
        option = kernel.options[job, at]
        path[slot] = option
        if slot < kernel.deadline[job]:
            work += kernel.rate[job, option]
    return reward + lam * work, work


@compiled
def priced_costs(
    kernel: KernelProblem, path: Path, job_cost: Floats, row_price: Floats, node_price: Floats
) -> Floats:
    """Return the cost of every job [J] on its path [J, H] with all prices paid."""
    domains, types = kernel.members.shape
    total = job_cost.copy()
    for job in range(len(path)):
        tenant = kernel.tenant[job]
        for slot in range(path.shape[1]):
            now = path[job, slot]
            kind = kernel.gpu_type[now]
            if kind < 0:
                continue
            price = row_price[slot, kind] + node_price[slot, kind]
            if tenant >= 0:
                price += row_price[slot, types + domains + tenant]
            total[job] += price * kernel.boards[now]
            for domain in range(domains):
                if kernel.members[domain, kind]:
                    total[job] += row_price[slot, types + domain] * kernel.power[job, now]
    return total
