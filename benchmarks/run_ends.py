"""Ends of runs told at their half, and the rule that says when to plan again.

`python -m benchmarks.run_ends --data DIR`, which holds mlperf_training_power. The end of a recorded
run is told by the other runs of its benchmark and size, that of a drawn run by the progress that it
reports. The rule that plans again is held to its false alarms on calibrated Gaussian bands.
"""

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks._progress_runs import progress_rows
from benchmarks._run_ends import end_rows
from forecasting.jobs.replan_trigger import limit_of, replan_trigger

RESULTS = Path(__file__).parent / "results" / "run_ends.md"
Floats = npt.NDArray[np.float64]
Z95 = 1.6448536
_TRIGGER_HEAD = (
    "| re-plan when | quiet days of 96 slots with an alarm | slots to notice a shift of 2 s "
    "| of 3 s | of 8 s |"
)


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


def report(folder: Path) -> str:
    """Return all tables in Markdown."""
    drawn = (
        "The end of drawn runs, told at their half by the progress that they report every five "
        "minutes, every second run in whole per cent; seed 2, tuned on seed 1:"
    )
    promise = (
        f"Re-planning, calibrated Gaussian bands: at most {100 * stated_share():.1f} % of quiet "
        "days are stated."
    )
    recorded = (
        "The end of each recorded run of MLPerf Training v4.0 (Sustainable Metal Cloud), told at "
        "its half by the other runs of its benchmark and size:"
    )
    lines = [
        recorded,
        "",
        *end_rows(folder),
        "",
        drawn,
        "",
        *progress_rows(2),
        "",
        promise,
        "",
        *trigger_rows(),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the tables and write them to benchmarks/results/run_ends.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="not used: all takes under a minute")
    parser.add_argument("--data", default="../shared/data", help="folder of the recorded data")
    options = parser.parse_args()
    text = report(Path(options.data) / "mlperf_training_power")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
