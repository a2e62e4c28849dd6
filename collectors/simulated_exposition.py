"""The simulated fleet as DCGM exposition text, in the dialect of dcgm-exporter 3 and 4."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd

from collectors.simulated_fleet import SimulatedFleet, coarse_utilization

_REPORTED_NAMES = {
    "H100-SXM5-80GB": "NVIDIA H100 80GB HBM3",
    "A100-SXM4-80GB": "NVIDIA A100-SXM4-80GB",
    "L40S-48GB": "NVIDIA L40S",
}
_METRICS = {
    "DCGM_FI_DEV_GPU_UTIL": ("gauge", "GPU utilization (in %)."),
    "DCGM_FI_PROF_SM_ACTIVE": ("gauge", "Ratio of cycles an SM has at least 1 warp assigned."),
    "DCGM_FI_DEV_FB_USED": ("gauge", "Framebuffer memory used (in MiB)."),
    "DCGM_FI_DEV_FB_FREE": ("gauge", "Framebuffer memory free (in MiB)."),
    "DCGM_FI_DEV_FB_RESERVED": ("gauge", "Framebuffer memory reserved (in MiB)."),
    "DCGM_FI_DEV_POWER_USAGE": ("gauge", "Power draw (in W)."),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": (
        "counter",
        "Total energy consumption since boot (in mJ).",
    ),
}
_INDEX_BY_UUID = "gpu"


def exposition(fleet: SimulatedFleet, at: datetime) -> str:
    """Give what every exporter of the fleet would say at `at`, as one text."""
    return "".join(f"{line}\n" for line in exposition_lines(fleet, at, with_time=False))


def exposition_lines(fleet: SimulatedFleet, at: datetime, *, with_time: bool) -> Iterator[str]:
    """Give the lines, HELP and TYPE first; `with_time` appends the time in s (OpenMetrics)."""
    rows = sample_lines(fleet, fleet.at_times(np.array([int(at.timestamp())], dtype=np.int64)))
    suffix = f" {int(at.timestamp())}" if with_time else ""
    for metric, (kind, text) in _METRICS.items():
        yield f"# HELP {metric} {text}"
        yield f"# TYPE {metric} {kind}"
        for labels, value, _time in rows[metric]:
            yield f"{metric}{{{labels}}} {value}{suffix}"


def openmetrics(fleet: SimulatedFleet, samples: pd.DataFrame) -> Iterator[str]:
    """Give samples as an OpenMetrics file that `promtool tsdb create-blocks-from` reads."""
    rows = sample_lines(fleet, samples)
    for metric, lines in rows.items():
        yield f"# TYPE {metric} gauge\n"
        for labels, value, time in lines:
            yield f"{metric}{{{labels}}} {value} {time}\n"
    yield "# EOF\n"


def sample_lines(
    fleet: SimulatedFleet, samples: pd.DataFrame
) -> dict[str, list[tuple[str, str, int]]]:
    """Give (labels, value, time in s) per metric for samples of the fleet."""
    index_of = {device.gpu_uuid: device.index for device in fleet.devices}
    lines: dict[str, list[tuple[str, str, int]]] = {metric: [] for metric in _METRICS}
    rows: Iterable[Any] = samples.itertuples(index=False)
    for row in rows:
        labels = _labels(fleet, row, index_of[row.gpu_uuid])
        time = int(row.sampled_at.timestamp())
        for metric, value in _values(row).items():
            lines[metric].append((labels, value, time))
    return lines


def _labels(fleet: SimulatedFleet, row: Any, index: int) -> str:
    labels = {
        _INDEX_BY_UUID: str(index),
        "UUID": row.gpu_uuid,
        "device": f"nvidia{index}",
        "modelName": _REPORTED_NAMES[row.gpu_model],
        "Hostname": row.node,
    }
    if row.mig_instance:
        labels |= {"GPU_I_PROFILE": row.mig_profile, "GPU_I_ID": row.mig_instance}
    job_id = row.job_id
    if job_id.startswith("slurm:"):
        labels["hpc_job"] = job_id.removeprefix("slurm:")
    elif job_id:
        namespace, _, pod = job_id.partition("/")
        labels |= {"container": "main", "namespace": namespace, "pod": pod}
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def _values(row: Any) -> dict[str, str]:
    activity, signal = row.utilization_ratio, row.utilization_signal
    total, used = row.memory_total_mib, row.memory_used_mib
    coarse = activity if signal == "gpu_util" else float(coarse_utilization(np.array(activity)))
    values = {
        "DCGM_FI_DEV_FB_USED": f"{used:.0f}",
        "DCGM_FI_DEV_FB_FREE": f"{total - used:.0f}",
        "DCGM_FI_DEV_FB_RESERVED": "0",
        "DCGM_FI_DEV_POWER_USAGE": f"{row.power_watts:.6f}",
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": f"{row.energy_joules * 1000:.0f}",
    }
    if not row.mig_instance:
        values["DCGM_FI_DEV_GPU_UTIL"] = f"{100 * coarse:.0f}"
    if signal == "sm_active":
        values["DCGM_FI_PROF_SM_ACTIVE"] = f"{activity:.6f}"
    return values
