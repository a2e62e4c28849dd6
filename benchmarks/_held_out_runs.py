"""Runs that nobody had looked at when the memory predictor was made, beside its estimates.

The estimates of `measured/held_out_predictions.json` were committed before the runs were measured:
they are the blind ones. Today's predictor makes the others. What was mended since was chosen on
the runs at even places of the list, and is judged on those at odd ones.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._gpu_memory import LIMIT_BYTES
from benchmarks._held_out_cases import BESIDE_TORCH_BYTES, CASES, HeldOutCase, job_of
from benchmarks._memory_scores import GIB, accuracy, mean
from benchmarks._memory_tables import line
from dashboard.submission.estimates.estimate import layout_on
from planner.memory.estimate.predictor import MemoryEstimate, predict_peak, refusal
from planner.memory.estimate.training_plans import GpuType

FIGURES = ("allocated", "reserved", "nvml")
_BOUNDS = ("p50", "p90", "p95", "p99")
_MEASURED = Path(__file__).parent / "measured"
_WORST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutRun:
    """A measured run with what was said of it before, `blind`, and what is said of it `now`.

    Both are answers of `answer_of`; `peaks` are bytes by figure, lower bounds of a run that ran out
    of memory.
    """

    case: HeldOutCase
    chosen_on: bool
    oom: bool
    peaks: dict[str, float]
    blind: dict[str, Any]
    now: dict[str, Any]


def _bytes(estimate: MemoryEstimate) -> dict[str, float]:
    return {name: round(getattr(estimate, f"{name}_bytes")) for name in (*FIGURES, *_BOUNDS)}


def answer_of(case: HeldOutCase) -> dict[str, Any]:
    """Return what is said of a case: bytes with the framework told and not, and whether it fits."""
    job = job_of(case)
    memory = case.board_gib * GIB or float(LIMIT_BYTES + BESIDE_TORCH_BYTES)
    board = GpuType(name="capped", memory_bytes=memory, relative_speed=1.0, price_per_hour=1.0)
    told = predict_peak(job)
    return {
        "told": _bytes(told),
        "untold": _bytes(predict_peak(replace(job, framework=""))),
        "tier": str(told.tier),
        "refused": bool(refusal(told, memory)),
        "offered": not layout_on(job, board).refusal,
    }


def held_out_runs() -> tuple[dict[str, Any], list[HeldOutRun]]:
    """Return what the runs were measured on, and all of them with their estimates."""
    measured = json.loads((_MEASURED / "training_memory_2_h200.json").read_text(encoding="utf-8"))
    said = json.loads((_MEASURED / "held_out_predictions.json").read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in measured["rows"]}
    runs = []
    for index, case in enumerate(CASES):
        row = rows[case.name]
        peaks = {
            "allocated": row["peak_allocated_bytes"],
            "reserved": row["peak_reserved_bytes"],
            "nvml": row["nvml_used_bytes"],
        }
        run = HeldOutRun(
            case=case,
            chosen_on=index % 2 == 0,
            oom=row["oom"],
            peaks=peaks,
            blind=said[case.name],
            now=answer_of(case),
        )
        runs.append(run)
    return measured["header"], runs


def _near(runs: Sequence[HeldOutRun], figure: str, when: str, known: str = "told") -> float:
    """Return the mean of 1 - |estimate - peak| / peak of a figure, of a run 0 at least."""
    near = [accuracy(getattr(run, when)[known][figure], run.peaks[figure]) for run in runs]
    return mean([max(0.0, share) for share in near])


def _row(words: str, runs: Sequence[HeldOutRun], when: str) -> str:
    ratio = np.median([getattr(run, when)["told"]["nvml"] / run.peaks["nvml"] for run in runs])
    below = [
        sum(run.peaks["nvml"] <= getattr(run, when)["told"][bound] for run in runs)
        for bound in ("p90", "p95", "p99")
    ]
    return line(
        words,
        len(runs),
        *(_near(runs, figure, when) for figure in FIGURES),
        _near(runs, "nvml", when, "untold"),
        float(ratio),
        *below,
    )


def _accuracies(fitted: Sequence[HeldOutRun], when: str, title: str) -> list[str]:
    """Return how near the estimates come by set, framework and half, and what the bounds cover."""
    keys: list[Callable[[HeldOutRun], str]] = [
        lambda run: f"set: {run.case.group}",
        lambda run: f"tier {getattr(run, when)['tier']}",
        lambda run: f"half: {'even places, used' if run.chosen_on else 'odd places, not used'}",
    ]
    groups: dict[str, list[HeldOutRun]] = {"all that fitted": list(fitted)}
    for key in keys:
        for run in sorted(fitted, key=key):
            groups.setdefault(key(run), []).append(run)
    return [
        (
            f"| {title} | rows | allocated | reserved | NVML | NVML, framework not told "
            "| median estimate over peak, NVML | below p90 | below p95 | below p99 |"
        ),
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(_row(words, runs, when) for words, runs in groups.items()),
        "",
    ]


def _fits(runs: Sequence[HeldOutRun]) -> list[str]:
    """Return what was refused and offered, of runs that ran out of memory and others."""
    lines = [
        "| on the board of the run | out of memory: blind | now | fitted: blind | now |",
        "|---|---:|---:|---:|---:|",
    ]
    for words, name in (("refused to start", "refused"), ("offered as fitting", "offered")):
        cells = [
            f"{sum(getattr(run, when)[name] for run in group)} of {len(group)}"
            for group in ([run for run in runs if run.oom], [run for run in runs if not run.oom])
            for when in ("blind", "now")
        ]
        lines.append(line(words, *cells))
    lines += ["", "| near the limit of its board | in fact | blind | now |", "|---|---|---|---|"]
    for run in runs:
        if run.case.board_gib:
            said = [
                "refused"
                if getattr(run, when)["refused"]
                else "offered"
                if getattr(run, when)["offered"]
                else "may start, not offered"
                for when in ("blind", "now")
            ]
            lines.append(line(run.case.name, "out of memory" if run.oom else "fitted", *said))
    return [*lines, ""]


def _worst(fitted: Sequence[HeldOutRun]) -> list[str]:
    """Return the runs whose NVML peak was missed by the largest factor when nobody had seen it."""

    def off(run: HeldOutRun) -> float:
        return float(abs(np.log(run.blind["told"]["nvml"] / run.peaks["nvml"])))

    lines = ["| missed most when blind | NVML, GiB | blind | now |", "|---|---:|---:|---:|"]
    for run in sorted(fitted, key=off, reverse=True)[:_WORST]:
        sizes = [run.peaks["nvml"], run.blind["told"]["nvml"], run.now["told"]["nvml"]]
        lines.append(line(run.case.name, *(f"{size / GIB:.1f}" for size in sizes)))
    return [*lines, ""]


def held_out_lines() -> list[str]:
    """Return the whole section in Markdown."""
    header, runs = held_out_runs()
    fitted = [run for run in runs if not run.oom]
    text = (
        f"{len(runs)} runs of random weights, four steps each, on one {header['gpu']} with torch "
        f"{header['torch']} and transformers {header['transformers']}. All estimates called blind "
        f"stood in commit {header['predictions_commit']} before the first run was measured. Rules "
        "were then chosen on runs at even places of the list; causes of error had been read off "
        f"all rows before. {len(runs) - len(fitted)} ran out of memory and are judged by refusal "
        "alone. The own GPT is told with `gelu` now; blind it was told with `gelu_new`."
    )
    return [
        "## Held out: runs of other families, frameworks, options and limits",
        "",
        text,
        "",
        *_accuracies(fitted, "blind", "blind"),
        *_accuracies(fitted, "now", "now"),
        *_fits(runs),
        *_worst(fitted),
    ]
