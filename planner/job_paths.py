"""The exact dynamic program of one job, for all jobs at once.

Changing from a to b costs enter[b], so the program is O(slots x options) instead of
O(slots x options^2): V_t(c) = min(A_t(c), min_b A_t(b) + enter(b)) with A_t(c) = cost_t(c) +
V_{t+1}(c). It runs backward so that it starts from the present option and decodes forward.
"""

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def best_paths(cost: Values, enter: Values) -> tuple[Values, Indices]:
    """Give the optimal value per job [J] and its path [T, J] of option numbers.

    `cost` is [T, C, J], `enter` [C, J]; every job starts in option 0. Staying wins ties.
    """
    slots, _options, jobs = cost.shape
    ahead = np.empty_like(cost)
    moved = np.empty((slots, jobs))
    target = np.empty((slots, jobs), dtype=np.int64)
    following = np.zeros(cost.shape[1:])
    for slot in range(slots - 1, -1, -1):
        ahead[slot] = cost[slot] + following
        entered = ahead[slot] + enter
        target[slot] = entered.argmin(axis=0)
        moved[slot] = entered.min(axis=0)
        following = np.minimum(ahead[slot], moved[slot])
    columns = np.arange(jobs)
    path = np.empty((slots, jobs), dtype=np.int64)
    at = np.zeros(jobs, dtype=np.int64)
    for slot in range(slots):
        at = np.where(moved[slot] < ahead[slot][at, columns] - 1e-12, target[slot], at)
        path[slot] = at
    return following[0], path


def path_costs(cost: Values, enter: Values, path: Indices) -> Values:
    """Give the cost per job [J] of given paths [T, J]."""
    slots, jobs = path.shape
    columns = np.arange(jobs)
    total = cost[np.arange(slots)[:, None], path, columns[None, :]].sum(axis=0)
    before = np.vstack([np.zeros((1, jobs), dtype=np.int64), path[:-1]])
    changes = np.where(path != before, enter[path, columns[None, :]], 0.0)
    return np.asarray(total + changes.sum(axis=0))
