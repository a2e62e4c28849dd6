"""Change points, epochs and phases: 120 traces with known truth, and power of MLPerf Training runs.

`python -m benchmarks.phases --data DIR`, which holds mlperf_training_power (runs.csv,
node_power.parquet) and alibaba_genai_pods. The traces are made here, seeded: warm-up, work with
dips (regular on 80, irregular on 40), end; Gaussian noise; the depth of a dip in noise deviations
is the trace's SNR. A found change counts when it lies within one sample of a true one not yet
counted. Peers:
ruptures' KernelCPD, a CUSUM with a reset mean, jumps of differences; for the epoch, each measure
alone and the highest Fourier peak. Nothing in the recorded runs says when an epoch began: their
table shows what is found and how well repeats of the same run agree.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks._phase_truth import (
    FINDERS,
    STEP_SECONDS,
    TRACES,
    Floats,
    change_rows,
    make_trace,
    period_rows,
)
from benchmarks._progress_runs import progress_rows
from benchmarks._run_ends import end_rows
from forecasting.jobs.replan_trigger import limit_of, replan_trigger
from forecasting.phases.adjustment import phase_forecast
from forecasting.phases.change_points import change_points, noise_scale
from forecasting.phases.detect import find_phases
from forecasting.phases.levels import levels_of
from forecasting.phases.phase_profile import phase_profile
from forecasting.phases.records import PhaseKind, Signal

RESULTS = Path(__file__).parent / "results" / "phases.md"
SLOT_SECONDS = 10.0
HORIZON = 12
Z95 = 1.6448536
_TRIGGER_HEAD = (
    "| re-plan when | quiet days of 96 slots with an alarm | slots to notice a shift of 2 s "
    "| of 3 s | of 8 s |"
)
_RUNS_HEAD = (
    "| run | repeats | work begins after start (s) | ends after stop (s) | dips "
    "| epoch (s), repeats with one | samples trained per epoch | where unknown, mostly because |"
)


def run_series(readings: pd.DataFrame) -> tuple[Floats, float]:
    """Return mean power of a run's nodes every 2 s, NaN where no node was read, and its start."""
    inside = readings[
        readings["node"].astype(str).str.startswith("node_") & (readings["power_w"] > 0)
    ]
    begin = float(inside["t_s"].min())
    slots = ((inside["t_s"] - begin) / STEP_SECONDS).astype(int)
    nodes = inside["power_w"].groupby([inside["node"].astype(str), slots]).mean()
    mean = nodes.groupby(level=1).mean()
    values = np.full(int(slots.max()) + 1, np.nan)
    values[mean.index.to_numpy()] = mean.to_numpy()
    return values, begin


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPhases:
    """What was found in one recorded run, s after its start or stop; None where nothing was."""

    ramp: float | None
    end: float | None
    dips: int
    epoch: float | None
    reason: str


def phases_of_run(readings: pd.DataFrame, duration: float) -> RunPhases:
    """Return the phases of one run."""
    values, begin = run_series(readings)
    phases = find_phases(values, STEP_SECONDS)
    high = [segment for segment in phases.segments if segment.kind is PhaseKind.STEADY]
    return RunPhases(
        ramp=begin + high[0].start * STEP_SECONDS if high else None,
        end=begin + high[-1].end * STEP_SECONDS - duration if high else None,
        dips=sum(segment.kind is PhaseKind.DIP for segment in phases.segments),
        epoch=phases.epoch.seconds,
        reason=phases.epoch.reason,
    )


def spread(values: list[float | None]) -> str:
    """Return median and median absolute deviation of the known values."""
    known = np.array([value for value in values if value is not None])
    if not len(known):
        return "unknown"
    middle = float(np.median(known))
    return f"{middle:.0f} ± {float(np.median(np.abs(known - middle))):.0f}"


def run_rows(folder: Path) -> list[str]:
    """Return the table of recorded runs, one row per benchmark and size."""
    runs = pd.read_csv(folder / "runs.csv")
    runs["duration"] = (runs["run_stop_ms"] - runs["run_start_ms"]) / 1000
    power = pd.read_parquet(folder / "node_power.parquet")
    by_run = dict(iter(power.groupby(power["run_id"].astype(str))))
    rows = [
        _RUNS_HEAD,
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for (name, gpus), group in runs.groupby(["benchmark", "gpus"]):
        found = [
            phases_of_run(by_run[run_id], float(duration))
            for run_id, duration in zip(group["run_id"], group["duration"], strict=True)
        ]
        epochs = [phases.epoch for phases in found if phases.epoch is not None]
        said = f"{spread(list(epochs))}, {len(epochs)} of {len(found)}" if epochs else "unknown"
        trained = [
            phases.epoch * float(speed)
            for phases, speed in zip(found, group["throughput_median"], strict=True)
            if phases.epoch is not None
        ]
        why = pd.Series([phases.reason.split(" (")[0] for phases in found if phases.epoch is None])
        reason = str(why.mode().iloc[0]) if len(why) else ""
        rows.append(
            f"| {name} {gpus} GPUs | {len(found)} | {spread([phases.ramp for phases in found])} "
            f"| {spread([phases.end for phases in found])} "
            f"| {np.median([phases.dips for phases in found]):.0f} | {said} "
            f"| {spread(list(trained))} | {reason} |"
        )
    return rows


def pods_line(folder: Path) -> str:
    """Say on how many inference pods, which have no epochs, one is claimed."""
    rows = pd.read_parquet(folder / "pod_gpu_timeseries.parquet")
    claimed, warned, pods = 0, 0, 0
    for _, pod in rows.groupby("pod"):
        minute = ((pod["t_est_real_s"] - pod["t_est_real_s"].min()) / 60).round().astype(int)
        values = np.full(int(minute.max()) + 1, np.nan)
        values[minute.to_numpy()] = pod["gpu_util_pct"] / 100
        phases = find_phases(values, 60.0, signal=Signal.ACTIVITY)
        pods += 1
        claimed += phases.epoch.seconds is not None
        warned += any("normal state" in note for note in phases.notes)
    return (
        f"Inference pods of Alibaba GenAI (a day, 1 min): epochs claimed on {claimed} of {pods}; "
        f"{warned} are said to be mostly low, so that their dips may be the normal state."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotErrors:
    """Mean absolute errors in W over twelve slots of ten seconds, from one origin in one run."""

    last: float
    mean: float
    median: float
    ours: float
    epoch_known: bool


def slot_errors(readings: pd.DataFrame, duration: float) -> list[SlotErrors]:
    """Return the errors at every twelfth slot of a run, from a minute after its start."""
    values, begin = run_series(readings)
    every = int(SLOT_SECONDS / STEP_SECONDS)
    rows = values[: len(values) // every * every].reshape(-1, every)
    known = np.isfinite(rows).sum(axis=1)
    slots = np.where(known, np.nansum(rows, axis=1) / np.maximum(known, 1), np.nan)
    first, started = int((60 - begin) / SLOT_SECONDS), int(max(0.0, -begin) / SLOT_SECONDS) + 3
    found = []
    for origin in range(first, int((duration - begin) / SLOT_SECONDS) - HORIZON, HORIZON):
        truth, past = slots[origin : origin + HORIZON], slots[started:origin]
        if not np.isfinite(truth).all() or not np.isfinite(past).any():
            continue
        phases = find_phases(values[: origin * every], STEP_SECONDS)
        profile = phase_profile(phases, slot_seconds=SLOT_SECONDS, horizon=HORIZON)
        guess = phase_forecast(profile, slots[:origin])
        median = float(np.nanmedian(past))
        found.append(
            SlotErrors(
                last=float(np.abs(past[np.isfinite(past)][-1] - truth).mean()),
                mean=float(np.abs(np.nanmean(past) - truth).mean()),
                median=float(np.abs(median - truth).mean()),
                ours=float(np.abs((median if guess is None else guess) - truth).mean()),
                epoch_known=guess is not None,
            )
        )
    return found


def forecast_rows(folder: Path) -> list[str]:
    """Return the table of forecasts inside recorded runs."""
    runs = pd.read_csv(folder / "runs.csv")
    power = pd.read_parquet(folder / "node_power.parquet")
    by_run = dict(iter(power.groupby(power["run_id"].astype(str))))
    found = [
        error
        for run_id, start, stop in zip(
            runs["run_id"], runs["run_start_ms"], runs["run_stop_ms"], strict=True
        )
        for error in slot_errors(by_run[run_id], (stop - start) / 1000)
    ]
    lines = [
        "| mean error (W) | origins | last value | mean so far | median so far | **ours** |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for title, part in (
        ("epoch known", [errors for errors in found if errors.epoch_known]),
        (
            "epoch unknown (ours = median so far)",
            [errors for errors in found if not errors.epoch_known],
        ),
        ("all", found),
    ):
        cells = " | ".join(
            f"{np.mean([getattr(entry, name) for entry in part]):.0f}"
            for name in ("last", "mean", "median", "ours")
        )
        lines.append(f"| {title} | {len(part)} | {cells} |")
    return lines


def first_of(hits: npt.NDArray[np.bool_]) -> int | None:
    """Return the first slot that is hit, or None."""
    return int(hits.argmax()) if hits.any() else None


def by_first_miss(values: Floats) -> int | None:
    """Fire at the first slot outside the band."""
    return first_of(np.abs(values) > Z95)


def by_three_of_four(values: Floats) -> int | None:
    """Fire when three of the last four slots are outside, on whichever side."""
    missed = (np.abs(values) > Z95).astype(int)
    return first_of(np.convolve(missed, np.ones(4, dtype=int))[: len(values)] >= 3)


def by_cumulative_sum(values: Floats) -> int | None:
    """Fire by Trimtab's rule."""
    fired = replan_trigger(values, np.full(len(values), -Z95), np.full(len(values), Z95))
    return None if fired is None else fired.slot


def stated_share() -> float:
    """Return the share of days of 96 slots with a false alarm that the trigger states."""
    return float(1 - np.exp(-96 * limit_of(1e-3)[1]))


def trigger_rows() -> list[str]:
    """Return the table of re-planning: days with a false alarm, and the delay after a shift."""
    rng = np.random.default_rng(5)
    quiet = rng.normal(size=(2000, 96))
    lines = [
        _TRIGGER_HEAD,
        "|---|---:|---:|---:|---:|",
    ]
    for title, rule in (
        ("**sum of misses (stated: at most 1 in 1,000 slots)**", by_cumulative_sum),
        ("three of the last four outside", by_three_of_four),
        ("one slot outside", by_first_miss),
    ):
        alarms = np.mean([rule(day) is not None for day in quiet])
        delays = []
        for shift in (2.0, 3.0, 8.0):
            slots = [rule(day + shift) for day in rng.normal(size=(500, 96))]
            delays.append(np.mean([96 if slot is None else slot + 1 for slot in slots]))
        cells = " | ".join(f"{delay:.1f}" for delay in delays)
        lines.append(f"| {title} | {100 * alarms:.1f} % | {cells} |")
    return lines


def report(folder: Path, pods: Path) -> str:
    """Return all tables in Markdown."""
    traces = [make_trace(number) for number in range(TRACES)]
    for find in FINDERS.values():
        find(traces[0].values)
    quiet = np.random.default_rng(1).normal(loc=700, scale=8, size=1_000_000)
    began = time.process_time()
    change_points(quiet)
    long = time.process_time() - began
    noise = [noise_scale(trace.values) for trace in traces]
    plateau = [levels_of(trace.values).plateau for trace in traces]
    head = (
        f"{TRACES} made traces, {sum(len(trace.values) for trace in traces)} samples, seeds 10000-"
        f"{10_000 + TRACES - 1}; mean noise scale {np.mean(noise):.1f} W, plateau "
        f"{np.mean(plateau):.0f} W. Times are processor time, best of 3."
    )
    recorded = (
        "Recorded power of MLPerf Training v4.0 runs (Sustainable Metal Cloud), mean of the nodes "
        "every 2 s; median ± median absolute deviation over repeats:"
    )
    drawn = (
        "The end of drawn runs, told at their half by the progress that they report every five "
        "minutes, every second run in whole per cent; seed 2, tuned on seed 1:"
    )
    promise = (
        f"Re-planning, calibrated Gaussian bands: at most {100 * stated_share():.1f} % of quiet "
        "days are stated."
    )
    lines = [
        head,
        "",
        *change_rows(traces),
        "",
        f"A million quiet samples: {long:.1f} s.",
        "",
        *period_rows(traces),
        "",
        recorded,
        "",
        *run_rows(folder),
        "",
        "Forecasts inside those runs, slots of ten seconds, two minutes ahead:",
        "",
        *forecast_rows(folder),
        "",
        "The end of each run, told at its half by the other runs of its benchmark and size:",
        "",
        *end_rows(folder),
        "",
        drawn,
        "",
        *progress_rows(2),
        "",
        pods_line(pods),
        "",
        promise,
        "",
        *trigger_rows(),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the tables and write them to benchmarks/results/phases.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="not used: all takes under a minute")
    parser.add_argument("--data", default="../shared/data", help="folder of the recorded data")
    options = parser.parse_args()
    text = report(
        Path(options.data) / "mlperf_training_power", Path(options.data) / "alibaba_genai_pods"
    )
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
