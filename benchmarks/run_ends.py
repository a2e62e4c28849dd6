"""Ends of runs told at their half.

`python -m benchmarks.run_ends --data DIR`, which holds mlperf_training_power. The end of a recorded
run is told by the other runs of its benchmark and size, that of a drawn run by the progress that it
reports.
"""

import argparse
from pathlib import Path

from benchmarks._progress_runs import progress_rows
from benchmarks._run_ends import end_rows

RESULTS = Path(__file__).parent / "results" / "run_ends.md"


def report(folder: Path) -> str:
    """Return all tables in Markdown."""
    drawn = (
        "The end of drawn runs, told at their half by the progress that they report every five "
        "minutes, every second run in whole per cent; seed 2, tuned on seed 1:"
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
