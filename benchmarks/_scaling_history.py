"""Throughput of a model by what its finished runs reached, between and beyond the measured sizes.

A prior says how speed changes with the number of GPUs; a measured run says how far the prior is off
at its size. Between two measured sizes the error is linear in the logarithm of the size, beyond
them that of the nearest; a GPU type without runs takes the mean error of the types that have some.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledSpeed:
    """A speed in the units of the history, and what it rests on."""

    speed: float
    measured: bool
    basis: str


def scaled_speed(
    gpu_type: str,
    gpus: int,
    history: Mapping[tuple[str, int], float],
    prior: Callable[[str, int], float],
) -> ScaledSpeed:
    """Return the speed of a model on so many GPUs: measured there, else the prior corrected.

    `history` maps (GPU type, GPUs) to measured speed, `prior` gives the speed of both in any unit
    of the history's dimension; unknown (zero, negative, NaN) speeds are left out.
    """
    known = {key: speed for key, speed in history.items() if speed > 0}
    if (gpu_type, gpus) in known:
        return ScaledSpeed(speed=known[gpu_type, gpus], measured=True, basis="measured")
    expected = prior(gpu_type, gpus)
    off = {key: math.log(speed / prior(*key)) for key, speed in known.items()}
    same = sorted(
        (math.log2(count), error) for (kind, count), error in off.items() if kind == gpu_type
    )
    if same:
        sizes, errors = zip(*same, strict=True)
        error = float(np.interp(math.log2(gpus), sizes, errors))
        return ScaledSpeed(
            speed=expected * math.exp(error),
            measured=False,
            basis=f"{len(same)} measured sizes of {gpu_type}",
        )
    if off:
        error = float(np.mean(list(off.values())))
        return ScaledSpeed(
            speed=expected * math.exp(error),
            measured=False,
            basis=f"{len(off)} measured sizes of other GPU types",
        )
    return ScaledSpeed(speed=expected, measured=False, basis="published scaling")
