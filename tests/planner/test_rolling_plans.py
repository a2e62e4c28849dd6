"""Planning on from the last plan: prices, announced paths, frozen slots, churn."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from factories import make_job
from fleet_cases import fleet_case
from planning_cases import AS_OF, H100, SLOT_LENGTHS, boards, case

from data.records.plans import Plan
from data.settings.all_settings import PlanningSettings
from data.store.results.plan_json import plan_from_json, plan_to_json
from planner.nodes import rolling_plan
from planner.nodes.rolling_plan import rolling
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem
from planner.problem.slot_mapping import as_slot_problem
from planner.solver.solve import solve
from planner.solver.solved_plan import SolvedPlan

pytestmark = pytest.mark.usefixtures("short_search")
NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


def plan_of(problem: PlanningProblem, last: Plan | None = None, *reconsidered: str) -> Plan:
    """The plan, with time to spare."""
    return build_plan(
        problem, budget_seconds=60, created_at=NOW, last=last, reconsidered=reconsidered
    )


def wave(
    level: float, *, slots: int = 12, slot_minutes: int = 60, **changes: object
) -> PlanningProblem:
    """One job of four GPUs that needs `level` GPUs, and room for it."""
    settings = PlanningSettings(slot_minutes=slot_minutes, horizon_slots=slots, **changes)  # type: ignore[arg-type]
    job = make_job("a/x", gpu_count=4)
    return case(
        (job, 0.3, 10_000.0, None),
        gpus=boards(H100, 8),
        planning=settings,
        demand={"a/x": [level] * slots},
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_same_problem_again_changes_nothing(seed: int) -> None:
    """No job leaves its announced path when nothing has changed."""
    problem = fleet_case(seed, nodes=4, slots=12)
    first = plan_of(problem)
    again = plan_of(problem, first)
    assert again.revised_jobs == 0
    assert [job.steps for job in again.jobs] == [job.steps for job in first.jobs]
    assert again.cost == pytest.approx(first.cost, rel=1e-6)
    assert again.lower_bound <= again.cost <= again.cost_of_now + 1e-9


def test_a_kept_plan_is_read_back_whole() -> None:
    """The next cycle starts from what the store gives back, prices and places included."""
    plan = plan_of(fleet_case(2, nodes=3))
    assert plan_from_json(plan_to_json(plan)) == plan
    one = plan.jobs[0]
    assert plan_from_json(plan_to_json(plan), job_id=one.job_id) == replace(plan, jobs=(one,))
    assert len(plan_to_json(plan)) < 60_000


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
def test_the_first_slots_are_kept_and_later_ones_are_not(slot_minutes: int) -> None:
    """A job that needs more gets it once the frozen minutes have passed, in whole slots."""
    frozen = rolling_plan.FROZEN_MINUTES // slot_minutes
    first = plan_of(wave(1.0, slot_minutes=slot_minutes))
    assert first.jobs[0].steps[0].gpu_count == 2
    again = plan_of(wave(3.5, slot_minutes=slot_minutes), first)
    counts = [step.gpu_count for step in again.jobs[0].steps]
    assert again.frozen_slots in (0, frozen)
    if again.frozen_slots:
        assert counts[:frozen] == [2] * frozen
    assert counts[frozen:] == [4] * (12 - frozen)


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
def test_a_job_that_left_its_forecast_is_planned_anew_at_once(slot_minutes: int) -> None:
    """Frozen slots are no reason to starve it."""
    first = plan_of(wave(1.0, slot_minutes=slot_minutes))
    again = plan_of(wave(3.5, slot_minutes=slot_minutes), first, "a/x")
    assert [step.gpu_count for step in again.jobs[0].steps] == [4] * 12


def test_a_small_saving_changes_no_announced_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job leaves its path only for more than the churn price."""
    monkeypatch.setattr(rolling_plan, "FROZEN_MINUTES", 0)
    calm = plan_of(wave(1.5))
    assert {step.gpu_count for step in calm.jobs[0].steps} == {2}
    stay = plan_of(wave(0.8, churn_ratio=1.0), calm)
    assert {step.gpu_count for step in stay.jobs[0].steps} == {2}
    assert stay.revised_jobs == 0
    leave = plan_of(wave(0.8, churn_ratio=0.0), calm)
    assert leave.revised_jobs == 1


def surprised(seed: int, factor: float, slot_minutes: int) -> tuple[PlanningProblem, list[str]]:
    """Twelve jobs on 36 boards: half need `factor` times what they did, the others that less."""
    random = np.random.default_rng(seed)
    level, rises = random.uniform(0.5, 4.0, 12), random.random(12) < 0.5
    scale = np.where(rises, factor, 1 / factor)
    waves = 1 + 0.3 * np.sin(np.arange(24) / 4 + np.arange(12)[:, None])
    demand = np.clip(level[:, None] * scale[:, None] * waves, 0.1, 16.0)
    names = [f"a/{number}" for number in range(12)]
    problem = case(
        *((make_job(name, gpu_count=2), 0.5, 10_000.0, None) for name in names),
        gpus=boards(H100, 36),
        planning=PlanningSettings(slot_minutes=slot_minutes, horizon_slots=24),
        demand=dict(zip(names, demand.tolist(), strict=True)),
    )
    return problem, [name for name, rose in zip(names, rises, strict=True) if rose]


@pytest.mark.parametrize("seed", [1, 4])
@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_after_a_surprise_a_plan_is_as_good_as_one_from_nothing(
    factor: float, slot_minutes: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prices of a demand that is gone lead to no dearer plan, the churn of all jobs apart."""
    monkeypatch.setattr(rolling_plan, "FROZEN_MINUTES", 0)
    first = plan_of(surprised(seed, 1.0, slot_minutes)[0])
    problem, risen = surprised(seed, factor, slot_minutes)
    fresh, again = plan_of(problem), plan_of(problem, first, *risen)
    churn = problem.planning.churn_ratio * first.cost * (12 - len(risen)) / 12
    assert again.cost <= fresh.cost * 1.003 + churn
    assert again.lower_bound >= fresh.lower_bound - 0.003 * fresh.cost


@pytest.mark.parametrize("seed", [45, 62, 99])
def test_a_last_plan_far_from_its_bound_hides_no_surprise(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nobody says which of a few jobs changed; a search left these seeds far from it."""
    monkeypatch.setattr(rolling_plan, "FROZEN_MINUTES", 0)
    first = plan_of(surprised(seed, 1.0, 60)[0])
    problem, _risen = surprised(seed, 1.5, 60)
    fresh, again = plan_of(problem), plan_of(problem, first)
    assert again.cost <= fresh.cost * 1.003 + problem.planning.churn_ratio * first.cost


@pytest.mark.parametrize(("seed", "factor"), [(22, 1.5), (41, 2.0), (50, 1.5)])
def test_prices_are_sought_anew_once(
    seed: int, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that stays beside new prices is kept with these, so that the next finds them."""
    drawn: list[int] = []

    def counted(*values: Any, **more: Any) -> SolvedPlan:
        drawn.append(1)
        return solve(*values, **more)

    monkeypatch.setattr(rolling_plan, "solve", counted)
    monkeypatch.setattr(rolling_plan, "_FEW_JOBS", 0)
    last = plan_of(surprised(seed, 1.0, 60)[0])
    problem, _risen = surprised(seed, factor, 60)
    for _cycle in range(3):
        drawn.clear()
        last = plan_of(problem, last)
    assert not drawn


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
def test_slots_that_have_passed_are_dropped(slot_minutes: int) -> None:
    """Three slots later the announced path and its prices begin three slots later."""
    problem = wave(1.0, slot_minutes=slot_minutes)
    path = tuple([problem.jobs[0].options[0].configuration] * 5)
    first = plan_of(problem)
    half = first.jobs[0].steps[0]
    job = replace(first.jobs[0], steps=(*path, *[half] * 7))
    first = replace(first, jobs=(job,))
    later = replace(
        problem,
        slot_starts=tuple(at + 3 * timedelta(minutes=slot_minutes) for at in problem.slot_starts),
    )
    start = rolling(later, as_slot_problem(later), first)
    assert start is not None
    boards_held = as_slot_problem(later).slots.grid.boards[start.warm_start.announced[0]]
    assert boards_held.tolist() == [4.0, 4.0, *[2.0] * 10]


@pytest.mark.parametrize("change", ["longer", "other slots", "before"])
def test_a_plan_of_another_grid_is_no_start(change: str) -> None:
    """Another horizon, another length of slot or a later plan: planned from nothing."""
    first = plan_of(wave(1.0))
    other = wave(1.0, slots=18) if change == "longer" else wave(1.0)
    if change == "other slots":
        first = replace(first, slot_seconds=900)
    if change == "before":
        first = replace(
            first, slot_starts=tuple(at + timedelta(hours=1) for at in first.slot_starts)
        )
    assert rolling(other, as_slot_problem(other), first) is None
    assert plan_of(other, first).revised_jobs is None


def test_changes_are_counted_per_job_and_day() -> None:
    """One change of one job in half a day is two a day."""
    plan = plan_of(wave(1.0))
    assert plan.changes_per_job_day == pytest.approx(2.0)
    assert plan.created_at == NOW
    assert plan.slot_starts[0] > AS_OF
    assert np.isfinite(plan.cost)
