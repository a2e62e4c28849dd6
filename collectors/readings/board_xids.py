"""Last XID codes of each board, with the time from the first to the last reading of each.

DCGM_FI_DEV_XID_ERRORS is a gauge: it holds the code of the last error until the driver is loaded
again, 0 before the first one (DCGM field 230). So a code that stays is no new error, the same error
twice in a row cannot be told from one, and of two errors between two readings the first is lost.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from collectors.readings.dcgm_readings import (
    FIRST_SECOND,
    LAST_SECOND,
    DroppedReadings,
    Series,
    info_labels,
    readable,
)
from collectors.readings.device_labels import device_of
from collectors.readings.metric_names import BY_NAME, XIDS
from collectors.readings.plausible_values import plausible
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts import columns
from data.facts.columns import check_frame, empty_frame

_KEY = ["gpu_uuid", "xid"]


def xids_of(
    series: Iterable[Series], catalogue: GpuCatalogue, dropped: DroppedReadings
) -> pd.DataFrame:
    """Return the codes of boards (columns XIDS), empty when no series tells any.

    What is no code is counted in `dropped`. The series are those that samples are made of: what
    no label of theirs can be read was counted there.
    """
    everything = list(readable(series, DroppedReadings()))
    info = info_labels(everything)
    rows: list[dict[str, Any]] = []
    for entry in everything:
        device = device_of(entry.labels, catalogue, info) if entry.metric in XIDS else None
        if device is None:
            continue
        values, valid = plausible(*BY_NAME[entry.metric], entry.values, dropped.counts)
        valid &= (entry.times >= FIRST_SECOND) & (entry.times <= LAST_SECOND)
        for code in np.unique(values[valid]):
            times = entry.times[valid & (values == code)]
            rows.append(
                {
                    "gpu_uuid": device.gpu_uuid,
                    "xid": int(code),
                    "node": device.node,
                    "gpu_index": device.gpu_index,
                    "first_seen_at": times.min(),
                    "last_seen_at": times.max(),
                }
            )
    return merged_xids(rows)


def shown_xids(samples: pd.DataFrame, codes: npt.NDArray[np.int64]) -> pd.DataFrame:
    """Return the codes of boards (columns XIDS), from the code that goes with each sample."""
    rows = samples[["gpu_uuid", "node", "gpu_index", "sampled_at"]].assign(xid=codes)
    frame = rows.groupby(_KEY, as_index=False).agg(
        node=("node", "last"),
        gpu_index=("gpu_index", "last"),
        first_seen_at=("sampled_at", "min"),
        last_seen_at=("sampled_at", "max"),
    )
    return check_frame(frame, columns.XIDS)


def merged_xids(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one row per board and code (columns XIDS), of rows with times in s since the epoch."""
    if not rows:
        return empty_frame(columns.XIDS)
    table = pd.DataFrame(rows).sort_values(["last_seen_at", "node", "gpu_index"])
    frame = table.groupby(_KEY, as_index=False).agg(
        node=("node", "last"),
        gpu_index=("gpu_index", "last"),
        first_seen_at=("first_seen_at", "min"),
        last_seen_at=("last_seen_at", "max"),
    )
    for name in ("first_seen_at", "last_seen_at"):
        frame[name] = pd.to_datetime(frame[name], unit="s", utc=True).dt.as_unit("us")
    return check_frame(frame, columns.XIDS)
