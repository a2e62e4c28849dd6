"""Tables of measured against estimated memory, left out and in-sample side by side."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks._marp_paper import marp_peak_bytes
from benchmarks._memory_scores import (
    Known,
    Scored,
    accuracy,
    calibrated,
    calibrated_coverage,
    estimates,
    mean,
    several_sources,
)
from benchmarks.memory_peers import deepspeed_bytes, four_weights_bytes, megatron_bytes
from benchmarks.memory_rows import MeasuredRow
from planner.memory.estimate.bounds import SHARES, bound_factor
from planner.memory.estimate.predictor import refusal
from planner.memory.step.training_job import Method, TrainingJob

_GROUP_HEAD = (
    "| {title} | rows | left out, not told | left out, told | in-sample | median error in-sample "
    "| calibrated, 10 runs |"
)
_LEFT_OUT_HEAD = (
    "| what is known of a row's framework | rows | accuracy | median error "
    "| after 10 runs of the family | OOM runs refused | fitting runs refused |"
)
_PEER_HEAD = (
    "| full training, batch and length printed | rows | formula | Trimtab, left out, not told "
    "| Trimtab, in-sample |"
)
_BOUND_HEAD = (
    "| bound | left out, not told: stated factor | and quantile over all other sources "
    "| left out, told: stated factor | and quantile over all other sources "
    "| in-sample: stated factors (by tier) | after 10 runs of the family |"
)
Judged = Mapping[Known, Sequence[Scored]]
"""The same rows by what was known of their frameworks."""


def line(*cells: object) -> str:
    """Return one line of a Markdown table."""
    shown = [f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in cells]
    return "| " + " | ".join("-" if cell == "nan" else cell for cell in shown) + " |"


def left_out_table(judged: Judged, measured: Sequence[MeasuredRow]) -> list[str]:
    """Return the figures that count, and in-sample ones beside them."""
    lines = [_LEFT_OUT_HEAD, "|---|---:|---:|---:|---:|---:|---:|"]
    for known, rows in judged.items():
        oom, ooms, fitting, fits, _ = refusals(measured, known)
        lines.append(
            line(
                known,
                len(rows),
                mean([entry.accuracy for entry in rows]),
                float(np.median([1 - entry.accuracy for entry in rows])),
                calibrated(rows, 10),
                f"{oom} of {ooms}",
                f"{fitting} of {fits}",
            )
        )
    return [*lines, ""]


def group_table(title: str, judged: Judged, key: Callable[[Scored], str]) -> list[str]:
    """Return accuracy by a key of the in-sample rows: left out, in-sample, and calibrated."""
    lines = [_GROUP_HEAD.format(title=title), "|---|---:|---:|---:|---:|---:|---:|"]
    groups: dict[str, list[int]] = {}
    for index, row in enumerate(judged[Known.RUNS]):
        groups.setdefault(key(row), []).append(index)
    for name, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        by_known = [[rows[index] for index in group] for rows in judged.values()]
        seen = by_known[-1]
        lines.append(
            line(
                name,
                len(group),
                *(mean([entry.accuracy for entry in rows]) for rows in by_known),
                float(np.median([1 - entry.accuracy for entry in seen])),
                calibrated(seen, 10),
            )
        )
    return [*lines, ""]


def peer_table(judged: Judged) -> list[str]:
    """Return the published formulas on full training whose batch and length are printed."""
    full = [
        (seen, untold)
        for seen, untold in zip(judged[Known.RUNS], judged[Known.NOTHING], strict=True)
        if seen.job.method is Method.FULL and seen.job.micro_batch and seen.job.sequence_length
    ]

    def marp(job: TrainingJob) -> float | None:
        return marp_peak_bytes(
            job.shape,
            sequence_length=job.sequence_length or 0,
            micro_batch=job.micro_batch or 0,
            tensor=job.parallelism.tensor,
        )

    def megatron(job: TrainingJob) -> float | None:
        return megatron_bytes(
            job.shape,
            job=job,
            micro_batch=job.micro_batch or 0,
            sequence_length=(job.sequence_length or 0) // job.parallelism.context,
        )

    lines = [_PEER_HEAD, "|---|---:|---:|---:|---:|"]
    peers: dict[str, Callable[[TrainingJob], float | None]] = {
        "MARP as published (marp_paper)": marp,
        "Megatron report": megatron,
        "DeepSpeed ZeRO-2/3 estimator (states only)": deepspeed_bytes,
        "four times the fp32 weights (accelerate)": lambda job: four_weights_bytes(job.shape),
    }
    for name, peer in peers.items():
        given = [(*both, value) for both in full if (value := peer(both[0].job)) is not None]
        lines.append(
            line(
                name,
                len(given),
                mean([max(0.0, accuracy(value, seen.peak)) for seen, _, value in given]),
                mean([max(0.0, untold.accuracy) for _, untold, _ in given]),
                mean([max(0.0, seen.accuracy) for seen, _, _ in given]),
            )
        )
    return [*lines, ""]


def coverage(rows: Sequence[Scored], share: float) -> tuple[float, float]:
    """Return the share of peaks below the stated bound, and below one made of other sources."""
    stated = [row.ratio <= bound_factor(row.estimate.tier, share) for row in rows]
    unseen = []
    for source in several_sources(rows):
        others = [row.ratio for row in rows if row.row.source != source]
        quantile = float(np.quantile(others, share))
        unseen += [row.ratio <= quantile for row in rows if row.row.source == source]
    return mean(stated), mean(unseen)


def bound_table(judged: Judged) -> list[str]:
    """Return the coverage of the bounds."""
    seen = judged[Known.RUNS]
    lines = [
        line(
            f"{100 * share:.0f} %",
            *coverage(judged[Known.NOTHING], share),
            *coverage(judged[Known.CODE], share),
            coverage(seen, share)[0],
            calibrated_coverage(seen, share),
        )
        for share in SHARES
    ]
    return [_BOUND_HEAD, "|---|---:|---:|---:|---:|---:|---:|", *lines, ""]


def refusals(measured: Sequence[MeasuredRow], known: Known) -> tuple[int, int, int, int, list[str]]:
    """Return OOM runs refused and in all, fitting runs refused and in all, and the missed ones."""
    refused = {True: 0, False: 0}
    total = {True: 0, False: 0}
    missed = []
    for row, estimate in estimates(measured, known):
        if estimate is None or row.job is None or row.job.gpu_memory_bytes is None:
            missed += [f"{row.row_id} (no shape)"] if row.out_of_memory else []
            total[True] += row.out_of_memory
            continue
        no = bool(refusal(estimate, row.job.gpu_memory_bytes))
        total[row.out_of_memory] += 1
        refused[row.out_of_memory] += no
        if row.out_of_memory and not no:
            missed.append(f"{row.row_id} ({row.model}, {row.method})")
    return refused[True], total[True], refused[False], total[False], missed
