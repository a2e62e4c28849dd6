"""Slots of workloads without any pod, as their scheduler tells."""

from collections.abc import Mapping
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pandas as pd

from data.base.units import SLOT_SECONDS

StoppedSpans = list[tuple[int, int]]
"""The first slot (of SLOT_SECONDS since the epoch) and the one after the last."""


def stopped_spans(
    pods: pd.DataFrame, collected_until: Mapping[str, datetime]
) -> dict[str, StoppedSpans]:
    """Return by job the whole slots in which none of its pods ran, after the first that did.

    `pods` are rows of PODS. Up to the newest time at which their source told of all pods; of one
    that told nothing since a pod was last seen, nothing is concluded.
    """
    spans_by_job: dict[str, StoppedSpans] = {}
    for job_id, rows in pods.groupby("job_id"):
        times = [collected_until[name] for name in set(rows["source"]) if name in collected_until]
        ends = [*rows["started_at"].iloc[1:], max(times, default=None)]
        spans = [
            (-int(-ended.timestamp() // SLOT_SECONDS), int(begun.timestamp()) // SLOT_SECONDS)
            for ended, begun in zip(rows["until"].cummax(), ends, strict=True)
            if begun is not None
        ]
        spans_by_job[str(job_id)] = [(first, after) for first, after in spans if first < after]
    return spans_by_job


def slots_without_replicas(
    spans: StoppedSpans, first: int, is_read: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return in which slots from `first` on no replica ran and none was read."""
    stopped = np.zeros(len(is_read), dtype=np.bool_)
    for begin, after in spans:
        stopped[max(begin - first, 0) : max(after - first, 0)] = True
    return stopped & ~is_read
