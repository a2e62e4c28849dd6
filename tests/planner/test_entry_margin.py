"""What is near a limit is not proposed in one cycle and withdrawn in the next."""

from dataclasses import replace

import pytest
from factories import make_job
from planning_cases import AS_OF, H100, boards, case

from data.records.decisions import Action
from data.settings import PlanningSettings
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem
from planner.recommendations.advise import Advice, advise

DEMANDS = [0.5 + 0.02 * step for step in range(26)]
Kinds = frozenset[tuple[str, Action]]


def half_idle(slot_minutes: int) -> PlanningProblem:
    """Jobs of two GPUs that do the work of 0.5 to 1.0 of them."""
    return case(
        *(
            (make_job(f"a/{number}", gpu_count=2), demand / 2, 10_000.0, 500.0)
            for number, demand in enumerate(DEMANDS)
        ),
        gpus=boards(H100, 2 * len(DEMANDS)),
        planning=PlanningSettings(
            slot_minutes=slot_minutes, horizon_slots=24 * 60 // slot_minutes, power_cap_ratios=""
        ),
    )


def advised(problem: PlanningProblem, before: Kinds | None) -> Advice:
    """What is advised after a plan that proposed these."""
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    return advise(plan, problem, proposed_before=before)


def kinds(found: Advice) -> Kinds:
    """Target and kind of everything that is proposed."""
    return frozenset(
        (recommendation.target, recommendation.action) for recommendation in found.recommendations
    )


@pytest.mark.parametrize("slot_minutes", [15, 60])
def test_what_is_new_is_better_than_its_limits(slot_minutes: int) -> None:
    """It stays proposed at the limit itself, and no longer than the margin beyond."""
    problem = half_idle(slot_minutes)
    at_the_limit = kinds(advised(problem, None))
    found = advised(problem, frozenset())
    new = kinds(found)
    assert new < at_the_limit
    near = {target for target, _action in at_the_limit - new}
    for target in near:
        assert found.kept[target].endswith("what is new must be 10 % better than its limit")
    assert kinds(advised(problem, at_the_limit)) == at_the_limit
    beyond = kinds(advised(problem, frozenset((f"a/{n}", Action.FEWER_GPUS) for n in range(26))))
    assert beyond >= at_the_limit
    for target, _action in beyond - at_the_limit:
        demand = DEMANDS[int(target.removeprefix("a/"))]
        assert 0.9 * 1.15 * demand <= 1.0 < 1.15 * demand


def test_without_a_margin_nothing_is_asked_of_what_is_new() -> None:
    """`planning.entry_margin_ratio` of 0."""
    problem = half_idle(60)
    plain = replace(problem, planning=replace(problem.planning, entry_margin_ratio=0.0))
    assert kinds(advised(plain, frozenset())) == kinds(advised(problem, None))


@pytest.mark.parametrize("proposed", [False, True])
def test_demand_that_wavers_around_a_limit_changes_nothing(proposed: bool) -> None:
    """Proposed or not as it was before: neither in one cycle and out in the next."""
    limit = max(
        demand
        for number, demand in enumerate(DEMANDS)
        if (f"a/{number}", Action.FEWER_GPUS) in kinds(advised(half_idle(60), None))
    )
    low, high = (
        case((make_job("a/0", gpu_count=2), demand / 2, 10_000.0, 500.0), gpus=boards(H100, 2))
        for demand in (0.97 * limit, 1.03 * limit)
    )
    assert kinds(advised(low, None)) != kinds(advised(high, None))
    first = before = kinds(advised(low, None)) if proposed else frozenset()
    assert bool(first) == proposed
    for _cycle in range(3):
        for problem in (high, low):
            found = kinds(advised(problem, before))
            assert found == first
            before = found
