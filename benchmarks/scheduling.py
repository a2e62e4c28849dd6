"""Scheduling on heterogeneous GPUs: completion times, restarts and decision times of all policies.

`python -m benchmarks.scheduling --data DIR [--full]`, which holds sia_pollux. The simulator is
Trimtab's (benchmarks/simulation/simulator.py) with the truth of sia_pollux: measured steps by
placement, validation curves, restart times and the slowdowns that Sia's authors measured; 60 s
rounds on 24 T4, 16 A100-40 and 24 RTX 2080 Ti. All policies see the same jobs through the same
interface.
"submitted batch" limits goodput models to the batch the user submitted, as in Sia's simulator;
"declared batch" to the largest of the application, as a job specification states it: both policies
that tune batches run both ways. "equal information" gives Sia what HAS has: the declared batch, the
pooled steps of an application's jobs, and sizes up to what its siblings may take. Sia is told what
a restart takes, HAS learns it. The policies named rigid get the GPUs and batch that users asked
for. Settings were chosen on Philly 1 and 2 alone. Without --full only those of the first family
that come first, which takes a few minutes; --short leaves out the rigid policies, the HAS that
shares no speeds, and all tables but those of completion times. Decision times are CPU time; beside
other busy processes they were up to twice as long.
"""

import argparse
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks._sia_cluster import PAPER_CLUSTER

# Before SciPy is loaded: its fits of seven numbers take far more CPU with threads of BLAS.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks._llm_workload import llm_table
from benchmarks._plan_speed import plan_speed_table
from benchmarks._round_scaling import ScaledRounds, scaled_rounds
from benchmarks._sia_workloads import Workload, read_applications, read_workloads
from benchmarks.simulation.application import Application
from benchmarks.simulation.gavel_policy import GavelPolicy
from benchmarks.simulation.job_view import SchedulingPolicy
from benchmarks.simulation.outcome import SimulationOutcome
from benchmarks.simulation.rigid_policies import FirstInPolicy, LeastAttainedPolicy
from benchmarks.simulation.rounds.policy import HeterogeneousPolicy
from benchmarks.simulation.sia_policy import SiaPolicy
from benchmarks.simulation.simulator import SimulationRules, simulate
from benchmarks.simulation.step_fit import StepFits

RESULTS = Path(__file__).parent / "results" / "scheduling.md"
_TUNED_ON = ("philly 1", "philly 2")
_SMALL = 2
_FAMILIES = ("philly", "saturn")
_MAX_OF_A_FAMILY = {"philly": 8, "saturn": 4}
"""At least eight with the four of Philly that developers have; saturn are Helios jobs."""
_OURS, _SIA = "HAS, declared batch", "Sia, submitted batch"
_EQUAL = "Sia, equal information"
_GOALS = (
    ("HAS with declared batch against Sia as published", _OURS, _SIA, 0.86),
    ("HAS with declared batch against Sia with equal information", _OURS, _EQUAL, 0.96),
    ("HAS with submitted batch against Sia as published", "HAS, submitted batch", _SIA, 0.86),
)
_FIGURES = (
    ("Mean JCT", "mean_hours", 3),
    ("p99", "p99_hours", 2),
    ("Makespan", "makespan_hours", 1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A policy as it takes part."""

    name: str
    make: Callable[[], SchedulingPolicy]
    rigid: bool = False
    declared: bool = False
    told_restarts: bool = True
    short: bool = False


ENTRIES = (
    Entry(name="first in first out, rigid", make=FirstInPolicy, rigid=True),
    Entry(name="least attained service, rigid", make=LeastAttainedPolicy, rigid=True),
    Entry(name="Gavel, rigid", make=GavelPolicy, rigid=True),
    Entry(name=_SIA, make=SiaPolicy, short=True),
    Entry(name="Sia, declared batch", make=SiaPolicy, declared=True),
    Entry(name=_EQUAL, make=lambda: SiaPolicy(shares_speed=True), declared=True, short=True),
    Entry(
        name="HAS, submitted batch, own speeds only",
        make=lambda: HeterogeneousPolicy(shares_speed=False),
        told_restarts=False,
    ),
    Entry(name="HAS, submitted batch", make=HeterogeneousPolicy, told_restarts=False),
    Entry(name=_OURS, make=HeterogeneousPolicy, declared=True, told_restarts=False, short=True),
)

Runs = dict[str, list[SimulationOutcome]]


def run_all(
    workloads: Sequence[Workload], applications: Mapping[str, Application], *, short: bool
) -> Runs:
    """Return the outcome of every entry on every workload."""
    fits = StepFits()
    found: Runs = {}
    for entry in ENTRIES:
        if short and not entry.short:
            continue
        rules = SimulationRules(declared_batch=entry.declared, told_restarts=entry.told_restarts)
        for workload in workloads:
            jobs = [replace(job, rigid=entry.rigid) for job in workload.jobs]
            outcome = simulate(
                jobs, PAPER_CLUSTER, applications, entry.make(), rules=rules, fits=fits
            )
            found.setdefault(entry.name, []).append(outcome)
    return found


def summary(runs: Runs) -> list[str]:
    """Return the table of means over the workloads."""
    lines = [
        (
            "| policy | mean JCT (h) | against Sia | p99 (h) | makespan (h) | GPU-h per job "
            "| restarts per job | decision median (ms) | p95 (ms) |"
        ),
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    base = float(np.mean([entry.mean_hours for entry in runs[_SIA]]))
    for name, outcomes in runs.items():
        mean, p99, makespan, restarts = (
            float(np.mean([getattr(outcome, figure) for outcome in outcomes]))
            for figure in ("mean_hours", "p99_hours", "makespan_hours", "restarts_per_job")
        )
        hours = float(np.mean([outcome.gpu_hours / len(outcome.jobs) for outcome in outcomes]))
        seconds = np.concatenate([outcome.decision_seconds for outcome in outcomes]) * 1000
        lines.append(
            f"| {name} | {mean:.3f} | {100 * (mean / base - 1):+.1f} % | {p99:.2f} "
            f"| {makespan:.1f} | {hours:.2f} | {restarts:.2f} | {np.median(seconds):.2f} "
            f"| {np.percentile(seconds, 95):.2f} |"
        )
    return lines


def by_workload(runs: Runs, workloads: Sequence[Workload], figure: str, digits: int) -> list[str]:
    """Return a figure of every policy on every workload."""
    names = list(runs)
    lines = [
        f"| workload | jobs (left out) | {' | '.join(names)} |",
        "|---|---:|" + "---:|" * len(names),
    ]
    for index, workload in enumerate(workloads):
        cells = [f"{getattr(runs[name][index], figure):.{digits}f}" for name in names]
        tuned = " (tuned on)" if workload.name in _TUNED_ON else ""
        lines.append(
            f"| {workload.name}{tuned} | {len(workload.jobs)} ({workload.left_out}) "
            f"| {' | '.join(cells)} |"
        )
    return lines


def _line(goal: str, *, met: bool, figure: str) -> str:
    return f"* {goal}: **{'met' if met else 'missed'}**, {figure}."


def yardsticks(
    runs: Runs, workloads: Sequence[Workload], scaled: Sequence[ScaledRounds]
) -> list[str]:
    """Return each line of the goal as met or missed."""

    def mean(name: str, figure: str, rows: Sequence[int]) -> float:
        return float(np.mean([getattr(runs[name][row], figure) for row in rows]))

    every = list(range(len(workloads)))
    held_out = [row for row in every if workloads[row].name not in _TUNED_ON]
    lines = []
    for label, ours, base, goal in _GOALS:
        if ours not in runs:
            continue
        figures = [
            mean(ours, "mean_hours", rows) / mean(base, "mean_hours", rows)
            for rows in (every, held_out)
            if rows
        ]
        lines.append(
            _line(
                f"mean JCT at most {goal} of Sia's, {label}",
                met=figures[0] <= goal,
                figure=" held out ".join(f"{figure:.3f}" for figure in figures),
            )
        )
    for base in (_SIA, _EQUAL):
        for title, figure, _ in _FIGURES:
            above = [
                f"{workload.name} ({getattr(runs[_OURS][row], figure):.2f} against "
                f"{getattr(runs[base][row], figure):.2f})"
                for row, workload in enumerate(workloads)
                if getattr(runs[_OURS][row], figure) > getattr(runs[base][row], figure)
            ]
            ratio = mean(_OURS, figure, every) / mean(base, figure, every)
            lines.append(
                _line(
                    f"{title} at most that of {base} on every workload",
                    met=not above,
                    figure=f"{ratio:.3f} of it; above: {', '.join(above) or 'none'}",
                )
            )
    median = (
        float(np.median(np.concatenate([entry.decision_seconds for entry in runs[_OURS]]))) * 1000
    )
    lines.append(
        _line(
            "decision at 64 GPUs at most 1.5 ms median",
            met=median <= 1.5,
            figure=f"{median:.2f} ms",
        )
    )
    if not scaled:
        return lines
    small, large = scaled[0], scaled[-1]
    took, excess = float(np.median(large.whole_ms)), float(np.mean(large.excess_percent))
    lines.append(
        _line(
            f"at {large.gpus:,} GPUs at most 6 ms and 0.5 % above the MILP",
            met=took <= 6 and excess <= 0.5,
            figure=f"{took:.1f} ms and {excess:.3f} %",
        )
    )
    factor = float(np.median(small.sia_ms)) / float(np.median(small.whole_ms))
    lines.append(
        _line(
            "at least 10 times faster than the Sia-like program",
            met=factor >= 10,
            figure=f"{factor:.0f} times at {small.gpus} GPUs, "
            f"{np.median(large.sia_ms) / took:.0f} times at {large.gpus:,}",
        )
    )
    return lines


def scaling_table(scaled: Sequence[ScaledRounds]) -> list[str]:
    """Return decision times from 64 GPUs up."""
    return [
        (
            "| GPUs | active jobs | HAS median (ms) | p95 | MILP of the same round (ms) "
            "| Sia-like, whole (ms) | Sia-like / HAS | excess over the MILP, mean | max |"
        ),
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(rounds.row() for rounds in scaled),
    ]


def report(data: Path, *, full: bool, short: bool) -> str:
    """Return all tables in Markdown."""
    folder = data / "sia_pollux"
    applications = read_applications(folder)
    workloads = read_workloads(folder, applications, _FAMILIES)
    if not full:
        workloads = workloads[:_SMALL]
    workloads = [
        workload for workload in workloads if workload.number <= _MAX_OF_A_FAMILY[workload.family]
    ]
    simulate(
        workloads[0].jobs[:20], PAPER_CLUSTER, applications, HeterogeneousPolicy(), fits=StepFits()
    )
    runs = run_all(workloads, applications, short=short)
    factors = () if short else (1, 4, 16, 32) if full else (1, 8)
    scaled = [
        scaled_rounds(workloads[0].jobs, applications, factor=factor, rounds=8 if full else 4)
        for factor in factors
    ]
    parts = [
        ["# Scheduling", "", __doc__.split("\n\n", 1)[1].strip()],
        [
            (
                f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, CPU time, one "
                f"thread{', --full' * full}{', --short' * short}. {len(workloads)} workloads: "
                f"{', '.join(workload.name for workload in workloads)}. "
                f"Applications at hand: {', '.join(applications)}; jobs of others are left out."
            )
        ],
        summary(runs),
        *(
            [f"## {title} (h) by workload", "", *by_workload(runs, workloads, figure, digits)]
            for title, figure, digits in _FIGURES
        ),
        ["## Yardstick", "", *yardsticks(runs, workloads, scaled)],
    ]
    if not short:
        parts += [
            ["## Decisions", "", *scaling_table(scaled)],
            [
                "## Language models, with and without a memory predictor",
                "",
                *llm_table(120 if full else 40),
            ],
            ["## Throughput of training plans", "", *plan_speed_table(data)],
        ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def main() -> None:
    """Print the tables and write them to benchmarks/results/scheduling.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="all workloads, up to 2,048 GPUs")
    parser.add_argument("--short", action="store_true", help="completion times of a few policies")
    parser.add_argument("--data", default="../shared/data", help="folder of the recorded data")
    options = parser.parse_args()
    text = report(Path(options.data), full=options.full, short=options.short)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
