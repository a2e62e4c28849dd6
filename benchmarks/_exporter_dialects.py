"""The simulated fleet in the dialect of every exporter that Trimtab reads, and as OpenMetrics."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from collectors.simulated.exposition import (
    CLASSIC_METRICS,
    DCGM,
    Dialect,
    dcgm_labels,
    holder_labels,
    sample_lines,
)
from collectors.simulated.fleet import SimulatedFleet

_EXPORTER = {"pod": "nvidia-dcgm-exporter-x7k2p", "namespace": "gpu-operator"}


def _newest(row: Any, index: int, model: str) -> dict[str, str]:
    found = dcgm_labels("hostname")(row, index, model)
    found |= {"gpu_uuid": found.pop("UUID"), "model_name": found.pop("modelName")}
    return found | {"DCGM_FI_SYSTEM_DRIVER_VERSION": "580.159.04"}


def _renamed(row: Any, index: int, model: str) -> dict[str, str]:
    """What Prometheus stores with honor_labels off: the target's labels win, ours are exported."""
    found = dcgm_labels()(row, index, model)
    workload = {
        f"exported_{name}": found.pop(name)
        for name in ("container", "namespace", "pod")
        if name in found
    }
    return found | workload | _EXPORTER | {"instance": f"{row.node}:9400"}


def _first_exporter(row: Any, index: int, _model: str) -> dict[str, str]:
    holder = holder_labels(row)
    old = {f"{name}_name" if name != "namespace" else "pod_namespace": value
           for name, value in holder.items() if name != "hpc_job"}  # fmt: skip
    return {"gpu": str(index), "uuid": row.gpu_uuid, "instance": f"{row.node}:9400"} | old


def _nvidia_smi(row: Any, _index: int, _model: str) -> dict[str, str]:
    return {"uuid": row.gpu_uuid.removeprefix("GPU-"), "instance": f"{row.node}:9835"}


def _nvidia_smi_info(row: Any, index: int, model: str) -> dict[str, str]:
    return {
        "uuid": row.gpu_uuid.removeprefix("GPU-"),
        "name": model,
        "index": str(index),
        "driver_model_current": "[N/A]",
    }


def _jobstats(row: Any, index: int, model: str) -> dict[str, str]:
    return {
        "minor_number": str(index),
        "name": model,
        "uuid": row.gpu_uuid,
        "jobid": row.job_id.removeprefix("slurm:") if row.job_id.startswith("slurm:") else "0",
        "instance": f"{row.node}:9445",
    }


DIALECTS: Mapping[str, Dialect] = {
    "dcgm": DCGM,
    "dcgm-renamed-labels": Dialect(metrics=CLASSIC_METRICS, labels=_renamed),
    "dcgm-4.6": Dialect(
        metrics=(
            "DCGM_FI_DEV_GPU_UTIL_RATIO",
            "DCGM_FI_PROF_SM_UTIL_RATIO",
            "DCGM_FI_DEV_FB_USED",
            "DCGM_FI_DEV_FB_FREE",
            "DCGM_FI_DEV_BOARD_POWER_WATTS",
            "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
            "DCGM_FI_DEV_XID_ERROR",
        ),
        labels=dcgm_labels("hostname"),
    ),
    "dcgm-4.9": Dialect(
        metrics=(
            "DCGM_FI_PROF_SM_UTIL_RATIO",
            "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
            "DCGM_FI_DEV_FB_USED_BYTES",
            "DCGM_FI_DEV_FB_FREE_BYTES",
            "DCGM_FI_DEV_FB_CAPACITY_BYTES",
            "DCGM_FI_DEV_BOARD_POWER_WATTS",
            "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
            "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
            "DCGM_FI_DEV_XID_ERROR",
            "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
            "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS",
        ),
        labels=_newest,
    ),
    "dcgm-1.x": Dialect(
        metrics=(
            "dcgm_gpu_utilization",
            "dcgm_fb_used",
            "dcgm_fb_free",
            "dcgm_power_usage",
            "dcgm_total_energy_consumption",
            "dcgm_xid_errors",
        ),
        labels=_first_exporter,
        whole_boards=True,
    ),
    "nvidia-smi": Dialect(
        metrics=(
            "nvidia_smi_utilization_gpu_ratio",
            "nvidia_smi_memory_used_bytes",
            "nvidia_smi_memory_total_bytes",
            "nvidia_smi_power_draw_watts",
            "nvidia_smi_enforced_power_limit_watts",
            "nvidia_smi_temperature_gpu",
            "nvidia_smi_clocks_current_sm_clock_hz",
        ),
        labels=_nvidia_smi,
        info=_nvidia_smi_info,
        whole_boards=True,
    ),
    "jobstats": Dialect(
        metrics=(
            "nvidia_gpu_duty_cycle",
            "nvidia_gpu_memory_used_bytes",
            "nvidia_gpu_memory_total_bytes",
            "nvidia_gpu_power_usage_milliwatts",
        ),
        labels=_jobstats,
        whole_boards=True,
    ),
}
"""Name to dialect. The last three know whole boards only and say nothing of MIG instances."""


def openmetrics(
    fleet: SimulatedFleet, samples: pd.DataFrame, dialect: str = "dcgm"
) -> Iterator[str]:
    """Yield samples as an OpenMetrics file that `promtool tsdb create-blocks-from` reads."""
    for metric, found in sample_lines(fleet, samples, DIALECTS[dialect]).items():
        yield f"# TYPE {metric} gauge\n"
        for labels, value, time in found:
            yield f"{metric}{{{labels}}} {value} {time}\n"
    yield "# EOF\n"
