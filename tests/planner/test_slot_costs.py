"""What a day costs, added up by hand: the same for slots of any length."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from factories import make_job
from planning_cases import H100, L40S, SLOT_LENGTHS, boards, case

from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import WorkloadKind
from data.facts.queue_waits import QueueWait
from data.settings.all_settings import PlanningSettings
from data.settings.energy import EnergySettings
from planner.costs.configurations import Option
from planner.costs.cost import SLOWER, change_cost, change_costs, needed_service, slot_costs
from planner.costs.energy import HOLDING_SHARES, expected_draw, power_under
from planner.costs.free_boards import free_board, freed_board
from planner.jobs.power_curve import PowerCurve
from planner.problem.planning_problem import PlanningProblem

CATALOGUE = load_gpu_catalogue()
MODEL = CATALOGUE.get(H100)
PUE, PRICE, CARBON_PRICE, HEADROOM, WEIGHT = 1.3, 0.4, 50.0, 0.2, 3.0
WATTS = 1000.0


def day_of(
    kind: WorkloadKind, *, slot_minutes: int = 60, level: float = 0.5, watts: float | None = WATTS,
    **energy: Any,
) -> PlanningProblem:  # fmt: skip
    """A day of a job of four boards that does the work of `level` of them."""
    job_id = "a/job/x" if kind is WorkloadKind.TRAINING else "a/deployment/x"
    values = {
        "pue": PUE,
        "electricity_price_per_kwh": PRICE,
        "carbon_price_per_tonne": CARBON_PRICE,
    }
    return case(
        (make_job(job_id, kind=kind, gpu_count=4), level, 5_000.0, watts),
        gpus=[*boards(H100, 8), *boards(L40S, 8)],
        planning=PlanningSettings(
            slot_minutes=slot_minutes,
            horizon_slots=24 * 60 // slot_minutes,
            headroom_ratio=HEADROOM,
            shortfall_weight=WEIGHT,
        ),
        energy=EnergySettings(region="DEU", **values | energy),
    )


def of_boards(problem: PlanningProblem, count: int, model: str = H100) -> Option:
    """The present model's option of so many boards, made where none is offered."""
    present = problem.jobs[0].options[0]
    configuration = replace(present.configuration, gpu_model=model, gpu_count=count)
    service = count * CATALOGUE.get(model).relative_speed / MODEL.relative_speed
    return Option(
        configuration=configuration,
        boards=float(count),
        service=service,
        slowdown=(1.0, 1.5, 2.0) if count < 4 else (1.0, 1.0, 1.0),
    )


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
def test_a_day_of_a_service_on_half_its_boards(slot_minutes: int) -> None:
    """Rent, energy with what the freed boards draw idle, carbon, and the demand that is missed."""
    problem = day_of(WorkloadKind.INFERENCE, slot_minutes=slot_minutes)
    job, terms = problem.jobs[0], problem.terms
    present, half = job.options[0], of_boards(problem, 2)
    costs = slot_costs(job.demand, present, half, terms)
    assert len(costs.rent) == 24 * 60 // slot_minutes
    idle, busy = freed_board(MODEL, WATTS / 4, rests=False, boards=4).mean, 1 + HOLDING_SHARES[1]
    busier = job.demand.power_curve.rise(2.0) / 2
    watts = (WATTS - 4 * idle * busy) * busier + 2 * idle * busy + 2 * idle
    kwh = watts * 24 / 1000 * PUE
    missed = 2.0 * (1 + HEADROOM) - 2.0
    assert costs.rent.sum() == pytest.approx(2 * MODEL.price_per_hour * 24)
    assert costs.electricity.sum() == pytest.approx(kwh * PRICE)
    grams = problem.carbon.gco2e_per_kwh
    assert costs.carbon.sum() == pytest.approx(kwh * grams / 1e6 * CARBON_PRICE)
    assert costs.shortfall.sum() == pytest.approx(WEIGHT * missed * MODEL.price_per_hour * 24)
    assert not costs.longer.any()
    assert not costs.put_off.any()
    parts = costs.rent + costs.electricity + costs.carbon
    assert costs.money == pytest.approx(parts)
    assert costs.total == pytest.approx(parts + costs.shortfall)
    stays = slot_costs(job.demand, present, present, terms)
    assert stays.rent.sum() == pytest.approx(4 * MODEL.price_per_hour * 24)
    assert stays.electricity.sum() == pytest.approx(WATTS * 24 / 1000 * PUE * PRICE)
    assert not stays.shortfall.any()


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
@pytest.mark.parametrize("level", [0.2, 0.9])
def test_work_that_ends_runs_longer_on_fewer_boards(slot_minutes: int, level: float) -> None:
    """By what it misses of its demand, or by the mean of what is assumed where it misses less."""
    problem = day_of(WorkloadKind.TRAINING, slot_minutes=slot_minutes, level=level)
    job, terms = problem.jobs[0], problem.terms
    half = of_boards(problem, 2)
    costs = slot_costs(job.demand, job.options[0], half, terms)
    missed = max(0.0, 4 * level - 2) / 2
    longer = 24 * max(missed, sum(SLOWER) / len(SLOWER) * (2.0 - 1))
    per_kwh = PRICE + problem.carbon.gco2e_per_kwh / 1e6 * CARBON_PRICE
    held_kw = HOLDING_SHARES[1] * 2 * MODEL.idle_watts / 1000 * PUE
    hourly = 2 * MODEL.price_per_hour + held_kw * per_kwh
    assert costs.longer.sum() == pytest.approx(longer * hourly)
    assert costs.money == pytest.approx(
        costs.rent + costs.electricity + costs.carbon + costs.longer
    )
    assert not slot_costs(job.demand, job.options[0], job.options[0], terms).longer.any()
    more = of_boards(problem, 5)
    assert not slot_costs(job.demand, job.options[0], more, terms).longer.any()


@pytest.mark.parametrize("kind", [WorkloadKind.TRAINING, WorkloadKind.INFERENCE])
@pytest.mark.parametrize("pue", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
def test_a_change_holds_and_draws_for_its_seconds(
    kind: WorkloadKind, pue: float, slot_minutes: int
) -> None:
    """A checkpoint and lost work on the four boards of now, a start on the two to come.

    Free boards stay powered: what they draw idle is no part of it.
    """
    problem = day_of(kind, slot_minutes=slot_minutes, pue=pue)
    job, terms = problem.jobs[0], problem.terms
    half = of_boards(problem, 2)
    found = change_costs(job.demand, job.options[0], half, terms)
    ends = job.demand.standing.ends
    leave = np.array([5.0, 330.0, 1920.0]) if ends else np.zeros(3)
    enter = np.array([15.0, 62.0, 250.0])
    kwh = (leave + enter) / 3600 * (WATTS - 4 * MODEL.idle_watts) / 1000 * pue
    gpu_hours = (4 * leave + 2 * enter) / 3600
    per_kwh = PRICE + problem.carbon.gco2e_per_kwh / 1e6 * CARBON_PRICE
    assert found.seconds == pytest.approx(tuple(leave + enter))
    assert found.gpu_hours == pytest.approx(tuple(gpu_hours))
    assert found.kwh == pytest.approx(tuple(kwh))
    assert found.cost == pytest.approx(tuple(gpu_hours * MODEL.price_per_hour + kwh * per_kwh))
    assert found.wait_price == 0
    mean = np.dot([0.3, 0.4, 0.3], found.cost)
    assert change_cost(job.demand, job.options[0], half, terms) == pytest.approx(mean)
    assert sum(seconds for _what, seconds in found.parts) == pytest.approx(found.seconds[1])


def test_what_is_not_known_costs_nothing_that_is_made_up() -> None:
    """Without power there is rent and no electricity; without a price there is no rent."""
    problem = day_of(WorkloadKind.TRAINING, watts=None)
    job, terms = problem.jobs[0], problem.terms
    half = of_boards(problem, 2)
    costs = slot_costs(job.demand, job.options[0], half, terms)
    assert not costs.electricity.any()
    assert expected_draw(job.demand, job.options[0], half, terms) is None
    assert change_costs(job.demand, job.options[0], half, terms).kwh == (0, 0, 0)
    unknown = replace(half, configuration=replace(half.configuration, gpu_model="X1000"))
    assert not slot_costs(job.demand, job.options[0], unknown, terms).rent.any()


@pytest.mark.parametrize("kind", [WorkloadKind.TRAINING, WorkloadKind.INFERENCE])
def test_what_is_needed_has_headroom_up_to_what_there_is(kind: WorkloadKind) -> None:
    """Of four boards a half with a fifth more is 2.4; nobody shows to need more than it has."""
    for level, expected in ((0.5, 2.4), (0.9, 4.0)):
        problem = day_of(kind, level=level)
        job = problem.jobs[0]
        found = needed_service(job.demand, job.options[0], problem.planning)
        ceiling = expected if kind is WorkloadKind.TRAINING else 4 * level * 1.2
        assert found == pytest.approx(np.full(24, ceiling))
        none = replace(job.demand, demand_q90=None)
        assert not needed_service(none, job.options[0], problem.planning).any()


@pytest.mark.parametrize(("count", "model"), [(2, H100), (3, H100), (8, H100), (3, L40S)])
def test_active_power_follows_the_work(count: int, model: str) -> None:
    """What is beyond idle boards is scaled by the power range for a unit of speed."""
    problem = day_of(WorkloadKind.INFERENCE)
    present, other = problem.jobs[0].options[0], of_boards(problem, count, model)
    there = CATALOGUE.get(model)
    curve = PowerCurve(exponent=0.8, half_width=0.0)
    found = power_under(np.full(24, WATTS), present, other, problem.terms, curve)
    span = (there.tdp_watts - there.idle_watts) / (MODEL.tdp_watts - MODEL.idle_watts)
    here = freed_board(MODEL, WATTS / 4, rests=False, boards=4)
    then = here if model == H100 else free_board(there)
    active = WATTS - 4 * here.mean * (1 + HOLDING_SHARES[1])
    active *= span * count / 4 * (present.service / other.service) ** 0.8
    for values, factor, idle, held in (
        (found.low, 0.9, then.low, HOLDING_SHARES[0]),
        (found.central, 1, then.mean, HOLDING_SHARES[1]),
        (found.high, 1.1, then.high, HOLDING_SHARES[2]),
    ):
        assert values == pytest.approx(np.full(24, active * factor + count * idle * (1 + held)))
    assert found.left_idle_watts == pytest.approx(4 * here.mean - count * then.mean)
    stays = power_under(np.full(24, WATTS), present, present, problem.terms, curve)
    assert (stays.low == WATTS).all()
    assert (stays.high == WATTS).all()
    assert stays.left_idle_watts == 0
    none = power_under(np.full(24, WATTS), present, of_boards(problem, 0), problem.terms, curve)
    assert not none.central.any()
    rested = freed_board(MODEL, WATTS / 4, rests=True, boards=4)
    assert none.left_idle_watts == pytest.approx(4 * rested.mean)


def test_what_is_not_capped_draws_what_its_median_leads_to() -> None:
    """Another model's power follows the median alone, however skewed the forecast is."""
    problem = day_of(WorkloadKind.INFERENCE)
    job, other = problem.jobs[0], of_boards(problem, 3, L40S)
    skewed = replace(job.demand, power_q10=np.full(24, 900.0), power_q90=np.full(24, 2500.0))
    found = expected_draw(skewed, job.options[0], other, problem.terms)
    median = np.full(24, WATTS)
    drawn = power_under(median, job.options[0], other, problem.terms, job.demand.power_curve)
    assert found == pytest.approx(drawn.central + drawn.left_idle_watts)


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
def test_a_pause_costs_its_work_later_and_waits_in_no_queue(slot_minutes: int) -> None:
    """Rent and energy above idle at the price of a mean day, in the dearest hours alone."""
    prices = [0.1] * 12 + [0.7] * 6 + [0.1] * 6
    problem = day_of(
        WorkloadKind.TRAINING,
        slot_minutes=slot_minutes,
        electricity_price_by_hour=",".join(map(str, prices)),
    )
    planning = replace(problem.planning, shift_slack_hours=4.0)
    job, terms = problem.jobs[0], replace(problem.terms, planning=planning)
    pause = replace(of_boards(problem, 0), paused=True)
    costs = slot_costs(job.demand, job.options[0], pause, terms)
    allowed = np.isfinite(costs.put_off)
    assert allowed.sum() * slot_minutes == 4 * 60
    assert terms.tariff.electricity[allowed] == pytest.approx(0.7)
    kwh = (WATTS - 4 * MODEL.idle_watts) * 4 / 1000 * PUE
    mean = (18 * 0.1 + 6 * 0.7) / 24 + problem.carbon.gco2e_per_kwh / 1e6 * CARBON_PRICE
    later = 4 * 4 * MODEL.price_per_hour + kwh * mean
    assert costs.put_off[allowed].sum() == pytest.approx(later)
    beside = costs.rent + costs.electricity + costs.carbon
    assert costs.money[allowed] == pytest.approx((beside + costs.put_off)[allowed])
    waits = replace(
        job.demand, queue_wait=QueueWait(low=0, median=60, high=600, mean=90, starts=9, days=7)
    )
    assert change_costs(waits, job.options[0], pause, terms).wait_price == 0
    half = change_costs(waits, job.options[0], of_boards(problem, 2), terms)
    assert half.wait_price == pytest.approx(90 / 3600 * 4 * MODEL.price_per_hour)
