"""Goodput of data-parallel training: Qiao et al., "Pollux", OSDI 2021, equations 2 to 11.

A step of n GPUs with local batch m and s accumulated ones takes
s T_grad(m) + (T_grad(m)^gamma + T_sync(n)^gamma)^(1 / gamma), T_grad = alpha_c + beta_c m, T_sync
constant plus linear in n - 2, other constants across nodes than inside one. Its statistical
efficiency at batch M is (v + q) / (v M0 / M + q) M0 / M of the noise v and the square q of the
gradient at the initial batch M0. `step` holds [alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r,
gamma], `limits` [initial batch, largest batch, least local batch, largest local batch].
"""

import math

import numpy as np
import numpy.typing as npt

from data.base.compiled import inner, outer

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

SAMPLES = 50
"""Batch sizes tried for a configuration, equal ratios apart."""

_EPS = 1e-8


@inner
def step_time(step: Floats, nodes: int, gpus: int, local: float, accumulated: float) -> float:
    """Return the seconds of one step."""
    grad = step[0] + step[1] * local
    sync = _EPS + _EPS * max(gpus - 2.0, _EPS)
    if nodes > 1:
        sync = step[2] + step[3] * max(gpus - 2.0, _EPS)
    elif gpus > 1:
        sync = step[4] + step[5] * max(gpus - 2.0, _EPS)
    high, low = max(grad, sync), min(grad, sync)
    overlapped = high * (1.0 + (low / high) ** step[6]) ** (1.0 / step[6])
    return float(accumulated * grad + overlapped)


@inner
def split_batch(limits: Floats, gpus: int, batch: float) -> tuple[float, float]:
    """Return (local batch, accumulated steps) of a batch size; one GPU above M0 accumulates."""
    local = batch / gpus
    accumulated = math.ceil(local / limits[3] - _EPS) - 1.0
    if gpus == 1 and local > limits[0] + _EPS:
        accumulated = max(accumulated, 1.0)
    return math.ceil(local / (accumulated + 1.0) - _EPS), accumulated


@outer
def tabulate(
    step: Floats, limits: Floats, nodes: Ints, gpus: Ints, throughput: Floats, batches: Floats
) -> None:
    """Fill throughput (samples per s) and batches [C, SAMPLES]; throughput 0 where it is barred."""
    for config in range(len(gpus)):
        count = gpus[config]
        least = max(limits[0], limits[2] * count)
        ratio = math.log(limits[1] / least) / (SAMPLES - 1)
        for sample in range(SAMPLES):
            local, accumulated = split_batch(limits, count, least * math.exp(ratio * sample))
            total = count * local * (accumulated + 1.0)
            batches[config, sample] = total
            throughput[config, sample] = 0.0
            if limits[2] <= local <= limits[3] and total >= limits[0]:
                seconds = step_time(step, nodes[config], count, local, accumulated)
                throughput[config, sample] = total / seconds


@outer
def goodputs(
    throughput: Floats,
    batches: Floats,
    rows: Ints,
    noise: Floats,
    initial: Floats,
    mask: Flags,
    best: Floats,
) -> None:
    """Fill best [R, C] under the mask: the largest throughput times efficiency over the batches.

    `rows` [R] index the pool of tables, throughput and batches [P, C, SAMPLES]; `noise` [R, 2] are
    the square q and the noise v of the row's gradient, `initial` [R] its M0.
    """
    for row in range(len(rows)):
        table = rows[row]
        square, variance, first = noise[row, 0], noise[row, 1], initial[row]
        for config in range(throughput.shape[1]):
            if not mask[row, config]:
                continue
            top = 0.0
            for sample in range(SAMPLES):
                scale = batches[table, config, sample] / first
                below = variance + square * scale
                efficiency = (variance + square) / below if below > 0.0 else 1.0 / scale
                top = max(top, throughput[table, config, sample] * efficiency)
            best[row, config] = top


@outer
def best_split(
    step: Floats, noise: Floats, limits: Floats, nodes: int, gpus: int
) -> tuple[float, float, float]:
    """Return (goodput, local batch, accumulated steps) of the best batch size; goodput 0 when none.

    The local batch and the steps of the smallest batch stand when every one is barred.
    """
    least = max(limits[0], limits[2] * gpus)
    ratio = math.log(limits[1] / least) / (SAMPLES - 1)
    top, best_local, best_accumulated = -1.0, limits[2], 0.0
    for sample in range(SAMPLES):
        local, accumulated = split_batch(limits, gpus, least * math.exp(ratio * sample))
        total = gpus * local * (accumulated + 1.0)
        goodput = 0.0
        if limits[2] <= local <= limits[3] and total >= limits[0]:
            scale = total / limits[0]
            efficiency = (noise[1] + noise[0]) / (noise[1] + noise[0] * scale)
            seconds = step_time(step, nodes, gpus, local, accumulated)
            goodput = total / seconds * efficiency
        if goodput > top:
            top, best_local, best_accumulated = goodput, local, accumulated
    return max(top, 0.0), best_local, best_accumulated
