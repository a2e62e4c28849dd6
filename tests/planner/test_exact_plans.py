"""Small plans are the cheapest that there are, and their certificates say so.

The oracles are the mixed integer programs of the benchmarks, which share no code with the planner.
"""

import random
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import _certified_fleet, _certified_slots
from benchmarks._certified import COMPARED, Judged
from benchmarks._certified_fleet import AS_OF, FleetFeatures
from benchmarks._warm_start import warmth_of
from benchmarks.exact_plan import exact_model, solve_with_highs, true_cost
from planner.plan import build_plan
from planner.solver.solve import solve

OPTIMAL, CERTIFIED = 1e-4, 1e-3
SEEDS = range(12)


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
