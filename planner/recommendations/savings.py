"""What a proposal saves over the horizon, net of its transition and of longer runs.

The central figures are the plan's own arithmetic, so that recommendations add up to the plan
(`planner.recommendations.portfolio`). Low and high move the transition, the longer run, the power
forecast, the factors, a forecast end of the job and, for the low, the share of its hours that the
plan holds the change. No figure reaches beyond the end of the job.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.records.decisions import Range, Savings, Transition
from data.units import GRAMS_PER_KILOGRAM
from planner.carbon import emissions_of, market_emissions_of
from planner.cost import (
    ChangeTime,
    change_costs,
    idle_watts,
    longer_ratio,
    rent_per_hour,
)
from planner.energy import PowerEstimate, power_under
from planner.job_demand import JobDemand
from planner.recommendations.path_costs import option_costs, path_cost
from planner.recommendations.proposals import Proposal
from planner.terms import Terms

Values = npt.NDArray[np.float64]
Triple = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
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


def outcome_of(one: Proposal, terms: Terms) -> Outcome:
    """Give what a proposal saves, takes and delays."""
    job = one.job
    stays = path_cost(job, (0,) * len(one.proposed), terms)
    moves = path_cost(job, one.proposed, terms)
    now = option_costs(job, 0, terms)
    change = _change(one, terms)
    held = _held(one)
    longer = _longer_hours(one, terms)
    energy = _energy(one, held, change, longer, terms)
    gpu_hours = _gpu_hours(one, held, change, longer, terms)
    return Outcome(
        savings=Savings(
            horizon_hours=job.demand.remaining.hours(terms.slot_hours),
            gpu_hours=gpu_hours,
            energy_kwh=energy,
            emissions_kgco2e=_emissions(one, held.central, energy, terms),
            market_emissions_kgco2e=market_emissions_of(energy, terms.energy.market_factor),
            cost=_money(one, stays.money - moves.money, held, change, longer, energy, terms),
        ),
        transition=_transition(one, change),
        delay_hours=_delay(one, held, change, longer, terms),
        shortfall_saved=stays.shortfall - moves.shortfall,
        cost_of_now=stays.money,
        energy_bill=float((now.electricity + now.carbon).sum()),
    )


def _change(one: Proposal, terms: Terms) -> ChangeTime:
    """Give what the change takes, and its way back where it ends."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """The share of each slot in which the job holds what is proposed, arrays [slots]."""

    low: Values
    central: Values
    high: Values

    def hours(self, terms: Terms) -> Triple:
        low, central, high = (
            float(row.sum()) * terms.slot_hours for row in (self.low, self.central, self.high)
        )
        return low, central, high


def _held(one: Proposal) -> _Held:
    remaining = one.job.demand.remaining
    return _Held(
        low=one.held * remaining.low,
        central=one.held * remaining.central,
        high=one.held * remaining.high,
    )


def _longer_hours(one: Proposal, terms: Terms) -> Triple:
    """Give how much longer the horizon's work takes under the option, h as low, central, high.

    Central: what the forecast's demand exceeds the option by. High: on fewer or other devices as
    if activity did not rise there; under a cap or beside another job the worst slowdown of work
    that has the load of q90.
    """
    demand, chosen = one.job.demand, one.chosen
    if not demand.standing.ends or not chosen.service or one.option == 0:
        return 0.0, 0.0, 0.0
    extra = longer_ratio(demand, one.present, chosen, terms.planning)
    central = float((extra * one.held).sum()) * terms.slot_hours
    load = np.ones_like(extra)
    slowed = chosen.boards == one.present.boards or chosen.configuration.shared_with
    if slowed and demand.demand_q90 is not None:
        load = demand.demand_q90 / one.present.service
    beyond = np.clip(load * chosen.slowdown[2] - 1, 0.0, None)
    worst = float((beyond * one.held * demand.remaining.high).sum()) * terms.slot_hours
    return min(central, worst), central, max(central, worst)


def _gpu_hours(
    one: Proposal, held: _Held, change: ChangeTime, longer: Triple, terms: Terms
) -> Range:
    """Give the GPU-hours of the present model that become free."""
    if one.chosen.paused:
        return _ordered(-change.gpu_hours[2], -change.gpu_hours[1], -change.gpu_hours[0], "GPU-h")
    same = one.chosen.configuration.gpu_model == one.present.configuration.gpu_model
    freed = one.present.boards - (one.chosen.boards if same else 0.0)
    spent = [
        hours * one.chosen.boards * same + taken
        for hours, taken in zip(longer, change.gpu_hours, strict=True)
    ]
    low, central, high = (freed * hours for hours in held.hours(terms))
    if freed < 0:
        low, high = high, low
    else:
        low *= one.share
    return _ordered(low - spent[2], central - spent[1], high - spent[0], "GPU-h")


def _ordered(low: float, central: float, high: float, unit: str) -> Range:
    return Range(low=min(low, central), central=central, high=max(high, central), unit=unit)


def _energy(
    one: Proposal, held: _Held, change: ChangeTime, longer: Triple, terms: Terms
) -> Range | None:
    """Give the site energy saved in kWh; None when power was never reported."""
    demand = one.job.demand
    paths = (demand.power_q10, demand.power_q50, demand.power_q90)
    if any(path is None for path in paths) or one.option == 0:
        return None
    known = [path for path in paths if path is not None]
    middle = _saved_watts(known[1], held.central, one, terms)
    rows = [
        _saved_watts(path, share, one, terms) for path in known for share in (held.low, held.high)
    ]
    scale = terms.slot_hours / 1000
    pue = terms.energy.pue
    bounds = (max(1.0, pue - terms.energy.pue_uncertainty), pue + terms.energy.pue_uncertainty)
    idle = idle_watts(one.chosen, terms)
    spent = [
        taken / pue + hours * idle / 1000 for taken, hours in zip(change.kwh, longer, strict=True)
    ]
    central = (middle[1] * scale - spent[1]) * pue
    lows = [(row[0] * scale - spent[2]) * factor for row in rows for factor in bounds]
    highs = [(row[2] * scale - spent[0]) * factor for row in rows for factor in bounds]
    return _ordered(min(*lows, *highs), central, max(*lows, *highs), "kWh")


def _saved_watts(power: Values, held: Values, one: Proposal, terms: Terms) -> Triple:
    """Give the sum over slots of saved W, as low, central, high; put-off work is not saved."""
    if one.chosen.paused:
        return 0.0, 0.0, 0.0
    estimate: PowerEstimate = power_under(power, one.present, one.chosen, terms)
    left = estimate.left_idle_watts
    return (
        float(((power - estimate.high - left) * held).sum()),
        float(((power - estimate.central - left) * held).sum()),
        float(((power - estimate.low - min(left, 0.0)) * held).sum()),
    )


def _emissions(one: Proposal, held: Values, energy: Range | None, terms: Terms) -> Range | None:
    """Give location-based kgCO2e: of the slots that the change touches, and of put-off work."""
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
    """Give the site energy in kWh of the work that a pause puts off; 0 where power is unknown."""
    power = one.job.demand.power_q50
    if power is None:
        return 0.0
    watts = (power - idle_watts(one.present, terms)) * held
    return float(watts.sum()) * terms.slot_hours / 1000 * terms.energy.pue


def _money(
    one: Proposal,
    central: float,
    held: _Held,
    change: ChangeTime,
    longer: Triple,
    energy: Range | None,
    terms: Terms,
) -> Range:
    """Give the money saved around its central value, which is the plan's own."""
    rent = rent_per_hour(one.chosen, terms)
    price = float(terms.tariff.per_kwh.mean())
    hours = held.hours(terms)
    saved_rent = rent_per_hour(one.present, terms) - rent
    shorter, further = saved_rent * (hours[1] - hours[0]), saved_rent * (hours[2] - hours[1])
    unsure = max(0.0, saved_rent * hours[0]) * (1 - one.share)
    if one.chosen.paused:
        shorter = further = 0.0  # its rent is put off, not saved
    # Rent of the transition alone: its energy is in the energy's own range.
    taken = [cost - kwh * price for cost, kwh in zip(change.cost, change.kwh, strict=True)]
    low = unsure + max(shorter, -further) + rent * (longer[2] - longer[1]) + taken[2] - taken[1]
    high = max(further, -shorter) + rent * (longer[1] - longer[0]) + taken[1] - taken[0]
    if one.chosen.paused:
        # The hour at which put-off work will be done may be the dearest or the cheapest.
        moved, tariff = _put_off_kwh(one, held.high, terms), terms.tariff
        low += moved * float(tariff.per_kwh.max() - tariff.mean_per_kwh)
        high += moved * float(tariff.mean_per_kwh - tariff.per_kwh.min())
    if energy is not None:
        low += (energy.central - energy.low) * price
        high += (energy.high - energy.central) * price
    return _ordered(central - low, central, central + high, terms.energy.currency)


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
    one: Proposal, held: _Held, change: ChangeTime, longer: Triple, terms: Terms
) -> Range | None:
    """Give by how many hours the horizon's work is done later; None for a service."""
    demand: JobDemand = one.job.demand
    if not demand.standing.ends or one.option == 0 or not (one.chosen.boards or one.chosen.paused):
        return None
    waits = held.hours(terms) if one.chosen.paused else (0.0, 0.0, 0.0)
    low, central, high = (
        waited + hours + seconds / 3600
        for waited, hours, seconds in zip(waits, longer, change.seconds, strict=True)
    )
    return Range(low=low, central=central, high=high, unit="h")
