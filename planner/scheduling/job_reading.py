"""A liberal reader of jobs' attributes: whatever is missing has a stated default."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.scheduling.configurations import Configurations
from planner.scheduling.goodput import GoodputModel

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_FIXED_SIZE = ("rigid", "scale-gpus")
"""Categories of Sia's simulator whose GPUs are a limit that their users gave."""


def application_of(name: str, job: Any) -> str:
    """Return `job.application`, or the part of the job's name before its first dash."""
    stated = getattr(job, "application", None)
    return stated if isinstance(stated, str) else name.split("-")[0]


def model_of(speed: Any, batch_factor: float) -> GoodputModel | None:
    """Return the goodput model behind a speed-up function, None when it can only be called.

    Understood are `.model`, and the private fields of Pollux's and Sia's speed-up functions.
    `batch_factor` multiplies the largest batch of the latter, which is the one submitted.
    """
    stated = getattr(speed, "model", None)
    if isinstance(stated, GoodputModel):
        return stated
    goodput = getattr(speed, "_goodput_fn", None)
    step, noise = getattr(goodput, "_perf_params", None), getattr(goodput, "_grad_params", None)
    initial = getattr(goodput, "_init_batch_size", None)
    tuned = getattr(speed, "tune_bsz", True) and getattr(speed, "_accumulation", True)
    if step is None or noise is None or initial is None or len(step) != 7 or not tuned:
        return None
    if type(goodput).__name__ == "GoodputFunctionPMP":
        return None
    submitted = getattr(speed, "_max_batch_size", None) or initial
    low, high = getattr(speed, "_atomic_bsz_range", None) or (None, None)
    a, b, c, d, e, f, g = (float(entry) for entry in step)
    return GoodputModel(
        step=(a, b, c, d, e, f, g),
        noise=(float(noise[0]), float(noise[1])),
        initial_batch=float(initial),
        largest_batch=max(float(submitted) * batch_factor, float(initial)),
        least_local_batch=float(low or 1),
        largest_local_batch=float(high or submitted),
    )


def called_goodput(speed: Any, table: Configurations, mask: Flags) -> Floats:
    """Return goodput [C] of a function that can only be called; 0 where it is not wanted."""
    goodput = np.zeros(len(table.gpus))
    nodes, gpus = table.nodes[mask].astype(float), table.gpus[mask].astype(float)
    if len(gpus):
        call = getattr(speed, "get_goodput", speed)
        values = np.nan_to_num(np.asarray(call(nodes, gpus), dtype=np.float64), posinf=0.0)
        goodput[mask] = np.maximum(values, 0.0)
    return goodput


def allowed_configurations(job: Any, table: Configurations, *, max_gpus: int = 0) -> Flags:
    """Return a mask of configurations [C] open to the job: replicas, memory, earlier failures.

    The replicas of all types bound every type, as in Sia with shared maxima: a job that has shown
    that it scales on one type may be as large on another. `max_gpus` is what siblings have shown.
    """
    least = max(1, _bound(getattr(job, "min_replicas", None), min, 1))
    most = max(1, max_gpus, _bound(getattr(job, "max_replicas", None), max, 64))
    allowed = np.asarray((table.gpus >= least) & (table.gpus <= most))
    units = getattr(job, "scale_unit", None)
    if isinstance(units, Mapping):
        unit = np.array([int(units.get(name, 1) or 1) for name in table.gpu_types])[table.kind]
        in_units = table.gpus % unit == 0
        allowed = in_units & (table.gpus >= least * unit) & (table.gpus <= most * unit)
    memory, room = getattr(job, "memory_gib", None), getattr(job, "gpu_memory_gib", None)
    if memory and room:
        need = np.array([memory.get(int(gpus), math.inf) for gpus in table.gpus])
        have = np.array([room.get(name, math.inf) for name in table.gpu_types])[table.kind]
        allowed &= need <= have
    for gpu_type, gpus in getattr(job, "failed_on", ()):
        index = table.index(gpu_type, gpus)
        if index is not None:
            allowed[index] = False
    return allowed


def _bound(stated: Any, pick: Any, default: int) -> int:
    if stated is None:
        return default
    if isinstance(stated, Mapping):
        return int(pick(stated.values())) if stated else default
    return int(stated)


def growing_limit(job: Any) -> int | None:
    """Return the largest of `max_replicas` by type, which an agent raises as the job grows.

    None where the limit is its user's: one number, or the size of a rigid job.
    """
    most = getattr(job, "max_replicas", None)
    fixed = getattr(job, "category", None) in _FIXED_SIZE
    return _bound(most, max, 1) if isinstance(most, Mapping) and most and not fixed else None


def ratio(job: Any, gpu_type: str, measured: str) -> float:
    """Return the speed of one GPU type over another by `cluster_throughput_ratios`.

    1 if unknown.
    """
    ratios = getattr(job, "cluster_throughput_ratios", None)
    row = ratios.get(gpu_type) if isinstance(ratios, Mapping) else None
    value = row.get(measured) if isinstance(row, Mapping) else None
    return float(value) if value is not None and math.isfinite(float(value)) else 1.0


def flat_throughputs(job: Any, gpu_types: Sequence[str]) -> list[float] | None:
    """Return throughput by type of a rigid job that states it so, as Sia's simulator does."""
    ratios = getattr(job, "cluster_throughput_ratios", None)
    if not isinstance(ratios, Mapping) or not ratios:
        return None
    values = [ratios.get(name) for name in gpu_types]
    if any(value is None or isinstance(value, Mapping) for value in values):
        return None
    return [max(0.0, float(value)) for value in values if value is not None]
