"""Hostile answers and texts, read: how many were accepted, refused by which name, or crashed.

`python -m benchmarks.fuzz [--full] [--cases N]`; the cases are those of tests/fuzz.
"""

import argparse
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.hostile_bodies import hostile_bodies
from tests.fuzz.hostile_texts import hostile_texts
from tests.fuzz.read_cases import Outcome, read_body, read_cases, read_text

RESULTS = Path(__file__).parent / "results" / "fuzz.md"
SEED = 7
SOURCES = (("answer", hostile_bodies, read_body), ("text", hostile_texts, read_text))


def counted(counts: Counter[str]) -> str:
    """Return the counts by name, the largest first."""
    return ", ".join(f"{count:,} {name}" for name, count in counts.most_common() if count) or "0"


def row_of(kind: str, outcome: Outcome) -> str:
    """Return the table's row of one family."""
    return (
        f"| {kind} | {outcome.cases:,} | {outcome.accepted:,} | {counted(outcome.refused)} "
        f"| {counted(outcome.dropped)} | {len(outcome.uncaught)} | {outcome.seconds:.1f} |"
    )


def main() -> None:
    """Print the table and write it to benchmarks/results/fuzz.md; end with 1 after a crash."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="the same for every benchmark; not read here")
    parser.add_argument("--full", action="store_true", help="100,000 cases of each source")
    parser.add_argument("--cases", type=int, default=0, help="cases of each source")
    options = parser.parse_args()
    cases = options.cases or (100_000 if options.full else 10_000)
    rows, faults, seconds = [], [], {}
    for source, make, read in SOURCES:
        began = time.perf_counter()
        outcomes = read_cases(make(cases, seed=SEED), read)
        seconds[source] = time.perf_counter() - began
        rows += [row_of(f"{source}: {family}", entry) for family, entry in sorted(outcomes.items())]
        faults += [fault for outcome in outcomes.values() for fault in outcome.uncaught]
    took = ", ".join(f"{source}s {found:.0f} s" for source, found in seconds.items())
    summary = (
        f"{cases:,} hostile answers of Prometheus and {cases:,} hostile exposition texts (seed "
        f"{SEED}), each read to samples, jobs and Arrow: {len(faults)} uncaught; {took}."
    )
    meaning = (
        "A case is accepted when it could be read; what of it was no reading is dropped and "
        "counted by reason, and every sample left is checked to be possible."
    )
    lines = [
        summary,
        "",
        meaning,
        "",
        "| kind | cases | accepted | refused | dropped | uncaught | seconds |",
        "|---|---:|---:|---|---|---:|---:|",
        *rows,
    ]
    text = "\n".join(lines) + "\n"
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)
    for fault in faults[:20]:
        print(fault)
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main()
