"""Whether a launched job fits, on every GPU type: for `trimtab estimate` with a launcher."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dashboard.submission.estimate import (
    EstimatedLayout,
    layout_on,
    layout_row,
    shown_probability,
)
from dashboard.submission.launchers.launched_job import LaunchedJob
from planner.memory.bounds import FIT_PROBABILITY, USABLE
from planner.memory.calibration import Calibration
from planner.memory.predictor import MemoryEstimate, gib
from planner.memory.step_events import CACHE
from planner.memory.training_job import Method
from planner.memory.training_plans import GpuType

_SAMPLES_AT_START = "vllm"
_LARGE_BOARD_BYTES = 70 * 2**30


def sequences_at_start(gpu: GpuType) -> int:
    """Return vLLM's max_num_seqs where nobody states it.

    It samples so many sequences once before it sizes its cache. Its server takes 1,024 on boards
    of 70 GiB and more that are no A100, else 256 (version 0.19, vllm/engine/arg_utils.py).
    """
    large = gpu.memory_bytes >= _LARGE_BOARD_BYTES and "a100" not in gpu.name.casefold()
    return 1024 if large else 256


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedRow:
    """A launched job on one GPU type: the row that is shown, with its estimate."""

    row: dict[str, Any]
    estimate: MemoryEstimate


def launched_rows(
    launched: LaunchedJob, types: Sequence[GpuType], *, calibration: Calibration | None = None
) -> list[LaunchedRow]:
    """Return the job on every type: training by its peak, serving by the engine's share as well."""
    found = []
    for gpu in types:
        job = launched.job
        serves = job.method is Method.INFERENCE
        if launched.engine_share is not None and not serves:
            engine = launched.engine_share * gpu.memory_bytes
            job = replace(job, companions=replace(job.companions, engine_bytes=engine))
        if serves and job.sampled_sequences is None and job.framework == _SAMPLES_AT_START:
            job = replace(job, sampled_sequences=sequences_at_start(gpu))
        layout = layout_on(job, gpu, calibration=calibration)
        row = _served(launched, layout) if serves else layout_row(layout)
        found.append(LaunchedRow(row=row, estimate=layout.estimate))
    return found


def _served(launched: LaunchedJob, layout: EstimatedLayout) -> dict[str, Any]:
    """Return the row of an engine: of its share the cache has what weights and work leave."""
    job, estimate = layout.job, layout.estimate
    share = launched.engine_share or 1.0
    offered = share * (job.gpu_memory_bytes or 0.0)
    cache = dict(estimate.breakdown)[CACHE]
    tokens = (job.micro_batch or 1) * (job.sequence_length or 1)
    room = max(0.0, offered - (estimate.nvml_bytes - cache))
    why = layout.refusal
    if not why and estimate.probability_within(offered) < FIT_PROBABILITY:
        why = (
            f"the engine takes {gib(offered):g} GiB of it: {gib(estimate.p50_bytes):g} GiB "
            f"expected, {gib(estimate.p95_bytes):g} at 95 %"
        )
    held = int(room / cache * tokens) if cache else 0
    within = estimate.probability_within(min(offered, USABLE * (job.gpu_memory_bytes or 0.0)))
    return layout_row(replace(layout, refusal=why)) | {
        "fit_probability": shown_probability(within),
        "engine_gib": gib(offered),
        "cache_gib": gib(room),
        "cache_p95_gib": gib(max(0.0, offered - (estimate.p95_bytes - cache))),
        "cache_tokens": held,
        "cached_sequences": held // (job.sequence_length or 1),
    }
