"""How well the end of a recorded training run is told by other runs of the same benchmark."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd

from data.facts.jobs import Job, JobState, Platform, SchedulerFacts, WorkloadKind
from planner.jobs.job_end import MIN_RUNS, expected_end

_START = datetime(2026, 1, 1, tzinfo=UTC)
_STARTED = Job(
    job_id="slurm/1",
    name="run",
    namespace="",
    owner="",
    platform=Platform.SLURM,
    kind=WorkloadKind.TRAINING,
    gpu_model="H100-SXM5-80GB",
    gpu_count=8,
    mig_profile="",
    gpu_memory_mib=None,
    first_seen_at=_START,
    last_seen_at=_START,
    source="recorded",
    scheduler=SchedulerFacts(state=JobState.RUNNING, started_at=_START),
)
_HEAD = (
    "| run | runs | error, % of the run | within 15 % | inside 80 % |",
    "|---|" + "---:|" * 4,
)


def end_rows(folder: Path) -> list[str]:
    """Return how well the end of a run is told at its half by the other runs of its benchmark."""
    runs = pd.read_csv(folder / "runs.csv")
    runs["duration"] = (runs["run_stop_ms"] - runs["run_start_ms"]) / 1000
    rows, errors, inside = list(_HEAD), list[float](), list[bool]()
    for (name, gpus), group in runs.groupby(["benchmark", "gpus"]):
        lengths = [float(length) for length in group["duration"]]
        if len(lengths) <= MIN_RUNS:
            continue
        before = len(errors)
        for number, length in enumerate(lengths):
            others = [*lengths[:number], *lengths[number + 1 :]]
            found = expected_end(_STARTED, others, _START + timedelta(seconds=length / 2))
            if found is None:
                continue
            ends = [(at - _START).total_seconds() for at in (found.low, found.central, found.high)]
            errors.append(abs(ends[1] / length - 1))
            inside.append(ends[0] <= length <= ends[2])
        rows.append(_end_row(f"{name} {gpus} GPUs", errors[before:], inside[before:]))
    return [*rows, _end_row("**all**", errors, inside)]


def _end_row(name: str, errors: list[float], inside: list[bool]) -> str:
    near = sum(error <= 0.15 for error in errors)
    return (
        f"| {name} | {len(errors)} | {100 * float(np.mean(errors)):.1f} | {near} | {sum(inside)} |"
    )
