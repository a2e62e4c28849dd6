"""The simulated fleet as exposition text, in the dialect of each exporter that Trimtab reads.

Names and units come from `metric_dialects`; what a dialect adds is which of a field's names it
uses, and what it calls board, host and holder.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pandas as pd

from collectors.metric_dialects import BY_NAME, HEALTH_QUANTITIES, INFO, ReadingKind
from collectors.simulated_fleet import SimulatedFleet
from collectors.simulated_signals import coarse_utilization
from data.clock import utc_now
from data.errors import SourceNotConfiguredError

_REPORTED_NAMES = {
    "H100-SXM5-80GB": "NVIDIA H100 80GB HBM3",
    "A100-SXM4-80GB": "NVIDIA A100-SXM4-80GB",
    "L40S-48GB": "NVIDIA L40S",
}
_HEAT = 0x40
"""HW thermal slowdown among the reasons of clock events."""
_EXPORTER = {"pod": "nvidia-dcgm-exporter-x7k2p", "namespace": "gpu-operator"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one exporter speaks: the metrics it publishes, its labels, and its info series' labels.

    `labels` gets the sample, the board's number on its node and the board's driver name.
    """

    metrics: tuple[str, ...]
    labels: Callable[[Any, int, str], dict[str, str]]
    info: Callable[[Any, int, str], dict[str, str]] | None = None


def _holder(row: Any) -> dict[str, str]:
    job_id: str = row.job_id
    if job_id.startswith("slurm:"):
        return {"hpc_job": job_id.removeprefix("slurm:")}
    if not job_id:
        return {}
    namespace, _, pod = job_id.partition("/")
    return {"container": "main", "namespace": namespace, "pod": pod}


def _dcgm(host: str = "Hostname") -> Callable[[Any, int, str], dict[str, str]]:
    def labels(row: Any, index: int, model: str) -> dict[str, str]:
        found = {
            "gpu": str(index),
            "UUID": row.gpu_uuid,
            "device": f"nvidia{index}",
            "modelName": model,
            host: row.node,
        }
        if row.mig_instance:
            found |= {"GPU_I_PROFILE": row.mig_profile, "GPU_I_ID": row.mig_instance}
        return found | _holder(row)

    return labels


def _newest(row: Any, index: int, model: str) -> dict[str, str]:
    found = _dcgm("hostname")(row, index, model)
    found |= {"gpu_uuid": found.pop("UUID"), "model_name": found.pop("modelName")}
    return found | {"DCGM_FI_SYSTEM_DRIVER_VERSION": "580.159.04"}


def _renamed(row: Any, index: int, model: str) -> dict[str, str]:
    """What Prometheus stores with honor_labels off: the target's labels win, ours are exported."""
    found = _dcgm()(row, index, model)
    workload = {
        f"exported_{name}": found.pop(name)
        for name in ("container", "namespace", "pod")
        if name in found
    }
    return found | workload | _EXPORTER | {"instance": f"{row.node}:9400"}


def _first_exporter(row: Any, index: int, _model: str) -> dict[str, str]:
    holder = _holder(row)
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


_CLASSIC = (
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
DIALECTS: Mapping[str, Dialect] = {
    "dcgm": Dialect(metrics=_CLASSIC, labels=_dcgm()),
    "dcgm-renamed-labels": Dialect(metrics=_CLASSIC, labels=_renamed),
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
        labels=_dcgm("hostname"),
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
    ),
    "jobstats": Dialect(
        metrics=(
            "nvidia_gpu_duty_cycle",
            "nvidia_gpu_memory_used_bytes",
            "nvidia_gpu_memory_total_bytes",
            "nvidia_gpu_power_usage_milliwatts",
        ),
        labels=_jobstats,
    ),
}
"""Name to dialect. The last three know whole boards only and say nothing of MIG instances."""

_WHOLE_BOARDS = ("dcgm-1.x", "nvidia-smi", "jobstats")


def exposition(fleet: SimulatedFleet, at: datetime, dialect: str = "dcgm") -> str:
    """Return what every exporter of the fleet would say at `at`, as one text."""
    rows = fleet.at_times(np.array([int(at.timestamp())], dtype=np.int64))
    lines = []
    for metric, found in sample_lines(fleet, rows, dialect).items():
        kind = BY_NAME[metric][0].kind if metric in BY_NAME else ReadingKind.GAUGE
        lines.append(f"# TYPE {metric} {'counter' if kind is ReadingKind.COUNTER else 'gauge'}\n")
        lines += [f"{metric}{{{labels}}} {value}\n" for labels, value, _time in found]
    return "".join(lines)


def openmetrics(
    fleet: SimulatedFleet, samples: pd.DataFrame, dialect: str = "dcgm"
) -> Iterator[str]:
    """Yield samples as an OpenMetrics file that `promtool tsdb create-blocks-from` reads."""
    for metric, found in sample_lines(fleet, samples, dialect).items():
        yield f"# TYPE {metric} gauge\n"
        for labels, value, time in found:
            yield f"{metric}{{{labels}}} {value} {time}\n"
    yield "# EOF\n"


def sample_lines(
    fleet: SimulatedFleet, samples: pd.DataFrame, dialect: str = "dcgm"
) -> dict[str, list[tuple[str, str, int]]]:
    """Return (labels, value, time in s) per metric for samples of the fleet."""
    speech = DIALECTS[dialect]
    index_of = {device.gpu_uuid: device.index for device in fleet.devices}
    lines: dict[str, list[tuple[str, str, int]]] = {metric: [] for metric in speech.metrics}
    if speech.info is not None:
        lines[INFO] = []
    told = samples.assign(last_xid=fleet.last_xids(samples)).reset_index(drop=True)
    told = told.join(fleet.activity(samples))
    rows: Iterable[Any] = told.itertuples(index=False)
    for row in rows:
        if row.mig_instance and dialect in _WHOLE_BOARDS:
            continue
        about = (row, index_of[row.gpu_uuid], _REPORTED_NAMES[row.gpu_model])
        labels = _text(speech.labels(*about))
        time = int(row.sampled_at.timestamp())
        if speech.info is not None:
            lines[INFO].append((_text(speech.info(*about)), "1", time))
        readings = _readings(row)
        for metric in speech.metrics:
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
    found = {
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
        found["gpu_util"] = coarse
    if signal == "sm_active":
        found["sm_active"] = activity
        found |= _profiled(row)
    return {name: value for name, value in found.items() if value == value}


def _profiled(row: Any) -> dict[str, float]:
    """Return what profiling metrics tell beside SM activity; traffic as much in as out."""
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
            found = self.path.partition("?")[0] == "/metrics"
            body = text().encode() if found else b"see /metrics\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Say nothing: scrapes are not news."""

    return Handler
