"""What each kind of job may be given: caps, more boards, half a board, a pause."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import examples
from factories import make_job
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import (
    A100,
    AS_OF,
    H100,
    L40S,
    PLANNING,
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
from planner.jobs.board_sharing import MAX_MEMORY_SHARE, MAX_UTILIZATION, SPEEDS, partners_of
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


def test_two_small_services_share_a_board_that_mig_cannot_cut() -> None:
    """An L40S has no MIG: both get half of it, named after one another."""
    problem = case(
        (make_job("a/x", gpu_model=L40S), 0.3, 9_000.0, 120.0),
        (make_job("a/y", gpu_model=L40S), 0.4, 9_000.0, 130.0),
        gpus=boards(L40S, 2),
    )
    shared = [
        choice.shared_with
        for job in (0, 1)
        for choice in choices(problem, job)
        if choice.shared_with
    ]
    assert shared == ["a/y", "a/x"]
    halves = [option for option in problem.jobs[0].options if option.configuration.shared_with]
    assert (halves[0].boards, halves[0].service) == (0.5, 0.90)


def test_speeds_of_a_shared_board_hold_what_was_measured() -> None:
    """Of 22 pairs of programs that take turns on an H200 and 15 by MPS, none is slower."""
    measured = Path(__file__).parents[2] / "benchmarks/measured/shared_board_h200.json"
    rows = json.loads(measured.read_text(encoding="utf-8"))["rows"]
    fitting = [row for row in rows if sum(row["sm_active"]) <= MAX_UTILIZATION]
    assert len(fitting) == 37
    above = 0.0
    for most, low, likely, high in SPEEDS:
        in_turns, by_mps = (
            [
                min(row["speed"])
                for row in fitting
                if row["sharing"] == sharing and above < sum(row["sm_active"]) <= most
            ]
            for sharing in ("time-slicing", "mps")
        )
        above = most
        assert min(in_turns + by_mps) >= low - 0.005
        assert np.median(in_turns) < likely < np.median(by_mps) <= high


@pytest.mark.parametrize(
    ("job", "level", "memory", "planning"),
    [
        (make_job("a/y", gpu_model=L40S), 0.8, 9_000.0, PLANNING),
        (make_job("a/y", gpu_model=L40S), 0.3, 30_000.0, PLANNING),
        (make_job("b/y", gpu_model=L40S), 0.3, 9_000.0, PLANNING),
        (make_job("a/y", gpu_model=L40S, kind=WorkloadKind.TRAINING), 0.3, 9_000.0, PLANNING),
        (
            make_job("a/y", gpu_model=L40S),
            0.3,
            9_000.0,
            PlanningSettings(slot_minutes=60, horizon_slots=24, board_sharing="none"),
        ),
    ],
    ids=["too busy", "too large", "another namespace", "rigid", "not wanted"],
)
def test_what_keeps_two_jobs_from_sharing(
    job: Job, level: float, memory: float, planning: PlanningSettings
) -> None:
    """Each guard by itself."""
    problem = case(
        (make_job("a/x", gpu_model=L40S), 0.3, 9_000.0, 120.0),
        (job, level, memory, 120.0),
        gpus=boards(L40S, 2),
        planning=planning,
    )
    assert not any(choice.shared_with for number in (0, 1) for choice in choices(problem, number))


def test_a_slice_is_preferred_to_sharing() -> None:
    """An A100 can be cut: a slice keeps the jobs apart."""
    problem = case(
        (make_job("a/x", gpu_model=A100), 0.2, 9_000.0, 120.0),
        (make_job("a/y", gpu_model=A100), 0.2, 9_000.0, 120.0),
        gpus=boards(A100, 2, cut=True),
    )
    assert any(choice.mig_profile for choice in choices(problem))
    assert not any(choice.shared_with for choice in choices(problem))


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.02, 0.9)), min_size=2, max_size=9))
@settings(max_examples=examples(30), deadline=None)
def test_pairs_are_mutual_and_fit(needs: list[tuple[float, float]]) -> None:
    """No job is in two pairs, and no pair does more than a board's work."""
    jobs = [
        (make_job(f"a/{number}", gpu_model=L40S), level, share * 46_068, 100.0)
        for number, (level, share) in enumerate(needs)
    ]
    problem = case(*jobs, gpus=boards(L40S, 10))
    demands = [job.demand for job in problem.jobs]
    found = partners_of(demands, catalogue=problem.catalogue, planning=problem.planning)
    by_id = {demand.job.job_id: need for demand, need in zip(demands, needs, strict=True)}
    for job_id, partner in found.items():
        assert found[partner.job_id].job_id == job_id != partner.job_id
        used, memory = np.add(by_id[job_id], by_id[partner.job_id])
        assert used <= MAX_UTILIZATION + 1e-6
        assert memory <= MAX_MEMORY_SHARE + 1e-6


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
