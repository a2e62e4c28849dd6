"""DCGM series to samples: labels read, values checked, one row per device, time and job.

Board-level values repeat on every MIG instance; they stay on each row as they came, and the store
counts them once per board and time.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from collectors.dcgm_fields import FIELDS, UTILIZATION_PREFERENCE, reading
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.columns import SAMPLES, check_frame, empty_frame
from data.records.jobs import Job, Platform, WorkloadKind

_KEY = [
    "sampled_at",
    "gpu_uuid",
    "mig_instance",
    "mig_profile",
    "node",
    "gpu_index",
    "gpu_model",
    "job_id",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series: metric name, labels, times in s since the epoch, raw values."""

    metric: str
    labels: Mapping[str, str]
    times: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]


@dataclass(slots=True)
class Dropped:
    """Counts of readings that were not kept, by reason."""

    counts: Counter[str] = field(default_factory=Counter)

    def as_pairs(self) -> tuple[tuple[str, int], ...]:
        """Give (reason, count) pairs in order."""
        return tuple(sorted(self.counts.items()))


def job_of(labels: Mapping[str, str]) -> str:
    """Give the job id that the labels name, '' when none.

    With honor_labels off Prometheus moves the workload to exported_*, and `pod` is the exporter.
    """
    slurm = labels.get("hpc_job", "")
    if slurm:
        return f"slurm:{slurm}"
    if "exported_pod" in labels:
        pod, namespace = labels["exported_pod"], labels.get("exported_namespace", "")
    else:
        pod, namespace = labels.get("pod", ""), labels.get("namespace", "")
    if not pod or pod.startswith(("dcgm-exporter", "nvidia-dcgm-exporter")):
        return ""
    return f"{namespace}/{pod}"


def _device(labels: Mapping[str, str], catalogue: GpuCatalogue) -> dict[str, str]:
    uuid = labels.get("UUID") or labels.get("gpu_uuid") or ""
    host = labels.get("Hostname") or labels.get("hostname") or ""
    return {
        "gpu_uuid": uuid,
        "mig_instance": labels.get("GPU_I_ID", ""),
        "mig_profile": labels.get("GPU_I_PROFILE", ""),
        "node": host or labels.get("node") or labels.get("instance") or "",
        "gpu_index": labels.get("gpu", ""),
        "gpu_model": catalogue.recognise(labels.get("modelName") or labels.get("model_name") or ""),
        "job_id": job_of(labels),
    }


def samples_of(series: Iterable[Series], catalogue: GpuCatalogue, dropped: Dropped) -> pd.DataFrame:
    """Give the samples (columns SAMPLES); what is no reading is counted in `dropped`."""
    parts = [part for one in series if (part := _long(one, catalogue, dropped)) is not None]
    if not parts:
        return empty_frame(SAMPLES)
    long = pd.concat(parts, ignore_index=True)
    wide = (
        long.pivot_table(index=_KEY, columns="quantity", values="value", aggfunc="last")
        .reset_index()
        .rename_axis(columns=None)
    )
    return check_frame(_with_derived(wide), SAMPLES)


def _long(one: Series, catalogue: GpuCatalogue, dropped: Dropped) -> pd.DataFrame | None:
    meaning = FIELDS.get(one.metric)
    if meaning is None:
        return None
    device = _device(one.labels, catalogue)
    if not device["gpu_uuid"]:
        dropped.counts["no-uuid"] += len(one.values)
        return None
    raw_values: list[float] = one.values.tolist()
    checked = [reading(one.metric, raw) for raw in raw_values]
    for _value, reason in checked:
        if reason:
            dropped.counts[reason] += 1
    kept = np.array([value is not None for value, _reason in checked], dtype=bool)
    if not kept.any():
        return None
    times = pd.to_datetime(one.times[kept], unit="s", utc=True)
    return pd.DataFrame(
        device
        | {
            "sampled_at": times.astype("datetime64[us, UTC]"),
            "quantity": meaning.quantity,
            "value": np.array([value for value, _reason in checked if value is not None]),
        }
    )


def _with_derived(wide: pd.DataFrame) -> pd.DataFrame:
    utilization = pd.Series(np.nan, index=wide.index)
    signal = pd.Series("", index=wide.index, dtype="str")
    for name in UTILIZATION_PREFERENCE:
        if name in wide.columns:
            fill = utilization.isna() & wide[name].notna()
            utilization = utilization.where(~fill, wide[name])
            signal = signal.where(~fill, name)
    wide = wide.assign(utilization_ratio=utilization, utilization_signal=signal)
    if {"memory_used_mib", "memory_free_mib"} <= set(wide.columns):
        reserved = wide["memory_reserved_mib"] if "memory_reserved_mib" in wide.columns else 0.0
        total = wide["memory_used_mib"] + wide["memory_free_mib"]
        wide["memory_total_mib"] = total + (
            reserved.fillna(0.0) if isinstance(reserved, pd.Series) else reserved
        )
    return wide[[name for name in SAMPLES.names if name in wide.columns]]


def jobs_of(samples: pd.DataFrame, source: str) -> tuple[Job, ...]:
    """Give the jobs that the samples name; what telemetry does not tell stays unknown."""
    held = samples[samples["job_id"] != ""]
    jobs = []
    for job_id, rows in held.groupby("job_id", sort=True):
        name = str(job_id)
        newest = rows[rows["sampled_at"] == rows["sampled_at"].max()]
        devices = newest[["gpu_uuid", "mig_instance"]].drop_duplicates()
        first = newest.iloc[0]
        memory = first["memory_total_mib"]
        slurm = name.startswith("slurm:")
        jobs.append(
            Job(
                job_id=name,
                name=name.partition(":" if slurm else "/")[2],
                namespace="" if slurm else name.partition("/")[0],
                owner="",
                platform=Platform.SLURM if slurm else Platform.KUBERNETES,
                kind=WorkloadKind.UNKNOWN,
                gpu_model=str(first["gpu_model"]),
                gpu_count=len(devices),
                mig_profile=str(first["mig_profile"]),
                gpu_memory_mib=None if pd.isna(memory) else float(memory),
                first_seen_at=rows["sampled_at"].min().to_pydatetime(),
                last_seen_at=rows["sampled_at"].max().to_pydatetime(),
                source=source,
            )
        )
    return tuple(jobs)
