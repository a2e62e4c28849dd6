"""The simulated fleet as exposition text, as dcgm-exporter would say it.

Names and units come from `metric_dialects`; what a dialect adds is which of a field's names it
uses, and what it calls board, host and holder.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pandas as pd

from collectors.readings.metric_names import BY_NAME, HEALTH_QUANTITIES, INFO, ReadingKind
from collectors.simulated.fleet import SimulatedFleet
from collectors.simulated.signals import coarse_utilization
from data.base.clock import utc_now
from data.base.errors import SourceNotConfiguredError

_REPORTED_NAMES = {
    "H100-SXM5-80GB": "NVIDIA H100 80GB HBM3",
    "A100-SXM4-80GB": "NVIDIA A100-SXM4-80GB",
    "L40S-48GB": "NVIDIA L40S",
}
_HEAT = 0x40
"""HW thermal slowdown among the reasons of clock events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The dialect of one exporter: its metrics, its labels, and its info series' labels.

    `labels` gets the sample, the board's number on its node and the board's driver name. With
    `whole_boards` it says nothing of MIG instances.
    """

    metrics: tuple[str, ...]
    labels: Callable[[Any, int, str], dict[str, str]]
    info: Callable[[Any, int, str], dict[str, str]] | None = None
    whole_boards: bool = False


def holder_labels(row: Any) -> dict[str, str]:
    """Return the holder of a board, as exporters beside a scheduler label it."""
    job_id: str = row.job_id
    if job_id.startswith("slurm:"):
        return {"hpc_job": job_id.removeprefix("slurm:")}
    if not job_id:
        return {}
    namespace, _, pod = job_id.partition("/")
    return {"container": "main", "namespace": namespace, "pod": pod}


def dcgm_labels(host: str = "Hostname") -> Callable[[Any, int, str], dict[str, str]]:
    """Return the labels of dcgm-exporter for a reading; `host` is its name of the node."""

    def labels(row: Any, index: int, model: str) -> dict[str, str]:
        pairs = {
            "gpu": str(index),
            "UUID": row.gpu_uuid,
            "device": f"nvidia{index}",
            "modelName": model,
            host: row.node,
        }
        if row.mig_instance:
            pairs |= {"GPU_I_PROFILE": row.mig_profile, "GPU_I_ID": row.mig_instance}
        return pairs | holder_labels(row)

    return labels


CLASSIC_METRICS = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_RESERVED",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_DRAM_ACTIVE",
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE",
    "DCGM_FI_PROF_PCIE_TX_BYTES",
    "DCGM_FI_PROF_PCIE_RX_BYTES",
    "DCGM_FI_PROF_NVLINK_TX_BYTES",
    "DCGM_FI_PROF_NVLINK_RX_BYTES",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
)
DCGM = Dialect(metrics=CLASSIC_METRICS, labels=dcgm_labels())
"""Output of dcgm-exporter with its default labels."""


def exposition(fleet: SimulatedFleet, at: datetime, dialect: Dialect = DCGM) -> str:
    """Return the metrics of all exporters of the fleet at `at`, as one text."""
    rows = fleet.at_times(np.array([int(at.timestamp())], dtype=np.int64))
    lines = []
    for metric, values in sample_lines(fleet, rows, dialect).items():
        kind = BY_NAME[metric][0].kind if metric in BY_NAME else ReadingKind.GAUGE
        lines.append(f"# TYPE {metric} {'counter' if kind is ReadingKind.COUNTER else 'gauge'}\n")
        lines += [f"{metric}{{{labels}}} {value}\n" for labels, value, _time in values]
    return "".join(lines)


def sample_lines(
    fleet: SimulatedFleet, samples: pd.DataFrame, dialect: Dialect = DCGM
) -> dict[str, list[tuple[str, str, int]]]:
    """Return (labels, value, time in s) per metric for samples of the fleet."""
    index_of = {device.gpu_uuid: device.index for device in fleet.devices}
    lines: dict[str, list[tuple[str, str, int]]] = {metric: [] for metric in dialect.metrics}
    if dialect.info is not None:
        lines[INFO] = []
    table = samples.assign(last_xid=fleet.last_xids(samples)).reset_index(drop=True)
    table = table.join(fleet.activity(samples))
    rows: Iterable[Any] = table.itertuples(index=False)
    for row in rows:
        if row.mig_instance and dialect.whole_boards:
            continue
        about = (row, index_of[row.gpu_uuid], _REPORTED_NAMES[row.gpu_model])
        labels = _text(dialect.labels(*about))
        time = int(row.sampled_at.timestamp())
        if dialect.info is not None:
            lines[INFO].append((_text(dialect.info(*about)), "1", time))
        readings = _readings(row)
        for metric in dialect.metrics:
            field, factor = BY_NAME[metric]
            reading = readings.get(field.quantity)
            if reading is not None:
                value = f"{reading / factor:.6f}".rstrip("0").rstrip(".")
                lines[metric].append((labels, value, time))
    return lines


def _text(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def _readings(row: Any) -> dict[str, float]:
    """Return the readings of a sample by quantity, in our units.

    What its board lacks is left out.
    """
    activity, signal = row.utilization_ratio, row.utilization_signal
    coarse = activity if signal == "gpu_util" else float(coarse_utilization(np.array(activity)))
    values = {
        "memory_used_mib": row.memory_used_mib,
        "memory_free_mib": row.memory_total_mib - row.memory_used_mib,
        "memory_reserved_mib": 0.0,
        "memory_total_mib": row.memory_total_mib,
        "power_watts": row.power_watts,
        "power_limit_watts": row.power_limit_watts,
        "energy_joules": row.energy_joules,
        "last_xid": row.last_xid,
        **{name: getattr(row, name) for name in HEALTH_QUANTITIES},
    }
    if not row.mig_instance:
        values["gpu_util"] = coarse
    if signal == "sm_active":
        values["sm_active"] = activity
        values |= _profiled(row)
    return {name: value for name, value in values.items() if value == value}


def _profiled(row: Any) -> dict[str, float]:
    """Return the profiling metrics beside SM activity; traffic as much in as out."""
    return {
        "gr_engine_active": row.engine_active,
        "tensor_active": row.tensor_active,
        "dram_active": row.dram_active,
        "fp32_active": row.fp32_active,
        "pcie_sent_bytes": row.pcie_bytes_per_second / 2,
        "pcie_received_bytes": row.pcie_bytes_per_second / 2,
        "nvlink_sent_bytes": row.nvlink_bytes_per_second / 2,
        "nvlink_received_bytes": row.nvlink_bytes_per_second / 2,
        "clock_event_reasons": _HEAT * row.throttled_ratio,
    }


def exposition_server(fleet: SimulatedFleet, host: str, port: int) -> ThreadingHTTPServer:
    """Return a bound server; the caller runs and closes it. Errors: SourceNotConfiguredError."""
    try:
        return ThreadingHTTPServer((host, port), _handler(lambda: exposition(fleet, utc_now())))
    except OSError as error:
        raise SourceNotConfiguredError(
            f"cannot listen on {host}:{port}: {error.strerror}", "Give another --port."
        ) from error


def serve_exposition(fleet: SimulatedFleet, host: str, port: int) -> None:
    """Serve until interrupted."""
    with exposition_server(fleet, host, port) as server:
        server.serve_forever()


def _handler(text: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer /metrics with the exposition and everything else with 404."""
            is_metrics = self.path.partition("?")[0] == "/metrics"
            body = text().encode() if is_metrics else b"see /metrics\n"
            self.send_response(200 if is_metrics else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Say nothing: scrapes are not news."""

    return Handler
