"""The compiled loop of the change-point search."""

import numpy as np
import numpy.typing as npt

from data.base.compiled import copy_into, outer

Values = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]


@outer
def pelt_l2(
    sums: Values, squares: Values, candidates: Positions, penalty: float, shortest: int
) -> Positions:
    """Return the change points that minimise the sum of squares plus `penalty` for each.

    `sums` and `squares` are cumulative with a leading 0, shape (n + 1,); `candidates` are the
    positions a segment may end at, ascending, the last one n; segments have at least `shortest`
    samples. Exact among the candidates: PELT (Killick, Fearnhead, Eckley 2012, algorithm 2). A
    pruned start stays alive for `shortest` more samples, else the least length breaks optimality.
    """
    count = len(candidates)
    position = np.zeros(count + 1, dtype=np.int64)
    copy_into(position[1:], candidates)
    best = np.full(count + 1, np.inf)
    best[0] = -penalty
    previous = np.zeros(count + 1, dtype=np.int64)
    alive = np.zeros(count + 1, dtype=np.int64)
    dead_at = np.full(count + 1, np.iinfo(np.int64).max)
    costs = np.empty(count + 1)
    alive_count = 1
    for index in range(1, count + 1):
        end = position[index]
        for slot in range(alive_count):
            start_index = alive[slot]
            start = position[start_index]
            costs[slot] = np.inf
            if end - start >= shortest:
                total = sums[end] - sums[start]
                spread = squares[end] - squares[start] - total * total / (end - start)
                costs[slot] = best[start_index] + spread
                if costs[slot] + penalty < best[index]:
                    best[index] = costs[slot] + penalty
                    previous[index] = start_index
        survivors = 0
        for slot in range(alive_count):
            start_index = alive[slot]
            if np.isfinite(costs[slot]) and costs[slot] > best[index]:
                dead_at[start_index] = min(dead_at[start_index], end + shortest)
            if end + 1 < dead_at[start_index]:
                alive[survivors] = start_index
                survivors += 1
        alive[survivors] = index
        alive_count = survivors + 1
    points = np.empty(count, dtype=np.int64)
    number = 0
    index = previous[count]
    while index > 0:
        points[number] = position[index]
        number += 1
        index = previous[index]
    return points[:number][::-1].copy()
