"""Readings of dcgm-exporter as Prometheus answers them, of boards that several pods share."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FIRST = 1_772_280_000
"""The first reading, s since the epoch."""
STEP = 300
END = datetime.fromtimestamp(FIRST + 24 * 3600, tz=UTC)
"""The last reading of a day."""
DRIVER = {
    "H100-SXM5-80GB": ("NVIDIA H100 80GB HBM3", 81_559),
    "L40S-48GB": ("NVIDIA L40S", 46_068),
    "T4-16GB": ("Tesla T4", 15_360),
}
"""The driver's name and MiB by the catalogue's name."""


def board_series(
    uuid: str,
    node: str,
    model: str,
    *,
    index: int = 0,
    percent: float = 40.0,
    labels: Mapping[str, str] | None = None,
    hours: int = 24,
) -> list[dict[str, Any]]:
    """Return the series of one board or instance, with `labels` that name its holder."""
    name, mib = DRIVER[model]
    own = {
        "UUID": uuid,
        "gpu": str(index),
        "Hostname": node,
        "modelName": name,
        **(labels or {}),
    }
    used = 0.4 * mib if percent else 3.0
    values = {
        "DCGM_FI_DEV_GPU_UTIL": percent,
        "DCGM_FI_DEV_POWER_USAGE": 45.0 + percent,
        "DCGM_FI_DEV_FB_USED": used,
        "DCGM_FI_DEV_FB_FREE": mib - used,
    }
    if "GPU_I_ID" in own:
        del values["DCGM_FI_DEV_GPU_UTIL"]
        values["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] = percent / 100
    times = range(FIRST, FIRST + hours * 3600 + 1, STEP)
    return [
        {
            "metric": {"__name__": metric, **own},
            "values": [[at, f"{value + (at // STEP) % 3 * 0.001:.4f}"] for at in times],
        }
        for metric, value in values.items()
    ]


def pod_labels(name: str, namespace: str = "lab") -> dict[str, str]:
    """Return what the exporter says of a pod that holds a device."""
    return {"namespace": namespace, "pod": name, "container": "main"}


def write_answer(path: Path, series: Iterable[Mapping[str, Any]]) -> Path:
    """Write the series as a range answer and return its path."""
    data = {"resultType": "matrix", "result": list(series)}
    path.write_text(json.dumps([{"status": "success", "data": data}]))
    return path
