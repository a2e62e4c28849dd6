"""Peaks that we measured ourselves, beside their estimates, half of which shaped the estimates.

benchmarks/measured/training_memory_h200.json has a run of benchmarks/measure_memory.py a row:
Hugging Face models of random weights, four steps of transformers' Trainer on one GPU. Bytes are
peaks: `allocated` and `reserved` of torch, `nvml` of the board. A row becomes the job that a user
would describe. Whether it fits is asked as `trimtab estimate` asks it.

Corrections to the predictor were chosen on the runs of half the models, by a hash of their names.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._marp_paper import marp_peak_bytes
from benchmarks._memory_scores import GIB, accuracy, figure_of, mean
from benchmarks._memory_tables import line
from benchmarks.memory_peers import deepspeed_bytes, four_weights_bytes, megatron_bytes
from dashboard.submission.estimates.estimate import EstimatedLayout, layout_on
from planner.memory.estimate.bounds import FIT_PROBABILITY
from planner.memory.estimate.predictor import MemoryEstimate, predict_peak, refusal
from planner.memory.estimate.training_plans import GpuType
from planner.memory.models.model_sizes import known_model
from planner.memory.step.training_job import Adapter, Method, Recompute, TrainingJob

ROWS = Path(__file__).parent / "measured" / "training_memory_h200.json"
FIGURES = ("allocated", "reserved", "nvml")
_WORST = 5
_POLICIES = {
    ("full", "bfloat16"): "full, fp32 weights, bf16 autocast",
    ("full", ""): "full, bf16 throughout",
    ("lora", "bfloat16"): "LoRA, bf16 weights, autocast",
    ("lora", ""): "LoRA, bf16 weights, no autocast",
}
"""Words for method and autocast; weights are fp32 only where all are trained under autocast."""
_OPTIMIZERS = {"adamw_torch": "adamw", "adamw_torch_fused": "adamw_fused"}
"""The product's names of transformers' optimisers, as launch commands are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRun:
    """A measured run with its estimate; `told` knows the framework, `untold` does not.

    `peaks` are bytes by figure, lower bounds of a run that ran out of memory.
    """

    row: dict[str, Any]
    policy: str
    peaks: dict[str, float]
    told: EstimatedLayout
    untold: MemoryEstimate

    @property
    def job(self) -> TrainingJob:
        """The job as a user would say it."""
        return self.told.job

    @property
    def oom(self) -> bool:
        """Whether it ran out of memory."""
        return bool(self.row["oom"])

    @property
    def ratio(self) -> float:
        """Estimated over measured peak of the board."""
        return self.told.estimate.nvml_bytes / self.peaks["nvml"]

    @property
    def name(self) -> str:
        """All that sets the run apart."""
        row = self.row
        words = [row["model"], self.policy, f"{row['micro_batch']} x {row['sequence']}"]
        if row["lora_rank"]:
            where = "attention" if len(row["lora_targets"]) == 4 else "all matrices"
            words.append(f"rank {row['lora_rank']} on {where}")
        words += [f"{row['accumulation']} micro-batches"] if row["accumulation"] > 1 else []
        words += ["recomputed"] if row["recompute"] else []
        words += [f"{row['attention']} attention"] if row["attention"] != "sdpa" else []
        return ", ".join([*words, row["optimizer"]])


def job_of(row: dict[str, Any]) -> TrainingJob:
    """Return the job of a row as a user would say it.

    Of an adapter the precision is left to the framework, as launch commands are read: the
    product does not ask whether the steps run under autocast.
    """
    full = row["method"] == "full"
    adapter = Adapter(
        rank=row["lora_rank"],
        targets=tuple(row["lora_targets"]),
        dropout=row["lora_dropout"] > 0,
    )
    return TrainingJob(
        shape=known_model(row["model"]),
        framework="transformers",
        method=Method.FULL if full else Method.ADAPTER,
        adapter=None if full else adapter,
        micro_batch=row["micro_batch"],
        sequence_length=row["sequence"],
        length_varies=False,
        gradient_accumulation=row["accumulation"],
        precision=("amp" if row["autocast"] else "bf16-true") if full else None,
        optimizer=_OPTIMIZERS.get(row["optimizer"], row["optimizer"]),
        recompute=Recompute.FULL if row["recompute"] else Recompute.NONE,
        flash_attention=row["attention"] != "eager",
        compiled=False,
    )


def board_bytes(header: dict[str, Any], rows: Sequence[dict[str, Any]]) -> float:
    """Return the memory of the board that the limit stands for: what torch may take, and the rest.

    The rest is what NVML showed at most beside torch in a run that fitted.
    """
    beside = [row["nvml_used_bytes"] - row["peak_reserved_bytes"] for row in rows if not row["oom"]]
    return float(header["limit_bytes"] + max(beside))


def own_runs() -> tuple[dict[str, Any], float, list[OwnRun]]:
    """Return what was run on, the bytes of its board, and every run with its estimates."""
    found = json.loads(ROWS.read_text(encoding="utf-8"))
    header, rows = found["header"], found["rows"]
    memory = board_bytes(header, rows)
    board = GpuType(name="capped", memory_bytes=memory, relative_speed=1.0, price_per_hour=1.0)
    runs = []
    for row in rows:
        job = job_of(row)
        run = OwnRun(
            row=row,
            policy=_POLICIES[row["method"], row["autocast"]],
            peaks={
                "allocated": row["peak_allocated_bytes"],
                "reserved": row["peak_reserved_bytes"],
                "nvml": row["nvml_used_bytes"],
            },
            told=layout_on(job, board),
            untold=predict_peak(replace(job, framework="")),
        )
        runs.append(run)
    return header, memory, runs


def _near(runs: Sequence[OwnRun], figure: str, *, told: bool = True) -> float:
    """Return the mean of 1 - |estimate - peak| / peak of a figure."""
    pairs = [(run.told.estimate if told else run.untold, run.peaks[figure]) for run in runs]
    return mean([accuracy(figure_of(estimate, figure), peak) for estimate, peak in pairs])


def _shown(figure: str) -> str:
    return figure.upper() if figure == "nvml" else figure


def _accuracies(fitted: Sequence[OwnRun]) -> list[str]:
    """Return how near each figure comes, with the framework told and not."""
    lines = ["| peak | rows | framework told | framework not told |", "|---|---:|---:|---:|"]
    return [
        *lines,
        *(
            line(_shown(name), len(fitted), _near(fitted, name), _near(fitted, name, told=False))
            for name in FIGURES
        ),
        "",
    ]


def seen(model: str) -> bool:
    """Return whether the runs of a model were used to correct the predictor."""
    return int(hashlib.sha256(model.encode()).hexdigest(), 16) % 2 == 0


def _halves(fitted: Sequence[OwnRun]) -> list[str]:
    """Return how near each figure comes for models that were used for corrections, and others."""
    lines = [
        "| models, framework told | rows | allocated | reserved | NVML | below p90 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for words, used in (("used", True), ("not used", False)):
        runs = [run for run in fitted if seen(run.row["model"]) is used]
        names = ", ".join(sorted({run.row["model"] for run in runs}))
        near = [_near(runs, figure) for figure in FIGURES]
        below = sum(run.peaks["nvml"] <= run.told.estimate.p90_bytes for run in runs)
        lines.append(line(f"{words}: {names}", len(runs), *near, f"{below} of {len(runs)}"))
    return [*lines, ""]


def _groups(fitted: Sequence[OwnRun]) -> list[str]:
    """Return accuracy by what sets the runs apart."""

    def length(run: OwnRun) -> str:
        tokens = run.row["sequence"]
        return str(tokens) if tokens < 4096 else "4096 to 16384"

    keys: dict[str, Callable[[OwnRun], str]] = {
        "method": lambda run: run.policy,
        "recompute": lambda run: "full" if run.row["recompute"] else "none",
        "sequence": length,
        "optimizer": lambda run: str(run.row["optimizer"]),
        "attention": lambda run: str(run.row["attention"]),
    }
    lines = [
        "| by | | rows | allocated | reserved | NVML | estimate over peak, NVML | below p99 |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for title, key in keys.items():
        groups: dict[str, list[OwnRun]] = {}
        for run in sorted(fitted, key=lambda run: (run.row["sequence"], run.policy)):
            groups.setdefault(key(run), []).append(run)
        for name, runs in groups.items():
            near = [_near(runs, figure) for figure in FIGURES]
            ratio = mean([run.ratio for run in runs])
            below = sum(run.peaks["nvml"] <= run.told.estimate.p99_bytes for run in runs)
            lines.append(line(title, name, len(runs), *near, ratio, f"{below} of {len(runs)}"))
    return [*lines, ""]


def _peers(fitted: Sequence[OwnRun]) -> list[str]:
    """Return the published formulas on full training, by what tensors take and by the board."""

    def tokens(job: TrainingJob) -> dict[str, int]:
        return {"micro_batch": job.micro_batch or 0, "sequence_length": job.sequence_length or 0}

    peers: dict[str, Callable[[TrainingJob], float | None]] = {
        "MARP as published (marp_paper)": lambda job: marp_peak_bytes(job.shape, **tokens(job)),
        "Megatron report": lambda job: megatron_bytes(job.shape, job=job, **tokens(job)),
        "DeepSpeed, states of one GPU": deepspeed_bytes,
        "four times the fp32 weights (accelerate)": lambda job: four_weights_bytes(job.shape),
    }
    full = [run for run in fitted if run.job.method is Method.FULL]

    def near(figure: str, peer: Callable[[TrainingJob], float | None]) -> float:
        return mean([max(0.0, accuracy(peer(run.job) or 0.0, run.peaks[figure])) for run in full])

    lines = ["| full training | rows | allocated | NVML |", "|---|---:|---:|---:|"]
    for name, peer in peers.items():
        lines.append(line(name, len(full), near("allocated", peer), near("nvml", peer)))
    lines.append(line("Trimtab", len(full), _near(full, "allocated"), _near(full, "nvml")))
    return [*lines, ""]


def _bounds(fitted: Sequence[OwnRun]) -> list[str]:
    """Return how many measured peaks the bounds cover; p10 is the mirror of p90."""

    def below(name: str, run: OwnRun) -> bool:
        return run.peaks["nvml"] <= float(getattr(run.told.estimate, name))

    def between(run: OwnRun) -> bool:
        estimate = run.told.estimate
        return estimate.p50_bytes**2 / estimate.p90_bytes <= run.peaks["nvml"] and below(
            "p90_bytes", run
        )

    asked: dict[str, Callable[[OwnRun], bool]] = {
        "below p50": partial(below, "p50_bytes"),
        "below p90": partial(below, "p90_bytes"),
        "below p95": partial(below, "p95_bytes"),
        "below p99": partial(below, "p99_bytes"),
        "from p10 to p90": between,
    }
    lines = ["| measured NVML peak | runs | share |", "|---|---:|---:|"]
    for name, covered in asked.items():
        count = sum(covered(run) for run in fitted)
        lines.append(line(name, f"{count} of {len(fitted)}", count / len(fitted)))
    return [*lines, ""]


def _fits(runs: Sequence[OwnRun], memory: float) -> list[str]:
    """Return how many runs are refused, and how many are not offered as fitting."""
    lines = [
        f"| on a board of {memory / GIB:.1f} GiB | out of memory in fact | fitted in fact |",
        "|---|---:|---:|",
    ]
    asked: dict[str, Callable[[OwnRun], bool]] = {
        "refused to start (`refusal`)": lambda run: bool(refusal(run.told.estimate, memory)),
        f"not offered as fitting with {100 * FIT_PROBABILITY:g} % (`trimtab estimate`)": (
            lambda run: bool(run.told.refusal)
        ),
    }
    for name, stopped in asked.items():
        cells = []
        for oom in (True, False):
            group = [run for run in runs if run.oom is oom]
            cells.append(f"{sum(map(stopped, group))} of {len(group)}")
        lines.append(line(name, *cells))
    held = [run.name for run in runs if not run.oom and run.told.refusal]
    missed = [run.name for run in runs if run.oom and not run.told.refusal]
    return [
        *lines,
        "",
        "The board is what torch might take and the most that NVML showed beside it.",
        f"Fitted and not offered: {'; '.join(held) or 'none'}.",
        f"Out of memory and offered: {'; '.join(missed) or 'none'}.",
        "",
    ]


def _worst(fitted: Sequence[OwnRun]) -> list[str]:
    """Return the runs whose NVML peak is missed by the largest factor, up or down, in GiB."""
    lines = [
        "| missed by the largest factor | allocated, estimate / peak GiB | reserved | NVML | p99 |",
        "|---|---:|---:|---:|---:|",
    ]
    for run in sorted(fitted, key=lambda run: -abs(np.log(run.ratio)))[:_WORST]:
        estimate = run.told.estimate
        pairs = [
            f"{figure_of(estimate, figure) / GIB:.1f} / {run.peaks[figure] / GIB:.1f}"
            for figure in FIGURES
        ]
        lines.append(line(run.name, *pairs, f"{estimate.p99_bytes / GIB:.1f}"))
    return [*lines, ""]


def _cached(fitted: Sequence[OwnRun], *, measured: bool) -> float:
    """Return the median of reserved over allocated bytes, of peaks or of estimates."""
    if measured:
        return float(np.median([run.peaks["reserved"] / run.peaks["allocated"] for run in fitted]))
    estimates = [run.told.estimate for run in fitted]
    return float(np.median([found.reserved_bytes / found.allocated_bytes for found in estimates]))


def own_lines() -> list[str]:
    """Return the whole section in Markdown."""
    header, memory, runs = own_runs()
    fitted = [run for run in runs if not run.oom]
    over = float(np.median([run.ratio for run in fitted]))
    text = (
        f"{len(runs)} runs of random weights, four steps each of transformers' Trainer "
        f"{header['transformers']} with torch {header['torch']}, on one {header['gpu']} of which "
        f"torch might take {header['limit_bytes'] / GIB:.1f} GiB; {len(runs) - len(fitted)} ran "
        "out of it and are judged by refusal alone. Accuracy is the mean of "
        "1 - |estimate - peak| / peak. The traits of transformers were corrected on the half of "
        "the models that is called used; of the other half only the mean figures were seen while "
        "that was done, but where errors come from had been read off all rows before. "
        "The runs were chosen with estimates at hand: what ran out was expected far beyond it. "
        f"The median of estimate over peak of NVML is {over:.3f}; that of reserved over allocated "
        f"is {_cached(fitted, measured=True):.3f} measured and "
        f"{_cached(fitted, measured=False):.3f} estimated."
    )
    return [
        "## Measured by ourselves on one H200 (half seen while the predictor was corrected)",
        "",
        text,
        "",
        *_accuracies(fitted),
        *_halves(fitted),
        *_groups(fitted),
        *_peers(fitted),
        *_bounds(fitted),
        *_fits(runs, memory),
        *_worst(fitted),
    ]
