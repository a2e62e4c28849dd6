"""What a proposal saves over the horizon, net of its transition and of longer runs.

The central figures are the plan's own arithmetic, so that recommendations add up to the plan
(`planner.recommendations.portfolio`). Low and high are q10 and q90 of what the errors make of them
together: transition, longer run, power forecast, power estimate, idle power, PUE and a forecast end
of the job. They are those of a change that is made at once and kept. No figure reaches beyond the
end of the job.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.records.decisions import Range, Savings, Transition
from data.units import GRAMS_PER_KILOGRAM
from planner.problem.carbon import emissions_of, market_emissions_of
from planner.problem.cost import (
    SLOWER,
    ChangeTime,
    change_costs,
    idle_watts,
    longer_ratio,
    missed_ratio,
    rent_per_hour,
)
from planner.problem.energy import (
    CURVE,
    HELD,
    MODEL_ERROR,
    expected_power,
    power_per_work,
    power_under,
)
from planner.problem.job_demand import JobDemand
from planner.problem.terms import Terms
from planner.recommendations.joint_errors import (
    Error,
    above_zero,
    either_side,
    equally_likely,
    in_order,
    range_of,
    unless,
)
from planner.recommendations.path_costs import option_costs, path_cost
from planner.recommendations.proposals import Proposal

Values = npt.NDArray[np.float64]
Triple = tuple[float, float, float]

_SHARES = ((np.arange(20) + 0.5) / 20) ** 3
"""Equally likely shares of added boards that work takes which found none before: mostly little; an
assumption, set on seeds 1, 3 and 4 of `benchmarks.promises`."""
_AT_ONCE = 0.5
"""The share of the forecast's band that is wrong for the whole horizon at once: slots err apart."""


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


def outcome_of(one: Proposal, terms: Terms) -> ProposalOutcome:
    """Return what a proposal saves, takes and delays."""
    job = one.job
    stays = path_cost(job, (0,) * len(one.proposed), terms)
    moves = path_cost(job, one.proposed, terms)
    now = option_costs(job, 0, terms)
    change = _change(one, terms)
    held = _held(one)
    longer = _longer_hours(one, terms)
    errors = _errors(one, held, change, longer, terms)
    energy = _energy(one, held, change, longer, errors, terms)
    gpu_hours = _gpu_hours(one, held, change, longer, errors, terms)
    return ProposalOutcome(
        savings=Savings(
            horizon_hours=job.demand.remaining.hours(terms.slot_hours),
            gpu_hours=gpu_hours,
            energy_kwh=energy,
            emissions_kgco2e=_emissions(one, held, energy, terms),
            market_emissions_kgco2e=market_emissions_of(energy, terms.energy.market_factor),
            cost=_money(stays.money - moves.money, errors, terms),
        ),
        transition=_transition(one, change),
        delay_hours=_delay(one, held, change, longer, terms),
        shortfall_saved=stays.shortfall - moves.shortfall,
        cost_of_now=stays.money,
        energy_bill=float((now.electricity + now.carbon).sum()),
    )


def _change(one: Proposal, terms: Terms) -> ChangeTime:
    """Return what the change takes, and its way back where it ends."""
    there = change_costs(one.job.demand, one.present, one.chosen, terms)
    if one.last is None:
        return there
    back = change_costs(one.job.demand, one.present, one.present, terms)
    return ChangeTime(
        parts=(*there.parts, *back.parts),
        seconds=_sum(there.seconds, back.seconds),
        gpu_hours=_sum(there.gpu_hours, back.gpu_hours),
        kwh=_sum(there.kwh, back.kwh),
        cost=_sum(there.cost, back.cost),
    )


def _sum(one: Triple, other: Triple) -> Triple:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _held(one: Proposal) -> Values:
    """Return the share of each slot in which the job is expected to hold what is proposed."""
    return np.asarray(one.held * one.job.demand.remaining.central, dtype=np.float64)


def _longer_hours(one: Proposal, terms: Terms) -> Triple:
    """Return how much longer the horizon's work takes under the option, h as low, central, high.

    Central: what the plan counts. High: on fewer or other devices as if activity did not rise
    there; under a cap or beside another job the worst slowdown of work that has the load of q90.
    """
    demand, chosen = one.job.demand, one.chosen
    if not demand.standing.ends or not chosen.service or one.option == 0:
        return 0.0, 0.0, 0.0
    extra = longer_ratio(demand, one.present, chosen, terms.planning)
    missed = float((missed_ratio(demand, one.present, chosen, terms.planning) * one.held).sum())
    central = float((extra * one.held).sum()) * terms.slot_hours
    load = np.ones_like(extra)
    slowed = chosen.boards == one.present.boards or chosen.configuration.shared_with
    if slowed and demand.demand_q90 is not None:
        load = demand.demand_q90 / one.present.service
    beyond = np.clip(load * chosen.slowdown[2] - 1, 0.0, None)
    worst = float((beyond * one.held * demand.remaining.high).sum()) * terms.slot_hours
    return min(missed * terms.slot_hours, worst), central, max(central, worst)


def _freed(one: Proposal) -> tuple[float, float]:
    """Return the boards of the present model that become free, and those that are kept."""
    same = one.chosen.configuration.gpu_model == one.present.configuration.gpu_model
    kept = one.chosen.boards if same else 0.0
    return (0.0 if one.chosen.paused else one.present.boards - kept), kept


def _gpu_hours(
    one: Proposal,
    held: Values,
    change: ChangeTime,
    longer: Triple,
    errors: Sequence[Error],
    terms: Terms,
) -> Range:
    """Return the GPU-hours of the present model that become free."""
    freed, kept = _freed(one)
    central = freed * float(held.sum()) * terms.slot_hours - longer[1] * kept - change.gpu_hours[1]
    return range_of(central, [error.gpu_hours for error in errors], "GPU-h")


def _energy(
    one: Proposal,
    held: Values,
    change: ChangeTime,
    longer: Triple,
    errors: Sequence[Error],
    terms: Terms,
) -> Range | None:
    """Return the site energy saved in kWh; None when power was never reported."""
    saved = _expected_watts(one, terms)
    if saved is None:
        return None
    spent = longer[1] * HELD[1] * idle_watts(one.chosen, terms) * _site(terms) + change.kwh[1]
    central = float((saved * held).sum()) * terms.slot_hours * _site(terms) - spent
    return range_of(central, [error.kwh for error in errors], "kWh")


def _site(terms: Terms) -> float:
    """Return the site energy in kWh of a Wh of boards."""
    return terms.energy.pue / 1000


def _saved_watts(power: Values | None, one: Proposal, terms: Terms) -> Values | None:
    """Return the W saved in each slot while the change is held; put-off work is not saved.

    None where power is unknown.
    """
    if power is None or one.option == 0:
        return None
    if one.chosen.paused:
        return np.zeros_like(power)
    estimate = power_under(power, one.present, one.chosen, terms)
    return np.asarray(power - estimate.central - estimate.left_idle_watts)


def _expected_watts(one: Proposal, terms: Terms) -> Values | None:
    """Return the W expected to be saved in each slot; None where power is unknown."""
    power = one.job.demand.power_q50
    if power is None or one.option == 0 or one.chosen.configuration.power_cap_watts is None:
        return _saved_watts(power, one, terms)
    expected = expected_power(one.job.demand, one.present, one.chosen, terms)
    return None if expected is None else np.asarray(power - expected)


def _errors(
    one: Proposal, held: Values, change: ChangeTime, longer: Triple, terms: Terms
) -> list[Error]:
    """Return all that may turn out otherwise, each independent of the others."""
    if one.option == 0:
        return []
    site = _site(terms)
    price = float(terms.tariff.per_kwh.mean())
    used = change.kwh
    low, middle, high = (cost - kwh * price for cost, kwh in zip(change.cost, used, strict=True))
    taken = Error(
        gpu_hours=-above_zero(*change.gpu_hours),
        kwh=-above_zero(*used),
        rent=-above_zero(low, middle, high),
    )
    _gone, kept = _freed(one)
    further = _further_hours(one, longer)
    cut = unless(further, one.job.demand.remaining.cut_off, -longer[1])
    slower = Error(
        gpu_hours=-cut * kept,
        kwh=-further * HELD[1] * idle_watts(one.chosen, terms) * site,
        rent=-cut * rent_per_hour(one.chosen, terms),
    )
    found = [taken, slower, *_end_errors(one, held, terms), *_power_errors(one, held, terms)]
    if one.chosen.paused:
        found.append(Error(rent=_put_off_prices(one, held, terms)))
    return found


def _further_hours(one: Proposal, longer: Triple) -> Values:
    """Return how much longer than central work takes, h [levels]."""
    low, central, high = longer
    if one.chosen.configuration.power_cap_watts is not None or one.chosen.configuration.shared_with:
        return either_side(central - low, high - central)
    return equally_likely([max(low, share * high) - central for share in SLOWER])


def _end_errors(one: Proposal, held: Values, terms: Terms) -> Iterator[Error]:
    """Yield what another end of the job makes of it."""
    remaining = one.job.demand.remaining
    if len(remaining.likely) < 2:
        return
    other = (remaining.likely - remaining.central) * one.held * terms.slot_hours
    hours = other.sum(axis=1)
    order = np.argsort(hours)
    freed, _kept = _freed(one)
    saved = _expected_watts(one, terms)
    rent = rent_per_hour(one.present, terms) - rent_per_hour(one.chosen, terms)
    yield Error(
        gpu_hours=equally_likely(freed * hours),
        kwh=0.0 if saved is None else in_order((other @ saved)[order] * _site(terms)),
        rent=0.0 if one.chosen.paused else in_order(rent * hours[order]),
    )


def _power_errors(one: Proposal, held: Values, terms: Terms) -> Iterator[Error]:
    """Yield what other power makes of it: forecast, estimate, idle boards, PUE."""
    demand = one.job.demand
    if demand.power_q50 is None or demand.power_q10 is None or demand.power_q90 is None:
        return
    scale = held * terms.slot_hours * _site(terms)
    low, middle, high = (
        float(((0.0 if saved is None else saved) * scale).sum())
        for saved in (
            _saved_watts(demand.power_q10, one, terms),
            _expected_watts(one, terms),
            _saved_watts(demand.power_q90, one, terms),
        )
    )
    if one.chosen.boards:
        yield Error(kwh=either_side((middle - low) * _AT_ONCE, (high - middle) * _AT_ONCE))
    pue = terms.energy.pue
    below = pue - max(1.0, pue - terms.energy.pue_uncertainty)
    yield Error(kwh=either_side(middle / pue * below, middle / pue * terms.energy.pue_uncertainty))
    if one.chosen.paused:
        return
    estimate = power_under(demand.power_q50, one.present, one.chosen, terms)
    if one.chosen.configuration.power_cap_watts is not None:
        least, most = estimate.high - estimate.central, estimate.central - estimate.low
        yield Error(kwh=either_side(float((least * scale).sum()), float((most * scale).sum())))
        return
    active = np.clip(estimate.central - idle_watts(one.chosen, terms), 0.0, None)
    if one.chosen.boards:
        more = math.log(max(1.0, one.present.boards / one.chosen.service))
        wrong = math.hypot(MODEL_ERROR, CURVE * more) * float((active * scale).sum())
        yield Error(kwh=either_side(wrong, wrong))
    if one.spec.serves:
        # How much work found no board is not known: boards show no demand beyond themselves.
        added = one.chosen.service / one.present.service - 1
        yield Error(kwh=-in_order(_SHARES * added * float((active * scale).sum())))
    model = terms.catalogue.get(one.present.configuration.gpu_model)
    work = power_per_work(one.present, one.chosen, terms)
    holding = abs(work * idle_watts(one.present, terms) - idle_watts(one.chosen, terms))
    unsure = holding * (HELD[2] - HELD[1]) * float(scale.sum())
    yield Error(kwh=either_side(unsure, unsure))
    boards = one.present.boards * (1 - work)
    hotter, cooler = (
        boards * abs(watts - model.idle_watts) * float(scale.sum())
        for watts in (model.idle_watts_high, model.idle_watts_low)
    )
    yield Error(kwh=either_side(hotter, cooler))


def _put_off_prices(one: Proposal, held: Values, terms: Terms) -> Values:
    """Return price of put-off work around that of a mean day: any hour of the day may be its."""
    moved, tariff = _put_off_kwh(one, held, terms), terms.tariff
    length = max(1, round(float(held.sum()) * terms.slot_hours))
    day = np.array(terms.energy.prices_by_hour)
    later = [np.take(day, range(hour, hour + length), mode="wrap").mean() for hour in range(24)]
    return equally_likely(moved * (tariff.mean_electricity - np.array(later)))


def _emissions(one: Proposal, held: Values, energy: Range | None, terms: Terms) -> Range | None:
    """Return location-based kgCO2e: of the slots that the change touches, and of put-off work."""
    if energy is None:
        return None
    touched = float((terms.tariff.gco2e * held).sum() / held.sum()) if held.any() else 0.0
    found = emissions_of(energy, terms.carbon, touched)
    if not one.chosen.paused:
        return found
    moved = _put_off_kwh(one, held, terms)
    shifted = moved * (touched - terms.tariff.mean_gco2e) / GRAMS_PER_KILOGRAM
    spread = abs(shifted) * (1 - terms.carbon.low / terms.carbon.gco2e_per_kwh)
    return Range(
        low=found.low + shifted - spread,
        central=found.central + shifted,
        high=found.high + shifted + spread,
        unit=found.unit,
    )


def _put_off_kwh(one: Proposal, held: Values, terms: Terms) -> float:
    """Return the site energy in kWh of the work that a pause puts off; 0 where power is unknown."""
    power = one.job.demand.power_q50
    if power is None:
        return 0.0
    watts = (power - idle_watts(one.present, terms)) * held
    return float(watts.sum()) * terms.slot_hours / 1000 * terms.energy.pue


def _money(central: float, errors: Sequence[Error], terms: Terms) -> Range:
    """Return the money saved around its central value, which is the plan's own."""
    price = float(terms.tariff.per_kwh.mean())
    return range_of(
        central, [error.rent + price * error.kwh for error in errors], terms.energy.currency
    )


def _transition(one: Proposal, change: ChangeTime) -> Transition | None:
    if one.option == 0:
        return None
    low, central, high = change.seconds
    return Transition(
        seconds=Range(low=low, central=central, high=high, unit="s"),
        parts=change.parts,
        gpu_hours=change.gpu_hours[1],
        cost=change.cost[1],
    )


def _delay(
    one: Proposal, held: Values, change: ChangeTime, longer: Triple, terms: Terms
) -> Range | None:
    """Return by how many hours the horizon's work is done later; None for a service."""
    demand: JobDemand = one.job.demand
    if not demand.standing.ends or one.option == 0 or not (one.chosen.boards or one.chosen.paused):
        return None
    remaining = one.job.demand.remaining
    waits = [
        float((one.held * share).sum()) * terms.slot_hours * one.chosen.paused
        for share in (remaining.low, remaining.central, remaining.high)
    ]
    low, central, high = (
        waited + hours + seconds / 3600
        for waited, hours, seconds in zip(waits, longer, change.seconds, strict=True)
    )
    return Range(low=low, central=central, high=high, unit="h")
