"""After the round is solved: jobs that did not move take GPUs that would stay idle."""

import math

import numpy as np
import numpy.typing as npt

from data.base.compiled import outer

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@outer
def fill_idle(
    seconds: Floats,
    allowed: Flags,
    restart: Floats,
    may_move: Flags,
    kind: Ints,
    gpus: Ints,
    free: Ints,
    least_gain: float,
    most: int,
    choice: Ints,
) -> int:
    """Move up to so many jobs into free GPUs, the largest saving of time first; return the number.

    `seconds` [J, C] is the time left on each configuration. A move counts at the restart's whole
    cost, once; it must gain `least_gain` of the time left, as a difference of logarithms. Its own
    GPUs count as free to a job.
    """
    moved = 0
    while moved < most:
        best, best_job, best_config = 0.0, -1, -1
        for job in range(len(choice)):
            now = choice[job]
            if not may_move[job] or now >= seconds.shape[1]:
                continue
            present = seconds[job, now]
            if not np.isfinite(present):
                continue
            for then in range(seconds.shape[1]):
                if then == now or not allowed[job, then] or not np.isfinite(seconds[job, then]):
                    continue
                freed = gpus[now] if kind[now] == kind[then] else 0
                if gpus[then] > free[kind[then]] + freed:
                    continue
                after = seconds[job, then]
                paid = after + restart[job] * max(1.0, after / 1800.0)
                if math.log(present) - math.log(paid) > least_gain and present - after > best:
                    best, best_job, best_config = present - after, job, then
        if best_job < 0:
            break
        now = choice[best_job]
        free[kind[now]] += gpus[now]
        free[kind[best_config]] -= gpus[best_config]
        choice[best_job] = best_config
        may_move[best_job] = False
        moved += 1
    return moved
