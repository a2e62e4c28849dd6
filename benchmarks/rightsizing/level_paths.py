"""The cheapest path through levels, one step after the other, for every job on its own.

V_t(k) = cost_t(k) + min(V_{t+1}(k), min over k' of enter(k') + V_{t+1}(k')): leaving costs
nothing, so a step takes O(levels).
"""

import numpy as np

from benchmarks.rightsizing.past import Indices, Values


def cheapest_path(cost: Values, enter: Values, start: Indices) -> Indices:
    """Return the levels [jobs, steps] of least total cost.

    cost [jobs, steps, K]; enter [jobs, K], the cost of a change to a level; start [jobs], the level
    in force, -1 for none: the first level is then free of charge. Ties keep the level.
    """
    jobs, steps, _ = cost.shape
    stay = np.empty_like(cost)
    value = np.zeros_like(enter)
    for step in range(steps - 1, -1, -1):
        stay[:, step] = cost[:, step] + value
        value = np.minimum(stay[:, step], (enter + stay[:, step]).min(axis=1, keepdims=True))
    path = np.empty((jobs, steps), dtype=np.int64)
    rows = np.arange(jobs)
    level = np.where(start >= 0, start, stay[:, 0].argmin(axis=1))
    for step in range(steps):
        moved = enter + stay[:, step]
        best = moved.argmin(axis=1)
        level = np.where(moved[rows, best] < stay[rows, step, level], best, level)
        path[:, step] = level
    return path


def level_of(limits: Values, levels: Values) -> Indices:
    """Return the smallest level [jobs] that is not below the limit, the largest when none is.

    -1 where the limit is unknown.
    """
    enough = levels >= limits[:, None] * (1 - 1e-12)
    found = np.where(enough.any(axis=1), enough.argmax(axis=1), levels.shape[1] - 1)
    return np.where(np.isnan(limits), -1, found)
