"""Hostile answers to the Prometheus client: what came of them, and that none crashed it.

`python -m benchmarks.fuzz_prometheus [--cases N]`; writes benchmarks/results/fuzz_prometheus.md.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from data.base.errors import CollectorError

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "fuzz_prometheus.md"


def outcomes(cases: int) -> tuple[Counter[str], list[str]]:
    """Return how often each end was met, and the seeds and errors that nobody caught."""
    sys.path.insert(0, str(ROOT / "tests"))
    from fuzz.answering_adapter import FuzzedPrometheus
    from fuzz.prometheus_bodies import hostile_body

    prometheus = FuzzedPrometheus()
    ends: Counter[str] = Counter()
    uncaught: list[str] = []
    for seed in range(cases):
        body = hostile_body(seed)
        try:
            ends["read" if prometheus.ask(body) else "empty"] += 1
        except CollectorError as error:
            ends[type(error).__name__] += 1
        except Exception as error:  # noqa: BLE001 - what is looked for is what nobody thought of
            ends["uncaught"] += 1
            uncaught.append(f"seed {seed}: {type(error).__name__}: {error}")
    return ends, uncaught


def main() -> None:
    """Print the table and write it; exit with 1 when an error was not caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--data", help="not used: the cases come from their seeds")
    parser.add_argument("--full", action="store_true", help="100,000 cases")
    options = parser.parse_args()
    cases = 100_000 if options.full else options.cases
    began = time.perf_counter()
    ends, uncaught = outcomes(cases)
    seconds = time.perf_counter() - began
    refused = sorted((name, count) for name, count in ends.items() if name.endswith("Error"))
    names = ", ".join(f"{count} {name}" for name, count in refused)
    text = (
        "Hostile query-API bodies through session, library and client (tests/fuzz).\n\n"
        "| cases | read | empty | refused | uncaught | s |\n|---:|---:|---:|---|---:|---:|\n"
        f"| {cases} | {ends['read']} | {ends['empty']} | {names} | {len(uncaught)} "
        f"| {seconds:.0f} |\n"
    )
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)
    print(*uncaught[:20], sep="\n")
    sys.exit(1 if uncaught else 0)


if __name__ == "__main__":
    main()
