"""From idle to freed: every idle GPU is freed, needed at peaks, or stays for a reason."""

from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from fleet_cases import KUBERNETES, SLURM, fleet_case, mixed_fleet, pods_job, slurm_job
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import AS_OF, H100, boards, case

from dashboard.accounting.savings.idle_bridge import idle_rows, idle_sum
from data.facts.jobs import Job, JobState
from data.records.actions import FOR_MEMORY
from data.records.plans import IdleCause, Plan
from data.settings.all_settings import PlanningSettings
from planner.advise import Advice, advise
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem


def planned(problem: PlanningProblem) -> tuple[Plan, Advice]:
    """A plan of the problem with what its jobs' GPUs do, and its advice."""
    plan = build_plan(problem, budget_seconds=0.1, created_at=AS_OF)
    found = advise(plan, problem)
    jobs = tuple(replace(job, idle=found.idle[job.job_id]) for job in plan.jobs)
    return replace(plan, jobs=jobs), found


@given(st.integers(0, 10_000), st.sampled_from([5, 15, 30, 60]), st.booleans())
@settings(max_examples=examples(20))
def test_every_idle_gpu_is_accounted_for(seed: int, slot_minutes: int, mixed: bool) -> None:
    """By job and in the sum, whatever the fleet, the slot and what is recommended."""
    planning = PlanningSettings(slot_minutes=slot_minutes, horizon_slots=24)
    problem = mixed_fleet(seed, planning=planning) if mixed else fleet_case(seed, planning=planning)
    plan, found = planned(problem)
    kept = dict(found.kept)
    changes = {
        recommendation.job_id: recommendation
        for recommendation in found.recommendations
        if recommendation.job_id
    }
    for job, planned_job in zip(plan.jobs, problem.jobs, strict=True):
        idle = job.idle
        assert idle is not None
        if idle.work is None:
            assert idle.cause in (IdleCause.UNKNOWN, IdleCause.NONE)
            continue
        assert idle.idle == pytest.approx(idle.peaks + idle.freed_idle + idle.after + idle.stays)
        assert bool(idle.change) == (idle.after > 1e-9)
        assert min(idle.peaks, idle.freed, idle.after, idle.stays + 1e-9, idle.work) >= 0
        assert bool(idle.cause) == bool(idle.reason) == (idle.stays > 1e-9)
        if idle.cause in (IdleCause.RIGID, IdleCause.SMALLEST, IdleCause.HOST):
            assert idle.reason in kept[job.job_id], "one reason wherever it is told"
        median = np.minimum(planned_job.demand.demand_q50, job.now.gpu_count)
        present = planned_job.options[0]
        share = present.boards / present.service
        assert idle.work <= share * float(median.mean()) + 1e-9
        change = changes.get(job.job_id)
        if change is None:
            assert idle.freed == 0
        elif (
            change.savings.gpu_hours is not None
            and change.action not in FOR_MEMORY
            and change.proposed.gpu_model == change.now.gpu_model
        ):
            # What is saved is less by the time that the change and longer work take.
            hours = 24 * slot_minutes / 60
            taken = 0.0 if change.transition is None else change.transition.seconds.high / 3600
            if change.delay_hours is not None:
                taken += change.delay_hours.high
            saved = change.savings.gpu_hours.central / hours
            assert saved - 1e-6 <= idle.freed <= max(0.0, saved + idle.held * taken / hours) + 1e-6
    total = idle_sum(plan)
    after = sum(gpus for _change, gpus, _jobs in total.after)
    assert total.idle == pytest.approx(total.freed + after + total.needed)
    rows = idle_rows(plan)
    assert sum(row.idle or 0.0 for row in rows) == pytest.approx(total.idle)
    assert sum(row.held for row in rows) == pytest.approx(total.held + total.unknown)


def standing(number: int, source: str, size: int, *, waits: bool) -> Job:
    """A job of so many H100 that runs or waits for its start under a scheduler."""
    shape = {"gpu_model": H100, "gpu_count": size}
    job = slurm_job(number, **shape) if source == SLURM else pods_job(f"w{number}", "job", **shape)
    assert job.scheduler is not None
    state = JobState.PENDING if waits else JobState.RUNNING
    return replace(job, namespace=f"t{number % 2}", scheduler=replace(job.scheduler, state=state))


@given(
    st.sampled_from([SLURM, KUBERNETES]),
    st.lists(
        st.tuples(st.sampled_from([1, 2, 4]), st.booleans(), st.floats(0.05, 0.9)),
        min_size=1,
        max_size=4,
    ),
)
@settings(max_examples=examples(20), deadline=None)
def test_a_job_that_waits_for_its_start_holds_no_gpu(
    source: str, drawn: list[tuple[int, bool, float]]
) -> None:
    """In no sum of what jobs hold, whatever is proposed for it: by job, fleet and tenant."""
    jobs = [
        standing(number, source, size, waits=waits) for number, (size, waits, _) in enumerate(drawn)
    ]
    cases = [(job, level, 8_000.0, None) for job, (*_, level) in zip(jobs, drawn, strict=True)]
    plan, _found = planned(case(*cases, gpus=boards(H100, 16)))
    running = {
        job.job_id: float(size)
        for job, (size, waits, _) in zip(jobs, drawn, strict=True)
        if not waits
    }
    assert {row.job: row.held for row in idle_rows(plan) if row.held} == running
    total = idle_sum(plan)
    assert total.held == pytest.approx(sum(running.values()))
    assert total.unknown_jobs == 0
    after = sum(gpus for _change, gpus, _jobs in total.after)
    assert total.held == pytest.approx(total.work + total.freed + after + total.needed)
    tenants = {job.job_id: job.namespace for job in jobs}
    for tenant in plan.tenants:
        own = sum(gpus for job_id, gpus in running.items() if tenants[job_id] == tenant.tenant)
        assert tenant.now == own
