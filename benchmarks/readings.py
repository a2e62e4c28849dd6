"""How often a faulty counter makes a board at work look idle, beside rules in common use.

`python -m benchmarks.readings --data DIR`. Jobs with a known truth are drawn
(`benchmarks._drawn_boards`), told by a faulty exporter, and go through import, cycle and
recommendations. The peers read the same series: idle is at most 1 % over the last four hours of the
best counter, of GPU_UTIL, or its P95 of all hours. DIR has what the limits were measured on.
"""

import argparse
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks._drawn_boards import (
    GPU_UTIL,
    PREFERENCE,
    DrawnJob,
    Values,
    draw,
    is_hidden,
    readings_of,
    truth_of,
)
from benchmarks._exporter_faults import VARIANTS, draw_fault
from benchmarks._readings_judging import Judgement, judge, judge_exporters
from benchmarks._readings_limits import limits

RESULTS = Path(__file__).parent / "results" / "readings.md"
SEED = "P14"
JOBS, JOBS_A_STORE = 400, 400
FAULTS_SHARE = 4
"""Of so many jobs one is drawn again, with another fault of its exporter."""
IDLE, WINDOW_SECONDS = 0.01, 4 * 3600
PEERS = (
    "best counter at most 1 % for 4 h",
    "GPU_UTIL at most 1 % for 4 h",
    "P95 of GPU_UTIL at most 1 %",
)


def peers_of(job: DrawnJob) -> tuple[bool | None, ...]:
    """Return whether each peer calls the job idle; None where it has no counter to look at."""
    series: dict[str, list[Values]] = {}
    for board in range(job.boards):
        truth = truth_of(job, board)
        fault = job.fault if board < job.faulty_boards else ""
        for name, values in readings_of(job, board, truth, fault).items():
            scale = 0.01 if name == GPU_UTIL else 1.0
            series.setdefault(name, []).append(np.where(values > 100, np.nan, values * scale))
    last = WINDOW_SECONDS // job.step_seconds
    best = next(name for name in PREFERENCE if name in series)
    util = series.get(GPU_UTIL)
    return (
        bool(np.nanmax([values[-last:] for values in series[best]]) <= IDLE),
        None if util is None else bool(np.nanmean([values[-last:] for values in util]) <= IDLE),
        None if util is None else bool(np.nanquantile(util, 0.95) <= IDLE),
    )


def judged_peers(jobs: Sequence[DrawnJob]) -> dict[str, Counter[str]]:
    """Return by peer the boards at work that it would stop, and the idle ones it misses."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in PEERS}
    for job in jobs:
        for name, says_idle in zip(PEERS, peers_of(job), strict=True):
            if job.works and says_idle and not is_hidden(job):
                counts[name]["stopped"] += job.boards
            if not job.works and not job.fault and not says_idle:
                counts[name]["missed"] += job.boards
    return counts


def product_of(jobs: Sequence[DrawnJob]) -> Judgement:
    """Return what the product makes of the jobs, some hundred in a store."""
    total = Judgement()
    for first in range(0, len(jobs), JOBS_A_STORE):
        with TemporaryDirectory() as folder:
            total.add(judge(jobs[first : first + JOBS_A_STORE], Path(folder)))
    return total


def exporters_of(count: int) -> str:
    """Return rows by fault of an exporter: jobs drawn, and what is wrong of them."""
    jobs = []
    for number in range(count):
        source = random.Random(f"{SEED}:exporters:{number}")  # noqa: S311 - a draw
        jobs.append(draw_fault(source, replace(draw(source, number), fault="", level=0.0)))
    failures: list[tuple[DrawnJob, str]] = []
    for first in range(0, count, JOBS_A_STORE // 2):
        with TemporaryDirectory() as folder:
            failures += judge_exporters(jobs[first : first + JOBS_A_STORE // 2], Path(folder))
    drawn = Counter(job.fault for job in jobs)
    changed = Counter(job.fault for job, reason in failures if reason.startswith("at work"))
    wrong = Counter(job.fault for job, _reason in failures)
    return "\n".join(
        f"| {fault} ({', '.join(variants)}) | {drawn[fault]} | {changed[fault]} "
        f"| {wrong[fault] - changed[fault]} |"
        for fault, variants in VARIANTS.items()
    )


def report(
    jobs: Sequence[DrawnJob],
    total: Judgement,
    peers: dict[str, Counter[str]],
    exporters: str,
    data: Path,
) -> str:
    """Return the page of results."""
    working = sum(job.boards for job in jobs if job.works)
    rows = [
        f"| {name} | {count['stopped']} | {total.idle - count['missed']} | – | – "
        f"| {count['missed']} | – | – |"
        for name, count in peers.items()
    ]
    changed = sum({job.number: job.boards for job, _reason in total.failures}.values())
    shared = sum(job.boards for job in jobs if job.holders > 1)
    proposed = total.idle - total.advised - total.kept - total.missed
    turns = sum(job.boards for job in jobs if job.kind == "turns of hours")
    return f"""# Readings that contradict each other

`python -m benchmarks.readings --jobs {len(jobs)}`: {total.boards} boards, seed {SEED}.
{working} boards are at work, {total.idle} are idle without a fault; of {total.visible} a counter
shows what the others rule out.

| | at work or shared, to be stopped, shrunk, capped or shared | idle, a change proposed \
| idle and shared, all told to stop together | idle, kept for a stated reason | idle, missed \
| contradicted, untold | no wrong counter, told |
|---|---:|---:|---:|---:|---:|---:|---:|
| Trimtab | {changed} | {proposed} | {total.advised} | {total.kept} | {total.missed} \
| {total.untold} | {total.false_alarms} |
{chr(10).join(rows)}

Of {total.hidden} more boards at work nothing that the exporter tells shows the work: all their
activity counters are stuck at rest, and a small program draws no more power than a board with an
idle one. They are counted in no column. {shared} boards are shared by two or three jobs, of which
none may be changed alone, and where they work none at all; {turns} boards work in turns of hours,
and rest for up to ten between them.
A counter is contradicted where it is off by more than 60 points in 30 % of the readings and another
source shows it: power above 60 % of the limit or within 15 % of idle, or `GPU_UTIL`.

## Other faults of exporters

Each job beside a twin that does the same work and is told without the fault. Boards and energy
are those of the truth, or less energy where the readings of power are unknown.

| fault | jobs | at work, changed or called idle | boards or energy wrong |
|---|---:|---:|---:|
{exporters}

## Limits, as measured

| | | source |
|---|---:|---|
{chr(10).join(f"| {what} | {value} | {source} |" for what, value, source in limits(data))}
"""


def main() -> None:
    """Draw, judge and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--jobs", type=int, default=JOBS, help="5,800 are 10,000 boards")
    options = parser.parse_args()
    jobs = [draw(random.Random(f"{SEED}:{n}"), n) for n in range(options.jobs)]  # noqa: S311
    exporters = exporters_of(options.jobs // FAULTS_SHARE)
    text = report(jobs, product_of(jobs), judged_peers(jobs), exporters, options.data)
    RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
