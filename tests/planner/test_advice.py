"""Guards, and the kinds of advice beside a job's size: waiting, growing, limits, fleet."""

import math
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
from factories import make_job, make_plan
from fleet_cases import pods_job
from planning_cases import A100, AS_OF, H100, advised, boards, case, history_of

from data.catalogue.grid_forecast import GridForecast, GridOutlook
from data.facts.jobs import Job, Platform, SchedulerFacts, WorkloadKind
from data.records.actions import Action
from data.records.plans import Plan
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings
from data.settings.energy import EnergySettings
from planner.advise import Advice, advise
from planner.costs.cost import SLOWER, longer_ratio
from planner.costs.time_shift import waiting_stretch
from planner.plan import build_plan
from planner.proposals import guardrails
from planner.proposals.guardrails import contradiction
from planner.proposals.proposal import proposal_of
from planner.proposals.savings import outcome_of

DEAR_UNTIL_MIDNIGHT = ",".join(["0.1"] * 12 + ["1.5"] * 12)
HOUR = 3600.0


def slurm_job(limit_hours: float | None = None, **changes: Any) -> Job:
    """A Slurm job that may be requeued."""
    facts = SchedulerFacts(
        extra=(("requeue", "yes"),),
        time_limit_seconds=None if limit_hours is None else limit_hours * HOUR,
    )
    values: dict[str, Any] = {
        "namespace": "gpu",
        "platform": Platform.SLURM,
        "kind": WorkloadKind.TRAINING,
        "scheduler": facts,
    }
    return make_job("slurm:7", **(values | changes))


def waiting(**energy: Any) -> Advice:
    """A busy job of eight boards that may wait twelve hours, from noon on."""
    problem = case(
        (slurm_job(gpu_count=8), 0.95, 60_000.0, 8 * 600.0),
        gpus=boards(H100, 8),
        planning=PlanningSettings(slot_minutes=60, horizon_slots=24, shift_slack_hours=12),
        energy=EnergySettings(
            region="DEU", electricity_price_by_hour=DEAR_UNTIL_MIDNIGHT, **energy
        ),
    )
    return advised(problem)


def test_waiting_names_its_hours_its_delay_and_its_price() -> None:
    """Dear hours end at midnight; eleven of them are left in whole slots, the twelfth is cheap."""
    found = waiting().recommendations[0]
    assert found.action is Action.SHIFT_IN_TIME
    # It begins with the plan: the next one, which begins later, means the same change.
    assert found.starts_at is None
    assert found.ends_at == datetime(2026, 1, 6, tzinfo=AS_OF.tzinfo)
    assert found.change == "pause until 2026-01-06 00:00 UTC"
    assert found.details == (("begin_at", "2026-01-06T00:00:00+00:00"),)
    assert found.delay_hours is not None
    assert found.delay_hours.low >= 11
    assert found.transition is not None
    assert found.transition.seconds.central == 30 + 300 + 62
    assert found.savings.cost is not None
    kwh = 8 * (600 - 75) / 1000 * 1.54 * 11
    assert found.savings.cost.central == pytest.approx(
        kwh * (1.5 - 0.8) - found.transition.cost, rel=1e-3
    )


def test_a_job_waits_by_a_forecast_alone_and_names_its_issue() -> None:
    """Prices that no hour of the day shows: dear until six hours from now, by an issue of ten."""
    issued_at = AS_OF - timedelta(hours=2)
    starts = tuple(issued_at + timedelta(hours=hour) for hour in range(48))
    grid = GridForecast(
        issued_at=issued_at,
        starts=starts,
        step=timedelta(hours=1),
        gco2e_per_kwh=(None,) * 48,
        price_per_kwh=tuple(1.5 if at < AS_OF + timedelta(hours=6) else 0.1 for at in starts),
    )
    problem = case(
        (slurm_job(gpu_count=8), 0.95, 60_000.0, 8 * 600.0),
        gpus=boards(H100, 8),
        planning=PlanningSettings(slot_minutes=60, horizon_slots=24, shift_slack_hours=12),
        grid=GridOutlook(forecast=grid),
    )
    found = advised(problem).recommendations[0]
    assert found.action is Action.SHIFT_IN_TIME
    assert found.ends_at == AS_OF + timedelta(hours=6)
    assert "issued 2026-01-05 10:00 UTC" in dict(found.evidence.factors)["grid's hours ahead"]


def test_waiting_saves_carbon_only_where_the_hours_of_carbon_are_known() -> None:
    """With an annual average all hours are alike: what remains is the cost of the restart."""
    blind = waiting().recommendations[0].savings.emissions_kgco2e
    dirty = ",".join(["100"] * 12 + ["600"] * 12)
    seen = waiting(carbon_by_hour=dirty).recommendations[0].savings.emissions_kgco2e
    assert blind is not None
    assert seen is not None
    assert blind.central <= 0
    kwh = 8 * (600 - 75) / 1000 * 1.54 * 11
    assert seen.central == pytest.approx(kwh * (600 - 350) / 1000, rel=0.07)  # less the restart


def test_market_based_emissions_are_shown_beside_and_only_when_known() -> None:
    """Two factors, two figures, never one."""
    job = make_job()

    def saved(**energy: Any) -> Recommendation:
        found = advised(
            case(
                (job, 0.8, 60_000.0, 690.0),
                gpus=boards(H100, 8),
                energy=EnergySettings(region="DEU", **energy),
            )
        )
        return found.recommendations[0]

    assert saved().savings.market_emissions_kgco2e is None
    savings = saved(market_gco2e_per_kwh=0.0).savings
    assert savings.market_emissions_kgco2e is not None
    assert savings.market_emissions_kgco2e.high == 0
    assert savings.emissions_kgco2e is not None
    assert savings.emissions_kgco2e.central > 0


def test_a_service_gets_more_before_its_peak() -> None:
    """Quiet, then two boards' work in the evening: more from the hour of the peak on."""
    levels = [0.8] * 12 + [2.0] * 6 + [0.8] * 6
    problem = case(
        (make_job(gpu_count=2), 0.4, 60_000.0, 900.0),
        gpus=boards(H100, 8),
        demand={"search/ranker-0": levels},
    )
    found = advised(problem)
    assert [recommendation.action for recommendation in found.recommendations] == [Action.SCALE_OUT]
    one = found.recommendations[0]
    assert (one.now.gpu_count, one.proposed.gpu_count) == (2, 3)
    assert one.starts_at == problem.slot_starts[12]
    assert one.ends_at == problem.slot_starts[18]
    assert one.savings.cost is not None
    assert one.savings.cost.central < 0
    assert found.portfolio.service > -one.savings.cost.central


def test_hysteresis_keeps_what_barely_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same change is refused when it must save a thousand times its price."""
    kinds = {}
    for ratio in (2.0, 1000.0):
        monkeypatch.setattr(guardrails, "HYSTERESIS_RATIO", ratio)
        planning = PlanningSettings(slot_minutes=60, horizon_slots=24)
        job = make_job("a/job/x", kind=WorkloadKind.TRAINING, gpu_count=2)
        problem = case((job, 0.4, 5_000.0, 500.0), gpus=boards(H100, 8), planning=planning)
        kinds[ratio] = advised(problem)
    assert [recommendation.action for recommendation in kinds[2.0].recommendations] == [
        Action.FEWER_GPUS
    ]
    assert kinds[1000.0].recommendations == ()
    assert "1000 times" in kinds[1000.0].kept["a/job/x"]


def test_training_is_delayed_and_its_savings_are_net_of_it() -> None:
    """On half the boards it may take up to 1.7 times as long (eff .85), with less to save."""
    job = make_job("a/job/x", kind=WorkloadKind.TRAINING, gpu_count=4)
    found = advised(case((job, 0.4, 5_000.0, 4 * 300.0), gpus=boards(H100, 8)))
    one = found.recommendations[0]
    assert one.proposed.gpu_count == 2
    assert one.delay_hours is not None
    usual = 24 * 0.7 * sum(SLOWER) / len(SLOWER)  # the mean of what is assumed of such jobs
    assert one.delay_hours.central == pytest.approx(usual + (30 + 300 + 62) / 3600)
    assert one.delay_hours.high == pytest.approx(24 * 0.7 + (120 + 1800 + 250) / 3600)
    assert one.savings.gpu_hours is not None
    worst = 48 - 2 * 24 * 0.7 - (4 * (120 + 1800) + 2 * 250) / 3600
    assert worst < one.savings.gpu_hours.low < one.savings.gpu_hours.central
    # What a change takes is skewed: it costs its mean, 0.3, 0.4 and 0.3 of q10, median and q90.
    leaving, entering = 0.3 * 5 + 0.4 * 330 + 0.3 * 1920, 0.3 * 15 + 0.4 * 62 + 0.3 * 250
    assert one.savings.gpu_hours.central == pytest.approx(
        48 - 2 * usual - (4 * leaving + 2 * entering) / 3600
    )


def test_training_takes_longer_on_a_slower_model_with_as_many_boards() -> None:
    """At half the speed it takes up to twice as long; of that the mean that is assumed."""
    job = make_job("a/job/x", kind=WorkloadKind.TRAINING)
    problem = case((job, 0.3, 5_000.0, 300.0), gpus=[*boards(H100, 2), *boards(A100, 2)])
    one = problem.jobs[0]
    slower = next(option for option in one.options if option.configuration.gpu_model == A100)
    extra = longer_ratio(one.demand, one.options[0], slower, problem.planning)
    assert extra == pytest.approx(np.full(24, sum(SLOWER) / len(SLOWER)))


def test_a_busy_job_on_cool_boards_is_flagged() -> None:
    """Full utilization at idle power: a kernel that spins, or wrong readings."""
    job = make_job("a/pod", kind=WorkloadKind.TRAINING)
    spins = advised(case((job, 1.0, 5_000.0, 90.0), gpus=boards(H100, 1)))
    works = advised(case((job, 1.0, 5_000.0, 650.0), gpus=boards(H100, 1)))
    assert "look busy without working" in spins.kept["a/pod"]
    assert all("look busy" not in reason for reason in works.kept.values())


def test_weak_evidence_lowers_the_confidence_further() -> None:
    """A gap in the history takes a step off, with its reason."""
    job = make_job(gpu_count=8)
    problem = case((job, 0.19, 5_000.0, 1200.0), gpus=boards(H100, 8))
    known = problem.jobs[0]
    gaps = replace(known, demand=replace(known.demand, coverage_ratio=0.7))
    found = advised(replace(problem, jobs=(gaps,)))
    assert found.recommendations[0].confidence.startswith("medium: SM activity was measured; 70 %")


def test_a_far_too_long_time_limit_is_pointed_out() -> None:
    """Six runs of at most three hours, and a limit of two days: four and a half are enough."""
    job = slurm_job(48.0, gpu_count=4)
    problem = case((job, 0.97, 70_000.0, 4 * 650.0), gpus=boards(H100, 8))
    runs = [2 * HOUR, 2.2 * HOUR, 2.5 * HOUR, 2.6 * HOUR, 2.9 * HOUR, 3 * HOUR]
    found = advised(problem, past_runs={"slurm:7": runs})
    assert [recommendation.action for recommendation in found.recommendations] == [
        Action.TIME_LIMIT
    ]
    one = found.recommendations[0]
    assert one.summary == "time limit of 4.5 h"
    assert one.details == (("time_limit_seconds", "16200"),)
    assert (one.savings.cost, one.savings.gpu_hours, one.savings.energy_kwh) == (None, None, None)
    assert "6 ended runs" in one.why
    assert "slurm:7" not in found.kept


@pytest.mark.parametrize(
    ("limit_hours", "runs"),
    [(48.0, [3 * HOUR] * 4), (8.0, [3 * HOUR] * 6), (None, [3 * HOUR] * 6), (48.0, [])],
    ids=["too few runs", "not far above", "no limit", "no runs"],
)
def test_other_time_limits_are_left_alone(limit_hours: float | None, runs: list[float]) -> None:
    """Five runs at least, and a limit of twice what is advised."""
    job = slurm_job(limit_hours, gpu_count=4)
    problem = case((job, 0.97, 70_000.0, 4 * 650.0), gpus=boards(H100, 8))
    assert advised(problem, past_runs={"slurm:7": runs}).recommendations == ()


def test_a_change_that_would_run_into_the_time_limit_is_refused() -> None:
    """A cap that stretches the longest run beyond the limit would get the job killed."""
    job = slurm_job(3.0)
    problem = case((job, 0.6, 70_000.0, 690.0), gpus=boards(H100, 1))
    free = advised(problem).recommendations
    held = advised(problem, past_runs={"slurm:7": [2.99 * HOUR]})
    assert [entry.action for entry in free] == [Action.POWER_CAP]
    assert held.recommendations == ()
    assert "time limit" in held.kept["slurm:7"]


def test_an_empty_plan_advises_nothing() -> None:
    """A plan without jobs has no portfolio to speak of."""
    problem = replace(case((make_job(), 0.9, 1.0, 1.0), gpus=boards(H100, 1)), jobs=())
    plan: Plan = make_plan(jobs=(), cost=0.0, cost_of_now=0.0, lower_bound=0.0)
    found = advise(plan, problem)
    assert (found.recommendations, found.kept, found.portfolio.total) == ((), {}, 0.0)


def test_an_idle_pod_that_nobody_can_stop_and_keep_is_named_not_offered() -> None:
    """No applier stops a bare pod: its owner has to delete it."""
    job = pods_job("x", "pod", gpu_count=2)
    found = advised(case((job, 0.0, 500.0, 150.0), gpus=boards(H100, 8)))
    assert found.recommendations == ()
    assert "idle for" in found.kept[job.job_id]
    assert "delete it by hand" in found.kept[job.job_id]


def test_who_keeps_the_manifest_is_said_with_the_change() -> None:
    """Helm would undo it; the change belongs where Helm reads it."""
    job = pods_job("x", gpu_count=8)
    assert job.scheduler is not None
    kept = replace(job, scheduler=replace(job.scheduler, managed_by=("Helm",)))
    (one,) = advised(case((kept, 0.19, 5_000.0, 1200.0), gpus=boards(H100, 8))).recommendations
    assert any("Helm would undo the change" in note for note in one.evidence.fallbacks)


def test_a_site_without_slices_gets_none() -> None:
    """The boards could be cut, and nobody has: a pod that asks for a slice would wait for ever."""
    job = make_job(gpu_model=A100)
    for cut in (False, True):
        problem = case((job, 0.1, 7_900.0, 90.0), gpus=boards(A100, 8, cut=cut))
        found = advised(problem).recommendations
        assert [entry.action for entry in found] == ([Action.MIG_SLICE] if cut else [])


@pytest.mark.parametrize("slot_minutes", [5, 15, 30, 60])
@pytest.mark.parametrize("paused_slots", [1, 5, 12])
def test_a_pause_is_never_held_for_good(slot_minutes: int, paused_slots: int) -> None:
    """Whatever a plan mixes it with: a change that gives too little for good, or one that does."""
    slots = 24
    planning = PlanningSettings(
        slot_minutes=slot_minutes,
        horizon_slots=slots,
        shift_slack_hours=paused_slots * slot_minutes / 60,
    )
    asked = {
        "requeue": "yes",
        "batch": "yes",
        "gres": "gpu:h100:4",
        "gres_per": "node",
        "requested_gpu_type": "h100",
        "slurm_release": "24.11",
        "nodes_requested": "1",
    }
    runs = SchedulerFacts(extra=tuple(asked.items()))
    for level in (0.1, 0.45, 0.9):
        problem = case(
            (slurm_job(gpu_count=4, scheduler=runs), level, 9_000.0, 800.0),
            gpus=boards(H100, 4),
            planning=planning,
            energy=EnergySettings(region="DEU", electricity_price_by_hour=DEAR_UNTIL_MIDNIGHT),
        )
        (job,) = problem.jobs
        pause = next(option for option in job.options if option.paused)
        first, last = waiting_stretch(problem.terms)
        assert len(job.options) > 2
        for other in (option for option in job.options if option != pause):
            steps = [pause if first <= slot < last else other for slot in range(slots)]
            plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
            mixed = replace(plan.jobs[0], steps=tuple(step.configuration for step in steps))
            found = outcome_of(proposal_of(job, mixed, problem.terms), problem.terms)
            assert found.savings.cost is not None
            assert math.isfinite(found.savings.cost.high - found.savings.cost.low)


@pytest.mark.parametrize(("before", "is_flagged"), [(1, False), (4, True)])
def test_power_is_that_of_each_board_whatever_number_there_was(
    before: int, is_flagged: bool
) -> None:
    """600 W of one board busy work tells; a job that had one and has four now is not cool."""
    job = make_job("a/pod", kind=WorkloadKind.TRAINING, gpu_count=4)
    history = history_of(job, 1.0, 5_000.0, 600.0, timedelta(hours=1))
    history["allocated_gpus"] = float(before)
    problem = case((job, 1.0, 5_000.0, 600.0), gpus=boards(H100, 4), history=history)
    assert bool(contradiction(problem.jobs[0].demand, problem.terms)) == is_flagged
