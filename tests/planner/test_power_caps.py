"""The laws of power caps: the same curve as the power model's, within what Zeus measured."""

from dataclasses import replace
from datetime import timedelta
from itertools import product
from statistics import NormalDist

import numpy as np
import pytest
from factories import H100, make_job
from hypothesis import given
from hypothesis import strategies as st
from planning_cases import boards, case, day_in_slots, history_of

from data.catalogue.gpu_catalogue import cap_law_of, load_cap_laws, load_gpu_catalogue
from data.records.actions import Action
from data.settings.all_settings import PlanningSettings
from data.settings.energy import EnergySettings
from forecasting.power.cap import power_under_cap
from planner.costs.energy import expected_draw, power_under
from planner.costs.power_caps import cap_effect
from planner.jobs.power_curve import PowerCurve
from planner.problem.planning_problem import PlanningProblem
from planner.proposals import savings
from planner.proposals.proposal import Proposal
from planner.proposals.savings import outcome_of


@given(st.floats(20, 900), st.floats(100, 700))
def test_power_under_a_cap_is_that_of_the_power_model(watts: float, cap: float) -> None:
    """Planner and forecasting know the same curve, each for itself."""
    found = cap_effect(cap_law_of("any"), np.array([watts]), cap).power_ratio[0] * watts
    assert found == pytest.approx(float(power_under_cap(watts, cap)), rel=1e-9)


@pytest.mark.parametrize(
    ("generation", "drawn", "cap", "energy", "slowdown"),
    [
        ("volta", 0.90, 0.80, 0.897, 1.037),
        ("volta", 0.90, 0.70, 0.845, 1.063),
        ("volta", 0.90, 0.60, 0.806, 1.112),
        ("turing", 0.90, 0.67, 0.823, 1.051),
        ("ampere", 0.77, 0.67, 0.866, 1.046),
    ],
)
def test_busy_boards_come_near_the_published_medians(
    generation: str, drawn: float, cap: float, energy: float, slowdown: float
) -> None:
    """Shares of the TDP: what the middle run drew, and a cap. Medians over networks and batches."""
    effect = cap_effect(cap_law_of(generation), np.array([drawn]), cap)
    ratio = float(effect.power_ratio[0] * effect.slowdown[0])
    assert ratio == pytest.approx(energy, abs=0.07)
    assert float(effect.slowdown[0]) == pytest.approx(slowdown, abs=0.07)


@given(st.sampled_from(sorted(load_cap_laws())), st.floats(50, 700), st.floats(0.5, 1))
def test_a_lower_cap_never_runs_faster(generation: str, watts: float, share: float) -> None:
    """Less power, more time, low to high in order."""
    law = cap_law_of(generation)
    mild = cap_effect(law, np.array([watts]), 500.0)
    hard = cap_effect(law, np.array([watts]), 500.0 * share)
    assert hard.power_ratio[0] <= mild.power_ratio[0] + 1e-12
    assert hard.slowdown[0] >= mild.slowdown[0] - 1e-12
    assert 1 <= hard.slowdown_low[0] <= hard.slowdown[0] <= hard.slowdown_high[0]


@pytest.mark.parametrize(("median", "spread"), [(560.0, 60.0), (500.0, 100.0), (640.0, 30.0)])
def test_a_cap_saves_the_mean_over_what_may_be_drawn(median: float, spread: float) -> None:
    """A job that draws more than its median is capped deeper than one that draws less."""
    planning = PlanningSettings(slot_minutes=60, horizon_slots=4, power_cap_ratios="0.7")
    hot = (make_job("a/hot"), 0.95, 70_000.0, 690.0)
    problem = case(hot, gpus=boards(H100, 1), planning=planning)
    job, terms = problem.jobs[0], problem.terms
    present, capped = job.options
    outer = NormalDist(0, spread).inv_cdf(0.9)
    demand = replace(
        job.demand,
        power_q10=np.full(4, median - outer),
        power_q50=np.full(4, median),
        power_q90=np.full(4, median + outer),
    )
    expected = expected_draw(demand, present, capped, terms)
    assert expected is not None
    drawn = np.clip(np.random.default_rng(1).normal(median, spread, 100_000), 80, 700)
    under = power_under(drawn, present, capped, terms, PowerCurve()).central
    mean = float((drawn - under).mean())
    middle = np.array([median])
    of_median = float(
        (middle - power_under(middle, present, capped, terms, PowerCurve()).central)[0]
    )
    found = float(median - expected[0])
    assert found == pytest.approx(mean, rel=0.12)
    assert abs(found - mean) < abs(of_median - mean)
    still = replace(demand, power_q10=demand.power_q50, power_q90=demand.power_q50)
    certain = expected_draw(still, present, capped, terms)
    assert certain is not None
    assert float(median - certain[0]) == pytest.approx(of_median)


def capped(model: str, *, drawn: float, ratio: float) -> tuple[Proposal, PlanningProblem]:
    """A day of a service at a share `drawn` of the TDP, sure to a watt, under a share as cap."""
    tdp = load_gpu_catalogue().get(model).tdp_watts
    problem = case(
        (make_job("a/deployment/x", gpu_model=model), 0.5, 5_000.0, drawn * tdp),
        gpus=boards(model, 1),
        planning=PlanningSettings(
            slot_minutes=60, horizon_slots=24, power_cap_ratios=str(ratio), min_saving_ratio=0.0
        ),
        energy=EnergySettings(region="DEU", pue=1.0),
    )
    (job,) = problem.jobs
    (option,) = [
        number
        for number, entry in enumerate(job.options)
        if entry.configuration.power_cap_watts is not None
    ]
    path = (option,) * 24
    sure = replace(job.demand, power_q10=job.demand.power_q50, power_q90=job.demand.power_q50)
    proposal = Proposal(
        job=replace(job, demand=sure),
        option=option,
        planned=path,
        proposed=path,
        share=1.0,
        action=Action.POWER_CAP,
    )
    return proposal, problem


@pytest.mark.parametrize(
    ("model", "ratio"),
    [
        ("A100-SXM4-80GB", 0.8),
        ("A100-SXM4-80GB", 0.9),
        *product(("L40S-48GB", "V100-SXM2-32GB", "T4-16GB"), (0.6, 0.7, 0.8, 0.9)),
    ],
)
def test_a_cap_is_promised_over_how_much_longer_work_may_take(
    model: str, ratio: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slowdowns are drawn as the law tells them: their mean is central, 80 % lie in the range."""
    monkeypatch.setattr(savings, "PUE_UNCERTAINTY", 0.0)
    proposal, problem = capped(model, drawn=0.95, ratio=ratio)
    watts = proposal.job.demand.power_q50
    assert watts is not None
    law = problem.terms.cap_laws[model]
    effect = cap_effect(law, watts[:1], ratio * load_gpu_catalogue().get(model).tdp_watts)
    low, middle, high = effect.slowdown_low[0], effect.slowdown[0], effect.slowdown_high[0]
    z = np.random.default_rng(2).standard_normal(100_000) / NormalDist().inv_cdf(0.9)
    slower = np.maximum(middle + z * np.where(z > 0, high - middle, middle - low), 1.0)
    saved = 24 * watts[0] / 1000 * (1 - effect.power_ratio[0] * slower)
    promised = outcome_of(proposal, problem.terms).savings.energy_kwh
    assert promised is not None
    assert promised.central == pytest.approx(saved.mean(), abs=0.005 * 24 * watts[0] / 1000)
    inside = float(np.mean((saved >= promised.low) & (saved <= promised.high)))
    assert inside == pytest.approx(0.8, abs=0.02)


def test_below_what_was_measured_is_said() -> None:
    """An H200 at a third of its power was never seen."""
    assert not cap_effect(cap_law_of("any"), np.array([700.0]), 230.0).measured


def test_generations_without_measurement_take_the_widest_law() -> None:
    """Hopper, Ada and Blackwell have the law of all others, which says that it is not theirs."""
    laws = {model.name: model.cap_law for model in load_gpu_catalogue()}
    assert laws["V100-SXM2-32GB"].measured
    assert not laws["H200-SXM-141GB"].measured
    assert laws["H200-SXM-141GB"] == laws["L40S-48GB"]


@pytest.mark.parametrize("slot_minutes", [15, 60])
@pytest.mark.parametrize(
    ("unknown", "is_capped"),
    [(slice(0, 0), True), (slice(0, -8), True), (slice(-8, None), False), (slice(-40, -8), True)],
    ids=["none", "before", "since then", "for a time"],
)
def test_no_cap_rests_on_power_that_is_read_no_more(
    unknown: slice, is_capped: bool, slot_minutes: int
) -> None:
    """Where an exporter tells no power now, its forecast remembers what may be gone."""
    job = make_job(gpu_model=H100)
    history = history_of(job, 0.8, 60_000.0, 690.0, timedelta(minutes=slot_minutes))
    history.loc[history.index[unknown], "power_watts"] = np.nan
    problem = case(
        (job, 0.8, 60_000.0, 690.0),
        gpus=boards(H100, 1),
        planning=day_in_slots(slot_minutes),
        history=history,
    )
    caps = [option.configuration.power_cap_watts for option in problem.jobs[0].options]
    assert any(caps) == is_capped
