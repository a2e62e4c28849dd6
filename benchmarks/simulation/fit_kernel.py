"""The misfit of step-time parameters and its gradient: Pollux, section 4.1."""

import math

import numpy as np
import numpy.typing as npt

from data.base.compiled import outer

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_EPS = 1e-8


@outer
def misfit(
    theta: Floats,
    nodes: Ints,
    gpus: Ints,
    local: Floats,
    grad_seconds: Floats,
    step_seconds: Floats,
    gradient: Floats,
) -> float:
    """Return the misfit and fill its gradient [7].

    Root mean square errors of the logarithms of both times; gamma is drawn to 1 and the growth of
    communication to 0, which keeps what is not measured yet optimistic.
    """
    count = len(local)
    first = np.zeros(7)
    second = np.zeros(7)
    sum_grad, sum_step = 0.0, 0.0
    gamma = theta[6]
    for row in range(count):
        grad = theta[0] + theta[1] * local[row]
        extra = max(gpus[row] - 2.0, _EPS)
        link = -1
        sync = _EPS + _EPS * extra
        if nodes[row] > 1:
            link = 2
        elif gpus[row] > 1:
            link = 4
        if link > 0:
            sync = theta[link] + theta[link + 1] * extra
        off = math.log(grad / grad_seconds[row])
        sum_grad += off * off
        first[0] += off / grad
        first[1] += off * local[row] / grad

        log_grad, log_sync = math.log(grad), math.log(sync)
        top = max(log_grad, log_sync)
        share_grad = math.exp(gamma * (log_grad - top))
        share_sync = math.exp(gamma * (log_sync - top))
        both = share_grad + share_sync
        log_step = top + math.log(both) / gamma
        off = log_step - math.log(step_seconds[row])
        sum_step += off * off
        by_grad = share_grad / both / grad
        second[0] += off * by_grad
        second[1] += off * by_grad * local[row]
        if link > 0:
            by_sync = share_sync / both / sync
            second[link] += off * by_sync
            second[link + 1] += off * by_sync * extra
        mean_log = (share_grad * (log_grad - top) + share_sync * (log_sync - top)) / both
        second[6] += off * (mean_log / gamma - math.log(both) / gamma**2)
    error_grad = math.sqrt(sum_grad / count)
    error_step = math.sqrt(sum_step / count)
    for index in range(7):
        gradient[index] = 0.0
        if error_grad > 0.0:
            gradient[index] += first[index] / (count * error_grad)
        if error_step > 0.0:
            gradient[index] += second[index] / (count * error_step)
    gradient[6] += 2e-3 * (gamma - 1.0)
    value = error_grad + error_step + 1e-3 * (gamma - 1.0) ** 2
    for link in (2, 4):
        ratio = theta[link + 1] / theta[link]
        value += 1e-2 * ratio * ratio
        gradient[link + 1] += 2e-2 * ratio / theta[link]
        gradient[link] -= 2e-2 * ratio * ratio / theta[link]
    return float(value)
