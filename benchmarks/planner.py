"""The planner on simulated fleets of growing size: seconds, certified gap, saving against today.

`python -m benchmarks.planner [--full] [--nodes N]`; the peer is today's allocation. Placement on
nodes is part of the plan; a second plan starts from the first.
"""

import argparse
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from collectors.base import Window
from collectors.simulated_fleet import SimulatedFleet, SimulatedFleetCollector
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.cluster import Node
from data.records.jobs import Job, Platform, SchedulerFacts, WorkloadKind
from data.records.plans import Plan
from data.settings import EnergySettings, PlanningSettings
from data.store import open_store
from forecasting.forecast_runner import forecast_demand
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem, make_problem

RESULTS = Path(__file__).parent / "results" / "planner.md"
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


def main() -> None:
    """Print the table and write it to benchmarks/results/planner.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--data", default="../shared/data", help="not used: the fleet is simulated")
    parser.add_argument("--nodes", type=int, help="one fleet of so many nodes, not written")
    options = parser.parse_args()
    planning = PlanningSettings(slot_minutes=60, horizon_slots=24, budget_seconds=60)
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
    text = "\n".join(lines) + "\n"
    if not options.nodes:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
