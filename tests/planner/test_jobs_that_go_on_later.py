"""A job whose end is near, or that waits for its start, is put off as a whole to known hours."""

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from drawn import examples
from factories import make_job
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import AS_OF, H100, advised, boards, case

from data.catalogue.grid_forecast import GridForecast, GridOutlook
from data.facts.jobs import Job, JobState, Platform, SchedulerFacts, WorkloadKind
from data.facts.queue_waits import QueueWait
from data.records.actions import Action
from data.records.plans import JobPlan
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings
from data.settings.energy import EnergySettings
from planner.costs.time_shift import best_shift, delay_cost, delay_slots
from planner.jobs.job_end import Remaining, likely_waits
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.path_costs import path_cost
from planner.proposals.proposal import proposal_of
from planner.proposals.savings import outcome_of

FIRST = AS_OF + timedelta(hours=1)
WATTS = 8 * 600.0
KWH = 8 * (600 - 75) / 1000 * 1.54
"""Site energy of an hour of its work, beyond idle boards."""


def waiting_job(**changes: object) -> Job:
    """A Slurm job of eight boards that waits for its start."""
    facts = SchedulerFacts(state=JobState.PENDING, extra=(("requeue", "yes"),))
    return make_job(
        "slurm:7",
        gpu_count=8,
        namespace="gpu",
        platform=Platform.SLURM,
        kind=WorkloadKind.TRAINING,
        scheduler=replace(facts, **changes),  # type: ignore[arg-type]
    )


def running_until(end: datetime) -> Job:
    """A Kubernetes Job of eight boards whose end is known."""
    facts = SchedulerFacts(
        state=JobState.RUNNING, workload="job/train", started_at=AS_OF, ended_at=end
    )
    return make_job("a/job/train", gpu_count=8, kind=WorkloadKind.TRAINING, scheduler=facts)


def told(prices: list[float], grams: list[float] | None = None) -> GridOutlook:
    """A forecast by the hour from the first slot on, two days long."""
    starts = tuple(FIRST + timedelta(hours=hour) for hour in range(len(prices)))
    return GridOutlook(
        forecast=GridForecast(
            issued_at=AS_OF,
            starts=starts,
            step=timedelta(hours=1),
            gco2e_per_kwh=tuple(grams or [None] * len(prices)),
            price_per_kwh=tuple(prices),
        )
    )


def problem_of(
    job: Job, grid: GridOutlook, *, slack: float = 12, **changes: object
) -> PlanningProblem:
    """The problem of one job over a day of hours."""
    return case(
        (job, 0.9, 60_000.0, WATTS),
        gpus=boards(H100, 8),
        planning=PlanningSettings(
            slot_minutes=60, horizon_slots=24, shift_slack_hours=slack, min_saving_ratio=0.01
        ),
        energy=EnergySettings(region="DEU"),
        grid=grid,
        **changes,  # type: ignore[arg-type]
    )


def only(problem: PlanningProblem) -> Recommendation:
    """The recommendation to put it off."""
    (found,) = advised(problem).recommendations
    assert found.action is Action.SHIFT_IN_TIME
    return found


CHEAP_AT_TEN = [0.5] * 10 + [0.1] * 4 + [0.5] * 34
GRAMS_AT_TEN = [500.0] * 10 + [100.0] * 4 + [500.0] * 34


def test_a_job_that_waits_begins_in_the_cheap_hours_however_short_it_is() -> None:
    """Four hours of work, ten hours away: it waits longer than it takes, and saves to the cent."""
    job = waiting_job()
    grid = told(CHEAP_AT_TEN, GRAMS_AT_TEN)
    runs = {job.job_id: [4 * 3600.0 + second for second in range(-9, 10)]}
    found = only(problem_of(job, grid, past_runs=runs))
    assert found.starts_at is None
    assert found.ends_at == FIRST + timedelta(hours=10)
    assert dict(found.details)["begin_at"] == (FIRST + timedelta(hours=10)).isoformat()
    assert found.delay_hours is not None
    assert found.delay_hours.central == 10
    assert found.transition is None or found.transition.cost == 0
    assert found.savings.cost is not None
    assert found.savings.emissions_kgco2e is not None
    assert found.savings.cost.central == pytest.approx(4 * KWH * 0.4, rel=0.03)
    assert found.savings.emissions_kgco2e.central == pytest.approx(4 * KWH * 0.4, rel=0.03)
    wide = found.savings.emissions_kgco2e
    assert wide.high - wide.low > 2 * 0.12 * 4 * KWH * 0.3
    assert "waits for its start" in found.why


def test_a_job_that_runs_pays_its_restart_and_goes_on_in_cheap_hours() -> None:
    """Its end is known: five hours of work are left, and four of them find a cheap hour."""
    found = only(problem_of(running_until(FIRST + timedelta(hours=5)), told(CHEAP_AT_TEN)))
    assert found.ends_at in {FIRST + timedelta(hours=9), FIRST + timedelta(hours=10)}
    assert found.transition is not None
    assert found.transition.cost > 0
    assert found.savings.cost is not None
    saved = 4 * KWH * 0.4 - found.transition.cost
    assert found.savings.cost.central == pytest.approx(saved, rel=1e-3)


def test_a_job_that_waits_is_never_put_off_from_a_later_hour_on() -> None:
    """Dear hours in the middle: what begins now cannot be told to begin later as well."""
    prices = [0.1] * 8 + [2.0] * 8 + [0.1] * 32
    for runs in ({}, {"slurm:7": [6 * 3600.0 + second for second in range(9)]}):
        problem = problem_of(waiting_job(), told(prices), past_runs=runs)
        for found in advised(problem).recommendations:
            assert found.action is not Action.SHIFT_IN_TIME or found.starts_at is None


def test_a_job_with_a_deadline_is_not_put_off() -> None:
    """Its deadline stands while it waits: what is not done by then never is."""
    deadline = (FIRST + timedelta(hours=9)).isoformat()
    job = waiting_job(extra=(("requeue", "yes"), ("deadline_at", deadline)))
    runs = {job.job_id: [4 * 3600.0 + second for second in range(9)]}
    assert not advised(problem_of(job, told(CHEAP_AT_TEN), past_runs=runs)).recommendations


def test_no_slack_and_no_cheaper_hour_put_nothing_off() -> None:
    """Hours all alike, and hours that only get dearer."""
    runs = {"slurm:7": [4 * 3600.0 + second for second in range(9)]}
    rising = [0.1 + 0.01 * hour for hour in range(48)]
    for prices, slack in (([0.3] * 48, 12.0), (rising, 12.0), (CHEAP_AT_TEN, 0.0)):
        problem = problem_of(waiting_job(), told(prices), slack=slack, past_runs=runs)
        assert not advised(problem).recommendations


def test_hours_below_zero_are_planned_for_and_no_node_is_kept_on_for_them() -> None:
    """Day-ahead prices go below zero: the plan is made, and the job waits for them."""
    prices = [0.2] * 6 + [-0.3] * 12 + [0.2] * 30
    runs = {"slurm:7": [4 * 3600.0 + second for second in range(9)]}
    job = waiting_job()
    found = only(problem_of(job, told(prices), past_runs=runs, rules=None))
    assert found.ends_at == FIRST + timedelta(hours=6)
    assert found.savings.cost is not None
    assert found.savings.cost.central == pytest.approx(4 * KWH * 0.5, rel=0.03)
    advised(problem_of(job, told([-0.5] * 48), past_runs=runs, rules=None))


@given(
    st.lists(st.floats(0, 2), min_size=48, max_size=48),
    st.integers(1, 23),
    st.integers(1, 23),
    st.integers(1, 23),
)
@settings(max_examples=examples(40), deadline=None)
def test_what_a_shift_costs_is_the_sum_of_its_hours(
    prices: list[float], hours: int, slots: int, slack: int
) -> None:
    """The job's own hours at once and later, added up; and no shift within the slack saves more."""
    ahead = np.array(prices)
    there = np.where(np.arange(24) < hours, 1.0, 0.0)

    def paid(start: int) -> float:
        return float(ahead[start : start + hours].sum())

    found = delay_cost(np.full(24, 2.0), there, slots, ahead, 9.0)
    assert found == pytest.approx(2 * (paid(slots) - paid(0)), abs=1e-9)
    problem = problem_of(
        running_until(FIRST + timedelta(hours=hours)), told(prices), slack=float(slack)
    )
    job = problem.jobs[0]
    pause = next(number for number, option in enumerate(job.options) if option.paused)
    costs = problem.slot_cost[:, pause, 0]
    last = int((costs < 1e8).sum())
    best = min(range(slack + 1), key=lambda start: (round(paid(start), 9), start))
    assert paid(last) == pytest.approx(paid(best), abs=1e-6)
    path = tuple(pause if slot < last else 0 for slot in range(24))
    stays, moves = (path_cost(job, way, problem.terms).money for way in ((0,) * 24, path))
    if last:
        steps = tuple(job.options[number].configuration for number in path)
        planned = JobPlan(job_id=job.demand.job.job_id, now=steps[-1], steps=steps)
        proposal = proposal_of(job, planned, problem.terms)
        outcome = outcome_of(proposal, problem.terms)
        assert proposal.proposed == path
        taken = 0.0 if outcome.transition is None else outcome.transition.cost
        assert stays - moves == pytest.approx(KWH * (paid(0) - paid(last)) - taken, abs=1e-6)


@given(
    st.lists(st.floats(0, 2), min_size=48, max_size=48),
    st.integers(0, 23),
    st.integers(1, 30),
    st.integers(1, 23),
)
@settings(max_examples=examples(40), deadline=None)
def test_a_job_that_starts_later_is_shifted_from_its_own_start(
    prices: list[float], start: int, hours: int, slots: int
) -> None:
    """Within the horizon hour by hour; beyond it its first hours are done whenever it ends."""
    ahead = np.array(prices)
    there = ((np.arange(24) >= start) & (np.arange(24) < start + hours)).astype(float)
    moved = range(start, start + hours)
    paid = sum(ahead[hour + slots] - ahead[hour] for hour in moved if start + hours < 24)
    if start + hours >= 24:
        paid = sum(9.0 - ahead[hour] for hour in range(start, min(24, start + slots)))
    found = delay_cost(np.full(24, 2.0), there, slots, ahead, 9.0)
    assert found == pytest.approx(2 * paid, abs=1e-9)


@settings(max_examples=examples(50), deadline=None)
@given(
    starts=st.lists(st.integers(0, 10), min_size=10, max_size=10),
    prices=st.lists(st.floats(0.0, 5.0), min_size=48, max_size=48),
    slack=st.integers(1, 12),
)
def test_a_job_put_off_begins_no_earlier_than_it_would(
    starts: list[int], prices: list[float], slack: int
) -> None:
    """Of equally likely starts those after the shift stay; four slots of work within the day."""
    likely = np.array([[float(at <= slot < at + 4) for slot in range(24)] for at in starts])
    middle = likely.mean(axis=0)
    remaining = Remaining(
        low=middle, central=middle, high=middle, likely=likely, cut_off=np.zeros(10, dtype=bool)
    )
    tariff = SimpleNamespace(per_kwh_ahead=np.array(prices), mean_per_kwh=1.0)
    terms: Any = SimpleNamespace(tariff=tariff, slack_slots=slack)

    def cost(first: int) -> float:
        return sum(sum(prices[max(at, first) : max(at, first) + 4]) for at in starts) / 10

    shift, saved = best_shift(np.ones(24), remaining, terms)
    best = min(cost(slots) for slots in range(slack + 1))
    assert saved == pytest.approx(cost(0) - best, abs=1e-6)
    assert cost(shift) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("slot_minutes", [30, 60])
def test_how_much_later_it_is_done_counts_from_its_own_start(slot_minutes: int) -> None:
    """Ten hours away are ten less what it would have waited anyway, in slots of any length."""
    wait = QueueWait(
        low=1800.0, median=10_000.0, high=40_000.0, mean=15_000.0, starts=9, days=7.0
    )  # fmt: skip
    job = waiting_job()
    problem = case(
        (job, 0.9, 60_000.0, WATTS),
        gpus=boards(H100, 8),
        planning=PlanningSettings(
            slot_minutes=slot_minutes, horizon_slots=24 * 60 // slot_minutes,
            shift_slack_hours=12, min_saving_ratio=0.01,
        ),
        energy=EnergySettings(region="DEU"),
        grid=told(CHEAP_AT_TEN, GRAMS_AT_TEN),
        queue_waits={job.job_id: wait},
        past_runs={job.job_id: [4 * 3600.0 + second for second in range(-9, 10)]},
    )  # fmt: skip
    found = only(problem)
    assert found.ends_at is not None
    assert found.delay_hours is not None
    first = problem.slot_starts[0]
    shift = (found.ends_at - first) / timedelta(hours=1)
    waits = likely_waits(wait) / 3600 - (first - AS_OF) / timedelta(hours=1)
    later = np.clip(shift - np.clip(waits, 0.0, None), 0.0, None)
    assert found.delay_hours.central == pytest.approx(later.mean(), abs=0.02)
    assert found.delay_hours.central < shift - 1
    assert found.delay_hours.low <= found.delay_hours.central <= found.delay_hours.high <= shift


@given(
    starts=st.lists(st.floats(0, 23), min_size=10, max_size=10),
    slots=st.integers(1, 20),
)
@settings(max_examples=examples(40), deadline=None)
def test_of_likely_starts_those_after_the_shift_are_not_put_off(
    starts: list[float], slots: int
) -> None:
    """The mean over them, between the earliest and the latest."""
    likely = np.array([np.clip(np.arange(1, 49) - at, 0.0, 1.0) for at in starts])
    middle = likely.mean(axis=0)
    remaining = Remaining(
        low=middle, central=middle, high=middle, likely=likely, cut_off=np.zeros(10, dtype=bool)
    )
    low, central, high = delay_slots(remaining, slots)
    assert central == pytest.approx(np.mean([max(0.0, slots - at) for at in starts]))
    assert 0 <= low <= central <= high <= slots
