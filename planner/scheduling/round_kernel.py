"""One round: a configuration for every job at least total cost, within the GPUs of every type.

The multiple-choice knapsack with one row per GPU type. Prices per GPU come from the Lagrangian
dual, warm from the round before; the choices at those prices are repaired by the cheapest
downgrades, then improved by the best single move and the best pair of moves until neither helps.
Moves that the bound rules out are never tried: a choice whose reduced cost exceeds the gap is in no
better solution, so what is left is exact among single moves and pairs as long as `MOVES` holds it.

The last configuration is nothing: 0 GPUs. `cost` [J, C] is infinite where a choice is not allowed.
"""

import numpy as np
import numpy.typing as npt

from data.base.compiled import copy_into, inner, outer

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOVES = 600
"""Moves that pairs are made of, those of least reduced cost: pairs grow as their square."""

_TOLERANCE = 2e-4
"""A gap of this share of the cost ends the search: the objective is not known that well."""

_PAIR_CHECKS = 400_000
_EPSILON = 1e-12


@inner
def _cheapest(
    cost: Floats, kind: Ints, gpus: Ints, price: Floats, choice: Ints, use: Ints
) -> float:
    """Fill choice [J] and use [T] with what the prices choose; return the jobs' priced cost."""
    total = 0.0
    use[:] = 0
    for job in range(len(cost)):
        least = np.inf
        for config in range(len(kind)):
            priced = cost[job, config] + price[kind[config]] * gpus[config]
            if priced < least:
                least = priced
                choice[job] = config
        total += least
        use[kind[choice[job]]] += gpus[choice[job]]
    return total


@inner
def _total(cost: Floats, choice: Ints) -> float:
    total = 0.0
    for job in range(len(choice)):
        total += cost[job, choice[job]]
    return total


@inner
def _usage(kind: Ints, gpus: Ints, choice: Ints, use: Ints) -> None:
    use[:] = 0
    for job in range(len(choice)):
        use[kind[choice[job]]] += gpus[choice[job]]


@inner
def _fits(kind: Ints, gpus: Ints, now: int, then: int, free: Ints) -> bool:
    freed = gpus[now] if kind[now] == kind[then] else 0
    return bool(gpus[then] <= max(free[kind[then]], 0) + freed)


@inner
def _move(kind: Ints, gpus: Ints, choice: Ints, job: int, then: int, free: Ints) -> None:
    now = choice[job]
    free[kind[now]] += gpus[now]
    free[kind[then]] -= gpus[then]
    choice[job] = then


@inner
def _repair(cost: Floats, kind: Ints, gpus: Ints, choice: Ints, free: Ints) -> bool:
    """Take the cheapest downgrade per GPU released until every type fits; return if it does."""
    while free.min() < 0:
        best, best_job, best_config = np.inf, -1, -1
        for job in range(len(choice)):
            now = choice[job]
            if free[kind[now]] >= 0 or gpus[now] == 0:
                continue
            for then in range(len(kind)):
                if kind[then] == kind[now]:
                    released = gpus[now] - gpus[then]
                elif gpus[then] <= free[kind[then]]:
                    released = gpus[now]
                else:
                    continue
                if released <= 0:
                    continue
                useful = min(released, -free[kind[now]])
                rate = (cost[job, then] - cost[job, now]) / useful
                if rate < best:
                    best, best_job, best_config = rate, job, then
        if best_job < 0:
            return False
        _move(kind, gpus, choice, best_job, best_config, free)
    return True


@inner
def _best_single(
    cost: Floats, kind: Ints, gpus: Ints, choice: Ints, free: Ints
) -> tuple[float, int, int]:
    best, best_job, best_config = -_EPSILON, -1, -1
    for job in range(len(choice)):
        now = choice[job]
        for then in range(len(kind)):
            change = cost[job, then] - cost[job, now]
            if change < best and _fits(kind, gpus, now, then, free):
                best, best_job, best_config = change, job, then
    return best, best_job, best_config


@inner
def _useful_moves(
    cost: Floats, kind: Ints, gpus: Ints, choice: Ints, price: Floats, gap: float
) -> tuple[Ints, Ints, Floats]:
    """Return (jobs, configurations, changes of cost) of moves the gap allows, cheapest first."""
    jobs, configs = len(cost), len(kind)
    job_of = np.empty(jobs * configs, dtype=np.int64)
    config_of = np.empty(jobs * configs, dtype=np.int64)
    reduced = np.empty(jobs * configs)
    count = 0
    for job in range(jobs):
        least = np.inf
        for config in range(configs):
            least = min(least, cost[job, config] + price[kind[config]] * gpus[config])
        for config in range(configs):
            excess = cost[job, config] + price[kind[config]] * gpus[config] - least
            if excess <= gap and config != choice[job]:
                job_of[count], config_of[count], reduced[count] = job, config, excess
                count += 1
    best = np.argsort(reduced[:count])[:MOVES]
    change = np.empty(len(best))
    for index in range(len(best)):
        move = best[index]
        change[index] = (
            cost[job_of[move], config_of[move]] - cost[job_of[move], choice[job_of[move]]]
        )
    order = np.argsort(change)
    return job_of[best][order], config_of[best][order], change[order]


@inner
def _pair_fits(
    kind: Ints, gpus: Ints, free: Ints, now: int, then: int, other_now: int, other_then: int
) -> bool:
    for row in (kind[then], kind[other_then]):
        need = 0
        if kind[then] == row:
            need += gpus[then]
        if kind[other_then] == row:
            need += gpus[other_then]
        if kind[now] == row:
            need -= gpus[now]
        if kind[other_now] == row:
            need -= gpus[other_now]
        if need > free[row]:
            return False
    return True


@inner
def _best_pair(
    kind: Ints, gpus: Ints, choice: Ints, free: Ints, moves: tuple[Ints, Ints, Floats], least: float
) -> tuple[float, int, int, int]:
    """Return (change, first move, second move, pairs tried); the moves are sorted by change."""
    job_of, config_of, change = moves
    best, first, second, tried = -least, -1, -1, 0
    for number in range(len(change)):
        if 2 * change[number] >= best:
            break
        for two in range(number + 1, len(change)):
            if change[number] + change[two] >= best:
                break
            tried += 1
            if job_of[number] != job_of[two] and _pair_fits(
                kind,
                gpus,
                free,
                choice[job_of[number]],
                config_of[number],
                choice[job_of[two]],
                config_of[two],
            ):
                best, first, second = change[number] + change[two], number, two
    return best, first, second, tried


@inner
def _improve(
    cost: Floats,
    kind: Ints,
    gpus: Ints,
    choice: Ints,
    free: Ints,
    price: Floats,
    bound: float,
    total: float,
) -> float:
    """Make the best single moves, then the best pairs, until none helps; return the cost."""
    checks = 0
    while checks < _PAIR_CHECKS:
        change, job, config = _best_single(cost, kind, gpus, choice, free)
        if job >= 0:
            _move(kind, gpus, choice, job, config, free)
            total += change
            continue
        gap = total - bound
        if gap <= _TOLERANCE * abs(total):
            break
        moves = _useful_moves(cost, kind, gpus, choice, price, gap)
        change, one, two, tried = _best_pair(kind, gpus, choice, free, moves, _EPSILON)
        checks += tried + len(moves[0])
        if one < 0:
            break
        _move(kind, gpus, choice, moves[0][one], moves[1][one], free)
        _move(kind, gpus, choice, moves[0][two], moves[1][two], free)
        total += change
    return total


@inner
def _adopt(
    cost: Floats,
    kind: Ints,
    gpus: Ints,
    capacity: Ints,
    use: Ints,
    trial: Ints,
    choice: Ints,
    total: float,
) -> float:
    """Repair the trial; take it for the choice if it costs less. Return the least cost so far."""
    free = capacity - use
    if _repair(cost, kind, gpus, trial, free):
        trial_cost = _total(cost, trial)
        if trial_cost < total:
            copy_into(choice, trial)
            return trial_cost
    return total


@inner
def _squared_slope(price: Floats, use: Ints, capacity: Ints) -> float:
    """Return the square of the dual's slope along prices that may still move; 0 at its top."""
    slope = 0.0
    for row in range(len(price)):
        over = float(use[row] - capacity[row])
        if over > 0.0 or price[row] > 0.0:
            slope += over * over
    return slope


@inner
def _ascend(
    cost: Floats,
    kind: Ints,
    gpus: Ints,
    capacity: Ints,
    price: Floats,
    steps: int,
    choice: Ints,
    total: float,
) -> tuple[float, float]:
    """Climb the dual by Polyak's steps, repairing on the way; return (least cost, bound)."""
    types = len(capacity)
    trial = np.empty(len(cost), dtype=np.int64)
    use = np.zeros(types, dtype=np.int64)
    best_price = price.copy()
    bound, theta, stale = -np.inf, 1.0, 0
    for step in range(steps):
        value = _cheapest(cost, kind, gpus, price, trial, use) - np.dot(price, capacity * 1.0)
        stale += 1
        if value > bound:
            bound, stale = value, 0
            copy_into(best_price, price)
        slope = _squared_slope(price, use, capacity)
        if step % 8 == 0 or slope == 0.0:
            total = _adopt(cost, kind, gpus, capacity, use.copy(), trial.copy(), choice, total)
        if slope == 0.0 or total - bound <= _TOLERANCE * abs(total):
            break
        if stale >= 4:
            theta, stale = theta / 2, 0
            copy_into(price, best_price)
            _cheapest(cost, kind, gpus, price, trial, use)
        reach = total if total < np.inf else value + abs(value)
        length = theta * max(reach - value, _EPSILON) / max(slope, 1.0)
        for row in range(types):
            price[row] = max(0.0, price[row] + length * (use[row] - capacity[row]))
    copy_into(price, best_price)
    _cheapest(cost, kind, gpus, price, trial, use)
    return _adopt(cost, kind, gpus, capacity, use, trial, choice, total), bound


@outer
def solve(
    cost: Floats,
    kind: Ints,
    gpus: Ints,
    capacity: Ints,
    previous: Ints,
    price: Floats,
    steps: int,
    choice: Ints,
) -> tuple[float, float]:
    """Fill choice [J]; return (cost, lower bound). `price` [T] is where to start, and is updated.

    `previous` [J] is a choice to fall back on; where it is not feasible it is ignored.
    """
    use = np.zeros(len(capacity), dtype=np.int64)
    total = np.inf
    _usage(kind, gpus, previous, use)
    if (use <= capacity).all():
        total = _total(cost, previous)
        copy_into(choice, previous)
    total, bound = _ascend(cost, kind, gpus, capacity, price, steps, choice, total)
    if total == np.inf:
        return total, bound
    _usage(kind, gpus, choice, use)
    return _improve(cost, kind, gpus, choice, capacity - use, price, bound, total), bound
