"""Fit of a launched job on every GPU type: for `trimtab estimate` with a launcher."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dashboard.submission.estimates.estimate import (
    EstimatedLayout,
    layout_on,
    layout_row,
    shown_probability,
)
from dashboard.submission.launchers.launched_job import LaunchedJob
from planner.memory.estimate.bounds import FIT_PROBABILITY, USABLE_RATIO
from planner.memory.estimate.calibration import Calibration
from planner.memory.estimate.predictor import MemoryEstimate, gib
from planner.memory.estimate.training_plans import GpuType
from planner.memory.step.step_events import CACHE
from planner.memory.step.training_job import Method, TrainingJob

_SAMPLES_AT_START = "vllm"
_LARGE_BOARD_BYTES = 70 * 2**30
_OF_WHAT_IS_FREE = "sglang"
"""Its share is of what is free before the weights, and holds them and the cache: work has the rest
(version 0.4, python/sglang/srt/model_executor/model_runner.py, profile_max_num_token)."""
_BOARDS_MIB = (20 * 1024, 35 * 1024, 60 * 1024, 160 * 1024)
_CHUNKS = (2048, 4096, 4096, 8192, 16384)
_GRAPH_SEQUENCES = ((8, 8), (48, 160), (32, 160), (256, 512), (512, 512))
"""SGLang's own by the board's memory: prompt tokens at once, and sequences of its largest graph
with fewer than four tensor-parallel ranks and with more."""
_PROMPT_GRAPHS = (
    *range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64),
    *range(1280, 4097, 256), *range(4608, max(_CHUNKS) + 1, 512),
)  # fmt: skip
"""The prompts' lengths that it captures a graph of, those up to a chunk."""


def sequences_at_start(gpu: GpuType) -> int:
    """Return vLLM's max_num_seqs where nobody states it.

    It samples so many sequences once before it sizes its cache. Its server takes 1,024 on boards
    of 70 GiB and more that are no A100, else 256 (version 0.19, vllm/engine/arg_utils.py).
    """
    large = gpu.memory_bytes >= _LARGE_BOARD_BYTES and "a100" not in gpu.name.casefold()
    return 1024 if large else 256


def share_unasked(gpu: GpuType, *, tensor: int, pipeline: int) -> float:
    """Return SGLang's mem_fraction_static where nobody states it.

    What it leaves for work is by board and ranks (version 0.5, _handle_gpu_memory_settings), in
    MiB: 512, 1.5 a prompt token, 2 a sequence and 8 a prompt's length of its graphs.
    """
    memory = gpu.memory_bytes / 2**20
    board = bisect_right(_BOARDS_MIB, memory)
    chunk, sequences = _CHUNKS[board], _GRAPH_SEQUENCES[board][tensor >= 4]
    graphs = bisect_right(_PROMPT_GRAPHS, chunk)
    reserve = 512 + 1.5 * chunk + 128 * tensor * pipeline + 2 * sequences + 8 * graphs
    reserve = max(reserve, 10 * 1024) if memory > 60 * 1024 else reserve
    return round((memory - reserve) / memory, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedRow:
    """A launched job on one GPU type: the row that is shown, with what it was made of."""

    row: dict[str, Any]
    job: TrainingJob
    estimate: MemoryEstimate


def launched_rows(
    launched: LaunchedJob, types: Sequence[GpuType], *, calibration: Calibration | None = None
) -> list[LaunchedRow]:
    """Return the job on every type: training by its peak, serving by the engine's share as well."""
    rows = []
    for gpu in types:
        job = launched.job
        serves = job.method is Method.INFERENCE
        if launched.engine_share is not None and not serves:
            engine = launched.engine_share * gpu.memory_bytes
            job = replace(job, companions=replace(job.companions, engine_bytes=engine))
        if serves and job.sampled_sequences is None and job.framework == _SAMPLES_AT_START:
            job = replace(job, sampled_sequences=sequences_at_start(gpu))
        layout = layout_on(job, gpu, calibration=calibration)
        row = _served(launched, layout, gpu) if serves else layout_row(layout)
        rows.append(LaunchedRow(row=row, job=layout.job, estimate=layout.estimate))
    return rows


def _served(launched: LaunchedJob, layout: EstimatedLayout, gpu: GpuType) -> dict[str, Any]:
    """Return the row of an engine: of its share the cache has what weights and work leave."""
    job, estimate = layout.job, layout.estimate
    parts = dict(estimate.breakdown)
    cache, ranks = parts[CACHE], job.parallelism
    share = launched.engine_share or 1.0
    if job.framework == _OF_WHAT_IS_FREE:
        share = launched.engine_share or share_unasked(
            gpu, tensor=ranks.tensor, pipeline=ranks.pipeline
        )
        static = share * (gpu.memory_bytes - estimate.context_bytes)
        offered = static + estimate.nvml_bytes - parts["weights"] - cache
    else:
        offered = static = share * gpu.memory_bytes
    tokens = (job.micro_batch or 1) * (job.sequence_length or 1)
    room = max(0.0, offered - (estimate.nvml_bytes - cache))
    why = layout.refusal
    if not why and estimate.probability_within(offered) < FIT_PROBABILITY:
        why = (
            f"the engine takes {gib(static):g} GiB of it: {gib(estimate.p50_bytes):g} GiB "
            f"expected, {gib(estimate.p95_bytes):g} at 95 %"
        )
    count = int(room / cache * tokens) if cache else 0
    within = estimate.probability_within(min(offered, USABLE_RATIO * gpu.memory_bytes))
    return layout_row(replace(layout, refusal=why)) | {
        "fit_probability": shown_probability(within),
        "engine_gib": gib(static),
        "cache_gib": gib(room),
        "cache_p95_gib": gib(max(0.0, offered - (estimate.p95_bytes - cache))),
        "cache_tokens": count,
        "cached_sequences": count // (job.sequence_length or 1),
    }
