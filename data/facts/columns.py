"""The time-series frames that cross package borders: their columns, types and units.

Unknown numbers are NaN in frames (pandas' missing value) and NULL in the store; never 0.
Times are `datetime64[us, UTC]`. `check_frame` is called at borders, never in loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import pandas as pd


TIME = "datetime64[us, UTC]"
TEXT = "str"
NUMBER = "float64"
COUNT = "int64"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameColumns:
    """The declared columns of a frame: name to (dtype, unit or meaning)."""

    name: str
    columns: Mapping[str, tuple[str, str]]
    required: frozenset[str]

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in declared order."""
        return tuple(self.columns)


SAMPLES = FrameColumns(
    name="samples",
    columns={
        "sampled_at": (TIME, "time of the reading, UTC"),
        "gpu_uuid": (TEXT, "board UUID; of the parent board for a MIG instance"),
        "mig_instance": (TEXT, "GPU instance id, '' for a whole board"),
        "mig_profile": (TEXT, "such as 2g.20gb, '' for a whole board"),
        "node": (TEXT, "host name"),
        "gpu_index": (TEXT, "the board's number on its node, as the source counts; '' unknown"),
        "gpu_model": (TEXT, "catalogue name such as H100-SXM5-80GB, or the reported name"),
        "job_id": (TEXT, "the holder that the sample names, '' when it names none"),
        "utilization_ratio": (NUMBER, "0..1 of the GPU or of the MIG instance"),
        "utilization_signal": (TEXT, "sm_active, gr_engine_active, gpu_util or ''"),
        "memory_used_mib": (NUMBER, "MiB"),
        "memory_total_mib": (NUMBER, "MiB"),
        "power_watts": (NUMBER, "W of the whole board, repeated on its MIG instances"),
        "power_limit_watts": (NUMBER, "W, limit in force on the board"),
        "energy_joules": (NUMBER, "J, counter since driver load, may reset"),
    },
    required=frozenset({"sampled_at", "gpu_uuid", "node", "gpu_model"}),
)

ALLOCATIONS = FrameColumns(
    name="allocations",
    columns={
        "job_id": (TEXT, "the job that a person would change"),
        "label_id": (TEXT, "what samples call the holder, such as namespace/pod, or ''"),
        "node": (TEXT, "host name, '' when not known"),
        "gpu_index": (TEXT, "the board's number on its node, '' when not known"),
        "gpu_uuid": (TEXT, "board UUID, '' when not known"),
        "mig_instance": (TEXT, "GPU instance id, '' for a whole board or unknown"),
        "gpu_count": (NUMBER, "devices that this row stands for; 1 when it names one"),
        "started_at": (TIME, "since when the job holds them, UTC"),
        "ended_at": (TIME, "until when, missing while it holds them"),
        "seen_at": (TIME, "last time the source confirmed it, UTC"),
        "source": (TEXT, "who says so"),
        "start_seconds": (NUMBER, "s from being put on a node to being ready to serve"),
        "runs": (TEXT, "digest of a pod's image, command and GPUs, '' when not told"),
    },
    required=frozenset({"job_id", "started_at", "seen_at", "source"}),
)
"""Allocations by time. A row names one device (index or UUID), or a count on a node."""

XIDS = FrameColumns(
    name="xids",
    columns={
        "gpu_uuid": (TEXT, "board UUID"),
        "xid": (COUNT, "the code that the board showed as its last; 0 for none"),
        "node": (TEXT, "host name, '' when not known"),
        "gpu_index": (TEXT, "the board's number on its node, '' when not known"),
        "first_seen_at": (TIME, "first reading that showed it, UTC"),
        "last_seen_at": (TIME, "last reading that showed it, UTC"),
    },
    required=frozenset({"gpu_uuid", "xid", "first_seen_at", "last_seen_at"}),
)
"""Last XID codes of boards, from the first to the last reading of each.

No source reports XIDs of a board without a row.

The driver's gauge keeps the code of the last error until the driver is loaded again, so showing a
code is no new error, and the same error twice looks like one.
"""

SERVING = FrameColumns(
    name="serving",
    columns={
        "slot_start": (TIME, "start of the five minutes, UTC"),
        "label_id": (TEXT, "the pod as GPU samples name it, '' when labels name none"),
        "engine": (TEXT, "such as vllm"),
        "model": (TEXT, "the model as the engine names it, '' when it does not"),
        "address": (TEXT, "the scraped address, '' when not known"),
        "running_requests": (NUMBER, "requests at work, mean"),
        "waiting_requests": (NUMBER, "requests waiting, mean"),
        "kv_cache_ratio": (NUMBER, "0..1, largest"),
        "finished_requests": (NUMBER, "requests that ended in the slot"),
        "prompt_tokens": (NUMBER, "tokens read in the slot"),
        "generation_tokens": (NUMBER, "tokens written in the slot"),
        "preemptions": (NUMBER, "requests put back in the slot"),
        "first_token_seconds": (NUMBER, "s to the first token, sum of those timed in the slot"),
        "first_token_count": (NUMBER, "how many were timed"),
        "queue_wait_seconds": (NUMBER, "s in the queue, sum"),
        "queue_wait_count": (NUMBER, "how many were timed"),
        "request_seconds": (NUMBER, "s from arrival to the last token, sum"),
        "request_count": (NUMBER, "how many were timed"),
    },
    required=frozenset({"slot_start", "engine"}),
)
"""Traffic of one replica of an inference service in five minutes."""

ACTIVITY = FrameColumns(
    name="activity",
    columns={
        "slot_start": (TIME, "start of the five minutes, UTC"),
        "gpu_uuid": (TEXT, "board UUID; of the parent board for a MIG instance"),
        "mig_instance": (TEXT, "GPU instance id, '' for a whole board"),
        "engine_active": (NUMBER, "0..1, share of the time in which a kernel ran"),
        "sm_active": (NUMBER, "0..1, SMs with work, mean over SMs and time"),
        "tensor_active": (NUMBER, "0..1, tensor cores at work"),
        "dram_active": (NUMBER, "0..1, device memory at work"),
        "fp32_active": (NUMBER, "0..1, single-precision units at work"),
        "pcie_bytes_per_second": (NUMBER, "both directions"),
        "nvlink_bytes_per_second": (NUMBER, "both directions, all links"),
        "throttled_ratio": (NUMBER, "0..1, readings that name heat or a power brake"),
        "power_ratio": (NUMBER, "0..1, power over the limit in force on the board"),
        "temperature_celsius": (NUMBER, "of the GPU"),
        "memory_temperature_celsius": (NUMBER, "of the device memory"),
        "clock_mhz": (NUMBER, "of the SMs"),
        "uncorrected_errors": (NUMBER, "of memory (ECC), largest since the driver was loaded"),
        "remapped_rows": (NUMBER, "rows of memory replaced after such errors, largest"),
        "remap_failed": (NUMBER, "1: a row could not be replaced; else 0"),
    },
    required=frozenset({"slot_start", "gpu_uuid"}),
)
"""Activity and limits of one device in five minutes: means of its readings."""

CONTRADICTIONS = FrameColumns(
    name="contradictions",
    columns={
        "slot_start": (TIME, "start of the five minutes, UTC"),
        "gpu_uuid": (TEXT, "board UUID; of the parent board for a MIG instance"),
        "mig_instance": (TEXT, "GPU instance id, '' for a whole board"),
        "counter": (TEXT, "such as gr_engine_active, gpu_util or power_watts"),
        "reading": (NUMBER, "what it showed, 0..1, power over its limit, mean"),
        "others": (TEXT, "what the other counters showed, such as gpu_util 98 %"),
    },
    required=frozenset({"slot_start", "gpu_uuid", "counter", "reading"}),
)
"""Counters that the other readings of their device contradicted in five minutes."""

PROGRESS = FrameColumns(
    name="progress",
    columns={
        "label_id": (TEXT, "the job, or what samples call the holder, such as namespace/pod"),
        "reported_at": (TIME, "when the job said so, UTC"),
        "done_ratio": (NUMBER, "0..1, share of all its work that is done"),
        "checkpoint_at": (TIME, "when it wrote its last checkpoint, UTC"),
    },
    required=frozenset({"label_id", "reported_at"}),
)
"""Progress and checkpoints that jobs reported."""

HISTORY = FrameColumns(
    name="history",
    columns={
        "job_id": (TEXT, "the job"),
        "slot_start": (TIME, "start of the slot, UTC"),
        "effective_gpus": (
            NUMBER,
            "GPUs (a MIG instance counts as one): mean utilization times allocated_gpus",
        ),
        "utilization_ratio": (NUMBER, "0..1, mean over the job's GPUs and samples"),
        "utilization_max_ratio": (NUMBER, "0..1, largest sample of the slot"),
        "allocated_gpus": (NUMBER, "GPUs: distinct (GPU, MIG instance) that the job held"),
        "memory_used_mib": (NUMBER, "MiB per GPU, largest sample of the slot"),
        "power_watts": (NUMBER, "W, sum over the job's GPUs of the mean board power"),
        "sample_count": (COUNT, "samples behind the slot"),
    },
    required=frozenset({"job_id", "slot_start", "sample_count"}),
)

_ENDED = ("job_id", "slot_start", "utilization_max_ratio")
ENDED_HISTORY = FrameColumns(
    name="history of ended jobs",
    columns={name: HISTORY.columns[name] for name in _ENDED},
    required=frozenset(_ENDED[:2]),
)

GROUP_HISTORY = FrameColumns(
    name="group history",
    columns={
        "kind": (TEXT, "fleet, namespace or gpu_model"),
        "name": (TEXT, "of the group; 'fleet' for the fleet"),
        "slot_start": (TIME, "start of the slot, UTC"),
        "boards": (NUMBER, "boards of the whole fleet that were observed in the slot"),
        "allocated_gpus": (NUMBER, "boards held by the group's jobs, mean over the slot"),
        "effective_gpus": (NUMBER, "boards held times mean utilization"),
        "power_watts": (NUMBER, "W of the boards held, by the share of the slot"),
        "unseen_ratio": (
            NUMBER,
            "of the boards of fleet or model: held before and after, unseen",
        ),
    },
    required=frozenset({"kind", "name", "slot_start", "boards"}),
)
"""A group with no row for a slot in which the fleet has one held nothing then."""


def check_frame(frame: pd.DataFrame, declared: FrameColumns) -> pd.DataFrame:
    """Return the frame with exactly the declared columns, in order, typed.

    Missing optional columns are added as unknown (NaN or ''). Errors: ValueError naming the
    frame, the column and what was found, for a missing required or an undeclared column, a
    time without UTC, or a NULL in a required column.
    """
    import pandas as pd

    unknown = [str(name) for name in frame.columns if name not in declared.columns]
    if unknown:
        raise ValueError(f"{declared.name} frame has undeclared columns {unknown}")
    if frame.empty and frame.dtypes.equals(_empty(declared).dtypes):
        return empty_frame(declared)
    typed: dict[str, pd.Series] = {}
    for name, (dtype, _unit) in declared.columns.items():
        if name not in frame.columns:
            if name in declared.required:
                raise ValueError(f"{declared.name} frame lacks the required column {name!r}")
            filler = "" if dtype == TEXT else float("nan")
            typed[name] = pd.Series(filler, index=frame.index, dtype=dtype)
            continue
        column = frame[name]
        if dtype == TIME and getattr(column.dtype, "tz", None) is None:
            raise ValueError(f"{declared.name}.{name} must be UTC-aware, got {column.dtype}")
        if name in declared.required and bool(column.isna().any()):
            raise ValueError(f"{declared.name}.{name} must not hold missing values")
        typed[name] = (column.fillna("") if dtype == TEXT else column).astype(cast("Any", dtype))
    return pd.DataFrame(typed, index=frame.index)


def empty_frame(declared: FrameColumns) -> pd.DataFrame:
    """Return a frame without rows that has the declared columns and types."""
    return _empty(declared).copy(deep=False)


@cache
def _empty(declared: FrameColumns) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        {name: pd.Series([], dtype=dtype) for name, (dtype, _unit) in declared.columns.items()}
    )
