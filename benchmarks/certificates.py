"""Certified bounds against proven optima: bound <= optimum <= plan on drawn small problems.

`python -m benchmarks.certificates [--problems N] [--seed N]` draws problems over the whole cross
product of features, twice: in counts (`_certified_slots.py`, the solver alone) and on nodes
(`_certified_fleet.py`, `_certified_nodes.py`: what a cycle publishes). It solves each by a model
written from the pages of the docs, exactly, with HiGHS. No recorded data is used:
`--data` and `--full` are accepted for the sake of one calling convention.
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks import _certified_fleet, _certified_nodes, _certified_slots
from benchmarks._certified import COMPARED, Judged
from planner.solver.warm_up import warm_up

RESULTS = Path(__file__).parent / "results" / "certificates.md"
SEED = 20261123
OPTIMAL = 1e-4
"""Share of the cost up to which a plan counts as optimal: single precision."""
Floats = npt.NDArray[np.float64]


def campaign(
    name: str,
    judge: Callable[[random.Random], Judged],
    count: int,
    seed: int,
) -> tuple[list[Judged], list[str]]:
    """Return what became of every problem, and a line for each broken promise and miss."""
    found, lines = [], []
    for number in range(count):
        key = f"{name}:{seed}:{number}"
        judged = judge(random.Random(key))  # noqa: S311 a draw, no secret
        found.append(judged)
        if judged.broken:
            lines.append(f"* `{key}`: {judged.broken}")
        elif judged.distance >= OPTIMAL:
            lines.append(
                f"* `{key}`: {100 * judged.distance:.2f} % above the optimum, "
                f"certified {100 * judged.gap:.2f} %"
            )
    return found, lines


def row(name: str, found: Sequence[Judged]) -> str:
    """Return the row of a campaign: how many of which kind, and how far plans are above optima."""
    kinds = Counter(judged.kind for judged in found)
    compared = [judged for judged in found if judged.kind == COMPARED and not judged.broken]
    above = np.array([judged.distance for judged in compared])
    gaps = np.array([judged.gap for judged in compared])
    others = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if kind != COMPARED)
    shown = _percents(above.clip(0.0), (0.9, 0.99, 1.0))
    certified = _percents(gaps, (0.9, 1.0))
    best = 100 * float((above < OPTIMAL).mean())
    taken = [np.mean([judged.seconds for judged in compared])]
    taken.append(np.mean([judged.exact_seconds for judged in compared]))
    wrong = sum(bool(judged.broken) for judged in found)
    return (
        f"| {name} | {len(found):,} | **{wrong}** | {kinds[COMPARED]:,} | {others or '-'} "
        f"| {best:.1f} % | {shown} | {certified} | {taken[0]:.3f} / {taken[1]:.3f} |"
    )


def _percents(shares: Floats, levels: Sequence[float]) -> str:
    return " / ".join(f"{100 * np.quantile(shares, level):.2f}" for level in levels)


def report(count: int, seed: int) -> Iterator[str]:
    """Yield the report in Markdown."""
    yield f"# Certified bounds against proven optima, {datetime.now(tz=UTC):%d %b %Y}"
    yield (
        f"`python -m benchmarks.certificates --problems {count} --seed {seed}`. A promise is "
        "broken by a bound above the optimum, a plan below it, a cost that is not that of the "
        "plan's own record, a node with more than its boards, and a job without a place, or a "
        "refusal, where the exact model has a plan. Misses come one by one below the table."
    )
    yield (
        "| problems | drawn | broken | compared | not compared | optimal | plan above the optimum, "
        "% (p90 / p99 / worst) | certified gap, % (p90 / worst) | CPU s, plan / HiGHS alone |"
    )
    yield "|---|---:|---:|---:|---|---:|---:|---:|---:|"
    started = time.process_time()
    misses: list[str] = []
    for name, judge in (
        ("in counts", lambda source: _certified_slots.judged(_certified_slots.draw(source))),
        ("on nodes", lambda source: _certified_nodes.judged(_certified_fleet.draw(source))),
        ("on nodes of usual price", _usual),
        ("on nodes, one with work that nobody explains", _foreign),
    ):
        found, lines = campaign(name, judge, count, seed)
        misses += lines
        yield row(name, found)
    yield ""
    yield from misses
    yield (
        "Nodes of usual price draw 125 W a board beside the GPUs; the others up to 20 kW, so that "
        f"nodes decide. {time.process_time() - started:.0f} CPU s."
    )


def _usual(source: random.Random) -> Judged:
    features = _certified_fleet.draw(source)
    return _certified_nodes.judged(_certified_fleet.at_usual_price(features))


def _foreign(source: random.Random) -> Judged:
    features = _certified_fleet.draw(source)
    return _certified_nodes.judged(_certified_fleet.with_foreign_work(features))


def main() -> None:
    """Print the report and write it to benchmarks/results/certificates.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=1_000, help="problems of each kind")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--full", action="store_true", help="not used: --problems says how many")
    parser.add_argument("--data", default="../shared/data", help="not used: problems are drawn")
    options = parser.parse_args()
    warm_up()
    lines: list[str] = []
    for line in report(options.problems, options.seed):
        lines.append(line + "\n" if not line.startswith("|") else line)
        print(lines[-1], flush=True)
    RESULTS.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
