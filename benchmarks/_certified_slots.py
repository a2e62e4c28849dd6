"""Plans in counts (`planner.solver`) held to an exact model of docs/internals/planner.md.

The oracle is a mixed integer program for HiGHS over the same problem (`exact_plan`), which shares
no code with the solver.
"""

import random
from dataclasses import dataclass, replace

import numpy as np

from benchmarks._certified import COMPARED, EXACT, IMPOSSIBLE, Judged, timed
from benchmarks.exact_plan import exact_model, solve_with_highs, true_cost
from benchmarks.plan_instances import make_instance
from data.base.errors import ImpossibleProblemError
from planner.slots.slot_problem import SlotFleet, SlotProblem
from planner.solver.solve import solve
from planner.solver.solved_plan import Effort

EFFORT = Effort(price_steps=40, dive_chunks=2, moves=300, label_room=8)


@dataclass(frozen=True)
class SlotFeatures:
    """What a problem has; the defaults are the plainest problem."""

    seed: int = 0
    jobs: int = 2
    slots: int = 4
    slot_minutes: int = 60
    mig: bool = False
    training: bool = False
    quotas: bool = False
    power: bool = False
    free_power: bool = False
    dips: bool = False
    node_price: int = 1
    boot_price: float = 1.0
    node_boards: int = 8
    nodes_on: bool = True
    pins: bool = False
    max_changes: int = 0
    change_window: int = 8


def draw(source: random.Random) -> SlotFeatures:
    """Return features drawn from the whole cross product."""
    flag = lambda: source.random() < 0.5  # noqa: E731
    return SlotFeatures(
        seed=source.randrange(10**6),
        jobs=source.randint(2, 4),
        slots=source.randint(3, 8),
        slot_minutes=source.choice((5, 15, 30, 60)),
        mig=flag(),
        training=flag(),
        quotas=flag(),
        power=flag(),
        free_power=source.random() < 0.2,
        dips=source.random() < 0.7,
        node_price=source.choice((1, 10, 40)),
        boot_price=source.choice((0.0, 0.3, 1.0, 3.0)),
        node_boards=source.choice((1, 2, 8)),
        nodes_on=flag(),
        pins=source.random() < 0.3,
        max_changes=source.choice((0, 0, 1, 2)),
        change_window=source.choice((2, 3, 8)),
    )


def problem_of(features: SlotFeatures) -> SlotProblem:
    """Return a problem with these features."""
    rng = np.random.default_rng(features.seed)
    problem = make_instance(
        features.jobs,
        features.slots,
        seed=features.seed,
        slot_hours=features.slot_minutes / 60,
        mig=features.mig,
        training=features.training,
    ).problem
    jobs, power = problem.jobs, problem.power
    if not features.quotas:
        jobs = replace(jobs, tenant=np.full(features.jobs, -1))
    if features.pins:
        required = np.full((features.jobs, features.slots), -1, dtype=np.int16)
        allowed = np.flatnonzero(np.isfinite(jobs.base_cost[0, 0]))
        required[0, 0] = rng.choice(allowed)
        jobs = replace(jobs, required=required)
    if power is not None and features.free_power:
        power = replace(power, over_penalty=np.zeros(len(power.names)))
    return replace(
        problem,
        jobs=jobs,
        fleet=fleet_of(problem, features, rng),
        power=power if features.power else None,
        quotas=problem.quotas if features.quotas else None,
        max_changes=features.max_changes,
        change_window=features.change_window,
    )


def fleet_of(problem: SlotProblem, features: SlotFeatures, rng: np.random.Generator) -> SlotFleet:
    """Return the fleet with node prices, boots and maintenance as the features say."""
    fleet = problem.fleet
    capacity = fleet.capacity.copy()
    if features.dips:
        for kind in range(len(capacity)):
            first = int(rng.integers(1, features.slots - 1))
            last = int(rng.integers(first + 1, features.slots))
            capacity[kind, first:last] = np.floor(capacity[kind, first:last] * rng.choice([0, 0.4]))
    node_cost = fleet.node_cost * features.node_price * features.node_boards / 8
    return replace(
        fleet,
        capacity=capacity,
        boards_per_node=np.full(len(capacity), float(features.node_boards)),
        node_cost=node_cost,
        boot_cost=node_cost.sum(axis=1) * features.boot_price,
        nodes_on=fleet.nodes_on * features.nodes_on,
    )


def judged(features: SlotFeatures) -> Judged:
    """Return what a plan of this problem gets wrong: bound <= optimum <= plan."""
    problem = problem_of(features)
    try:
        plan, seconds = timed(lambda: solve(problem, budget_seconds=np.inf, effort=EFFORT))
    except ImpossibleProblemError:
        return Judged(kind=IMPOSSIBLE)
    exact, exact_seconds = timed(lambda: solve_with_highs(exact_model(problem), 60.0))
    if exact.status != "optimal":
        return Judged(kind=COMPARED, broken=f"the oracle ended {exact.status}")
    found = Judged(
        kind=COMPARED,
        cost=plan.cost,
        bound=plan.lower_bound,
        optimum=exact.cost,
        seconds=seconds,
        exact_seconds=exact_seconds,
    )
    cost = true_cost(problem, plan.paths)
    if abs(cost - plan.cost) > EXACT * max(1.0, abs(cost)):
        return replace(found, broken=f"stated cost {plan.cost}, the paths cost {cost}")
    return found.checked(plan.bound_name)
