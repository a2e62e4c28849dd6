"""Small plans are the cheapest that there are, and their certificates say so.

In counts and on nodes, all features drawn at once; a plan with a job without a place is none where
the exact model has a complete one.

The oracles are the mixed integer programs of the benchmarks, which share no code with the planner.
"""

import random
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import _certified_fleet, _certified_nodes, _certified_slots
from benchmarks._certified import COMPARED, Judged
from benchmarks._certified_fleet import AS_OF, FleetFeatures
from benchmarks._warm_start import warmth_of
from benchmarks.exact_plan import exact_model, solve_with_highs, true_cost
from data.facts.jobs import JobState, SchedulerFacts
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem
from planner.solver.solve import solve

OPTIMAL, CERTIFIED = 1e-4, 1e-3
SEEDS = range(12)
CPUS = 8


def drawn(kind: str, seed: int) -> random.Random:
    """A source of features."""
    return random.Random(f"exact {kind}:{seed}")  # noqa: S311 a draw, no secret


def is_exact(found: Judged) -> None:
    """The plan is the optimum and proves it; problems without any plan are none of this."""
    assert not found.broken
    if found.kind == COMPARED:
        assert found.distance < OPTIMAL
        assert found.gap < CERTIFIED


@pytest.mark.parametrize("seed", SEEDS)
def test_plans_in_counts_are_proved(seed: int) -> None:
    """Quotas, power, work with deadlines, dips, pins and changes a day in all combinations."""
    is_exact(_certified_slots.judged(_certified_slots.draw(drawn("counts", seed))))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("usual", [False, True])
def test_plans_on_nodes_are_proved(seed: int, usual: bool) -> None:
    """Maintenance, slices, closed nodes, boots, times off, quotas and changes a day, jointly."""
    features = _certified_fleet.draw(drawn("nodes", seed))
    if usual:
        features = _certified_fleet.at_usual_price(features)
    is_exact(_certified_nodes.judged(features))


def with_hosts(problem: PlanningProblem) -> PlanningProblem:
    """The fleet with eight CPUs a GPU, and on each node those of one GPU too few, if it can be."""
    extra = (("gpus_per_pod", "1"), ("gpu_containers", "1"))
    jobs = []
    for entry in problem.jobs:
        job = entry.demand.job
        facts = SchedulerFacts(
            state=JobState.RUNNING,
            workload=f"deployment/{job.name}",
            extra=(*extra, ("cpus", str(CPUS * job.gpu_count)), ("pods", str(job.gpu_count))),
        )
        demand = replace(entry.demand, job=replace(job, scheduler=facts))
        jobs.append(replace(entry, demand=demand))
    held = Counter[str]()
    for home in problem.facts.homes.values():
        held.update(dict(home.boards))
    nodes = tuple(
        replace(node, cpus=float(CPUS * max(held[node.name], node.gpus - 1)))
        for node in problem.facts.nodes
    )
    fleet = replace(problem.facts, nodes=nodes)
    return replace(problem, jobs=tuple(jobs), facts=fleet)


@pytest.mark.parametrize("seed", range(8))
def test_small_plans_keep_to_the_cpus_of_nodes_and_prove_it(seed: int) -> None:
    """The limit is in the program: the plan holds it, and is the cheapest of those that do."""
    features = replace(FleetFeatures(), seed=seed, nodes=3, slots=4, mig=True, models=1)
    free = _certified_fleet.problem_of(features)
    problem = with_hosts(free)
    plan = build_plan(problem, budget_seconds=np.inf, created_at=AS_OF)
    used: dict[tuple[str, int], int] = defaultdict(int)
    for job in plan.jobs:
        for stay in job.stays:
            for slot in range(stay.start, stay.end):
                used[stay.node, slot] += CPUS * stay.gpus
    room = {node.name: node.cpus or 0.0 for node in problem.facts.nodes}
    assert all(cpus <= room[node] for (node, _slot), cpus in used.items())
    assert plan.gap_ratio is not None
    assert plan.gap_ratio < CERTIFIED
    unlimited = build_plan(free, budget_seconds=np.inf, created_at=AS_OF)
    assert plan.cost >= unlimited.lower_bound - CERTIFIED * plan.cost


@pytest.mark.parametrize("seed", range(24))
def test_no_job_leaves_its_node_before_it_must(seed: int) -> None:
    """Its place of now is taken, away or off in the slot in which it moves."""
    drawn_fleet = replace(_certified_fleet.draw(drawn("leave", seed)), mig=False, dips=True)
    problem = _certified_fleet.problem_of(replace(drawn_fleet, nodes=max(2, drawn_fleet.nodes)))
    plan = build_plan(problem, budget_seconds=np.inf, created_at=AS_OF)
    used = Counter[tuple[str, int]]()
    for job in plan.jobs:
        for stay in job.stays:
            used.update({(stay.node, slot): stay.gpus for slot in range(stay.start, stay.end)})
    running = {node.node: node.on for node in plan.nodes}
    nodes = {node.name: node for node in problem.facts.nodes}
    for job in plan.jobs:
        first = min((stay.start for stay in job.stays if stay.moved), default=0)
        left = {stay.node: stay.gpus for stay in job.stays if stay.start < first}
        if not left or any(step != job.now for step in job.steps[:first]):
            left = dict(problem.facts.homes[job.job_id].boards) if not first else {}
        if not left or not any(stay.moved for stay in job.stays):
            continue
        after = {stay.node: stay.gpus for stay in job.stays if stay.start <= first < stay.end}
        free = {name: nodes[name].usable - used[name, first] + after.get(name, 0) for name in left}
        away = {name for name in left if nodes[name].away and nodes[name].away[first]}
        may_stay = all(free[name] >= count and running[name][first] for name, count in left.items())
        assert away or not may_stay, job


@pytest.mark.parametrize("seed", range(6))
def test_a_small_plan_on_nodes_stays_as_announced(seed: int) -> None:
    """Planned again from itself, with its first slots frozen: nothing has changed."""
    features = replace(_certified_fleet.draw(drawn("again", seed)), protected=False)
    problem = _certified_fleet.problem_of(features)
    plan = build_plan(problem, budget_seconds=np.inf, created_at=AS_OF)
    again = build_plan(problem, budget_seconds=np.inf, created_at=AS_OF, last=plan)
    assert again.lower_bound <= again.cost
    assert again.revised_jobs == 0


def test_the_same_small_problem_gives_the_same_plan() -> None:
    """No clock decides: the search of the exact program ends by its own counts."""
    features = FleetFeatures(seed=5, nodes=3, boards=4, busy=1.0, slots=5, max_changes=2, dips=True)
    problem = _certified_fleet.problem_of(features)
    one, other = (build_plan(problem, budget_seconds=np.inf, created_at=AS_OF) for _ in range(2))
    assert one.plan_id == other.plan_id
    assert one.cost == other.cost


def test_a_small_plan_leaves_the_last_one_only_where_that_pays() -> None:
    """The price of an announced path is in the program; the bound is of plans without it."""
    problem = _certified_slots.problem_of(_certified_slots.SlotFeatures(seed=3, jobs=4, slots=6))
    first = solve(problem, budget_seconds=np.inf)
    dearer = replace(problem.jobs, base_cost=problem.jobs.base_cost * np.float32(1.01))
    later = replace(problem, jobs=dearer)
    last = warmth_of(
        first.paths,
        first.prices,
        origin=np.arange(problem.size),
        present=problem.jobs.present,
        churn_price=1e3,
    )
    again = solve(later, budget_seconds=np.inf, warm=last)
    assert not len(again.changed)
    optimum = solve_with_highs(exact_model(later), 60.0).cost
    assert again.lower_bound <= optimum + 1e-6 * abs(optimum)
    assert again.cost == pytest.approx(true_cost(later, again.paths), rel=1e-9)
