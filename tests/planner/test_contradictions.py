"""What is advised about one GPU model fits together: boards given back are not bought again."""

import math
from datetime import datetime, timedelta

import pytest
from drawn import examples
from fleet_cases import mixed_fleet
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import AS_OF

from data.records.actions import Action
from data.records.forecasts import GroupForecast, GroupKind, QuantilePath, Quantity
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings
from planner.advise import Advice, advise
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem

peaks = st.floats(0.5, 1.6)


def growth(problem: PlanningProblem, peak: float) -> list[GroupForecast]:
    """Return forecasts of every GPU model: as held now, after an hour `peak` of its boards.

    As in a cycle there is one more by the day, here of `peak` from now on.
    """
    found = []
    for model, capacity in zip(problem.gpu_models, problem.capacity.tolist(), strict=True):
        held = sum(
            job.options[0].boards for job in problem.jobs if job.demand.job.gpu_model == model
        )
        hour = timedelta(hours=1)
        row = tuple(
            held if at < problem.slot_starts[0] + hour else peak * capacity
            for at in problem.slot_starts
        )
        days = tuple(problem.slot_starts[0] + timedelta(days=day) for day in range(3))
        found += [
            forecast_of(model, days, (peak * capacity,) * len(days)),
            forecast_of(model, problem.slot_starts, row),
        ]
    return found


def forecast_of(model: str, starts: tuple[datetime, ...], row: tuple[float, ...]) -> GroupForecast:
    """Return the forecast of the boards held of a model, without spread."""
    path = QuantilePath(
        quantity=Quantity.ALLOCATED_GPUS, model="mix", q10=row, q50=row, q90=row, backtest=None
    )
    return GroupForecast(
        kind=GroupKind.GPU_MODEL, name=model, slot_starts=starts, paths=(path,), known_slots=1000
    )


def advised(problem: PlanningProblem, peak: float) -> Advice:
    """Return the advice with every model forecast to grow to a share of its boards."""
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    return advise(plan, problem, groups=growth(problem, peak))


def is_for_a_while(found: Recommendation) -> bool:
    """Tell whether a change begins later, or ends."""
    return found.starts_at is not None or found.ends_at is not None


def boards_given_back(problem: PlanningProblem, found: Advice, model: str) -> float:
    """Return the boards of a model that the recommendations for jobs give back for good."""
    jobs = {job.demand.job.job_id: job for job in problem.jobs}
    total = 0.0
    for recommendation in found.recommendations:
        if (
            not recommendation.job_id
            or is_for_a_while(recommendation)
            or recommendation.transition is None
        ):
            continue
        boards = {
            option.configuration: option.boards for option in jobs[recommendation.job_id].options
        }
        total += boards[recommendation.now] * (recommendation.now.gpu_model == model)
        total -= boards[recommendation.proposed] * (recommendation.proposed.gpu_model == model)
    return total


def more_of(found: Advice, model: str) -> Recommendation | None:
    """Return the advice to add boards of a model, if there is any."""
    return next(
        (
            recommendation
            for recommendation in found.recommendations
            if recommendation.action is Action.ADD_GPUS and recommendation.target == model
        ),
        None,
    )


@given(st.integers(0, 10_000), st.sampled_from([15, 60]), peaks)
@settings(max_examples=examples(30), deadline=None)
def test_boards_are_added_only_beyond_those_given_back(
    seed: int, slot_minutes: int, peak: float
) -> None:
    """What is short is what stays short once the recommendations are followed, and says so."""
    planning = PlanningSettings(slot_minutes=slot_minutes, horizon_slots=240 // slot_minutes)
    problem = mixed_fleet(seed, planning=planning)
    found = advised(problem, peak)
    findings = [(entry.target, entry.action) for entry in found.recommendations]
    assert len(set(findings)) == len(findings)
    if any(
        is_for_a_while(recommendation)
        for recommendation in found.recommendations
        if recommendation.job_id
    ):
        return
    for model, capacity in zip(problem.gpu_models, problem.capacity.tolist(), strict=True):
        freed = boards_given_back(problem, found, model)
        more = more_of(found, model)
        needed = peak * capacity - freed
        assert (more is not None) is (needed > capacity + 0.5)
        if more is None:
            continue
        assert more.proposed.gpu_count == math.ceil(needed - 1e-9)
        assert "are free now" in more.why
        assert ("give back" in more.why) is (freed >= 0.05)
        off = [
            recommendation
            for recommendation in found.recommendations
            if recommendation.action is Action.CONSOLIDATE and recommendation.now.gpu_model == model
        ]
        begins = more.starts_at
        assert begins is not None
        assert all(entry.ends_at is not None and entry.ends_at <= begins for entry in off)


@pytest.mark.parametrize("peak", [1.05, 1.5])
def test_drawn_fleets_show_both_kinds(peak: float) -> None:
    """The fleets drawn above have models of which boards are given back and yet forecast short."""
    planning = PlanningSettings(slot_minutes=60, horizon_slots=4)
    solved, explained = 0, 0
    for seed in range(12):
        problem = mixed_fleet(seed, planning=planning)
        found = advised(problem, peak)
        for model, capacity in zip(problem.gpu_models, problem.capacity.tolist(), strict=True):
            freed = boards_given_back(problem, found, model)
            if freed > 0 and peak * capacity > capacity + 0.5:
                solved += more_of(found, model) is None
                explained += more_of(found, model) is not None
    assert (solved if peak < 1.2 else explained) > 0
