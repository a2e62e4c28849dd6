"""Evidence of a recommendation, and how far it can be trusted."""

from dataclasses import replace

from data.base.units import MIB_PER_GIB
from data.catalogue.gpu_catalogue import CURRENCY, GpuModel
from data.records.forecasts import DemandForecast, Quantity
from data.records.plans import Plan
from data.records.recommendations import Evidence, Savings
from data.records.target_facts import TARGET_FACTS, target_facts
from data.settings.energy import PUE_UNCERTAINTY
from planner.costs.cost import change_costs
from planner.costs.terms import Terms
from planner.jobs.job_end import waits_for_start
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.guardrails import contradiction
from planner.proposals.proposal import Proposal

_SIGNALS = {
    "sm_active": (2, "SM activity was measured"),
    "gr_engine_active": (1, "engine activity was measured, SM activity was not"),
    "gpu_util": (0, "only GPU_UTIL was measured, which one small kernel saturates"),
}
_LEVELS = ("weak", "medium", "strong")
_COMPLETE = 0.8


def evidence_of(
    proposal: Proposal, savings: Savings, plan: Plan, problem: PlanningProblem
) -> Evidence:
    """Return the evidence of one proposal."""
    demand = proposal.job.demand
    path = (
        demand.forecast.path(Quantity.EFFECTIVE_GPUS)
        if isinstance(demand.forecast, DemandForecast)
        else None
    )
    losses = dict(path.backtest.losses) if path is not None and path.backtest else {}
    start, standing = demand.window_start, demand.standing
    flag = contradiction(demand, problem.terms)
    return Evidence(
        signal=problem.signals.get(demand.job.job_id, "unknown"),
        samples=demand.samples,
        window_start=problem.as_of if start is None else start,
        window_end=problem.as_of,
        completeness_ratio=demand.coverage_ratio,
        utilization_p95_ratio=demand.utilization_p95_ratio,
        memory_max_mib=demand.memory_max_mib,
        power_mean_watts=demand.power_mean_watts,
        forecast_model="none" if path is None else path.model,
        backtest_error=losses.get(path.model) if path is not None else None,
        backtest_baseline=losses.get("seasonal-naive"),
        factors=_factors(proposal, savings, problem),
        assumed=demand.job.assumed,
        fallbacks=_fallbacks(proposal, savings, problem.terms),
        plan_gap_ratio=plan.gap_ratio,
        elasticity=f"{standing.elasticity}: {standing.reason}",
        flags=(flag,) if flag else (),
    )


class FleetEvidence:
    """The evidence of advice that rests on all jobs of a plan, summed up once."""

    def __init__(self, plan: Plan, problem: PlanningProblem) -> None:
        demands = [job.demand for job in problem.jobs]
        starts = [demand.window_start for demand in demands if demand.window_start is not None]
        ratios = [demand.coverage_ratio for demand in demands]
        self._energy = _energy_factors(problem)
        self._of_all = Evidence(
            signal="all jobs",
            samples=sum(demand.samples for demand in demands),
            window_start=min(starts, default=problem.as_of),
            window_end=problem.as_of,
            completeness_ratio=sum(ratios) / max(1, len(ratios)),
            utilization_p95_ratio=None,
            memory_max_mib=None,
            power_mean_watts=None,
            forecast_model="all jobs",
            backtest_error=None,
            backtest_baseline=None,
            factors=(),
            assumed=(),
            fallbacks=(),
            plan_gap_ratio=plan.gap_ratio,
        )

    def of(self, factors: tuple[tuple[str, str], ...]) -> Evidence:
        """Return the evidence of advice with these factors."""
        return replace(self._of_all, factors=(*factors, *self._energy) if factors else ())


def confidence_of(evidence: Evidence) -> str:
    """Return strong, medium or weak with every reason that lowers it."""
    if evidence.signal not in _SIGNALS:
        return "unknown: the signal was not reported"
    level, measured = _SIGNALS[evidence.signal]
    reasons = [measured]
    if evidence.completeness_ratio < _COMPLETE:
        reasons.append(f"{100 * evidence.completeness_ratio:.0f} % of its history is known")
    error, baseline = evidence.backtest_error, evidence.backtest_baseline
    if error is not None and baseline is not None and error > baseline:
        reasons.append("its forecast did worse than yesterday's values")
    reasons += evidence.flags
    return f"{_LEVELS[max(0, level + 1 - len(reasons))]}: {'; '.join(reasons)}"


def _price_text(model: GpuModel, currency: str) -> str:
    """Return the price of a model and where it comes from."""
    source = "an estimate: statement.prices has none"
    if model.price_is_stated:
        source = "statement.prices"
    elif model.price_is_stated is None:
        same = currency.upper() == CURRENCY
        source = "catalogue default" + ("" if same else f", not converted to {currency}")
        currency = CURRENCY
    return f"{model.price_per_hour:g} {currency}/h for {model.name} ({source})"


def _factors(
    proposal: Proposal, savings: Savings, problem: PlanningProblem
) -> tuple[tuple[str, str], ...]:
    currency = problem.energy.currency
    names = (proposal.present.configuration.gpu_model, proposal.chosen.configuration.gpu_model)
    factors = [
        ("GPU price", _price_text(model, currency))
        for name in dict.fromkeys(names)
        if (model := problem.catalogue.find(name)) is not None
    ]
    if savings.energy_kwh is not None:
        factors += _energy_factors(problem)
    demand = proposal.job.demand
    if demand.remaining.why:
        hours = demand.remaining.hours(problem.terms.slot_hours)
        factors.append(("end", f"{demand.remaining.why}: {hours:.3g} h are left"))
    if demand.start_unknown:
        factors.append(
            ("start", "unknown: savings count from the first slot on, the most that they can be")
        )
    if proposal.spec.takes_all:
        factors.append(("return of work", demand.work_return.describe()))
    if demand.memory_freed and demand.memory_mib is not None and demand.memory_max_mib is not None:
        was, most = demand.memory_max_mib / MIB_PER_GIB, demand.memory_mib / MIB_PER_GIB
        factors.append(
            ("memory", f"the phase that took {was:.1f} GiB is over: at most {most:.1f} with 95 %")
        )
    if facts := target_facts(demand.job):
        factors.append((TARGET_FACTS, facts))
    if proposal.spec.caps_power:
        law = problem.cap_laws[proposal.chosen.configuration.gpu_model]
        reach = f"boards settle at {100 * law.reach:.0f} % of a cap"
        factors.append(("power cap", f"{law.source}; {reach}"))
    return tuple(factors)


def _energy_factors(problem: PlanningProblem) -> list[tuple[str, str]]:
    carbon, energy, tariff = problem.carbon, problem.energy, problem.tariff
    price, grid = tariff.electricity, tariff.gco2e
    hourly = f", {grid.min():.0f}–{grid.max():.0f} by hour" if tariff.hourly_carbon else ""
    grid_text = (
        f"{carbon.gco2e_per_kwh:g} ({carbon.low:g}–{carbon.high:g}) gCO2e/kWh{hourly}, "
        f"{carbon.name}, {carbon.year}, {carbon.source}, {carbon.licence}"
    )
    factors = [
        ("electricity", f"{_span(price.min(), price.max())} {energy.currency}/kWh"),
        ("PUE", f"{energy.pue:g} ± {PUE_UNCERTAINTY:g}"),
        ("grid carbon, location-based", grid_text),
    ]
    if text := tariff.grid.describe():
        factors.append(("grid's hours ahead", text))
    if energy.market_factor is not None:
        factors.append(("carbon, market-based", f"{energy.market_factor:g} gCO2e/kWh (setting)"))
    if energy.carbon_price_per_tonne:
        factors.append(
            ("carbon price", f"{energy.carbon_price_per_tonne:g} {energy.currency}/t, in the money")
        )
    return factors


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g}–{high:g}"


def _fallbacks(proposal: Proposal, savings: Savings, terms: Terms) -> tuple[str, ...]:
    demand, notes = proposal.job.demand, []
    if savings.energy_kwh is None:
        has_power = demand.power_mean_watts is not None
        why = "not forecast for this change" if has_power else "power was never reported"
        notes.append(f"energy and emissions unknown: {why}")
    if isinstance(demand.forecast, DemandForecast):
        notes += [f"{quantity}: {reason}" for quantity, reason in demand.forecast.missing]
        estimated = demand.forecast.path(Quantity.POWER)
        if estimated is not None and Quantity.POWER in dict(demand.forecast.missing):
            notes += [f"{Quantity.POWER}: {note}" for note in estimated.notes]
    takes = proposal.option and not waits_for_start(demand.job)
    if takes and change_costs(demand, proposal.present, proposal.chosen, terms).parts:
        notes.append("transition: priors, 15–250 s (Sia, SOSP 2023), not measured here")
    if demand.standing.scaled_by:
        sentence = f"its number of GPUs is left to {demand.standing.scaled_by}"
        devices = demand.foreseen_devices
        if devices is not None:
            sentence += f", foreseen to hold {_span(devices.min(), devices.max())}"
        notes.append(sentence)
    facts = demand.job.scheduler
    keepers = (
        []
        if facts is None
        else [name for name in facts.managed_by if name != demand.standing.scaled_by]
    )
    if keepers and proposal.option:
        notes.append(
            f"{' and '.join(keepers)} would undo the change: make it where its manifest is kept"
        )
    return tuple(notes)
