"""Savings of a proposal over the horizon, net of its transition and of longer runs.

The central figures are the plan's own arithmetic, so that recommendations add up to the plan
(`planner.proposals.portfolio`), which counts means. Low and high hold 80 % of what the errors
make of them together (`saving_errors.py`). They are those of a change that is made at once and
kept. No figure reaches beyond the end of the job.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from data.base.units import GRAMS_PER_KILOGRAM
from data.records.recommendations import Range, Savings, Transition
from planner.costs.carbon import emissions_of, market_emissions_of
from planner.costs.cost import (
    ChangeTime,
    change_costs,
    idle_watts,
    longer_ratio,
    missed_ratio,
    work_kwh,
)
from planner.costs.terms import Terms
from planner.costs.time_shift import goes_on_later, slots_later
from planner.jobs.expected_value import mean_of
from planner.jobs.job_demand import JobDemand
from planner.jobs.power_curve import HELD
from planner.proposals.joint_errors import Error, range_of
from planner.proposals.path_costs import option_costs, path_cost
from planner.proposals.proposal import Proposal
from planner.proposals.saving_errors import (
    Triple,
    errors_of,
    expected_watts,
    freed_boards,
    put_off_grams,
    site_ratio,
)

Values = npt.NDArray[np.float64]


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
    spent = longer[1] * HELD[1] * idle_watts(proposal.chosen, terms) * site_ratio(terms)
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
    if not goes_on_later(demand):
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
    if goes_on_later(demand):
        waits = slots_later(remaining, float(pauses.sum()))
    else:
        shares = (remaining.low, remaining.central, remaining.high)
        low, central, high = (float((pauses * share).sum()) for share in shares)
        waits = low, central, high
    low, central, high = (
        waited * terms.slot_hours + hours + seconds / 3600
        for waited, hours, seconds in zip(waits, longer, change.seconds, strict=True)
    )
    return Range(low=low, central=central, high=high, unit="h")
