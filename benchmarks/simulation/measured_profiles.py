"""Applications from tables of measured steps and validation curves, in the layout of sia_pollux."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from benchmarks.simulation.application import (
    OTHER_RESTART_SECONDS,
    RESTART_SECONDS,
    Application,
    LearningCurve,
    MeasuredSpeed,
    Steps,
)
from data.base.errors import ImpossibleProblemError

SLOWDOWNS = {"cifar10": 1.8, "ncf": 1.5}
"""Real runs against their profiles, measured by the authors of Sia; 1.2 for the others."""

_OTHER_SLOWDOWN = 1.2
_WIDE = 1 << 16
_LOCAL_LIMITS = {("deepspeech2", "rtx"): 57}
"""Larger local batches were profiled but do not fit in training (Sia's artifact)."""


def applications_of(
    placements: pd.DataFrame,
    scalability: pd.DataFrame,
    curves: pd.DataFrame,
    gpu_types: Sequence[str],
) -> dict[str, Application]:
    """Return every application with steps on all the GPU types and with validation curves.

    `placements` has application, cluster, placement ('44': four GPUs on each of two nodes),
    local_bsz, step_time and sync_time; `scalability` num_nodes and num_replicas in place of the
    placement; `curves` application, batch_size, epoch, progress, grad_sqr and grad_var.
    """
    missing = {"application", "cluster", "placement", "local_bsz", "step_time"} - set(placements)
    if missing:
        raise ImpossibleProblemError(
            f"the table of placements lacks {', '.join(sorted(missing))}",
            "give the columns of sia_pollux's placements",
        )
    found = {}
    for name in sorted(set(placements["application"]) & set(curves["application"])):
        measured = placements[placements["application"] == name]
        scaled = scalability[scalability["application"] == name]
        if not set(gpu_types) <= set(measured["cluster"]):
            continue
        speeds = {
            kind: _speed(
                measured[measured["cluster"] == kind],
                scaled[scaled["cluster"] == kind],
                _LOCAL_LIMITS.get((name, kind)),
            )
            for kind in gpu_types
        }
        found[name] = Application(
            name=name,
            speeds=speeds,
            curve=_curve(curves[curves["application"] == name]),
            restart_seconds=RESTART_SECONDS.get(name, OTHER_RESTART_SECONDS),
            slowdown=SLOWDOWNS.get(name, _OTHER_SLOWDOWN),
        )
    return found


def _steps(rows: pd.DataFrame) -> Steps:
    means = rows.groupby("local_bsz")[["step_time", "sync_time"]].mean().sort_index()
    return (
        means.index.to_numpy(dtype=np.float64),
        means["step_time"].to_numpy(dtype=np.float64),
        means["sync_time"].to_numpy(dtype=np.float64),
    )


def _speed(measured: pd.DataFrame, scaled: pd.DataFrame, limit: int | None) -> MeasuredSpeed:
    by_placement = {}
    sizes = []
    for placement, rows in measured.groupby(measured["placement"].astype(str)):
        shape = tuple(sorted(map(int, str(placement)), reverse=True))
        by_placement[shape] = _steps(rows)
        sizes.append(rows.assign(num_nodes=len(shape), num_replicas=sum(shape)))
    both = pd.concat([*sizes, scaled])
    size = both["num_nodes"].astype(int) * _WIDE + both["num_replicas"].astype(int)
    by_size = {
        divmod(int(str(key)), _WIDE): _steps(rows) for key, rows in both.groupby(size.astype(str))
    }
    largest = int(measured["local_bsz"].max())
    return MeasuredSpeed(
        by_placement=by_placement,
        by_size=by_size,
        least_local_batch=int(measured["local_bsz"].min()),
        largest_local_batch=largest if limit is None else min(limit, largest),
    )


def _curve(rows: pd.DataFrame) -> LearningCurve:
    sizes = sorted(int(entry) for entry in rows["batch_size"].unique())
    by_size: Mapping[int, pd.DataFrame] = {
        size: rows[rows["batch_size"] == size].sort_values("epoch") for size in sizes
    }
    epochs = min(len(frame) for frame in by_size.values())
    progress = np.min([by_size[size]["progress"].to_numpy()[:epochs] for size in sizes], axis=0)
    return LearningCurve(
        batch_sizes=tuple(sizes),
        progress=(0.0, *(float(entry) for entry in progress)),
        square=np.array([by_size[size]["grad_sqr"].to_numpy()[:epochs] for size in sizes]),
        variance=np.array([by_size[size]["grad_var"].to_numpy()[:epochs] for size in sizes]),
    )
