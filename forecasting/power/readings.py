"""From the fleet's samples to the readings that power models are fitted on."""

import numpy as np
import pandas as pd

from forecasting.power.records import PowerSamples

HOLDS_MEMORY_RATIO = 0.05
"""A board with more of its memory in use is held, whoever holds it."""


def readings_by_model(samples: pd.DataFrame) -> dict[tuple[str, str], PowerSamples]:
    """Return the readings of whole boards by GPU model and utilization signal.

    `samples` has the columns of data.columns.SAMPLES. MIG instances are left out: their board's
    power is not theirs. Readings of one job, or of one free board, belong together.
    """
    whole = samples[(samples["mig_instance"] == "") & (samples["utilization_signal"] != "")]
    found = {}
    for (model, signal), rows in whole.groupby(["gpu_model", "utilization_signal"]):
        share = rows["memory_used_mib"] / rows["memory_total_mib"].where(
            rows["memory_total_mib"] > 0
        )
        held = (rows["job_id"] != "") | (share > HOLDS_MEMORY_RATIO)
        holder = rows["job_id"].where(rows["job_id"] != "", rows["gpu_uuid"])
        found[(str(model), str(signal))] = PowerSamples(
            power_watts=rows["power_watts"].to_numpy(dtype="float64"),
            utilization=rows["utilization_ratio"].to_numpy(dtype="float64"),
            held=np.asarray(held, dtype=np.float64),
            cap_watts=rows["power_limit_watts"].to_numpy(dtype="float64"),
            group=pd.factorize(holder)[0].astype("int64"),
        )
    return found
