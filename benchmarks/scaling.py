"""How seconds, memory and disk grow with the fleet: collect, forecast, plan and page.

`python -m benchmarks.scaling [--full]`: 64 to 1,000 GPUs, with --full up to 100,000, each with the
rows of 42 days, which is what a cycle looks back on, and some with fewer, as far as `--minutes` and
`--part-seconds` allow. Each part runs in a process of its own (`benchmarks/_scaling_part.py`) on a
store that `benchmarks/_stored_fleet.py` writes. What was not run, or not to its end, is named and
never filled in; what the fit says beyond the largest size that was run is marked as extrapolated.
Then: what dividing a plan costs (`planner/partitions`).
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.plan_instances import make_instance
from benchmarks.planner import FULL_FLEETS, full_fleets
from data.settings.all_settings import ServeSettings
from planner.partitions.solve_parts import solve_parts
from planner.partitions.workers import LocalWorkforce, Workplaces
from planner.solver.solve import solve
from planner.solver.solved_plan import Effort
from planner.solver.warm_up import warm_up

RESULTS = Path(__file__).parent / "results" / "scaling.md"
SMALL, FULL = (64, 512, 1_000), (64, 512, 1_000, 4_000, 10_000, 40_000, 100_000)
SMALL_DAYS, FULL_DAYS = (2,), (2, 14)
DAYS, DAYS_GPUS = 42, 1_000
PARTS = ("collect", "forecast", "plan", "page")
INTERVAL = 60 * ServeSettings().cycle_minutes
MAX_MIB = 16 * 1024
_LIMITS = {"collect": INTERVAL, "forecast": INTERVAL, "plan": INTERVAL, "page": 1.0}
_BOARDS, _MIN_GPUS = 8, 16
Found = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Budget:
    """Time that is left for all parts, and the longest that one may take."""

    ends_at: float
    part_seconds: float

    def seconds(self) -> float:
        """Return what the next part may take."""
        return min(self.part_seconds, self.ends_at - time.monotonic())


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A fleet and what each part took: figures, or the words why there are none."""

    gpus: int
    days: int
    parts: dict[str, Found | str] = field(default_factory=dict)

    def figure(self, part: str, name: str) -> float | None:
        """Return a figure of a part; None where it has none."""
        found = self.parts.get(part, "")
        return None if isinstance(found, str) else found.get(name)


def run_part(part: str, store: Path, size: Size, budget: Budget) -> Found | str:
    """Run one part in its process; give what it took or why it took nothing."""
    seconds = budget.seconds()
    if seconds < 1:
        return "not run: no time left"
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "benchmarks._scaling_part", part, str(store),
             str(math.ceil(size.gpus / _BOARDS)), str(size.days)],
            capture_output=True, text=True, timeout=seconds, check=False,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"stopped after {seconds:.0f} s"
    if done.returncode:
        raise RuntimeError(f"{part} of {size.gpus} GPUs failed: {done.stderr[-2000:]}")
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found


def run_size(gpus: int, days: int, folder: Path, budget: Budget) -> Size:
    """Write a store and run every part on it."""
    size = Size(gpus=gpus, days=days)
    store = folder / f"{gpus}-{days}.duckdb"
    size.parts["make"] = run_part("make", store, size, budget)
    for part in PARTS:
        made = size.parts["make"]
        known = not isinstance(made, str)
        size.parts[part] = run_part(part, store, size, budget) if known else f"no store: {made}"
    print(f"{gpus:,} GPUs, {days} d: {size.parts}", file=sys.stderr)
    for path in folder.glob(f"{store.name}*"):
        path.unlink()
    return size


def cell(size: Size, part: str) -> str:
    """Return CPU seconds and peak memory of a part, or why there are none."""
    found = size.parts.get(part, "")
    if isinstance(found, str):
        return f"{found} |"
    return f"{found['cpu']:.2f} | {found['peak_mib']:,.0f}"


def curve_lines(sizes: Sequence[Size]) -> list[str]:
    """Return the table of sizes."""
    lines = [
        (
            "| GPUs | days | jobs running (planned) | "
            + " | ".join(f"{part}, CPU s | MiB" for part in PARTS)
            + " | plan's gap | store, MiB |"
        ),
        "|---:|---:|---:|" + "---:|---:|" * len(PARTS) + "---:|---:|",
    ]
    for size in sizes:
        running, planned = size.figure("forecast", "running"), size.figure("plan", "planned")
        gap, disk = size.figure("plan", "gap"), size.figure("collect", "disk_mib")
        lines.append(
            f"| {size.gpus:,} | {size.days} | {_count(running)} ({_count(planned)}) | "
            + " | ".join(cell(size, part) for part in PARTS)
            + f" | {'' if gap is None else f'{100 * gap:.2f} %'} | {_count(disk)} |"
        )
    return lines


def _count(value: float | None) -> str:
    return "not known" if value is None else f"{value:,.0f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """value = base + what grows as GPUs^exponent, through the sizes that were run from 512 GPUs on.

    `last` is the value at the largest of them.
    """

    base: float
    exponent: float
    largest: int
    last: float

    def reaches(self, limit: float) -> str:
        """Return the size at which the limit is reached, from the largest run on at least linearly.

        Beyond ten times the largest run nothing is said but that.
        """
        growth = max(1.0, self.exponent)
        gpus = self.largest * ((limit - self.base) / (self.last - self.base)) ** (1 / growth)
        if gpus <= self.largest:
            return f"{gpus:,.0f} (within what was run)"
        if gpus > 10 * self.largest:
            return f"beyond {10 * self.largest:,} (extrapolated from {self.largest:,})"
        return f"{gpus:,.0f} (extrapolated from {self.largest:,})"


def fit(sizes: Sequence[Size], smallest: Size, part: str, name: str) -> Fit | None:
    """Fit the growth of a figure above that of the smallest fleet; None with fewer than two."""
    base = smallest.figure(part, name)
    points = [
        (size.gpus, value)
        for size in sizes
        if size.gpus >= 512 and (value := size.figure(part, name))
    ]
    if base is None or len(points) < 2 or any(value <= base for _gpus, value in points):
        return None
    x = np.log([float(gpus) for gpus, _value in points])
    y = np.log([value - base for _gpus, value in points])
    largest, last = max(points)
    exponent = float(np.polyfit(x, y, 1)[0])
    return Fit(base=base, exponent=exponent, largest=largest, last=last)


def fit_lines(sizes: Sequence[Size], smallest: Size) -> list[str]:
    """Return exponents and the sizes at which a part leaves its interval or 16 GiB."""
    lines = [
        (
            "| part | CPU s grow as GPUs^ | its limit | reached at GPUs | MiB grow as GPUs^ "
            "| 16 GiB reached at GPUs |"
        ),
        "|---|---:|---:|---|---:|---|",
    ]
    for part in PARTS:
        seconds, memory = (fit(sizes, smallest, part, name) for name in ("cpu", "peak_mib"))
        if seconds is None or memory is None:
            lines.append(f"| {part} | too few sizes were run | | | | |")
            continue
        lines.append(
            f"| {part} | {seconds.exponent:.2f} | {_LIMITS[part]:g} s | "
            f"{seconds.reaches(_LIMITS[part])} | {memory.exponent:.2f} | "
            f"{memory.reaches(MAX_MIB)} |"
        )
    return lines


class TimedPlaces:
    """Partitions worked on here, with the CPU seconds of each."""

    at_once = 1

    def __init__(self, places: Workplaces, spent: list[float]) -> None:
        self._places, self._spent = places, spent

    def each(self, function: Callable[[Any, Any], Any], arguments: Sequence[Any]) -> list[Any]:
        """Ask, and add up what each partition took."""
        number = iter(range(len(arguments)))

        def clocked(opened: Any, argument: Any) -> Any:
            started = time.process_time()
            try:
                return function(opened, argument)
            finally:
                self._spent[next(number)] += time.process_time() - started

        return self._places.each(clocked, arguments)


class TimedWorkforce:
    """A local workforce with a stopwatch for each partition."""

    def __init__(self) -> None:
        self.spent: list[float] = []

    @contextmanager
    def opened(
        self, make: Callable[[Any], Any], items: Sequence[Any], weights: Sequence[float]
    ) -> Iterator[TimedPlaces]:
        """Open here."""
        self.spent = [0.0] * len(items)
        with LocalWorkforce().opened(make, items, weights) as places:
            yield TimedPlaces(places, self.spent)


def partition_lines(jobs: int, slots: int, seeds: Sequence[int]) -> list[str]:
    """Return what dividing the plan costs: quality, work, and what is left to one process."""
    lines = [
        (
            "| seed | plan | parts | certified gap | cost above whole | CPU s "
            "| largest part, CPU s | joint, CPU s |"
        ),
        "|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    effort = Effort(moves=min(100_000, 100 * jobs))
    for seed in seeds:
        problem = make_instance(jobs, slots, seed=seed).problem
        started = time.process_time()
        whole = solve(problem, budget_seconds=math.inf, effort=effort)
        seconds = time.process_time() - started
        lines.append(f"| {seed} | whole | 1 | {100 * whole.gap:.3f} % | | {seconds:.2f} | | |")
        random = np.random.default_rng(seed)
        divided = {
            "tenant": problem.jobs.tenant,
            "present pool": problem.grid.gpu_type[problem.jobs.present],
            "random": random.integers(0, 16, jobs),
        }
        for name, part_of in divided.items():
            workforce = TimedWorkforce()
            started = time.process_time()
            found = solve_parts(
                problem, part_of, budget_seconds=math.inf, effort=effort, workforce=workforce
            )
            seconds = time.process_time() - started
            lines.append(
                f"| {seed} | by {name} | {len(workforce.spent)} | {100 * found.gap:.3f} % | "
                f"{100 * (found.cost / whole.cost - 1):+.3f} % | {seconds:.2f} | "
                f"{max(workforce.spent):.2f} | {seconds - sum(workforce.spent):.2f} |"
            )
    return lines


def main() -> None:
    """Print the tables and write them to benchmarks/results/scaling.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="up to 100,000 GPUs, and fewer days")
    parser.add_argument("--data", default="../shared/data", help="not used: the fleet is made")
    parser.add_argument("--gpus", type=int, nargs="*", help="these sizes instead")
    parser.add_argument("--minutes", type=float, default=60.0, help="most time for all sizes")
    parser.add_argument("--part-seconds", type=float, default=600.0, help="most time for one part")
    options = parser.parse_args()
    budget = Budget(
        ends_at=time.monotonic() + 60 * options.minutes, part_seconds=options.part_seconds
    )
    warm_up()
    with TemporaryDirectory() as place:
        folder = Path(place)
        run_size(_MIN_GPUS, DAYS, folder, budget)  # compiles what is not compiled yet
        smallest = run_size(_MIN_GPUS, DAYS, folder, budget)
        wanted = options.gpus or (FULL if options.full else SMALL)
        sizes = [run_size(entry, DAYS, folder, budget) for entry in wanted]
        days = [
            run_size(DAYS_GPUS, day, folder, budget)
            for day in (FULL_DAYS if options.full else SMALL_DAYS)
            if day != DAYS
        ]
    jobs, slots, seeds = (1_000, 96, (1, 2)) if options.full else (300, 96, (1,))
    text = "\n".join(
        [
            "# Scaling",
            "",
            (
                f"`python -m benchmarks.scaling {' '.join(sys.argv[1:])}`, simulated "
                f"fleet, seed 7, slots of 15 min, 96 planned; one core (CPU seconds of all "
                "threads), peak memory of the part's own process, Python and libraries included. "
                "Collect: the next cycle's samples, one a minute, merged and rolled up. Forecast: "
                "reading and all jobs and groups. Plan: problem, plan, recommendations, keeping; "
                "its forecasts are patterns made for a few jobs. Page: the slowest of overview, "
                "fleet, jobs and plan, first answer of a server just started."
            ),
            "",
            *curve_lines(sizes),
            "",
            "## By days of history",
            "",
            *curve_lines([size for size in sizes if size.gpus == DAYS_GPUS] + days),
            "",
            "## The gap in small, where an exact model proves the optimum",
            "",
            *FULL_FLEETS,
            *(
                full_fleets(nodes, 6, range(2000, 2010), exact=nodes <= 3)
                for nodes in (2, 3, 9, 36)
            ),
            "",
            "## Growth, and where one machine ends",
            "",
            (
                f"Growth above what {_MIN_GPUS} GPUs take, least squares on logarithms from 512 "
                "GPUs on; limits are reached from the largest run on, at least linearly. The limit "
                f"of a part is a cycle (`serve.cycle_minutes`, {INTERVAL:g} s) on one core, for "
                "pages 1 s."
            ),
            "",
            *fit_lines(sizes, smallest),
            "",
            "## A plan in parts",
            "",
            (
                f"{jobs:,} jobs × {slots} slots of `benchmarks/plan_instances.py`: capacity, power "
                "and quotas bind, and every part shares them with every other. Same work (price "
                "steps, moves) for all; the bound of parts is that of the whole. `joint` is what "
                "no cluster takes over: dividing, prices, putting together, improving."
            ),
            "",
            *partition_lines(jobs, slots, seeds),
        ]
    )
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
