"""What each kind of job may be given: caps, more boards, a pause."""

from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from drawn import examples
from factories import make_job
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import (
    AS_OF,
    H100,
    L40S,
    SLOT_LENGTHS,
    boards,
    case,
    day_in_slots,
    history_of,
)

from data.facts.jobs import Job, Platform, SchedulerFacts, WorkloadKind
from data.records.plans import Configuration
from data.settings.all_settings import PlanningSettings
from data.settings.energy import EnergySettings
from planner.costs.cost import slot_costs
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem

NIGHT = ",".join(["0.05"] * 6 + ["0.95"] * 18)


def choices(problem: PlanningProblem, job: int = 0) -> list[Configuration]:
    """The configurations that a job may take."""
    return [option.configuration for option in problem.jobs[job].options]


def slurm_job(requeue: str = "yes", **changes: Any) -> Job:
    """A Slurm job that may be requeued, or not."""
    facts = SchedulerFacts(extra=(("requeue", requeue),))
    values: dict[str, Any] = {
        "namespace": "gpu",
        "platform": Platform.SLURM,
        "kind": WorkloadKind.TRAINING,
        "scheduler": facts,
    }
    return make_job("slurm:7", **(values | changes))


def test_a_rigid_job_may_only_be_capped() -> None:
    """Nobody says that it can be started again: its count, model and place stay."""
    job = slurm_job("no", gpu_count=4)
    problem = case((job, 0.2, 5_000.0, 4 * 650.0), gpus=[*boards(H100, 8), *boards(L40S, 8)])
    found = choices(problem)
    assert {configuration.gpu_count for configuration in found} == {4}
    assert [configuration.power_cap_watts for configuration in found] == [None, 560.0, 490.0, 420.0]


def test_a_protected_job_may_only_be_kept() -> None:
    """Whatever it would save."""
    planning = PlanningSettings(slot_minutes=60, horizon_slots=24, protected_jobs="search/*")
    problem = case((make_job(), 0.0, 500.0, 75.0), gpus=boards(H100, 8), planning=planning)
    assert len(problem.jobs[0].options) == 1
    assert "protected" in problem.jobs[0].keep_reason


def test_a_service_at_its_capacity_may_have_more_boards() -> None:
    """Nine tenths of two boards, with headroom, are more than two boards."""
    problem = case((make_job(gpu_count=2), 0.9, 5_000.0, 900.0), gpus=boards(H100, 8))
    assert {3, 4} <= {choice.gpu_count for choice in choices(problem)}


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": WorkloadKind.TRAINING, "job_id": "a/job/x"},
        {"scheduler": SchedulerFacts(managed_by=("HorizontalPodAutoscaler",))},
        {"mig_profile": "1g.10gb", "gpu_count": 1},
    ],
)
def test_others_may_not_grow(changes: dict[str, Any]) -> None:
    """Saturated training shows no need of more, an autoscaler scales by itself, slices are one."""
    job = make_job(**({"job_id": "a/deployment/x", "gpu_count": 2} | changes))
    problem = case((job, 0.95, 5_000.0, 900.0), gpus=boards(H100, 8))
    assert max(choice.gpu_count for choice in choices(problem)) == job.gpu_count


def test_no_job_is_offered_boards_of_another_vendor() -> None:
    """MI300X costs less than H100, and runs no CUDA."""
    problem = case(
        (make_job(), 0.2, 5_000.0, 300.0), gpus=[*boards(H100, 8), *boards("MI300X-192GB", 8)]
    )
    assert {choice.gpu_model for choice in choices(problem)} == {H100}


@pytest.mark.parametrize(
    ("kind", "told", "counts"),
    [
        ("deployment", (("gpus_per_pod", "1"),), {1, 2}),
        ("deployment", (("gpus_per_pod", "2"),), {2}),
        ("deployment", (("gpus_per_pod", "4"),), set()),
        ("deployment", (), set()),
        ("statefulset", (("gpus_per_pod", "1"),), set()),
    ],
)
def test_fewer_copies_of_a_full_board_need_no_more_memory(
    kind: str, told: tuple[tuple[str, str], ...], counts: set[int]
) -> None:
    """Each pod of a Deployment holds its own model; of others the memory may be sharded."""
    job = make_job(f"a/{kind}/x", gpu_count=4, scheduler=SchedulerFacts(extra=told))
    problem = case((job, 0.1, 76_000.0, 400.0), gpus=boards(H100, 8))
    assert {choice.gpu_count for choice in choices(problem)} - {0, 4} == counts


def test_growth_ends_at_the_fleet_and_at_the_bounds_of_the_workload() -> None:
    """Three boards are all there is; three replicas are the most allowed."""
    job = make_job(gpu_count=2)
    problem = case((job, 0.95, 5_000.0, 900.0), gpus=boards(H100, 3))
    assert max(choice.gpu_count for choice in choices(problem)) == 3
    bounded = make_job(
        "a/deployment/x",
        gpu_count=2,
        scheduler=SchedulerFacts(extra=(("gpus_per_pod", "1"), ("max_replicas", "3"))),
    )
    problem = case((bounded, 0.95, 5_000.0, 900.0), gpus=boards(H100, 8))
    assert max(choice.gpu_count for choice in choices(problem)) == 3


def waiting(slack: float, slot_minutes: int = 60, **energy: Any) -> PlanningProblem:
    """A restartable job at midnight, when cheap hours begin."""
    job = slurm_job(gpu_count=8)
    return case(
        (job, 0.9, 60_000.0, 8 * 600.0),
        gpus=boards(H100, 8),
        planning=day_in_slots(slot_minutes, shift_slack_hours=slack),
        energy=EnergySettings(region="DEU", **energy),
    )


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
def test_a_restartable_job_waits_out_dear_hours_within_its_slack(slot_minutes: int) -> None:
    """From the noon of the plan on, hours are dear until midnight; six of them may be waited."""
    problem = waiting(6.0, slot_minutes, electricity_price_by_hour=NIGHT)
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    off = [slot for slot, step in enumerate(plan.jobs[0].steps) if step.gpu_count == 0]
    assert off == list(range(6 * 60 // slot_minutes))
    assert all(problem.slot_starts[slot].hour >= 6 for slot in off)
    assert plan.cost < plan.cost_of_now


@pytest.mark.parametrize("problem", [waiting(0.0, electricity_price_by_hour=NIGHT), waiting(6.0)])
def test_without_slack_or_without_cheap_hours_nothing_waits(problem: PlanningProblem) -> None:
    """Waiting costs a restart, and flat prices give nothing for it."""
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    assert all(step.gpu_count for step in plan.jobs[0].steps)


@given(
    st.lists(st.floats(0, 1), min_size=24, max_size=24),
    st.integers(1, 30),
    st.floats(0, 500),
)
@settings(max_examples=examples(30), deadline=None)
def test_no_job_waits_longer_than_its_slack(
    prices: list[float], slack: int, carbon_price: float
) -> None:
    """A pause is allowed in one stretch only, and there no work is put off for nothing."""
    problem = waiting(
        float(slack),
        electricity_price_by_hour=",".join(map(repr, prices)),
        carbon_price_per_tonne=carbon_price,
    )
    job = problem.jobs[0]
    pause = next(option for option in job.options if option.paused)
    waits = slot_costs(job.demand, job.options[0], pause, problem.terms)
    allowed = np.flatnonzero(np.isfinite(waits.put_off))
    assert len(allowed) == min(slack, 23)
    assert (np.diff(allowed) == 1).all()
    runs = slot_costs(job.demand, job.options[0], job.options[0], problem.terms)
    gain = (runs.money - waits.money)[allowed]
    kwh = 8 * (600 - 75) / 1000 * 1.54
    dearer = problem.tariff.per_kwh[allowed] - problem.tariff.mean_per_kwh
    assert gain == pytest.approx(kwh * dearer, abs=1e-9)


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
@pytest.mark.parametrize(("before", "caps"), [(1, True), (4, False)])
def test_power_of_more_boards_than_now_is_not_that_of_each(
    slot_minutes: int, before: int, caps: bool
) -> None:
    """600 W on one H100 may be capped; on the four that a job had before a change each drew 150."""
    job = make_job()
    slot = timedelta(minutes=slot_minutes)
    history = history_of(job, 0.4, 20_000.0, 600.0, slot)
    history["allocated_gpus"] = float(before)
    problem = case(
        (job, 0.4, 20_000.0, 600.0),
        gpus=boards(H100, 1),
        planning=day_in_slots(slot_minutes),
        history=history,
    )
    assert any(choice.power_cap_watts for choice in choices(problem)) == caps
