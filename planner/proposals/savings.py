"""Savings of a proposal over the horizon, net of its transition and of longer runs.

The central figures are the plan's own arithmetic, so that recommendations add up to the plan
(`planner.proposals.portfolio`), which counts means. Low and high hold 80 % of what the errors
make of them together: making the change, the end of the job and longer work, forecast of power,
power of the same work on other boards, free boards and held ones at rest, PUE, and the price of
put-off work. They are those of a change that is made at once and
kept. No figure reaches beyond the end of the job.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from data.base.units import GRAMS_PER_KILOGRAM
from data.records.recommendations import Range, Savings, Transition
from data.settings.energy import PUE_UNCERTAINTY
from planner.costs.carbon import emissions_of, market_emissions_of
from planner.costs.cost import (
    SLOWER,
    ChangeTime,
    RepeatedRun,
    change_costs,
    idle_watts,
    longer_ratio,
    may_slow,
    missed_ratio,
    rent_per_hour,
    work_kwh,
)
from planner.costs.energy import (
    HIDDEN,
    MODEL_ERROR,
    PowerEstimate,
    activity_ratio,
    cap_draw,
    expected_draw,
    free_under,
    power_per_work,
    power_under,
)
from planner.costs.free_boards import free_board
from planner.costs.terms import Terms
from planner.costs.time_shift import delay_cost, delay_slots, is_delayed
from planner.jobs.expected_value import mean_of
from planner.jobs.job_demand import JobDemand
from planner.jobs.power_curve import HOLDING_SHARES
from planner.proposals.joint_errors import (
    Error,
    above_zero,
    equally_likely,
    in_order,
    range_of,
    two_sided_error,
    with_chance,
)
from planner.proposals.path_costs import option_costs, path_cost
from planner.proposals.proposal import Proposal

Values = npt.NDArray[np.float64]

Triple = tuple[float, float, float]

_HOURS, _AT_ONCE = (6.0, 12.0, 24.0), (0.95, 0.89, 0.74)
"""Hours, and the share of the forecast's half-band that the mean over them is off by in 80 % of
jobs: slots err apart, but not much. Measured on 524 jobs of fleets of seeds 1 and 2."""


def errors_of(
    proposal: Proposal, hold: Values, change: ChangeTime, longer: Triple, terms: Terms
) -> list[Error]:
    """Return all that may turn out otherwise, each independent of the others."""
    if proposal.option == 0:
        return []
    price = float(terms.tariff.per_kwh.mean())
    used = change.kwh
    low, middle, high = (cost - kwh * price for cost, kwh in zip(change.cost, used, strict=True))
    error = Error(
        gpu_hours=-above_zero(*change.gpu_hours),
        kwh=-above_zero(*used),
        rent=-above_zero(low, middle, high),
    )
    rates = tuple(_power_errors(proposal, hold, terms))
    errors = [error, _work_and_end(proposal, longer, terms).with_rates(rates)]
    if proposal.chosen.paused:
        errors.append(Error(rent=_put_off_prices(proposal, hold, terms)))
    if change.redo is not None:
        errors.append(_run_done_again(change.redo, price))
    return errors


def _run_done_again(redo: RepeatedRun, price: float) -> Error:
    """Return the effect of a stopped run on the saving: done again by its chance, or not."""
    again = with_chance(redo.chance)
    return Error(
        gpu_hours=-redo.gpu_hours * again,
        kwh=-redo.kwh * again,
        rent=-(redo.cost - redo.kwh * price) * again,
    )


def _work_and_end(proposal: Proposal, longer: Triple, terms: Terms) -> Error:
    """Return the joint effect of another end of the job and of longer work.

    Of work that is longer there is the more, the later the job ends; at a limit there is none.
    """
    remaining = proposal.job.demand.remaining
    rates = _longer_rates(proposal, longer, terms)
    if len(remaining.likely) < 2 and not rates.any():
        return Error()
    slots = remaining.likely * proposal.held * terms.slot_hours
    hours = slots.sum(axis=1)
    other = hours - hours.mean()
    further = np.outer(hours, rates) - longer[1]
    paid = np.outer(hours * ~remaining.cut_off, rates) - longer[1]
    freed, remaining_boards = freed_boards(proposal)
    saved = expected_watts(proposal, terms)
    site = site_ratio(terms)
    kwh = np.zeros(len(hours)) if saved is None else (slots - slots.mean(axis=0)) @ saved * site
    rent = rent_per_hour(proposal.present, terms) - rent_per_hour(proposal.chosen, terms)
    rent = 0.0 if proposal.chosen.paused else rent
    holding = HOLDING_SHARES[1] * idle_watts(proposal.chosen, terms) * site
    return Error(
        gpu_hours=in_order((freed * other[:, None] - remaining_boards * paid).ravel()),
        kwh=in_order((kwh[:, None] - holding * further).ravel()),
        rent=in_order(
            (rent * other[:, None] - rent_per_hour(proposal.chosen, terms) * paid).ravel()
        ),
        lasting=in_order(np.repeat(hours / max(hours.mean(), 1e-9), len(rates))),
    )


def _longer_rates(proposal: Proposal, longer: Triple, terms: Terms) -> Values:
    """Return equally likely hours by which an hour's work takes longer."""
    remaining = proposal.job.demand.remaining
    central = float((proposal.held * remaining.unlimited).sum()) * terms.slot_hours
    most = float((proposal.held * remaining.high).sum()) * terms.slot_hours
    if not longer[2] > 0 or not central > 0:
        return np.zeros(1)
    low, middle, high = longer[0] / central, longer[1] / central, longer[2] / most
    if may_slow(proposal.chosen):
        return np.maximum(low, high * np.array(SLOWER))
    levels = two_sided_error(middle - low, max(0.0, high - middle))
    return np.maximum(middle + levels[:: len(levels) // 20], 0.0)


def _power_errors(proposal: Proposal, hold: Values, terms: Terms) -> Iterator[Error]:
    """Yield the effects of other power: forecast, estimate, idle boards, PUE."""
    demand = proposal.job.demand
    if demand.power_q50 is None or demand.power_q10 is None or demand.power_q90 is None:
        return
    scale = hold * terms.slot_hours * site_ratio(terms)
    low, middle, high = (
        float(((0.0 if saved is None else saved) * scale).sum())
        for saved in (
            _saved_watts(demand.power_q10, proposal, terms),
            expected_watts(proposal, terms),
            _saved_watts(demand.power_q90, proposal, terms),
        )
    )
    if proposal.chosen.boards:
        at_once = float(np.interp(hold.sum() * terms.slot_hours, _HOURS, _AT_ONCE))
        yield Error(kwh=two_sided_error((middle - low) * at_once, (high - middle) * at_once))
    pue = terms.energy.pue
    below = pue - max(1.0, pue - PUE_UNCERTAINTY)
    yield Error(kwh=two_sided_error(middle / pue * below, middle / pue * PUE_UNCERTAINTY))
    if proposal.chosen.paused:
        return
    cap = proposal.chosen.configuration.power_cap_watts
    if cap is not None:
        _held, added = cap_draw(demand.power_q50, proposal.present, cap, terms)
        low, middle, high = (float((watts * scale).sum()) for watts in added)
        yield Error(kwh=-above_zero(low, middle, high))
        return
    estimate = power_under(
        demand.power_q50, proposal.present, proposal.chosen, terms, demand.power_curve
    )
    yield from _work_errors(proposal, estimate, scale, terms)
    yield from _rest_errors(proposal, float(scale.sum()), terms)


def _work_errors(
    proposal: Proposal, estimate: PowerEstimate, scale: Values, terms: Terms
) -> Iterator[Error]:
    """Yield the effects of other power of the work on the boards of the option."""
    if not proposal.chosen.boards:
        return
    now, then = proposal.present.configuration, proposal.chosen.configuration
    model = terms.catalogue.get(then.gpu_model)
    rest = proposal.chosen.boards * (1 + HOLDING_SHARES[1]) * free_board(model).mean
    active = float((np.clip(estimate.central - rest, 0.0, None) * scale).sum())
    curve = proposal.job.demand.power_curve
    busier = abs(math.log(activity_ratio(proposal.present, proposal.chosen, terms)))
    speed = MODEL_ERROR * curve.exponent if now.gpu_model != then.gpu_model else 0.0
    wrong = math.hypot(MODEL_ERROR, speed, curve.half_width * busier) * active
    yield Error(kwh=two_sided_error(wrong, wrong))
    if proposal.chosen.grows:
        # How much work found no board is not known: boards show no demand beyond themselves.
        added = proposal.chosen.service / proposal.present.service - 1
        missed = added * active / (1 + float(HIDDEN.mean()) * added)
        yield Error(kwh=-in_order((HIDDEN - HIDDEN.mean()) * missed))


def _rest_errors(proposal: Proposal, scale: float, terms: Terms) -> Iterator[Error]:
    """Yield the effects of other power of boards that are free or held at rest."""
    demand, now, then = proposal.job.demand, proposal.present, proposal.chosen
    if demand.power_q50 is None:
        return
    work = power_per_work(now, then, terms, demand.power_curve)
    here = free_under(demand.power_q50, now, then, terms)
    same = now.configuration.gpu_model == then.configuration.gpu_model
    there = here if same else free_board(terms.catalogue.get(then.configuration.gpu_model))
    if then.boards:
        holding = abs(work * now.boards * here.mean - then.boards * there.mean)
        unsure = holding * (HOLDING_SHARES[2] - HOLDING_SHARES[1]) * scale
        yield Error(kwh=two_sided_error(unsure, unsure))
    boards = now.boards * (1 - work * (1 + HOLDING_SHARES[1] * bool(then.boards)))
    if same:
        boards += then.boards * HOLDING_SHARES[1]
    else:
        other = then.boards * HOLDING_SHARES[1] * scale
        yield Error(
            kwh=two_sided_error(other * (there.high - there.mean), other * (there.mean - there.low))
        )
    up, down = boards * (here.high - here.mean) * scale, boards * (here.mean - here.low) * scale
    yield Error(kwh=two_sided_error(up, down) if boards > 0 else two_sided_error(-down, -up))


def _put_off_prices(proposal: Proposal, hold: Values, terms: Terms) -> Values:
    """Return the price of put-off work around its mean: by when the job ends, where that is near.

    Else any hour of the day may be its.
    """
    demand, tariff = proposal.job.demand, terms.tariff
    if is_delayed(demand):
        kwh, slots = work_kwh(demand, proposal.present, terms), int(proposal.held.sum())
        costs = np.array(
            [
                delay_cost(kwh, there, slots, tariff.per_kwh_ahead, tariff.mean_per_kwh)
                for there in demand.remaining.likely
            ]
        )
        return equally_likely(costs.mean() - costs)
    moved = put_off_kwh(proposal, hold, terms)
    length = max(1, round(float(hold.sum()) * terms.slot_hours))
    day = tariff.electricity_of_day
    later = [np.take(day, range(hour, hour + length), mode="wrap").mean() for hour in range(24)]
    return equally_likely(moved * (tariff.mean_electricity - np.array(later)))


def freed_boards(proposal: Proposal) -> tuple[float, float]:
    """Return the boards of the present model that become free, and those that are kept.

    Against running out of memory other boards are taken for the present ones: all are counted.
    """
    same = proposal.chosen.configuration.gpu_model == proposal.present.configuration.gpu_model
    same = same or proposal.spec.for_memory
    rest = proposal.chosen.boards if same else 0.0
    return (0.0 if proposal.chosen.paused else proposal.present.boards - rest), rest


def site_ratio(terms: Terms) -> float:
    """Return the site energy in kWh of a Wh of boards."""
    return terms.energy.pue / 1000


def _saved_watts(power: Values | None, proposal: Proposal, terms: Terms) -> Values | None:
    """Return the W saved in each slot while the change is held; put-off work is not saved.

    None where power is unknown.
    """
    if power is None or proposal.option == 0:
        return None
    if proposal.chosen.paused:
        return np.zeros_like(power)
    curve = proposal.job.demand.power_curve
    estimate = power_under(power, proposal.present, proposal.chosen, terms, curve)
    return np.asarray(power - estimate.central - estimate.left_idle_watts)


def expected_watts(proposal: Proposal, terms: Terms) -> Values | None:
    """Return the W expected to be saved in each slot; None where power is unknown."""
    power = proposal.job.demand.power_q50
    if power is None or proposal.option == 0 or proposal.chosen.paused:
        return _saved_watts(power, proposal, terms)
    drawn = expected_draw(proposal.job.demand, proposal.present, proposal.chosen, terms)
    return None if drawn is None else np.asarray(power - drawn)


def put_off_grams(proposal: Proposal, hold: Values, touched: float, terms: Terms) -> float:
    """Return by how many gCO2e less the work emits that a pause puts off.

    `touched` is the grid's carbon in the hours of the pause, gCO2e/kWh.
    """
    demand, tariff = proposal.job.demand, terms.tariff
    if is_delayed(demand):
        kwh, slots = work_kwh(demand, proposal.present, terms), int(proposal.held.sum())
        there = demand.remaining.central
        return -delay_cost(kwh, there, slots, tariff.gco2e_ahead, tariff.mean_gco2e)
    return put_off_kwh(proposal, hold, terms) * (touched - tariff.mean_gco2e)


def put_off_kwh(proposal: Proposal, hold: Values, terms: Terms) -> float:
    """Return the site energy in kWh of the work that a pause puts off; 0 where power is unknown."""
    return float((work_kwh(proposal.job.demand, proposal.present, terms) * hold).sum())


_HOURS_ERROR = 0.12
"""Half-width, as a share of the grid's mean, of what 80 % of forecasts tell wrongly of how a job's
hours differ from hours up to half a day later. August 2021 in three grids: 0.11, 0.12 and 0.15; of
the mean hours of days before 0.17, 0.12 and 0.09. On other months: `benchmarks.carbon_shift`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalOutcome:
    """Everything that a proposal brings. `shortfall_saved` is priced and no money.

    `cost_of_now` is the money that keeping the job costs over the horizon, `energy_bill` the part
    of it that is electricity and carbon.
    """

    savings: Savings
    transition: Transition | None
    delay_hours: Range | None
    shortfall_saved: float
    cost_of_now: float
    energy_bill: float


def outcome_of(proposal: Proposal, terms: Terms) -> ProposalOutcome:
    """Return the savings, costs and delay of a proposal."""
    job = proposal.job
    now = option_costs(job, 0, terms)
    stays = path_cost(job, (0,) * len(proposal.proposed), terms, {0: now})
    moves = path_cost(job, proposal.proposed, terms, {0: now})
    change = _change(proposal, terms)
    hold = _hold(proposal)
    longer = _longer_hours(proposal, terms)
    errors = errors_of(proposal, hold, change, longer, terms)
    energy = _energy(proposal, hold, change, longer, errors, terms)
    savings = Savings(
        horizon_hours=job.demand.remaining.hours(terms.slot_hours),
        gpu_hours=_gpu_hours(proposal, hold, change, longer, errors, terms),
        energy_kwh=energy,
        emissions_kgco2e=_emissions(proposal, hold, energy, terms),
        market_emissions_kgco2e=market_emissions_of(energy, terms.energy.market_factor),
        cost=_money(stays.money - moves.money, errors, terms),
    )
    return ProposalOutcome(
        savings=_at_least_none(savings) if _may_save_none(proposal) else savings,
        transition=_transition(proposal, change),
        delay_hours=_delay(proposal, change, longer, terms),
        shortfall_saved=stays.shortfall - moves.shortfall,
        cost_of_now=stays.money,
        energy_bill=float((now.electricity + now.carbon).sum()),
    )


def _may_save_none(proposal: Proposal) -> bool:
    """Return whether a job may start at any time, or is stopped whose work may return at any."""
    return proposal.job.demand.start_unknown or proposal.spec.takes_all


def _at_least_none(savings: Savings) -> Savings:
    """Return savings that begin at nothing."""

    def at_least_none(value: Range | None) -> Range | None:
        return None if value is None else replace(value, low=min(value.low, 0.0))

    return replace(
        savings,
        gpu_hours=at_least_none(savings.gpu_hours),
        energy_kwh=at_least_none(savings.energy_kwh),
        emissions_kgco2e=at_least_none(savings.emissions_kgco2e),
        market_emissions_kgco2e=at_least_none(savings.market_emissions_kgco2e),
        cost=at_least_none(savings.cost),
    )


def _change(proposal: Proposal, terms: Terms) -> ChangeTime:
    """Return the time of the change, and of its way back where it ends; 0 for keeping a job."""
    if proposal.option == 0:
        none = (0.0, 0.0, 0.0)
        return ChangeTime(parts=(), seconds=none, gpu_hours=none, kwh=none, cost=none)
    there = change_costs(proposal.job.demand, proposal.present, proposal.chosen, terms)
    if proposal.last is None:
        return there
    back = change_costs(proposal.job.demand, proposal.present, proposal.present, terms)
    return ChangeTime(
        parts=(*there.parts, *back.parts),
        seconds=_sum(there.seconds, back.seconds),
        gpu_hours=_sum(there.gpu_hours, back.gpu_hours),
        kwh=_sum(there.kwh, back.kwh),
        cost=_sum(there.cost, back.cost),
        redo=there.redo,
    )


def _sum(one: Triple, other: Triple) -> Triple:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _hold(proposal: Proposal) -> Values:
    """Return the share of each slot in which the job is expected to hold what is proposed."""
    return np.asarray(proposal.held * proposal.job.demand.remaining.central, dtype=np.float64)


def _longer_hours(proposal: Proposal, terms: Terms) -> Triple:
    """Return the extra hours of the horizon's work under the option as low, central, high.

    Central: what the plan counts. High: on fewer or other devices as if activity did not rise
    there; under a cap the worst slowdown of work that has the load of q90.
    """
    demand, option = proposal.job.demand, proposal.chosen
    if not demand.standing.ends or not option.service or proposal.option == 0:
        return 0.0, 0.0, 0.0
    extra = longer_ratio(demand, proposal.present, option, terms.planning)
    missing = missed_ratio(demand, proposal.present, option, terms.planning)
    missed = float((missing * proposal.held * demand.remaining.unlimited).sum())
    central = float((extra * proposal.held).sum()) * terms.slot_hours
    load = np.ones_like(extra)
    if option.configuration.power_cap_watts is not None and demand.demand_q90 is not None:
        load = demand.demand_q90 / proposal.present.service
    beyond = np.clip(load * option.slowdown[2] - 1, 0.0, None)
    worst = float((beyond * proposal.held * demand.remaining.high).sum()) * terms.slot_hours
    return min(missed * terms.slot_hours, worst), central, max(central, worst)


def _gpu_hours(
    proposal: Proposal,
    hold: Values,
    change: ChangeTime,
    longer: Triple,
    errors: Sequence[Error],
    terms: Terms,
) -> Range:
    """Return the GPU-hours of the present model that become free."""
    freed, rest = freed_boards(proposal)
    central = freed * float(hold.sum()) * terms.slot_hours - longer[1] * rest
    central -= mean_of(*change.gpu_hours)
    central -= change.redo.chance * change.redo.gpu_hours if change.redo else 0.0
    return range_of(central, [error.gpu_hours for error in errors], "GPU-h")


def _energy(
    proposal: Proposal,
    hold: Values,
    change: ChangeTime,
    longer: Triple,
    errors: Sequence[Error],
    terms: Terms,
) -> Range | None:
    """Return the site energy saved in kWh; None when power was never reported."""
    saved = expected_watts(proposal, terms)
    if saved is None:
        return None
    spent = longer[1] * HOLDING_SHARES[1] * idle_watts(proposal.chosen, terms) * site_ratio(terms)
    spent += mean_of(*change.kwh)
    spent += change.redo.chance * change.redo.kwh if change.redo else 0.0
    central = float((saved * hold).sum()) * terms.slot_hours * site_ratio(terms) - spent
    return range_of(central, [error.kwh for error in errors], "kWh")


def _emissions(
    proposal: Proposal, hold: Values, energy: Range | None, terms: Terms
) -> Range | None:
    """Return location-based kgCO2e: of the slots that the change touches, and of put-off work."""
    if energy is None:
        return None
    touched = float((terms.tariff.gco2e * hold).sum() / hold.sum()) if hold.any() else 0.0
    amount = emissions_of(energy, terms.carbon, touched)
    if not proposal.chosen.paused:
        return amount
    shifted = put_off_grams(proposal, hold, touched, terms) / GRAMS_PER_KILOGRAM
    spread = abs(shifted) * (1 - terms.carbon.low / terms.carbon.gco2e_per_kwh)
    spread = math.hypot(spread, _hours_error(proposal, terms))
    return Range(
        low=amount.low + shifted - spread,
        central=amount.central + shifted,
        high=amount.high + shifted + spread,
        unit=amount.unit,
    )


def _hours_error(proposal: Proposal, terms: Terms) -> float:
    """Return by how much the hours of a job that goes on later may be foreseen wrongly, kgCO2e."""
    demand = proposal.job.demand
    if not is_delayed(demand):
        return 0.0
    kwh = work_kwh(demand, proposal.present, terms) @ demand.remaining.central
    return _HOURS_ERROR * terms.tariff.mean_gco2e * float(kwh) / GRAMS_PER_KILOGRAM


def _money(central: float, errors: Sequence[Error], terms: Terms) -> Range:
    """Return the money saved around its central value, which is the plan's own."""
    price = float(terms.tariff.per_kwh.mean())
    return range_of(
        central, [error.rent + price * error.kwh for error in errors], terms.energy.currency
    )


def _transition(proposal: Proposal, change: ChangeTime) -> Transition | None:
    if proposal.option == 0:
        return None
    low, central, high = change.seconds
    return Transition(
        seconds=Range(low=low, central=central, high=high, unit="s"),
        parts=change.parts,
        gpu_hours=mean_of(*change.gpu_hours),
        cost=mean_of(*change.cost),
    )


def _delay(proposal: Proposal, change: ChangeTime, longer: Triple, terms: Terms) -> Range | None:
    """Return by how many hours the horizon's work is done later; None for a service."""
    demand: JobDemand = proposal.job.demand
    if (
        not demand.standing.ends
        or proposal.option == 0
        or not (proposal.chosen.boards or proposal.chosen.paused)
    ):
        return None
    remaining = demand.remaining
    pauses = proposal.held * proposal.chosen.paused
    if is_delayed(demand):
        waits = delay_slots(remaining, float(pauses.sum()))
    else:
        shares = (remaining.low, remaining.central, remaining.high)
        low, central, high = (float((pauses * share).sum()) for share in shares)
        waits = low, central, high
    low, central, high = (
        waited * terms.slot_hours + hours + seconds / 3600
        for waited, hours, seconds in zip(waits, longer, change.seconds, strict=True)
    )
    return Range(low=low, central=central, high=high, unit="h")
