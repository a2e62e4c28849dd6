"""Recommendations add up to the plan: no saving is counted twice, and the rest is named."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from drawn import examples
from factories import make_job, make_memory_finding, make_recommendation
from fleet_cases import mixed_fleet
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import (
    A100,
    AS_OF,
    H100,
    L40S,
    SLOT_LENGTHS,
    boards,
    bursty_week,
    case,
    two_gpus_three_jobs,
)

from dashboard.cli.operate.cycle_commands import portfolio_line
from data.facts.jobs import WorkloadKind
from data.records.actions import FOR_MEMORY, Action
from data.records.plans import JobPlan
from data.records.recommendations import Range, Recommendation
from data.settings.all_settings import PlanningSettings
from data.settings.energy import EnergySettings
from planner.advise import Advice, advise
from planner.advisers.admission import AdmissionRoom, admitted
from planner.costs.cost import rent_per_hour
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.portfolio import portfolio_of
from planner.proposals.proposal import proposal_of

HOURS = ",".join(["0.05"] * 6 + ["0.95"] * 18)


def advised(problem: PlanningProblem) -> Advice:
    """The advice of a plan of the problem."""
    return advise(build_plan(problem, budget_seconds=30, created_at=AS_OF), problem)


def changes(one: JobPlan) -> int:
    """How often a job changes its configuration over the horizon."""
    return sum(a != b for a, b in itertools.pairwise((one.now, *one.steps)))


def costing(action: Action, saved: float | None) -> Recommendation:
    """A recommendation of this action that saves so much money, or an unknown amount."""
    one = make_recommendation(action=action)
    cost = None if saved is None else Range(low=saved, central=saved, high=saved, unit="EUR")
    return replace(one, savings=replace(one.savings, cost=cost))


def check_sum(problem: PlanningProblem) -> Advice:
    """Check that central savings and the named rest are the plan's saving."""
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    found = advise(plan, problem)
    part = found.portfolio
    scale = max(1.0, plan.cost_of_now)
    central = sum(
        recommendation.savings.cost.central
        for recommendation in found.recommendations
        if recommendation.savings.cost is not None
        and recommendation.job_id
        and recommendation.action not in FOR_MEMORY
    )
    assert central == pytest.approx(part.recommended, abs=1e-9 * scale)
    rest = part.not_recommended + part.timing + part.service + part.shared
    assert central + rest == pytest.approx(plan.cost_of_now - plan.cost, abs=1e-9 * scale)
    # While nodes and limits cost nothing, single precision is shared, and the trifle that keeps
    # free changes from flapping: 0.01 h of rent each.
    trifles = sum(
        0.01 * rent_per_hour(job.options[0], problem.terms) * changes(entry)
        for job, entry in zip(problem.jobs, plan.jobs, strict=True)
    )
    assert abs(part.shared) <= 1e-5 * scale + trifles
    return found


def test_every_kind_of_change_is_in_the_sum_once() -> None:
    """What nodes, services and programs save, each for itself, and what those cost."""
    problem = two_gpus_three_jobs()
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    money = {
        Action.CONSOLIDATE: (16.0, -3.0),
        Action.RAISE_MAXIMUM: (-5.0, 0.0, 2.0),
        Action.SPEED_UP: (64.0,),
    }
    rows = [costing(action, cost) for action, costs in money.items() for cost in costs]
    rows += [costing(Action.CONSOLIDATE, None)]
    found = portfolio_of([], [], plan, problem.terms, rows=rows)
    parts = (found.nodes, found.services, found.programs)
    assert parts == (13.0, -3.0, 64.0)
    assert found.taken == 3.0
    assert found.advised == 64.0 - 3.0, "bounds whose autoscaler nobody names are advice too"
    whole = replace(found, recommended=1_000.0, for_memory=-7.0)
    assert whole.together == 1_000.0 - 7.0 + sum(parts) - found.advised


@pytest.mark.parametrize("problem", [two_gpus_three_jobs(), bursty_week()])
def test_named_fleets_add_up(problem: PlanningProblem) -> None:
    """Scarce boards, and demand that comes and goes."""
    assert check_sum(problem).recommendations


job_cases = st.tuples(
    st.sampled_from(["a/job/{}", "a/deployment/{}", "b/deployment/{}", "b/pod-{}"]),
    st.sampled_from([H100, A100, L40S]),
    st.sampled_from([1, 1, 2, 4]),
    st.floats(0, 1),
    st.floats(0.02, 0.95),
    st.one_of(st.none(), st.floats(0.1, 1.0)),
)


@given(
    st.lists(job_cases, min_size=1, max_size=6),
    st.sampled_from(["", HOURS]),
    st.sampled_from(SLOT_LENGTHS),
)
@settings(max_examples=examples(25), deadline=None)
def test_any_fleet_adds_up(jobs: list[tuple[Any, ...]], prices: str, slot_minutes: int) -> None:
    """Any mix of jobs, with and without known power, hours and slack."""
    tdp = {H100: 700.0, A100: 400.0, L40S: 350.0}
    memory = {H100: 81_559, A100: 81_920, L40S: 46_068}
    cases = [
        (
            make_job(name.format(number), gpu_model=model, gpu_count=count),
            level,
            share * memory[model],
            None if power is None else power * tdp[model] * count,
        )
        for number, (name, model, count, level, share, power) in enumerate(jobs)
    ]
    problem = case(
        *cases,
        gpus=[*boards(H100, 8, cut=True), *boards(A100, 8, cut=True), *boards(L40S, 4)],
        planning=PlanningSettings(
            slot_minutes=slot_minutes, horizon_slots=12, shift_slack_hours=4 * slot_minutes / 60
        ),
        energy=EnergySettings(region="DEU", electricity_price_by_hour=prices),
    )
    found = check_sum(problem)
    names = [
        recommendation.job_id for recommendation in found.recommendations if recommendation.job_id
    ]
    assert len(names) == len(set(names))
    assert set(names).isdisjoint(found.kept)
    assert set(names) | set(found.kept) == {job.job_id for job, *_rest in cases}


@given(st.lists(job_cases, min_size=2, max_size=8))
@settings(max_examples=examples(25), deadline=None)
def test_all_recommendations_can_be_followed_together(jobs: list[tuple[Any, ...]]) -> None:
    """Whatever the plan moves over time, what is proposed for good never exceeds the boards."""
    cases = [
        (make_job(name.format(number), gpu_model=model, gpu_count=count), level, 5_000.0, 300.0)
        for number, (name, model, count, level, *_rest) in enumerate(jobs)
    ]
    problem = case(*cases, gpus=[*boards(H100, 4), *boards(A100, 4, cut=True), *boards(L40S, 2)])
    found = advised(problem)
    row = {name: number for number, name in enumerate(problem.gpu_models)}
    used = np.zeros(len(row))
    by_id = {recommendation.job_id: recommendation for recommendation in found.recommendations}
    for job in problem.jobs:
        one = by_id.get(job.demand.job.job_id)
        wanted = job.options[0].configuration if one is None else one.proposed
        option = next(other for other in job.options if other.configuration == wanted)
        used[row[wanted.gpu_model]] += option.boards
    assert (used <= problem.capacity + 1e-9).all()


@given(st.integers(0, 10_000), st.sampled_from([5, 15, 30, 60]), st.booleans())
@settings(max_examples=examples(25), deadline=None, derandomize=True)
def test_the_headline_is_the_sum_of_its_rows(seed: int, slot_minutes: int, grows: bool) -> None:
    """Nodes and what serves jobs are in it; where it is below the largest row it says why."""
    planning = PlanningSettings(slot_minutes=slot_minutes, horizon_slots=180 // slot_minutes)
    problem = mixed_fleet(seed, planning=planning)
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    memory = [
        make_memory_finding(job_id=job.demand.job.job_id, gpu_model=job.demand.job.gpu_model)
        for job in problem.jobs[: 2 if grows else 0]
    ]
    found = advise(plan, problem, memory=memory)
    rows = [
        recommendation.savings.cost.central
        for recommendation in found.recommendations
        if recommendation.savings.cost is not None and not recommendation.is_advice
    ]
    part = found.portfolio
    assert part.together == pytest.approx(sum(rows), abs=1e-9 * max(1.0, plan.cost_of_now))
    line = portfolio_line(part)
    assert f"Approved together they save {part.together:.2f} EUR" in line
    assert part.together >= max(rows, default=0.0) - 1e-9 or part.taken > 0
    assert ("already taken off" in line) is (part.taken >= 0.005)
    nodes = [
        recommendation
        for recommendation in found.recommendations
        if recommendation.action is Action.CONSOLIDATE
    ]
    assert ("nodes powered down" in line) is bool(nodes)


@pytest.mark.parametrize("slot_minutes", [15, 60])
@pytest.mark.parametrize(("jobs_count", "free"), [(2, 1), (3, 1), (3, 2)])
def test_room_is_given_to_the_first_and_the_others_are_told_what_is_to_be_free(
    slot_minutes: int, jobs_count: int, free: int
) -> None:
    """The first jobs take the free L40S; the others learn which boards they wait for."""
    problem = case(
        *((make_job(f"a/{name}"), 0.3, 10_000.0, 300.0) for name in "xyz"[:jobs_count]),
        gpus=[*boards(H100, jobs_count), *boards(L40S, free)],
        planning=PlanningSettings(slot_minutes=slot_minutes, horizon_slots=4),
    )
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    jobs = [
        replace(job, steps=(problem.jobs[number].options[0].configuration,) * 4)
        for number, job in enumerate(plan.jobs)
    ]
    to_l40s = next(
        option.configuration
        for option in problem.jobs[0].options
        if option.configuration.gpu_model == L40S
    )
    jobs = [replace(job, steps=(to_l40s,) * 4) for job in jobs]
    proposals = [
        proposal_of(job, entry, problem.terms)
        for job, entry in zip(problem.jobs, jobs, strict=True)
    ]
    numbers, reasons = admitted(proposals, AdmissionRoom(problem))
    assert numbers == list(range(free))
    assert sorted(reasons) == list(range(free, jobs_count))
    for why in reasons.values():
        assert f"when 1 more {L40S} is free" in why


def test_a_plan_that_changes_a_job_often_gives_one_change_that_suffices() -> None:
    """Two slices in turns: the larger one for good, and the rest of the saving is called timing."""
    levels = [0.05] * 16 + [0.24] * 8
    problem = case(
        (make_job(gpu_model=A100), 0.1, 4_000.0, 90.0),
        gpus=boards(A100, 1, cut=True),
        demand={"search/ranker-0": levels},
    )
    found = advised(problem)
    assert [recommendation.proposed.mig_profile for recommendation in found.recommendations] == [
        "2g.20gb"
    ]
    assert found.portfolio.timing > 0
    assert found.portfolio.not_recommended == 0


def test_training_is_a_kind_that_rigid_jobs_keep() -> None:
    """A lone training pod is neither cut nor moved, so nothing is saved and nothing is claimed."""
    job = make_job("a/pod", kind=WorkloadKind.TRAINING, gpu_count=4)
    found = advised(case((job, 0.2, 5_000.0, 4 * 200.0), gpus=boards(H100, 8)))
    assert found.recommendations == ()
    assert found.portfolio.total == pytest.approx(0)


@pytest.mark.parametrize("seed", [0, 8, 9, 14, 19])
def test_a_job_that_gets_a_power_cap_elsewhere_has_moved(seed: int) -> None:
    """A cap restarts nothing; another node does, and its restart is in the plan's cost."""
    planning = PlanningSettings(slot_minutes=60, horizon_slots=3)
    problem = mixed_fleet(seed, planning=planning)
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    capped_elsewhere = 0
    for job, planned in zip(problem.jobs, plan.jobs, strict=True):
        home = dict(problem.facts.homes[job.demand.job.job_id].boards)
        now, first = planned.now, planned.steps[0]
        same = replace(first, power_cap_watts=now.power_cap_watts) == now
        stays = [stay for stay in planned.stays if stay.start == 0]
        elsewhere = any(stay.node not in home for stay in stays)
        assert any(stay.moved for stay in stays) is (same and elsewhere)
        capped_elsewhere += same and elsewhere and first != now
    assert capped_elsewhere
