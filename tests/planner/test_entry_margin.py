"""What is near a limit is not proposed in one cycle and withdrawn in the next."""

from dataclasses import replace

import pytest
from factories import make_job
from planning_cases import AS_OF, H100, L40S, boards, case

from data.records.actions import Action
from data.records.plans import Configuration
from data.settings.all_settings import PlanningSettings
from planner.advise import Advice, advise
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem
from planner.proposals import hysteresis

DEMANDS = [0.5 + 0.02 * step for step in range(26)]
Kinds = frozenset[tuple[str, Action]]
HALF = Configuration(gpu_model=H100, gpu_count=1)


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
    led_to = None if before is None else dict.fromkeys(before, HALF)
    return advise(plan, problem, proposed_before=led_to)


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


def test_without_a_margin_nothing_is_asked_of_what_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A margin of 0."""
    problem = half_idle(60)
    monkeypatch.setattr(hysteresis, "ENTRY_MARGIN_RATIO", 0.0)
    assert kinds(advised(problem, frozenset())) == kinds(advised(problem, None))


@pytest.mark.parametrize("proposed", [False, True])
def test_demand_that_wavers_around_a_limit_changes_nothing(proposed: bool) -> None:
    """Proposed or not as it was before: neither in one cycle and out in the next."""
    advisable = kinds(advised(half_idle(60), None))
    limit = max(
        demand
        for number, demand in enumerate(DEMANDS)
        if (f"a/{number}", Action.FEWER_GPUS) in advisable
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


def of_four(demand: float) -> PlanningProblem:
    """A job of four GPUs that does the work of some of them."""
    job = (make_job("a/0", gpu_count=4), demand / 4, 10_000.0, 500.0)
    planning = PlanningSettings(horizon_slots=24, slot_minutes=60, power_cap_ratios="")
    return case(job, gpus=boards(H100, 4), planning=planning)


def gpus_proposed(demand: float, before: int | None) -> int:
    """How many GPUs are proposed after a plan that proposed so many."""
    problem = of_four(demand)
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    led_to = {("a/0", Action.FEWER_GPUS): replace(HALF, gpu_count=before)} if before else None
    (found,) = advise(plan, problem, proposed_before=led_to).recommendations
    return found.proposed.gpu_count


@pytest.mark.parametrize("first", [1, 2])
def test_a_plan_that_wavers_between_two_changes_keeps_what_was_proposed(first: int) -> None:
    """Whichever it was, until the other is better by more than the margin."""
    low, high = 0.82, 0.92
    assert (gpus_proposed(low, None), gpus_proposed(high, None)) == (1, 2)
    for demand in (low, high):
        assert gpus_proposed(demand, first) == first
    assert gpus_proposed(0.5, first) == 1
    assert gpus_proposed(1.4, first) == 2


def test_what_was_proposed_outlives_a_choice_of_the_plan_that_is_refused() -> None:
    """The plan would take more than the guardrails let it; what was proposed still passes them."""
    problem = of_four(1.7)
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    single = replace(HALF, gpu_count=1)
    (job,) = plan.jobs
    bold = replace(plan, jobs=(replace(job, steps=(single,) * len(job.steps)),))
    before = {("a/0", Action.FEWER_GPUS): replace(HALF, gpu_count=2)}
    assert advise(bold, problem, proposed_before={}).recommendations == ()
    (found,) = advise(bold, problem, proposed_before=before).recommendations
    assert found.proposed.gpu_count == 2
    kept = replace(plan, jobs=(replace(job, steps=(job.now,) * len(job.steps)),))
    assert advise(kept, problem, proposed_before=before).recommendations == ()


def with_peak(at: int) -> PlanningProblem:
    """A service with two boards that needs more for some hours from a slot on; 24: not at all."""
    levels = [2.0 if at <= slot < at + 6 else 0.8 for slot in range(24)]
    return case(
        (make_job("a/0", gpu_count=2), 0.4, 60_000.0, 900.0),
        gpus=boards(H100, 8),
        demand={"a/0": levels},
    )


@pytest.mark.parametrize(
    ("at", "foreseen", "proposed", "is_proposed"),
    [
        (12, False, False, False),
        (12, True, False, True),
        (12, False, True, True),
        (1, False, False, True),
    ],
)
def test_a_peak_hours_away_takes_two_plans(
    at: int, foreseen: bool, proposed: bool, is_proposed: bool
) -> None:
    """One that comes soon takes one, and what is proposed stays."""
    last, plan = (
        build_plan(problem, budget_seconds=30, created_at=AS_OF)
        for problem in (with_peak(12 if foreseen else 24), with_peak(at))
    )
    before = {("a/0", Action.SCALE_OUT): replace(HALF, gpu_count=3)} if proposed else {}
    found = advise(plan, with_peak(at), proposed_before=before, last=last)
    actions = [change.action for change in found.recommendations]
    assert actions == [Action.SCALE_OUT] * is_proposed
    if not is_proposed:
        assert "foresaw no peak at 2026-01-06 01:00 UTC" in found.kept["a/0"]


@pytest.mark.parametrize("first", [0, 1])
def test_what_is_proposed_keeps_its_room(first: int) -> None:
    """Two jobs would save alike on the one board that is free: neither takes it from the other."""
    problem = case(
        *((make_job(f"a/{number}", gpu_count=1), 0.1, 10_000.0, 500.0) for number in (0, 1)),
        gpus=[*boards(H100, 2), *boards(L40S, 1)],
        planning=PlanningSettings(horizon_slots=24, slot_minutes=60, power_cap_ratios=""),
    )
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    smaller = Configuration(gpu_model=L40S, gpu_count=1)
    both = replace(
        plan, jobs=tuple(replace(job, steps=(smaller,) * len(job.steps)) for job in plan.jobs)
    )
    before = {(f"a/{first}", Action.SMALLER_GPU): smaller}
    (found,) = advise(both, problem, proposed_before=before).recommendations
    assert (found.target, found.action) == (f"a/{first}", Action.SMALLER_GPU)
