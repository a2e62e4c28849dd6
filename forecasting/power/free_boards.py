"""The measured power of free boards, read from those of the fleet that no job has."""

from dataclasses import replace

import numpy as np
import pandas as pd

from data.catalogue.gpu_catalogue import GpuCatalogue, GpuModel

_REST_UTILIZATION = 0.01
_MIN_BOARDS = 3
_MIN_READINGS = 6
_MIN_SPREAD = 0.04
"""Boards of one model differ by so much at least (q10 and q90), however few of them were seen."""


def with_measured_idle(catalogue: GpuCatalogue, readings: pd.DataFrame) -> GpuCatalogue:
    """Return the catalogue with idle power as the fleet's free boards show it (columns SAMPLES).

    Low and high are q10 and q90 over the boards, of each the median. A model of which fewer than
    three boards were seen free keeps what the catalogue says.
    """
    free = readings[
        (readings["job_id"].fillna("") == "")
        & (readings["mig_instance"].fillna("") == "")
        & (readings["utilization_ratio"] <= _REST_UTILIZATION)
        & (readings["power_watts"] > 0)
    ]
    boards = free.groupby(["gpu_model", "gpu_uuid"])["power_watts"].agg(["median", "size"])
    usual = boards[boards["size"] >= _MIN_READINGS]["median"]
    watts_by_model = {str(name): rows.to_numpy() for name, rows in usual.groupby(level=0)}
    return GpuCatalogue(
        tuple(
            _measured(model, watts) if len(watts) >= _MIN_BOARDS else model
            for model in catalogue
            for watts in (watts_by_model.get(model.name, np.zeros(0)),)
        )
    )


def _measured(model: GpuModel, watts: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> GpuModel:
    low, middle, high = (float(value) for value in np.quantile(watts, (0.1, 0.5, 0.9)))
    middle = min(middle, 0.9 * model.tdp_watts)
    return replace(
        model,
        idle_watts_low=min(low, (1 - _MIN_SPREAD) * middle),
        idle_watts=middle,
        idle_watts_high=max(min(high, model.tdp_watts), (1 + _MIN_SPREAD) * middle),
    )
