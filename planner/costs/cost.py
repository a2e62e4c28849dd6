"""Costs of a job in a slot under an option, part by part, and of changes.

Money is GPU rent, electricity, the price of carbon and, for work that has an end, the time that it
runs longer. The price of expected shortfall is no money: it keeps plans from starving a job. A slot
counts as far as the job can still be there: after its end nothing costs and nothing is saved.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from data.base.units import SECONDS_PER_HOUR
from data.settings.all_settings import PlanningSettings
from planner.costs.configurations import Option, may_grow
from planner.costs.energy import expected_draw
from planner.costs.terms import Terms
from planner.costs.time_shift import put_off_costs
from planner.costs.transitions import TransitionPart, entering, leaving, moving, requesting
from planner.jobs.expected_value import mean_of
from planner.jobs.job_demand import JobDemand
from planner.jobs.job_end import waits_for_start
from planner.jobs.power_curve import HOLDING_SHARES

Values = npt.NDArray[np.float64]


def quantile_curve(quantiles: Sequence[tuple[float, Values]]) -> tuple[Values, Values]:
    """Return levels [K] from 0 to 1 and the values there [K, slots].

    Between the known levels the quantile function is taken as straight; beyond them it goes on as
    steeply as in the outermost stretch, not below 0. `quantiles` ascend, at least two.
    """
    levels = np.array([level for level, _values in quantiles])
    values = np.array([row for _level, row in quantiles])
    first = (values[1] - values[0]) / (levels[1] - levels[0])
    last = (values[-1] - values[-2]) / (levels[-1] - levels[-2])
    least = np.maximum(values[0] - first * levels[0], 0.0)
    most = values[-1] + last * (1 - levels[-1])
    return (
        np.concatenate([[0.0], levels, [1.0]]),
        np.vstack([np.minimum(least, values[0])[None], values, most[None]]),
    )


def expected_shortfall(levels: Values, values: Values, capacity: float) -> Values:
    """Return E[(D - capacity)+] per slot, array [slots].

    The integral of (Q(u) - capacity)+ over the level u, exactly, for a quantile function that is
    straight between `levels` [K]: a trapezoid where both ends are above, a triangle where one is.
    """
    above = values - capacity
    low, high = above[:-1], above[1:]
    rise = np.maximum(high - low, 1e-300)
    triangle = np.clip(high, 0.0, None) ** 2 / (2 * rise)
    area = np.where(low >= 0, (low + high) / 2, triangle)
    return np.asarray((np.diff(levels)[:, None] * area).sum(axis=0), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCosts:
    """Cost per slot in the settings' currency, arrays [slots].

    `longer` is rent and energy of work that takes longer; `put_off` the price of doing a paused
    slot's work later, infinite where it may not wait; `shortfall` the price of demand that is
    expected to be missed.
    """

    rent: Values
    electricity: Values
    carbon: Values
    longer: Values
    put_off: Values
    shortfall: Values

    @property
    def money(self) -> Values:
        """All but the shortfall, array [slots]."""
        return self.rent + self.electricity + self.carbon + self.longer + self.put_off

    @property
    def total(self) -> Values:
        """The cost that plans minimise, array [slots]."""
        return self.money + self.shortfall


def rent_per_hour(option: Option, terms: Terms) -> float:
    """Return the rent of an option per hour; 0 for a model without a price in the catalogue."""
    model = terms.catalogue.find(option.configuration.gpu_model)
    return 0.0 if model is None else option.boards * model.price_per_hour


def needed_service(demand: JobDemand, present: Option, planning: PlanningSettings) -> Values:
    """Return the service needed at the forecast's q90 with headroom, array [slots].

    None is needed once the job is sure to have ended.
    """
    path = np.zeros(planning.horizon_slots) if demand.demand_q90 is None else demand.demand_q90
    path = np.where(demand.remaining.high > 0, path, 0.0)
    ceiling = _ceiling(demand, present)
    return np.asarray(np.minimum(path * (1 + planning.headroom_ratio), ceiling), dtype=np.float64)


def _ceiling(demand: JobDemand, present: Option) -> float:
    """Return the most that a job may need: no more than it has, unless it may grow.

    A saturated job shows no more than it has.
    """
    return np.inf if may_grow(demand) else present.service


def missed_service(
    demand: JobDemand, present: Option, option: Option, planning: PlanningSettings
) -> Values:
    """Return the demand with headroom that an option is expected to miss, in devices [slots]."""
    missed = _missed(demand, present, option, planning, headroom=planning.headroom_ratio)
    return missed * demand.remaining.central


def _missed(
    demand: JobDemand,
    present: Option,
    option: Option,
    planning: PlanningSettings,
    *,
    headroom: float,
) -> Values:
    missed = np.zeros(planning.horizon_slots)
    if not option.configuration.gpu_count:
        return missed
    if demand.foreseen_devices is not None:
        missed = np.maximum(demand.foreseen_devices - option.configuration.gpu_count, 0.0)
    if not demand.quantiles or option.autoscaled:
        return missed
    levels, values = quantile_curve(demand.quantiles)
    target = np.minimum(values * (1 + headroom), _ceiling(demand, present))
    missed += expected_shortfall(levels, target, option.service)
    return np.asarray(missed, dtype=np.float64)


def slot_costs(demand: JobDemand, present: Option, option: Option, terms: Terms) -> SlotCosts:
    """Return the cost of each slot. Electricity counts freed boards as idle: they stay powered."""
    planning, hours, there = terms.planning, terms.slot_hours, demand.remaining.central
    rent_per_slot = rent_per_hour(option, terms) * hours
    kwh = _energy(demand, present, option, terms) * there
    tariff = terms.tariff
    # Energy follows the work, so longer work adds what holding the option's boards draws.
    held_kwh = HOLDING_SHARES[1] * idle_watts(option, terms) * hours / 1000 * terms.energy.pue
    extra = longer_ratio(demand, present, option, planning)
    unit = rent_per_hour(present, terms) / max(present.service, 1e-9)
    missed = missed_service(demand, present, option, planning)
    return SlotCosts(
        rent=rent_per_slot * there,
        electricity=kwh * tariff.electricity,
        carbon=kwh * tariff.carbon_of_kwh,
        longer=extra * (rent_per_slot + held_kwh * tariff.per_kwh),
        put_off=_put_off(demand, present, terms) if option.paused else np.zeros_like(there),
        shortfall=planning.shortfall_weight * missed * unit * hours,
    )


def longer_ratio(
    demand: JobDemand, present: Option, option: Option, planning: PlanningSettings
) -> Values:
    """Return the expected further hours of each hour's work under an option, [slots].

    What demand exceeds the option by, or the mean of what activity that does not rise makes of it.
    What a limit cuts off is not done at all.
    """
    missed = missed_ratio(demand, present, option, planning) * demand.remaining.unlimited
    if not demand.standing.ends or option is present or not may_slow(option):
        return missed
    slower = float(np.mean(SLOWER)) * (option.slowdown[2] - 1) * demand.remaining.unlimited
    return np.maximum(missed, slower)


SLOWER = (
    0.0001, 0.0009, 0.0032, 0.0073, 0.0136, 0.0225, 0.0343, 0.0494, 0.068, 0.0907,
    0.1179, 0.1502, 0.1882, 0.233, 0.2857, 0.3481, 0.4229, 0.5148, 0.6336, 0.8157,
)  # fmt: skip
"""Equally likely shares of the worst slowdown that work on fewer or slower boards takes, an
assumption: most jobs are held up by something else than their boards; a Beta(0.4, 1.6)."""


def may_slow(option: Option) -> bool:
    """Return whether work may take longer on an option's boards though they have room for it."""
    return option.configuration.power_cap_watts is None and option.slowdown[2] > 1


def missed_ratio(
    demand: JobDemand, present: Option, option: Option, planning: PlanningSettings
) -> Values:
    """Return by what share of an hour an option is expected to miss an hour's work, [slots]."""
    if not demand.standing.ends or option is present or not option.service:
        return np.zeros(planning.horizon_slots)
    return _missed(demand, present, option, planning, headroom=0.0) / option.service


def idle_watts(option: Option, terms: Terms) -> float:
    """Return the power of an option's boards without work; 0 for an unknown model."""
    model = terms.catalogue.find(option.configuration.gpu_model)
    return 0.0 if model is None else option.boards * model.idle_watts


def _energy(demand: JobDemand, present: Option, option: Option, terms: Terms) -> Values:
    """Return the site energy per slot in kWh, with what is left idle; 0 where power is unknown."""
    if terms.catalogue.find(present.configuration.gpu_model) is None:
        return np.zeros(terms.planning.horizon_slots)
    drawn = expected_draw(demand, present, option, terms)
    if drawn is None:
        return np.zeros(terms.planning.horizon_slots)
    return drawn * (terms.slot_hours / 1000 * terms.energy.pue)


def work_kwh(demand: JobDemand, present: Option, terms: Terms) -> Values:
    """Return the site energy of a job's work beyond idle boards, [slots]; 0 if power is unknown."""
    if demand.power_q50 is None:
        return np.zeros(terms.planning.horizon_slots)
    watts = demand.power_q50 - idle_watts(present, terms)
    return np.asarray(watts * (terms.slot_hours / 1000 * terms.energy.pue), dtype=np.float64)


def _put_off(demand: JobDemand, present: Option, terms: Terms) -> Values:
    rent_per_slot = rent_per_hour(present, terms) * terms.slot_hours
    return put_off_costs(demand, work_kwh(demand, present, terms), rent_per_slot, terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedRun:
    """A run that is done again if its work returns after a stop, with the chance of that."""

    chance: float
    gpu_hours: float
    kwh: float
    cost: float

    @property
    def mean_cost(self) -> float:
        """The money that it takes, its mean."""
        return self.chance * self.cost


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTime:
    """Seconds of a change, and what its hours hold and use, as low, central, high.

    `parts` are (what, central seconds). `wait_price` is no money: what the time in the queue is
    taken to be worth; nor is `loss_price`: what the worst case of lost work costs beyond its mean.
    `redo` is what doing a stopped run again takes, which happens with the chance that work returns.
    """

    parts: tuple[tuple[str, float], ...]
    seconds: tuple[float, float, float]
    gpu_hours: tuple[float, float, float]
    kwh: tuple[float, float, float]
    cost: tuple[float, float, float]
    wait_price: float = 0.0
    loss_price: float = 0.0
    redo: "RepeatedRun | None" = None

    @property
    def mean_cost(self) -> float:
        """The money that the change takes, its mean."""
        return mean_of(*self.cost) + (self.redo.mean_cost if self.redo else 0.0)

    @property
    def price(self) -> float:
        """The price beside the money: of the wait, and of the worst case of lost work."""
        return self.wait_price + self.loss_price


def change_costs(demand: JobDemand, present: Option, option: Option, terms: Terms) -> ChangeTime:
    """Return the time and cost of a change to an option, with leaving the present one.

    The boards of the side that each part is spent on are held and draw the job's power instead of
    their idle power. A job that waits in the queue holds none: its mean wait is priced like rent of
    what it has now. Of a job that waits for its start only its request changes.
    """
    elasticity = demand.standing.elasticity
    if waits_for_start(demand.job):
        return _change(requesting(present, option), demand, present, option, terms)
    parts = (
        *leaving(demand.standing, present, option),
        *entering(elasticity, present, option, demand.queue_wait),
    )
    change = _change(parts, demand, present, option, terms)
    stops = not option.boards and not option.paused
    return replace(change, redo=_redo(demand, present, terms)) if stops else change


def _redo(demand: JobDemand, present: Option, terms: Terms) -> RepeatedRun | None:
    """Return what a run takes that is done again after a stop, None where nothing is lost."""
    seconds = demand.hours_to_redo * SECONDS_PER_HOUR
    if not seconds:
        return None
    part = TransitionPart(what="", low=0.0, central=0.0, high=seconds, leaving=True)
    again = _change((part,), demand, present, present, terms)
    return RepeatedRun(
        chance=demand.work_return.chance,
        gpu_hours=again.gpu_hours[2],
        kwh=again.kwh[2],
        cost=again.cost[2],
    )


def move_costs(demand: JobDemand, present: Option, terms: Terms) -> ChangeTime:
    """Return the time and cost of a start of the present configuration on other nodes."""
    parts = moving(demand.standing, present, demand.queue_wait)
    return _change(parts, demand, present, present, terms)


def _change(
    parts: Sequence[TransitionPart],
    demand: JobDemand,
    present: Option,
    option: Option,
    terms: Terms,
) -> ChangeTime:
    # What a job waits for its first start no change of it takes.
    wait = None if waits_for_start(demand.job) else demand.queue_wait
    watts = 0.0
    if demand.power_q50 is not None:
        # Boards draw their idle power whether the change holds them or not.
        watts = max(0.0, float(demand.power_q50.mean()) - idle_watts(present, terms))
    # Changes cost time: what nobody pays for their energy is no reason to make them.
    price = max(0.0, float(terms.tariff.per_kwh.mean()))
    sums, beyond = np.zeros((4, 3)), 0.0
    for part in parts:
        side = present if part.leaving else option
        hours = np.array([part.low, part.central, part.high]) / SECONDS_PER_HOUR
        if not part.busy:
            sums[0] += hours * SECONDS_PER_HOUR
            continue
        kwh = hours * watts / 1000 * terms.energy.pue
        cost = hours * rent_per_hour(side, terms) + kwh * price
        beyond += float(cost[2] - mean_of(*cost)) * part.at_worst
        sums += np.array([hours * SECONDS_PER_HOUR, hours * side.boards, kwh, cost])
    waits = wait is not None and any(not part.busy for part in parts)
    waited = wait.mean / SECONDS_PER_HOUR if wait is not None and waits else 0.0
    seconds, gpu_hours, used, costs = ((float(a), float(b), float(c)) for a, b, c in sums)
    return ChangeTime(
        parts=tuple((part.what, part.central) for part in parts),
        seconds=seconds,
        gpu_hours=gpu_hours,
        kwh=used,
        cost=costs,
        wait_price=waited * rent_per_hour(present, terms),
        loss_price=beyond,
    )


def change_cost(demand: JobDemand, present: Option, option: Option, terms: Terms) -> float:
    """Return the one-time cost of changing to an option, its mean, with the price of its wait."""
    costs = change_costs(demand, present, option, terms)
    return costs.mean_cost + costs.price
