"""Predicted against measured peak memory of LLM training, with the published formulas as peers.

`python -m benchmarks.memory --data DIR`, which holds llm_memory_measured/memory.csv: peaks that
public repositories print, with the configuration they print. Accuracy is the mean of
1 - |estimate - peak| / peak, each row floored at 0 for the peers, not floored for Trimtab.
"Framework not told" uses the generic traits for every row. "With traits" uses
planner/memory/framework_traits.toml, whose values were partly chosen in view of these sources
(`chosen` in their evidence): that score is in-sample. "Calibrated" adds a Gaussian process over
finished runs of the family. Peers: MARP as published, DeepSpeed's estimators, Megatron's report.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks._marp_paper import marp_peak_bytes
from benchmarks._memory_scores import (
    Scored,
    accuracy,
    after_runs,
    by_family,
    calibrated,
    calibrated_coverage,
    from_other_sources,
    mean,
    scored,
    several_sources,
)
from benchmarks.memory_foundry import foundry_lines
from benchmarks.memory_peers import deepspeed_bytes, four_weights_bytes, megatron_bytes
from benchmarks.memory_rows import MeasuredRow, read_rows
from planner.memory.bounds import FIT_PROBABILITY, SHARES, USABLE, Tier, bound_factor
from planner.memory.framework_traits import framework_traits, known_frameworks
from planner.memory.predictor import predict_peak, refusal
from planner.memory.training_job import Method, TrainingJob
from planner.memory.training_plans import unbounded_peak

RESULTS = Path(__file__).parent / "results" / "memory.md"
_GROUP_HEAD = (
    "| {title} | rows | framework not told | with traits | median error | calibrated, 10 runs |"
)
_PEER_HEAD = (
    "| full training, batch and length printed | rows | formula | Trimtab, framework not told "
    "| Trimtab, with traits |"
)
_BOUND_HEAD = (
    "| bound | stated factors (by tier, in-sample) | quantile over all other sources "
    "| framework not told, tier C factor | framework not told, other sources' quantile "
    "| stated factors after 10 runs of the family |"
)
_FEW = 3
"""Methods with fewer rows are shown together."""


def line(*cells: object) -> str:
    """Return one line of a Markdown table."""
    shown = [f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in cells]
    return "| " + " | ".join("-" if cell == "nan" else cell for cell in shown) + " |"


def group_table(title: str, rows: Sequence[Scored], key: Callable[[Scored], str]) -> list[str]:
    """Return accuracy by a key: framework not told, with traits, and calibrated."""
    lines = [_GROUP_HEAD.format(title=title), "|---|---:|---:|---:|---:|---:|"]
    groups: dict[str, list[Scored]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    for name, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        errors = [1 - entry.accuracy for entry in group]
        lines.append(
            line(
                name,
                len(group),
                mean([accuracy(entry.untold, entry.peak) for entry in group]),
                mean([entry.accuracy for entry in group]),
                float(np.median(errors)),
                calibrated(group, 10),
            )
        )
    return [*lines, ""]


def peer_table(rows: Sequence[Scored]) -> list[str]:
    """Return the published formulas on full training whose batch and length are printed."""
    full = [
        row
        for row in rows
        if row.job.method is Method.FULL and row.job.micro_batch and row.job.sequence_length
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
        given = [(entry, value) for entry in full if (value := peer(entry.job)) is not None]
        lines.append(
            line(
                name,
                len(given),
                mean([max(0.0, accuracy(value, entry.peak)) for entry, value in given]),
                mean([max(0.0, accuracy(entry.untold, entry.peak)) for entry, _ in given]),
                mean([max(0.0, entry.accuracy) for entry, _ in given]),
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


def untold_coverage(rows: Sequence[Scored], share: float) -> float:
    """Return the share of peaks below the tier C bound when the framework is not told."""
    factor = bound_factor(Tier.C, share)
    return mean([row.peak <= row.untold * factor for row in rows])


def untold_left_out(rows: Sequence[Scored], share: float) -> float:
    """Return the same share where the factor is the quantile over all other sources."""
    hits = []
    for source in several_sources(rows):
        others = [row.peak / row.untold for row in rows if row.row.source != source]
        quantile = float(np.quantile(others, share))
        hits += [row.peak <= row.untold * quantile for row in rows if row.row.source == source]
    return mean(hits)


def bound_table(rows: Sequence[Scored]) -> list[str]:
    """Return the coverage of the bounds."""
    lines = [
        line(
            f"{100 * share:.0f} %",
            *coverage(rows, share),
            untold_coverage(rows, share),
            untold_left_out(rows, share),
            calibrated_coverage(rows, share),
        )
        for share in SHARES
    ]
    return [_BOUND_HEAD, "|---|---:|---:|---:|---:|---:|", *lines, ""]


def refusals(measured: Sequence[MeasuredRow]) -> tuple[int, int, int, int, list[str]]:
    """Return OOM runs refused and in all, fitting runs refused and in all, and the missed ones."""
    refused = {True: 0, False: 0}
    total = {True: 0, False: 0}
    missed = []
    for row in measured:
        if row.job is None or row.job.gpu_memory_bytes is None:
            missed += [f"{row.row_id} (no shape)"] if row.out_of_memory else []
            total[True] += row.out_of_memory
            continue
        no = bool(refusal(predict_peak(row.job), row.job.gpu_memory_bytes))
        total[row.out_of_memory] += 1
        refused[row.out_of_memory] += no
        if row.out_of_memory and not no:
            missed.append(f"{row.row_id} ({row.model}, {row.method})")
    return refused[True], total[True], refused[False], total[False], missed


def offered_text(measured: Sequence[MeasuredRow]) -> str:
    """Return in words how many runs that fitted, and that did not, the plans' rule would offer."""
    texts = []
    for how in ("framework told", "framework not told"):
        found: dict[bool, list[bool]] = {True: [], False: []}
        for row in measured:
            if row.job is not None and row.job.gpu_memory_bytes is not None:
                told = row.job.framework if how == "framework told" else ""
                estimate = unbounded_peak(replace(row.job, framework=told))
                probability = estimate.probability_within(USABLE * row.job.gpu_memory_bytes)
                found[row.out_of_memory].append(probability >= FIT_PROBABILITY)
        texts.append(
            f"{how}: {sum(found[False])} of {len(found[False])} runs that fitted, "
            f"{sum(found[True])} of {len(found[True])} that ran out of memory"
        )
    return f"Offered as fitting with {100 * FIT_PROBABILITY:g} %, {'; '.join(texts)}."


def estimates_per_second(jobs: Sequence[TrainingJob]) -> float:
    """Return estimates per CPU second, the best of three passes over the jobs."""
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        for job in jobs:
            predict_peak(job)
        best = min(best, time.process_time() - begun)
    return len(jobs) / best


def yardsticks(
    every: Sequence[Scored],
    clean: Sequence[Scored],
    measured: Sequence[MeasuredRow],
    speed: float,
) -> list[str]:
    """Return each line of the yardstick with its figure, met or missed."""
    told = [entry for entry in every if not entry.row.reason]
    tier_a = [entry for entry in clean if entry.estimate.tier is Tier.A]
    families = {
        name: after_runs(rows, 10)
        for name, rows in by_family(clean).items()
        if len({repr(row.job) for row in rows}) > 10
    }
    best = sum(value >= 0.97 for value in families.values())
    oom, ooms, fitting, fits, _ = refusals(measured)
    bounds = [abs(untold_left_out(clean, share) - share) for share in SHARES]
    named = all(entry.estimate.missing or entry.estimate.tier is not Tier.C for entry in every)
    rows = [
        ("all rows >= .90", mean([entry.accuracy for entry in every]), 0.90),
        ("rows that determine their peak >= .90", mean([entry.accuracy for entry in told]), 0.90),
        ("of these, without contradictory values >= .90", mean([o.accuracy for o in clean]), 0.90),
        (
            "printed recipe and fixed length (tier A) >= .95",
            mean([o.accuracy for o in tier_a]),
            0.95,
        ),
        ("inside a family after 10 runs, mean >= .97", calibrated(clean, 10), 0.97),
    ]
    lines = ["| yardstick | figure | |", "|---|---:|---|"]
    lines += [line(name, value, "met" if value >= goal else "missed") for name, value, goal in rows]
    share_oom, share_fit = oom / max(ooms, 1), fitting / max(fits, 1)
    lines += [
        line(f"families at >= .97 after 10 runs: {best} of {len(families)}", "", ""),
        line(
            f"OOM runs refused >= 22 of 25 (.88): {oom} of {ooms}",
            share_oom,
            "met" if share_oom >= 0.88 else "missed",
        ),
        line(
            f"fitting runs refused <= 3 %: {fitting} of {fits}",
            share_fit,
            "met" if share_fit <= 0.03 else "missed",
        ),
        line(
            "coverage on unseen families within 2 points, worst of 90/95/99",
            max(bounds),
            "met" if max(bounds) <= 0.02 else "missed",
        ),
        line("tier and missing field named on every estimate", "", "met" if named else "missed"),
        line(
            "estimates per CPU second >= 1,000",
            f"{speed:,.0f}",
            "met" if speed >= 1000 else "missed",
        ),
    ]
    return [*lines, ""]


def listed(measured: Sequence[MeasuredRow]) -> list[str]:
    """Return the rows that do not determine their peak or are contradicted, with the reason."""
    groups: dict[tuple[str, str], list[int]] = {}
    for row in measured:
        if row.reason and not row.out_of_memory:
            groups.setdefault((row.source, row.reason), []).append(row.row_id)
        if row.contradiction:
            groups.setdefault((row.source, row.contradiction), []).append(row.row_id)
    lines = ["| source | rows | what is wrong |", "|---|---|---|"]
    lines += [
        line(source, ", ".join(map(str, ids)), reason) for (source, reason), ids in groups.items()
    ]
    return [*lines, ""]


def chosen_values() -> list[str]:
    """Return what was chosen in view of these rows, by what it was chosen for."""
    lines = ["| chosen in view of these rows | values |", "|---|---|"]
    for name in ("generic", *known_frameworks()):
        evidence = " ".join(framework_traits(name).evidence.split())
        _, found, values = evidence.partition("chosen: ")
        if found:
            lines.append(line(f"traits of {name}", values))
    lines += [
        line("policies", "step of zero; step and reduced of internevo"),
        line(
            "recipes",
            "longest PEFT batch 0.76 of its cap; unpacked torchtune samples 1/8; no recomputation "
            "for torchtune's LoRA on the larger card; pipeline micro-batches of torchtitan",
        ),
        line("refusal", "margin of 3 %"),
        line("calibration", "spreads, length scale and noise of the prior; over all families"),
        line("bounds", "factors of tiers A, B and C; deviations after calibration"),
        line("structure", "which terms exist was settled while looking at residuals of these rows"),
    ]
    return [*lines, ""]


def report(measured: Sequence[MeasuredRow]) -> str:
    """Return the whole report in Markdown."""
    every = [entry for row in measured if (entry := scored(row)) is not None]
    told = [entry for entry in every if not entry.row.reason]
    clean = [entry for entry in told if not entry.row.contradiction]
    speed = estimates_per_second([entry.job for entry in every])
    oom, ooms, fitting, fits, missed = refusals(measured)
    scaled = mean([accuracy(entry.bytes, entry.peak * entry.row.printed_scale) for entry in clean])
    counts = pd.Series([entry.row.method for entry in clean]).value_counts()

    def method(one: Scored) -> str:
        name = one.row.method
        return name if counts[name] >= _FEW else "other adapters"

    rows_text = (
        f"Measured rows with an estimate: {len(every)}; {len(told)} determine their peak; "
        f"{len(clean)} of these are not contradicted. All tables but the first two lines of the "
        f"yardsticks use the {len(clean)}."
    )
    refused_text = (
        f"Refused before the start: {oom} of {ooms} runs that ran out of memory, {fitting} of "
        f"{fits} that fitted. Missed: {'; '.join(missed) or 'none'}."
    )
    unit_text = (
        "Where a source prints G without saying which, GiB is taken; read as 1e9 bytes the mean "
        f"accuracy over the {len(clean)} rows is {scaled:.3f}."
    )
    lines = [
        rows_text,
        "",
        *yardsticks(every, clean, measured, speed),
        *peer_table(clean),
        *group_table("source", clean, lambda entry: entry.row.source),
        *group_table("method", clean, method),
        *group_table("tier", clean, lambda entry: f"tier {entry.estimate.tier}"),
        *group_table("figure measured", clean, lambda entry: entry.row.figure),
        "| finished runs of the family | mean accuracy |",
        "|---|---:|",
        *[line(f"{runs}", calibrated(clean, runs)) for runs in (0, 3, 5, 10)],
        line("all others of the family", calibrated(clean, 10**6)),
        line("runs of all other sources instead", from_other_sources(clean)),
        "",
        *bound_table(clean),
        refused_text,
        "",
        offered_text(measured),
        "",
        unit_text,
        "",
        *chosen_values(),
        *listed(measured),
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the report and write it to benchmarks/results/memory.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="not used: all rows take seconds")
    parser.add_argument("--data", default="../shared/data", help="folder of the recorded data")
    options = parser.parse_args()
    table = pd.read_csv(Path(options.data) / "llm_memory_measured" / "memory.csv")
    text = report(read_rows(table)) + "\n".join(["", *foundry_lines(Path(options.data))])
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
