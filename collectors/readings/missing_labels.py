"""Readings that name no holder between two that name the same: labels that an exporter lost.

The roll-up gives them to that holder (`data.store.rollups.rollup_sql`). Here they are counted, to
be told.
"""

from collections.abc import Iterable

import pandas as pd

from collectors.readings.device_labels import LabelledDevice
from data.base.counts import count_text
from data.store.rollups.rollup_sql import BRIDGE_SECONDS

_DEVICE = ["gpu_uuid", "mig_instance"]
_MAX_READINGS = 2
_MIN_SHARE = 0.05
_MISSING_LABEL_NOTE = (
    "they are counted for the one that is named before and after. dcgm-exporter loses labels where "
    "the kubelet's pod-resources socket does not answer in time: see its log."
)


def missing_label_warnings(samples: pd.DataFrame) -> tuple[str, ...]:
    """Return a warning where single readings of held devices name no holder, none elsewhere."""
    key = [*_DEVICE, "sampled_at"]
    # A reading that one exporter names and another does not has a holder.
    rows = samples[[*key, "job_id"]].sort_values([*key, "job_id"]).drop_duplicates(key, keep="last")
    holder = rows["job_id"].where(rows["job_id"] != "")
    times = rows["sampled_at"].where(holder.notna())
    of_device = [rows[name] for name in _DEVICE]
    before, after = (getattr(holder.groupby(of_device), fill)() for fill in ("ffill", "bfill"))
    gap = times.groupby(of_device).bfill() - times.groupby(of_device).ffill()
    hole = holder.notna().groupby(of_device).cumsum()
    length = holder.isna().groupby([*of_device, hole]).transform("sum")
    lost = holder.isna() & (before == after) & (length <= _MAX_READINGS)
    lost &= gap.dt.total_seconds() <= BRIDGE_SECONDS
    total = int((holder.notna() | lost).sum())
    if int(lost.sum()) <= _MIN_SHARE * total:
        return ()
    boards = count_text(rows.loc[lost, "gpu_uuid"].nunique(), "board")
    share = f"{100 * lost.sum() / total:.0f} % of the readings of held devices"
    return (f"{share} name no pod or job, on {boards}: {_MISSING_LABEL_NOTE}",)


def whole_names(
    devices: Iterable[LabelledDevice],
) -> tuple[dict[tuple[str, str, str], str], set[str]]:
    """Return the whole names of pods told without a namespace, and the boards that they are on.

    The names are by board, instance and the name told: that of the one pod that is called so there.
    """
    pods: dict[tuple[str, str, str], set[str]] = {}
    for device in devices:
        _namespace, slash, pod = device.job_id.partition("/")
        if slash:
            key = (device.gpu_uuid, device.mig_instance, f"/{pod}")
            pods.setdefault(key, set()).add(device.job_id)
    names = {
        key: job_id
        for key, job_ids in pods.items()
        if key[2] in job_ids and len(job_ids) == 2
        for job_id in job_ids - {key[2]}
    }
    return names, {uuid for uuid, _instance, _name in names}
