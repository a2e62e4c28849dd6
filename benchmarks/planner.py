"""The planner on simulated fleets of growing size: seconds, certified gap, saving against today.

`python -m benchmarks.planner [--full] [--nodes N]`; the peer is today's allocation. Placement on
nodes is part of the plan; a second plan starts from the first. Then full fleets of nodes of eight,
drawn: what of their gap is the plan and what the bound, where HiGHS proves the optimum on nodes.
"""

import argparse
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks._certified import COMPARED
from benchmarks._certified_fleet import FleetFeatures
from benchmarks._certified_fleet import problem_of as fleet_of
from benchmarks._certified_nodes import judged
from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.fleet import Node
from data.facts.jobs import Job, Platform, SchedulerFacts, WorkloadKind
from data.records.plans import Plan
from data.settings.all_settings import PlanningSettings
from data.settings.energy import EnergySettings
from data.store import open_store
from forecasting.forecast import forecast_demand
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem, make_problem

RESULTS = Path(__file__).parent / "results" / "planner.md"
FULL_FLEETS = (
    "Full fleets of nodes with eight boards, mean and largest in %:",
    "",
    "| nodes × slots, seeds | fleets | certified gap | plan above optimum | bound below |",
    "|---|---:|---:|---:|---:|",
)
HEADER = (
    "| boards | jobs | options per job | plan (CPU s) | certified gap | cost against today "
    "| node-hours above bound | moves | again (CPU s) | jobs revised |"
)
END = datetime(2026, 1, 15, 10, tzinfo=UTC)


def _facts(job: Job) -> SchedulerFacts:
    """Describe services as pods of one GPU, and training as pods that nobody restarts."""
    if job.kind is not WorkloadKind.INFERENCE:
        return SchedulerFacts(workload="pod/x")
    extra = (("gpus_per_pod", "1"), ("gpu_containers", "1"))
    return SchedulerFacts(workload="deployment/x", extra=extra)


def problem_of(nodes: int, planning: PlanningSettings) -> PlanningProblem:
    """Return the problem of a fleet of `nodes` nodes with two days of history."""
    fleet = SimulatedFleet(seed=7, nodes=nodes)
    with TemporaryDirectory() as folder, open_store(f"duckdb:///{folder}/b.duckdb") as store:
        collector = SimulatedFleetCollector(fleet=fleet, step_seconds=900)
        store.keep(collector.collect(Window(start=END - timedelta(days=2), end=END)))
        view = store.reader.planning_view(
            END, slot_seconds=planning.slot_minutes * 60, history_days=2
        )
    # As if a scheduler had described it all: what none explains would stay where it is.
    jobs = [replace(job, platform=Platform.KUBERNETES, scheduler=_facts(job)) for job in view.jobs]
    described = {
        gpu.node: Node(
            name=gpu.node,
            gpu_model=gpu.gpu_model,
            gpu_count=0,
            seen_at=view.as_of,
            source=jobs[0].source,
        )
        for gpu in view.cluster.gpus
    }
    cluster = replace(view.cluster, nodes=tuple(described.values()))
    forecasts = forecast_demand(view.history, jobs=jobs, as_of=view.as_of, settings=planning)
    return make_problem(
        cluster,
        jobs,
        view.history,
        forecasts,
        catalogue=load_gpu_catalogue(),
        carbon=load_carbon_table().get("DEU"),
        planning=planning,
        energy=EnergySettings(region="DEU"),
        as_of=view.as_of,
        signals=view.signals,
    )


def timed(problem: PlanningProblem, last: Plan | None) -> tuple[Plan, float]:
    """Return a plan and its CPU seconds."""
    started = time.process_time()
    plan = build_plan(problem, budget_seconds=60, created_at=END, last=last)
    return plan, time.process_time() - started


def full_fleets(what: str, plain: FleetFeatures, seeds: range, *, exact: bool = False) -> str:
    """Return a row of full fleets: their gap, and its two parts where the optimum is proved."""
    gaps, plans, bounds = [], [], []
    for seed in seeds:
        features = replace(plain, seed=seed, boards=8, busy=1.0)
        if exact:
            found = judged(features)
            if not found.broken and found.kind == COMPARED:
                gaps.append(found.gap)
                plans.append(found.distance)
                bounds.append(1 - found.bound / found.optimum)
        else:
            problem = fleet_of(features)
            gaps.append(build_plan(problem, budget_seconds=inf, created_at=END).gap_ratio)
    cells = [
        f"{100 * np.mean(values):.2f} / {100 * max(values):.2f}"
        for values in (gaps, plans, bounds)
        if values
    ]
    cells += ["not proved"] * (3 - len(cells))
    drawn = f"{what}, from {seeds.start} | {len(gaps)} of {len(seeds)}"
    return f"| {drawn} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table and write it to benchmarks/results/planner.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--data", default="../shared/data", help="not used: the fleet is simulated")
    parser.add_argument("--nodes", type=int, help="one fleet of so many nodes, not written")
    options = parser.parse_args()
    planning = PlanningSettings(
        slot_minutes=60, horizon_slots=24, budget_seconds=60, checkpointed_jobs="*"
    )
    lines = [
        f"Simulated fleet, seed 7, {planning.horizon_slots} slots of {planning.slot_minutes} min.",
        "",
        HEADER,
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    sizes = (8, 32, 96, 288) if options.full else (8, 32)
    for nodes in (options.nodes,) if options.nodes else sizes:
        problem = problem_of(nodes, planning)
        build_plan(problem, budget_seconds=0, created_at=END)  # loads the compiled code
        plan, seconds = timed(problem, None)
        again, later = timed(problem, plan)
        placed = plan.bounds[-1]
        width = sum(len(job.options) for job in problem.jobs) / max(1, len(problem.jobs))
        lines.append(
            f"| {nodes * 8} | {len(problem.jobs)} | {width:.1f} | {seconds:.2f} | "
            f"{100 * plan.gap_ratio:.2f} % | {100 * (plan.cost / plan.cost_of_now - 1):+.1f} % | "
            f"{100 * (placed.attained / placed.value - 1):.1f} % | {plan.moves} | {later:.2f} | "
            f"{again.revised_jobs} |"
        )
    if not options.nodes:
        number = 50 if options.full else 5
        drawn = range(2000, 2000 + number // 2)
        small, large = FleetFeatures(nodes=3, slots=6), FleetFeatures(nodes=9, slots=8)
        larger = {
            "": large,
            ", quotas": replace(large, quotas=True),
            ", three models and maintenance": replace(large, models=3, dips=True),
            ", unknown work on a node": replace(large, foreign=True),
        }
        lines += [
            "",
            *FULL_FLEETS,
            full_fleets("3 × 6", small, range(2000, 2000 + number), exact=True),
            # By these nothing was chosen.
            full_fleets("3 × 6", small, range(5000, 5000 + number), exact=True),
            *(full_fleets(f"9 × 8{what}", row, drawn) for what, row in larger.items()),
        ]
    text = "\n".join(lines) + "\n"
    if not options.nodes:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
