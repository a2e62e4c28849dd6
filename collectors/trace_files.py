"""Traces in Parquet or CSV, read through a column map. Nothing is guessed, nothing is lost."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from collectors.trace_map import TraceMap, load_map, nearest
from data.collected import Collected
from data.columns import SAMPLES, TEXT, check_frame
from data.errors import SettingsError, UnexpectedAnswerError
from data.records.cluster import SourceReport, SourceState
from data.records.identifiers import digest_of
from data.records.jobs import Job, Platform, WorkloadKind

__all__ = ["load_map", "read_trace"]


def _load(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path) if path.suffix.lower() == ".csv" else pd.read_parquet(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UnexpectedAnswerError(
            f"cannot read {path} as {'CSV' if path.suffix == '.csv' else 'Parquet'}: "
            f"{str(error).splitlines()[0][:160]}",
            "Give a .csv or .parquet file.",
        ) from error


def _pick(raw: pd.DataFrame, mapping: TraceMap, column: str) -> pd.Series:
    if column not in raw.columns:
        raise SettingsError(
            f"{mapping.path} names the column {column!r}, which the trace does not have",
            nearest(column, [str(name) for name in raw.columns]),
        )
    return raw[column]


def _times(raw: pd.DataFrame, mapping: TraceMap) -> pd.Series:
    column = _pick(raw, mapping, mapping.time_column)
    if mapping.start is None:
        times = pd.to_datetime(column, utc=True, errors="coerce")
    else:
        unit: Any = mapping.time_unit
        offset = pd.to_timedelta(pd.to_numeric(column, errors="coerce"), unit=unit)
        times = pd.Timestamp(mapping.start) + offset
    return times.astype("datetime64[us, UTC]")


def _samples(raw: pd.DataFrame, mapping: TraceMap) -> pd.DataFrame:
    frame = pd.DataFrame({"sampled_at": _times(raw, mapping)})
    for target, mapped in mapping.columns.items():
        column = _pick(raw, mapping, mapped.column)
        if SAMPLES.columns[target][0] == TEXT:
            frame[target] = mapped.prefix + column.fillna("").astype("str")
            continue
        values = pd.to_numeric(column, errors="coerce").astype("float64") * mapped.factor
        frame[target] = values.where(values != 0) if mapped.zero_is_unknown else values
    for target, value in mapping.constants.items():
        if target in SAMPLES.columns:
            frame[target] = value
    for required in SAMPLES.required - set(frame.columns):
        raise SettingsError(
            f"{mapping.path} gives no {required}",
            f"Add [columns.{required}] or a constant {required} = ...",
        )
    return frame


def _choice(mapping: TraceMap, name: str, kind: type[Platform] | type[WorkloadKind]) -> str:
    value = str(mapping.constants.get(name, "unknown"))
    if value not in list(kind):
        raise SettingsError(
            f"{mapping.path}: constant {name} is {value!r}", nearest(value, list(kind))
        )
    return value


def _jobs(samples: pd.DataFrame, mapping: TraceMap) -> tuple[Job, ...]:
    platform = Platform(_choice(mapping, "platform", Platform))
    kind = WorkloadKind(_choice(mapping, "kind", WorkloadKind))
    jobs = []
    for job_id, rows in samples[samples["job_id"] != ""].groupby("job_id", sort=True):
        name = str(job_id)
        newest = rows.sort_values("sampled_at").iloc[-1]
        namespace, slash, short = name.partition("/")
        memory = newest["memory_total_mib"]
        jobs.append(
            Job(
                job_id=name,
                name=short if slash else name,
                namespace=str(
                    mapping.constants.get("namespace", namespace if slash else mapping.source)
                ),
                owner=str(mapping.constants.get("owner", "")),
                platform=platform,
                kind=kind,
                gpu_model=str(newest["gpu_model"]),
                gpu_count=rows[["gpu_uuid", "mig_instance"]].drop_duplicates().shape[0],
                mig_profile=str(newest["mig_profile"]),
                gpu_memory_mib=None if pd.isna(memory) else float(memory),
                first_seen_at=rows["sampled_at"].min().to_pydatetime(),
                last_seen_at=rows["sampled_at"].max().to_pydatetime(),
                source=mapping.source,
                assumed=mapping.assumed,
            )
        )
    return tuple(jobs)


def read_trace(path: Path, mapping: TraceMap) -> Collected:
    """Give the samples and jobs of a trace. Errors: SettingsError, UnexpectedAnswerError.

    Rows whose time cannot be read, and ratios outside 0..1, are dropped and counted; a value that
    is missing stays unknown and its row stays.
    """
    frame = _samples(_load(path), mapping)
    dropped: list[tuple[str, int]] = []

    def drop(bad: pd.Series, reason: str) -> pd.DataFrame:
        if bad.any():
            dropped.append((reason, int(bad.sum())))
        return frame[~bad]

    frame = drop(frame["sampled_at"].isna(), "no-time")
    numeric = frame.select_dtypes("number")
    frame = drop(pd.Series(np.isinf(numeric).any(axis=1), index=frame.index), "not-finite")
    if "utilization_ratio" in frame.columns:
        ratio = frame["utilization_ratio"]
        frame = drop((ratio < 0) | (ratio > 1.01), "ratio-out-of-range")
        frame = frame.assign(utilization_ratio=frame["utilization_ratio"].clip(upper=1.0))
    if frame.empty:
        raise UnexpectedAnswerError(
            f"{path} holds no row that could be kept", "Check [time] in the map."
        )
    samples = check_frame(frame.reset_index(drop=True), SAMPLES)
    content = pd.util.hash_pandas_object(samples, index=False).sum()
    return Collected(
        batch_id=digest_of([mapping.source, path.name, str(content), list(mapping.assumed)]),
        samples=samples,
        jobs=_jobs(samples, mapping),
        report=SourceReport(
            source=mapping.source,
            state=SourceState.RAN,
            reason="",
            samples=len(samples),
            dropped=tuple(dropped),
            completeness_ratio=None,
            warnings=(),
            window_start=samples["sampled_at"].min().to_pydatetime(),
            window_end=samples["sampled_at"].max().to_pydatetime(),
        ),
    )
