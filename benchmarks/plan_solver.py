"""The solver of plans: gap over time, re-planning, peers, forecast error.

`python -m benchmarks.plan_solver` on seeded instances (`plan_instances.py`), with node idle power,
boots, MIG slices, soft quotas and site power in the model. Seconds are CPU seconds of one thread
except where wall is said; kernels are compiled before. `--full` adds 10,000 jobs, gives the exact
solvers 60 s and charges the heuristics at 1,000 jobs too. No recorded data is used: `--data` is
accepted for the sake of one calling convention.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks._warm_start import warmth_of
from benchmarks.exact_plan import (
    ExactResult,
    exact_model,
    solve_with_cp_sat,
    solve_with_highs,
    true_cost,
)
from benchmarks.plan_heuristics import Paths, clipped, kept, per_job, per_slot, reactive, static
from benchmarks.plan_instances import Instance, make_instance
from benchmarks.plan_rolling import simulate
from planner.slots.slot_problem import SlotProblem
from planner.solver.solve import solve
from planner.solver.solved_plan import Effort, SolvedPlan
from planner.solver.warm_up import warm_up

RESULTS = Path(__file__).parent / "results" / "plan_solver.md"
SLOTS = 168


def timed(run: Callable[[], SolvedPlan]) -> tuple[SolvedPlan, float]:
    """Return a plan and the CPU seconds it took."""
    started = time.process_time()
    plan = run()
    return plan, time.process_time() - started


def gap_over_time(sizes: dict[int, tuple[float, ...]], instances: dict[int, Instance]) -> list[str]:
    """Return the certified gap of every size and budget."""
    lines = [
        "| jobs | budget (s) | CPU (s) | wall (s) | gap | bound by | steps | moves | today |",
        "|---|---:|---:|---:|---:|---|---:|---:|---:|",
    ]
    for size, budgets in sizes.items():
        for budget in budgets:
            problem = instances[size].problem
            plan, cpu = timed(lambda p=problem, b=budget: solve(p, budget_seconds=b))
            lines.append(
                f"| {size:,} | {budget:g} | {cpu:.2f} | {plan.seconds:.2f} "
                f"| {100 * plan.gap:.3f} % | {plan.bound_name} | {plan.price_steps} "
                f"| {plan.moves:,} | {100 * (plan.cost_of_now / plan.cost - 1):.0f} % |"
            )
    return lines


def replaced(problem: SlotProblem, other: SlotProblem, rows: np.ndarray) -> SlotProblem:
    """Return the problem with these jobs taken from another one."""
    changed = {}
    for field in fields(problem.jobs):
        values = getattr(problem.jobs, field.name)
        if field.name not in ("names", "required"):
            values = values.copy()
            values[rows] = getattr(other.jobs, field.name)[rows]
        changed[field.name] = values
    return replace(problem, jobs=replace(problem.jobs, **changed))


def replanning(size: int, instance: Instance) -> list[str]:
    """Return time, gap and churn of planning again after some jobs were replaced."""
    problem = instance.problem
    old = solve(problem, budget_seconds=np.inf, effort=Effort(moves=8_000, label_room=0))
    other = make_instance(size, SLOTS, seed=77, mig=True).problem
    lines = [
        "| jobs replaced | budget (s) | CPU (s) | wall (s) | gap | others touched | gap, cold |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    rng = np.random.default_rng(5)
    for share in (0.01, 0.05):
        rows = rng.choice(size, size=max(1, round(share * size)), replace=False)
        again = replaced(problem, other, rows)
        origin = np.arange(size)
        origin[rows] = -1
        warm = warmth_of(
            old.paths,
            old.prices,
            origin=origin,
            present=again.jobs.present,
            churn_price=0.02 * old.cost / size,
        )
        for budget in (0.2, 1.0):
            found, cpu = timed(lambda p=again, b=budget, w=warm: solve(p, budget_seconds=b, warm=w))
            cold, _cpu = timed(lambda p=again, b=budget: solve(p, budget_seconds=b))
            touched = np.setdiff1d(found.changed, rows)
            lines.append(
                f"| {100 * share:.0f} % of {size:,} | {budget:g} | {cpu:.2f} | {found.seconds:.2f} "
                f"| {100 * found.gap:.3f} % | {100 * len(touched) / (size - len(rows)):.2f} % "
                f"| {100 * cold.gap:.3f} % |"
            )
    return lines


def _exact_line(name: str, found: ExactResult, ours: SolvedPlan) -> str:
    cost = "none" if np.isnan(found.cost) else f"{100 * (found.cost / ours.cost - 1):+.2f} %"
    bound = "none"
    if not np.isnan(found.bound):
        bound = f"{100 * (found.bound / ours.lower_bound - 1):+.2f} %"
    return f"| {name} | {found.seconds:.0f} | {found.status} | {cost} | {bound} |"


def exact_peers(instance: Instance, seconds: float) -> list[str]:
    """Return what CP-SAT and HiGHS find on the same problem, against our 3 s."""
    ours, cpu = timed(lambda: solve(instance.problem, budget_seconds=3.0))
    started = time.monotonic()
    model = exact_model(instance.problem)
    rows, columns = model.matrix.shape
    build = time.monotonic() - started
    return [
        f"{instance.problem.size} x {SLOTS}: {rows:,} x {columns:,}, built in {build:.0f} s.",
        "",
        "| solver | wall (s) | status | cost above ours | lower bound above ours |",
        "|---|---:|---|---:|---:|",
        f"| Trimtab | {ours.seconds:.1f} ({cpu:.1f} CPU) | gap {100 * ours.gap:.2f} % | 0 | 0 |",
        _exact_line("CP-SAT, 2 workers", solve_with_cp_sat(model, seconds, workers=2), ours),
        _exact_line("HiGHS MIP", solve_with_highs(model, seconds), ours),
    ]


def heuristic_peers(instance: Instance) -> list[str]:
    """Return every rule's cost on the problem as stated (the forecast is the truth)."""
    problem = instance.problem
    ours, cpu = timed(lambda: solve(problem, budget_seconds=3.0))
    rules: dict[str, Callable[[], Paths]] = {
        "per-job program alone, clipped": lambda: clipped(problem, per_job(problem)),
        "per-slot first fit decreasing": lambda: per_slot(problem),
        "static mean": lambda: clipped(problem, static(instance, peak=False)),
        "static peak": lambda: clipped(problem, static(instance, peak=True)),
        "reactive 0.9 / 0.5": lambda: clipped(problem, reactive(instance, instance.demand)),
        "today's allocation, clipped": lambda: clipped(problem, kept(problem)),
    }
    lines = [
        f"| policy ({problem.size:,} x {SLOTS}, forecast = truth) | cost above the bound |",
        "|---|---:|",
        f"| Trimtab ({cpu:.1f} CPU s) | {100 * (ours.cost / ours.lower_bound - 1):+.2f} % |",
    ]
    for name, rule in rules.items():
        cost = true_cost(problem, rule())
        lines.append(f"| {name} | {100 * (cost / ours.lower_bound - 1):+.1f} % |")
    return lines


def with_forecast_error(jobs: int, slots: int) -> list[str]:
    """Return the policies charged on the truth, at two sizes of forecast error."""
    lines = [
        "| policy | above the oracle, sd .15 | changes per job-day | sd .35 | changes |",
        "|---|---:|---:|---:|---:|",
    ]
    runs = [simulate(jobs, slots, spread) for spread in (0.15, 0.35)]
    lines += [
        f"| {good.name} | {good.above_percent:+.2f} % | {good.changes_per_job_day:.2f} "
        f"| {poor.above_percent:+.2f} % | {poor.changes_per_job_day:.2f} |"
        for good, poor in zip(*runs, strict=True)
    ]
    return lines


def report(*, full: bool) -> Iterator[str]:
    """Yield the report in Markdown, part after part as it is measured."""
    warm_up()
    sizes: dict[int, tuple[float, ...]] = {100: (0.5, 3.0), 1000: (2.0, 5.0, 15.0)}
    if full:
        sizes[10_000] = (25.0,)
    yield f"# Plans over slots and configurations, {datetime.now(tz=UTC):%d %b %Y}"
    yield "Seed 1, one thread, 168 slots, up to 19 configurations, certified gaps."
    yield "`today` is the cost of today's allocation above the plan's."
    instances = {size: make_instance(size, SLOTS, seed=1, mig=True) for size in sizes}
    yield "## Certified gap by budget"
    yield from gap_over_time(sizes, instances)
    yield "## Planning again, warm"
    yield from replanning(1000, instances[1000])
    yield "## Rules instead of prices"
    yield from heuristic_peers(instances[100])
    if full:
        yield ""
        yield from heuristic_peers(instances[1000])
    yield "## Planned on a forecast, charged on the truth"
    yield from with_forecast_error(*((100, 96) if full else (40, 48)))
    yield "## Exact solvers on the same problem"
    yield from exact_peers(instances[100], 60.0 if full else 10.0)


def main() -> None:
    """Print the report and write it to benchmarks/results/plan_solver.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="10,000 jobs, 60 s for exact solvers")
    parser.add_argument("--data", default="../shared/data", help="not used: instances are seeded")
    options = parser.parse_args()
    lines: list[str] = []
    for line in report(full=options.full):
        lines.append(f"\n{line}\n" if line.startswith("#") else line)
        print(lines[-1], flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(lines).lstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
