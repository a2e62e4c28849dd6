"""What a proposal promises, held to hand-made sums: the same for slots of any length."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from factories import make_job
from planning_cases import H100, SLOT_LENGTHS, boards, case

from data.catalogue.gpu_catalogue import GpuCatalogue, load_gpu_catalogue
from data.facts.jobs import WorkloadKind
from data.records.actions import Action
from data.settings.all_settings import PlanningSettings
from data.settings.energy import EnergySettings
from planner.costs.carbon import emissions_of
from planner.costs.configurations import Option
from planner.costs.cost import SLOWER
from planner.costs.energy import HOLDING_SHARES
from planner.costs.free_boards import freed_board
from planner.jobs.job_end import Remaining
from planner.jobs.power_curve import PowerCurve
from planner.problem.planning_problem import PlanningProblem
from planner.proposals import savings
from planner.proposals.path_costs import path_cost
from planner.proposals.proposal import Proposal
from planner.proposals.savings import ProposalOutcome, outcome_of

MODEL = load_gpu_catalogue().get(H100)
PUE, PRICE, WATTS = 1.3, 0.4, 1000.0
CHANGING = WATTS - 4 * MODEL.idle_watts
"""What a change draws beyond boards that are free meanwhile."""
LEAVE, ENTER = np.array([5.0, 330.0, 1920.0]), np.array([15.0, 62.0, 250.0])
"""Seconds of a restart: checkpoint and lost work on the boards of now, a start on those to come."""


@pytest.fixture(autouse=True)
def _sure_overhead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PUE that is known."""
    monkeypatch.setattr(savings, "PUE_UNCERTAINTY", 0.0)


def mean(seconds: Any) -> float:
    """What seconds of which q10, q50 and q90 are known are in the mean."""
    return float(np.dot([0.3, 0.4, 0.3], seconds))


def halved(
    *, slot_minutes: int = 60, kind: WorkloadKind = WorkloadKind.TRAINING, worst: float = 2.0,
    first: int | None = None, last: int | None = None, watts: float | None = WATTS, **energy: Any,
) -> tuple[Proposal, PlanningProblem]:  # fmt: skip
    """Four boards of a day made two, for good or from slot `first` to `last`; little is to do."""
    values = {"pue": PUE, "electricity_price_per_kwh": PRICE}
    slots = 24 * 60 // slot_minutes
    job_id = "a/job/x" if kind is WorkloadKind.TRAINING else "a/deployment/x"
    problem = case(
        (make_job(job_id, kind=kind, gpu_count=4), 0.1, 5_000.0, watts),
        gpus=boards(H100, 8),
        planning=PlanningSettings(slot_minutes=slot_minutes, horizon_slots=slots),
        energy=EnergySettings(region="DEU", **values | energy),
    )
    (job,) = problem.jobs
    present = job.options[0]
    half = Option(
        configuration=replace(present.configuration, gpu_count=2),
        boards=2.0,
        service=2.0,
        slowdown=(1.0, (1 + worst) / 2, worst),
    )
    start, end = first or 0, slots - 1 if last is None else last
    path = tuple(int(start <= slot <= end) for slot in range(slots))
    proposal = Proposal(
        job=replace(job, options=(present, half)),
        option=1,
        planned=path,
        proposed=path,
        share=1.0,
        action=Action.FEWER_GPUS,
        first=first,
        last=last,
    )
    return proposal, problem


def outcome(**changes: Any) -> ProposalOutcome:
    """What halving the boards brings."""
    proposal, problem = halved(**changes)
    return outcome_of(proposal, problem.terms)


def saved_watts() -> float:
    """What two boards save: a process holds them no longer, but they stay powered.

    The work keeps the two that are left twice as busy, and draws by the curve of the job.
    """
    free = freed_board(MODEL, WATTS / 4, rests=False, boards=4).mean
    active = WATTS - 4 * free * (1 + HOLDING_SHARES[1])
    busier = halved()[0].job.demand.power_curve.rise(2.0) / 2
    return active * (1 - busier) + 2 * free * HOLDING_SHARES[1]


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
@pytest.mark.parametrize("pue", [1.0, 2.0])
def test_a_day_on_half_the_boards(slot_minutes: int, pue: float) -> None:
    """GPU-hours, energy and money, less the change and the hours that work takes longer."""
    found = outcome(slot_minutes=slot_minutes, pue=pue)
    longer = 24 * sum(SLOWER) / len(SLOWER)
    taken = (4 * LEAVE + 2 * ENTER) / 3600
    change_kwh = mean(LEAVE + ENTER) / 3600 * CHANGING / 1000 * pue
    assert found.savings.horizon_hours == pytest.approx(24)
    assert found.savings.gpu_hours is not None
    hours = 48 - 2 * longer - mean(taken)
    assert found.savings.gpu_hours.central == pytest.approx(hours)
    held_kwh = longer * HOLDING_SHARES[1] * 2 * MODEL.idle_watts / 1000 * pue
    kwh = saved_watts() * 24 / 1000 * pue - held_kwh - change_kwh
    assert found.savings.energy_kwh is not None
    assert found.savings.energy_kwh.central == pytest.approx(kwh)
    assert found.savings.cost is not None
    assert found.savings.cost.central == pytest.approx(hours * MODEL.price_per_hour + kwh * PRICE)
    assert found.transition is not None
    assert found.transition.gpu_hours == pytest.approx(mean(taken))
    money = mean(taken) * MODEL.price_per_hour + change_kwh * PRICE
    assert found.transition.cost == pytest.approx(money)
    seconds = found.transition.seconds
    assert (seconds.low, seconds.central, seconds.high) == pytest.approx(tuple(LEAVE + ENTER))
    assert found.delay_hours is not None
    assert found.delay_hours.central == pytest.approx(longer + (LEAVE + ENTER)[1] / 3600)
    assert found.delay_hours.low == pytest.approx((LEAVE + ENTER)[0] / 3600)
    assert found.delay_hours.high == pytest.approx(24 + (LEAVE + ENTER)[2] / 3600)
    bill = WATTS * 24 / 1000 * pue * PRICE
    assert found.energy_bill == pytest.approx(bill)
    assert found.cost_of_now == pytest.approx(bill + 4 * 24 * MODEL.price_per_hour)
    assert found.shortfall_saved == pytest.approx(0)


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
def test_a_change_that_ends_is_made_twice(slot_minutes: int) -> None:
    """From the sixth hour to the end of the eleventh, then back: two starts, six hours."""
    slots = 60 // slot_minutes
    found = outcome(slot_minutes=slot_minutes, first=6 * slots, last=12 * slots - 1)
    longer = 6 * sum(SLOWER) / len(SLOWER)
    proposal, problem = halved(slot_minutes=slot_minutes, first=6 * slots, last=12 * slots - 1)
    assert found.transition is not None
    back = mean(4 * ENTER) / 3600
    taken = mean(4 * LEAVE + 2 * ENTER) / 3600 + back
    assert found.transition.gpu_hours == pytest.approx(taken)
    assert found.transition.seconds.central == pytest.approx((LEAVE + 2 * ENTER)[1])
    assert found.savings.gpu_hours is not None
    assert found.savings.gpu_hours.central == pytest.approx(12 - 2 * longer - taken)
    assert found.savings.cost is not None
    stays = path_cost(proposal.job, (0,) * len(proposal.proposed), problem.terms)
    moves = path_cost(proposal.job, proposal.proposed, problem.terms)
    assert found.savings.cost.central == pytest.approx(stays.money - moves.money)
    assert stays.total == stays.money + stays.shortfall


def test_longer_runs_widen_what_is_promised() -> None:
    """q90 of what work takes longer comes off GPU-hours, energy and money; its share counts."""
    wide, narrow = outcome(), outcome(worst=1.0)
    rest = outcome(worst=1.0, kind=WorkloadKind.INFERENCE)
    usual = 24 * float(np.mean(SLOWER))
    most = 24 * max(SLOWER) - usual
    for now, before, unit in (
        (wide.savings.gpu_hours, narrow.savings.gpu_hours, 2.0),
        (wide.savings.cost, narrow.savings.cost, 2 * MODEL.price_per_hour),
    ):
        assert now is not None
        assert before is not None
        width, alone = now.central - now.low, before.central - before.low
        assert alone < width < alone + most * unit
        above = now.high - now.central
        assert above > 0.9 * usual * unit  # it may take no longer at all
    assert rest.delay_hours is None
    assert rest.savings.gpu_hours is not None
    assert rest.savings.gpu_hours.central == pytest.approx(48 - 2 * mean(ENTER) / 3600)


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
def test_an_unsure_end_widens_what_is_promised(slot_minutes: int) -> None:
    """A service that ends after 6, 12 or 18 hours: q10 and q90 are the first and the last."""
    proposal, problem = halved(slot_minutes=slot_minutes, kind=WorkloadKind.INFERENCE, worst=1.0)
    slots = np.arange(24 * 60 // slot_minutes) * slot_minutes / 60
    likely = np.array([slots < hours for hours in (6, 12, 18)]).astype(float)
    remaining = Remaining(
        low=likely[0], central=likely.mean(axis=0), high=likely[-1], likely=likely,
        cut_off=np.zeros(3, dtype=bool),
    )  # fmt: skip
    job = replace(proposal.job, demand=replace(proposal.job.demand, remaining=remaining))
    savings = outcome_of(replace(proposal, job=job), problem.terms).savings
    assert savings.horizon_hours == pytest.approx(12)
    start = ENTER / 3600
    watt_hours = saved_watts() / 1000 * PUE
    draws = CHANGING / 1000 * PUE
    for found, rate, change in (
        (savings.gpu_hours, 2.0, 2 * start),
        (savings.energy_kwh, watt_hours, draws * start),
        (
            savings.cost,
            2 * MODEL.price_per_hour + watt_hours * PRICE,
            (2 * MODEL.price_per_hour + draws * PRICE) * start,
        ),
    ):
        assert found is not None
        assert found.central == pytest.approx(12 * rate - mean(change))
        if found is savings.energy_kwh:  # what a board draws is far less sure than the end
            continue
        wide = change[2] + (1.0 if found is savings.cost else 0.0)
        assert 6 * rate - wide <= found.low <= 6 * rate
        assert 18 * rate - wide <= found.high <= 18 * rate + wide


def test_a_cap_on_a_job_with_room_delays_nothing() -> None:
    """A tenth of the work leaves room for any slowdown; nothing is done sooner than now."""
    proposal, problem = halved()
    present = proposal.present
    capped = replace(
        present,
        configuration=replace(present.configuration, power_cap_watts=560.0),
        slowdown=(1.0, 1.1, 1.2),
    )
    job = replace(proposal.job, options=(present, capped))
    found = outcome_of(replace(proposal, job=job, action=Action.POWER_CAP), problem.terms)
    assert found.delay_hours is not None
    delay = found.delay_hours
    assert (delay.low, delay.central, delay.high) == (0, 0, 0)


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
def test_work_put_off_emits_like_a_mean_day(slot_minutes: int) -> None:
    """Four hours of 500 g for a day's mean of 250 g, and of dear power for a mean day's."""
    prices = [0.9 if 16 <= hour < 20 else 0.1 for hour in range(24)]
    grams = [500.0 if 16 <= hour < 20 else 200.0 for hour in range(24)]
    proposal, problem = halved(
        slot_minutes=slot_minutes,
        worst=1.0,
        electricity_price_by_hour=",".join(map(str, prices)),
        carbon_by_hour=",".join(map(str, grams)),
    )
    terms = replace(problem.terms, planning=replace(problem.planning, shift_slack_hours=4.0))
    path = tuple(int(at.hour in (16, 17, 18, 19)) for at in problem.slot_starts)
    pause = replace(proposal.chosen, boards=0.0, service=0.0, paused=True)
    job = replace(proposal.job, options=(proposal.present, pause))
    changes = {"first": path.index(1), "last": len(path) - 1 - path[::-1].index(1)}
    one = replace(
        proposal, job=job, planned=path, proposed=path, action=Action.SHIFT_IN_TIME, **changes
    )
    outcome = outcome_of(one, terms)
    found = outcome.savings
    delay = outcome.delay_hours
    assert delay is not None
    # Four hours, and as long as leaving the boards and coming back takes: nothing runs longer.
    assert np.array([delay.low, delay.central, delay.high]) == pytest.approx(
        4 + (LEAVE + ENTER) / 3600
    )
    change_kwh = mean(LEAVE + ENTER) / 3600 * CHANGING / 1000 * PUE
    assert found.energy_kwh is not None
    assert found.energy_kwh.central == pytest.approx(-change_kwh)
    moved = CHANGING * 4 / 1000 * PUE
    assert found.emissions_kgco2e is not None
    shifted = moved * (500 - 250) / 1000
    assert found.emissions_kgco2e.central == pytest.approx(shifted - change_kwh * 500 / 1000)
    of_change = emissions_of(found.energy_kwh, terms.carbon, 500.0)
    unsure = shifted * (1 - terms.carbon.low / terms.carbon.gco2e_per_kwh)
    assert found.emissions_kgco2e.low == pytest.approx(of_change.low + shifted - unsure)
    assert found.emissions_kgco2e.high == pytest.approx(of_change.high + shifted + unsure)
    assert found.cost is not None
    stays = path_cost(job, (0,) * len(path), terms).money
    assert found.cost.central == pytest.approx(stays - path_cost(job, path, terms).money)


def test_the_site_overhead_is_unsure_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is saved by the board is saved by the site, by a PUE that is not below 1."""
    sure = outcome(worst=1.0)
    monkeypatch.setattr(savings, "PUE_UNCERTAINTY", 0.5)
    unsure = outcome(worst=1.0, pue=1.05)
    for number in (sure, unsure):
        assert number.savings.energy_kwh is not None
    assert unsure.savings.energy_kwh.high > sure.savings.energy_kwh.central


def test_unknown_power_is_no_energy_but_rent() -> None:
    """Money is then rent, less what boards that are held for longer draw idle."""
    found = outcome(watts=None)
    assert found.savings.energy_kwh is None
    assert found.savings.emissions_kgco2e is None
    assert found.savings.gpu_hours is not None
    assert found.savings.cost is not None
    held = (
        24 * float(np.mean(SLOWER)) * HOLDING_SHARES[1] * 2 * MODEL.idle_watts / 1000 * PUE * PRICE
    )
    rent = found.savings.gpu_hours.central * MODEL.price_per_hour
    assert found.savings.cost.central == pytest.approx(rent - held)
    for entry, hours in (
        (found.savings.cost.low, found.savings.gpu_hours.low),
        (found.savings.cost.high, found.savings.gpu_hours.high),
    ):
        assert entry == pytest.approx(hours * MODEL.price_per_hour, rel=0.01)
    assert found.energy_bill == 0


def test_keeping_a_job_saves_nothing_and_is_certain() -> None:
    """No change, no error."""
    proposal, problem = halved()
    kept = (0,) * len(proposal.proposed)
    found = outcome_of(
        replace(proposal, option=0, planned=kept, proposed=kept, action=None), problem.terms
    )
    assert found.transition is None
    assert found.delay_hours is None
    for figure in (found.savings.gpu_hours, found.savings.cost):
        assert figure is not None
        assert (figure.low, figure.central, figure.high) == (0, 0, 0)


def width(*, idle: float = 1.0, forecast: float = 1.0, **changes: Any) -> float:
    """How wide the energy is that a job saves on half of its boards, which are hot at once.

    `idle` scales the catalogue's idle range, `forecast` a band of +-10 % of the power.
    """
    proposal, problem = halved(worst=1.0, **changes)
    demand = proposal.job.demand
    assert demand.power_q50 is not None
    half = 0.1 * forecast * demand.power_q50
    demand = replace(
        demand,
        power_q10=demand.power_q50 - half,
        power_q90=demand.power_q50 + half,
        power_curve=PowerCurve(exponent=0.4, half_width=0.0),
    )
    wider = replace(
        MODEL,
        idle_watts_low=MODEL.idle_watts - idle * (MODEL.idle_watts - MODEL.idle_watts_low),
        idle_watts_high=MODEL.idle_watts + idle * (MODEL.idle_watts_high - MODEL.idle_watts),
    )
    terms = replace(problem.terms, catalogue=GpuCatalogue((wider,)))
    found = outcome_of(replace(proposal, job=replace(proposal.job, demand=demand)), terms).savings
    assert found.energy_kwh is not None
    return found.energy_kwh.high - found.energy_kwh.low


@pytest.mark.parametrize(
    ("unsure", "levels"),
    [
        ("forecast", (1.0, 3.0, 5.0)),
        ("idle", (0.5, 1.0, 1.3)),
    ],
)
def test_an_interval_grows_with_what_is_unsure(unsure: str, levels: tuple[float, ...]) -> None:
    """By each of the errors alone."""
    found = [width(**{unsure: level}) for level in levels]
    assert found[0] < found[1] < found[2]


def test_the_mean_of_few_hours_errs_like_its_slots() -> None:
    """Slots of six hours err together, those of a day a little less: an hour of it is surer."""
    short, long = (
        width(forecast=9.0, first=0, last=last) / hours for hours, last in ((6, 5), (24, None))
    )
    assert short > 1.1 * long > 0
