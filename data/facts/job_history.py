"""The history of one job by slot, as plain arrays."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pandas as pd

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobHistory:
    """The rows of a job in HISTORY, by time: arrays [rows], NaN where unknown.

    `slot_start` is in UTC.
    """

    slot_start: npt.NDArray[np.datetime64]
    effective_gpus: Values
    utilization_ratio: Values
    utilization_max_ratio: Values
    allocated_gpus: Values
    memory_used_mib: Values
    power_watts: Values
    sample_count: Values

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.slot_start)


def job_histories(history: pd.DataFrame) -> Mapping[str, JobHistory]:
    """Return the history of each job of a frame with the columns HISTORY."""
    jobs, names = pd.factorize(history["job_id"])
    columns: dict[str, npt.NDArray[np.generic]] = {
        field.name: history[field.name].to_numpy(dtype=np.float64)
        for field in fields(JobHistory)
        if field.name != "slot_start"
    }
    columns["slot_start"] = history["slot_start"].to_numpy(dtype="datetime64[us]")
    order = np.lexsort((columns["slot_start"], jobs))
    ends = np.cumsum(np.bincount(jobs, minlength=len(names)))[:-1]
    parts = {name: np.split(column[order], ends) for name, column in columns.items()}
    return {
        str(job): JobHistory(**{name: part[number] for name, part in parts.items()})
        for number, job in enumerate(names)
    }


_NONE: Values = np.empty(0)
NO_HISTORY = JobHistory(
    slot_start=np.empty(0, dtype="datetime64[us]"),
    effective_gpus=_NONE,
    utilization_ratio=_NONE,
    utilization_max_ratio=_NONE,
    allocated_gpus=_NONE,
    memory_used_mib=_NONE,
    power_watts=_NONE,
    sample_count=_NONE,
)
"""Of a job that nobody has seen."""
