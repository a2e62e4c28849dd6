"""What is recommended, and what is not: each guard with the job that it is for."""

import pytest
from drawn import examples
from factories import make_job
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import A100, AS_OF, H100, L40S, SLOT_LENGTHS, boards, case, day_in_slots

from data.facts.jobs import Job, WorkloadKind
from data.records.actions import Action
from data.records.forecasts import ForecastSkipped
from data.records.recommendations import Recommendation
from data.settings.energy import EnergySettings
from planner.advise import advise
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.proposal import Proposal
from planner.proposals.savings import outcome_of


def outcome(problem: PlanningProblem) -> tuple[tuple[Recommendation, ...], dict[str, str]]:
    """Recommendations about jobs, and reasons to keep."""
    advice = advise(build_plan(problem, budget_seconds=30, created_at=AS_OF), problem)
    return tuple(
        recommendation for recommendation in advice.recommendations if recommendation.job_id
    ), dict(advice.kept)


def only(
    job: Job,
    level: float,
    memory: float,
    power: float | None,
    *models: str,
    slot_minutes: int = 60,
) -> Recommendation:
    """The one recommendation for one job on a fleet of these models."""
    gpus = [gpu for model in (job.gpu_model, *models) for gpu in boards(model, 8, cut=True)]
    planning = day_in_slots(slot_minutes)
    found, _kept = outcome(case((job, level, memory, power), gpus=gpus, planning=planning))
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("currency", "told"),
    [
        ("EUR", "2.5 EUR/h for H100-SXM5-80GB (catalogue default)"),
        ("eur", "2.5 EUR/h for H100-SXM5-80GB (catalogue default)"),
        ("USD", "2.5 EUR/h for H100-SXM5-80GB (catalogue default, not converted to USD)"),
    ],
)
def test_a_price_of_the_catalogue_is_told_in_its_own_currency(currency: str, told: str) -> None:
    """One figure has one currency."""
    problem = case(
        (make_job(gpu_count=2), 0.0, 500.0, 150.0),
        gpus=boards(H100, 8),
        energy=EnergySettings(region="DEU", currency=currency),
    )
    (found,), _kept = outcome(problem)
    assert dict(found.evidence.factors)["GPU price"] == told


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
def test_a_job_that_holds_gpus_idle_is_reclaimed(slot_minutes: int) -> None:
    """Two days at nothing."""
    found = only(make_job(gpu_count=2), 0.0, 500.0, 150.0, slot_minutes=slot_minutes)
    assert (found.action, found.proposed.gpu_count) == (Action.RECLAIM, 0)
    assert found.risk == "high"
    hours = found.savings.gpu_hours
    assert hours is not None
    assert (hours.low, hours.central, hours.high) == pytest.approx((0, 48, 48))


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
def test_an_oversized_job_gets_fewer_gpus(slot_minutes: int) -> None:
    """Eight H100 that do the work of one and a half: two are enough with headroom."""
    found = only(make_job(gpu_count=8), 0.19, 5_000.0, 1200.0, slot_minutes=slot_minutes)
    assert (found.action, found.proposed.gpu_count) == (Action.FEWER_GPUS, 2)


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
def test_a_small_job_gets_a_slice(slot_minutes: int) -> None:
    """A tenth of an A100 and 8 GiB fit the smallest profile of 10 GB."""
    found = only(make_job(gpu_model=A100), 0.1, 7_900.0, 90.0, slot_minutes=slot_minutes)
    assert (found.action, found.proposed.mig_profile) == (Action.MIG_SLICE, "1g.10gb")


def test_memory_headroom_decides_the_slice() -> None:
    """9,000 MiB with a fifth of headroom do not fit 9,728 MiB."""
    found = only(make_job(gpu_model=A100), 0.1, 9_000.0, 90.0)
    assert found.proposed.mig_profile == "2g.20gb"


def test_a_cheaper_model_is_found_when_it_is_there() -> None:
    """Two H100 at a third each would do on two L40S by speed and memory."""
    found = only(make_job(gpu_count=2), 0.3, 30_000.0, 400.0, L40S)
    assert found.action in (Action.SMALLER_GPU, Action.FEWER_GPUS)
    assert found.savings.cost is not None
    assert found.savings.cost.central > 0


def test_memory_blocks_fewer_and_smaller() -> None:
    """Full memory is taken as sharded: half the boards would need twice of it."""
    job = make_job(gpu_count=4)
    found, kept = outcome(
        case((job, 0.2, 70_000.0, 600.0), gpus=[*boards(H100, 4), *boards(L40S, 8)])
    )
    assert found == ()
    assert "holds its memory" in kept[job.job_id]


def test_a_busy_job_is_kept() -> None:
    """A saturated training job needs what it has."""
    job = make_job(gpu_count=4, kind=WorkloadKind.TRAINING)
    found, kept = outcome(case((job, 0.97, 60_000.0, 2700.0), gpus=boards(H100, 8)))
    assert found == ()
    assert job.job_id in kept


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
def test_room_for_a_slowdown_makes_a_power_cap(slot_minutes: int) -> None:
    """At 80 % of the work 560 W slow bearably and 490 W would not; 690 W exceed both."""
    found = only(make_job(), 0.8, 60_000.0, 690.0, slot_minutes=slot_minutes)
    assert (found.action, found.proposed.power_cap_watts) == (Action.POWER_CAP, 560.0)
    assert found.risk == "low"
    assert found.savings.energy_kwh is not None
    before = 0.690 * 24 * 1.54
    assert 0.05 * before < found.savings.energy_kwh.low
    assert found.savings.energy_kwh.central == pytest.approx(0.17 * before, rel=0.05)
    assert found.transition is not None
    assert found.transition.seconds.high == 0


def test_unknown_power_is_unknown_energy() -> None:
    """Without power there is no energy figure, and the evidence says so."""
    found = only(make_job(gpu_count=8), 0.19, 5_000.0, None)
    assert found.savings.energy_kwh is None
    assert found.savings.emissions_kgco2e is None
    assert any("power" in fallback for fallback in found.evidence.fallbacks)


def test_a_skipped_forecast_keeps_the_job_and_says_why() -> None:
    """Nothing is recommended for what is not understood."""
    job = make_job(gpu_count=8)
    skipped = ForecastSkipped(
        job_id=job.job_id, reason="only 2 h", samples=1, history_slots=2, known_slots=2
    )
    found, kept = outcome(
        case((job, 0.1, 5_000.0, 1000.0), gpus=boards(H100, 8), forecasts=[skipped])
    )
    assert (found, kept[job.job_id]) == ((), "no forecast: only 2 h")


def test_an_unknown_model_is_kept_and_named() -> None:
    """A board that the catalogue lacks has no price to compare."""
    job = make_job(gpu_model="X1000", gpu_count=8)
    found, kept = outcome(case((job, 0.1, 5_000.0, 1000.0), gpus=boards("X1000", 8)))
    assert found == ()
    assert "X1000" in kept[job.job_id]


def test_weak_evidence_is_called_weak() -> None:
    """GPU_UTIL saturates, so a finding on it alone is labelled."""
    job = make_job(gpu_count=8)
    problem = case(
        (job, 0.19, 5_000.0, 1200.0), gpus=boards(H100, 8), signals={job.job_id: "gpu_util"}
    )
    found, _kept = outcome(problem)
    assert found[0].confidence.startswith("weak")


def steadily(problem: PlanningProblem, option: int) -> Proposal:
    """The proposal to take an option of the first job for good."""
    slots = len(problem.slot_starts)
    return Proposal(
        job=problem.jobs[0],
        option=option,
        planned=(option,) * slots,
        proposed=(option,) * slots,
        share=1.0,
        action=Action.FEWER_GPUS,
    )


def test_a_freed_board_stays_powered() -> None:
    """Reclaiming saves what holding the board draws, at most a fifth of it, never all of it."""
    problem = case((make_job(), 0.0, 500.0, 75.0), gpus=boards(H100, 1))
    last = len(problem.jobs[0].options) - 1
    saved = outcome_of(steadily(problem, last), problem.terms).savings.energy_kwh
    assert saved is not None
    held = 0.075 * 24 * 1.54
    assert -0.03 * held < saved.low < saved.central < saved.high < 0.25 * held
    assert saved.central == pytest.approx(0.1 * held, rel=0.3)


@given(
    level=st.floats(0, 1),
    power=st.floats(60, 700),
    count=st.sampled_from([1, 2, 4, 8]),
    kind=st.sampled_from(list(WorkloadKind)),
)
@settings(max_examples=examples(40), deadline=None)
def test_ranges_are_ordered(level: float, power: float, count: int, kind: WorkloadKind) -> None:
    """Low, central, high of every figure, for every option of any job."""
    job = make_job("a/job/x", gpu_count=count, kind=kind)
    problem = case(
        (job, level, 5_000.0, power * count),
        gpus=[*boards(H100, 8), *boards(L40S, 8)],
        energy=EnergySettings(region="DEU", market_gco2e_per_kwh=100.0),
    )
    for number in range(1, len(problem.jobs[0].options)):
        outcome = outcome_of(steadily(problem, number), problem.terms)
        savings = outcome.savings
        assert savings.energy_kwh is not None
        assert savings.emissions_kgco2e is not None
        assert savings.market_emissions_kgco2e is not None
        assert savings.market_emissions_kgco2e.central == pytest.approx(
            0.1 * savings.energy_kwh.central
        )


@pytest.mark.parametrize(("level", "count"), [(0.2, 1), (0.23, 2), (0.4, 2), (0.48, None)])
def test_a_size_that_just_misses_its_margin_leaves_the_next_one(
    level: float, count: int | None
) -> None:
    """Four boards of which .92 are wanted with headroom: one is too near, two free the others."""
    problem = case(
        (make_job(gpu_count=4), level / 1.15, 5_000.0, 600.0),
        gpus=boards(H100, 8),
        planning=day_in_slots(60),
    )
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    advice = advise(plan, problem, proposed_before={})
    found = [entry.proposed.gpu_count for entry in advice.recommendations if entry.job_id]
    assert found == ([] if count is None else [count])
