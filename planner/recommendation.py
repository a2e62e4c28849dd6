"""From a plan to recommendations: what to change, why, what it saves, what it rests on."""

from dataclasses import dataclass
from datetime import timedelta

from data.records.decisions import Action, Evidence, Range, Recommendation, Risk, Savings
from data.records.forecasts import DemandForecast, Quantity
from data.records.plans import JobPlan, Plan
from planner.carbon import emissions_of
from planner.cost import CHANGE_HOURS, rent_per_hour
from planner.energy import energy_saved
from planner.guardrails import refusal, steady_option
from planner.job_demand import JobDemand
from planner.problem import JobProblem, PlanningProblem

_CONFIDENCE = {
    "sm_active": "strong: SM activity was measured",
    "gr_engine_active": "medium: engine activity was measured, SM activity was not",
    "gpu_util": "weak: only GPU_UTIL was measured, which one small kernel saturates",
}
_RISK = {
    Action.POWER_CAP: Risk.LOW,
    Action.RECLAIM: Risk.HIGH,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    job: JobProblem
    option: int
    share: float
    savings: Savings
    refusal: str


def recommend(plan: Plan, problem: PlanningProblem) -> tuple[Recommendation, ...]:
    """Give the recommendations, the largest central saving first."""
    found = [
        _recommendation(one, plan, problem) for one in _candidates(plan, problem) if not one.refusal
    ]
    return tuple(
        sorted(
            found,
            key=lambda one: (-(one.savings.cost.central if one.savings.cost else 0), one.job_id),
        )
    )


def explain_keep(plan: Plan, problem: PlanningProblem) -> dict[str, str]:
    """Give for every job without a recommendation why nothing is proposed."""
    kept = {
        one.job.demand.job.job_id: one.refusal for one in _candidates(plan, problem) if one.refusal
    }
    return kept | dict(problem.ended)


def _candidates(plan: Plan, problem: PlanningProblem) -> list[_Candidate]:
    return [
        _candidate(job, job_plan, problem)
        for job, job_plan in zip(problem.jobs, plan.jobs, strict=True)
    ]


def _candidate(job: JobProblem, plan: JobPlan, problem: PlanningProblem) -> _Candidate:
    option, share = steady_option(job, plan)
    savings = _savings(job, option, share, problem)
    ratio = _saving_ratio(job, option, savings, problem)
    reason = refusal(problem, job, option, share=share, saving_ratio=ratio)
    return _Candidate(job=job, option=option, share=share, savings=savings, refusal=reason)


def _saving_ratio(
    job: JobProblem, option: int, savings: Savings, problem: PlanningProblem
) -> float:
    """Give the central saving as a share of the job's rent; for a power cap, of its energy."""
    present = job.options[0]
    if job.options[option].configuration.power_cap_watts is not None:
        path = job.demand.power_q50
        if savings.energy_kwh is None or path is None or path.sum() <= 0:
            return 0.0
        hours = problem.planning.slot_minutes / 60
        used = path.sum() * hours / 1000 * problem.energy.pue
        return float(savings.energy_kwh.central / used)
    rent = rent_per_hour(present, problem.catalogue) * savings.horizon_hours
    return 0.0 if savings.cost is None or rent <= 0 else savings.cost.central / rent


def _savings(job: JobProblem, option: int, share: float, problem: PlanningProblem) -> Savings:
    hours = len(problem.slot_starts) * problem.planning.slot_minutes / 60
    present, chosen = job.options[0], job.options[option]
    if option == 0:
        return Savings(
            horizon_hours=hours, gpu_hours=None, energy_kwh=None, emissions_kgco2e=None, cost=None
        )
    same_model = chosen.configuration.gpu_model == present.configuration.gpu_model
    freed = present.boards - (chosen.boards if same_model else 0.0)
    capped = chosen.configuration.power_cap_watts is not None
    lost = 0.0 if capped or not chosen.boards else CHANGE_HOURS
    energy = _energy(job.demand, job, option, problem)
    rent = rent_per_hour(present, problem.catalogue) - rent_per_hour(chosen, problem.catalogue)
    change = rent_per_hour(chosen, problem.catalogue) * lost
    price = problem.energy.electricity_price_per_kwh
    bill = (0.0, 0.0, 0.0) if energy is None else (energy.low, energy.central, energy.high)
    return Savings(
        horizon_hours=hours,
        gpu_hours=Range(
            low=min(freed * hours * share, freed * (hours - lost)),
            central=freed * (hours - lost),
            high=freed * hours,
            unit="GPU-h",
        ),
        energy_kwh=energy,
        emissions_kgco2e=None if energy is None else emissions_of(energy, problem.carbon),
        cost=Range(
            low=min(rent * hours * share, rent * hours) - change + bill[0] * price,
            central=rent * hours - change + bill[1] * price,
            high=rent * hours + bill[2] * price,
            unit=problem.energy.currency,
        ),
    )


def _energy(
    demand: JobDemand, job: JobProblem, option: int, problem: PlanningProblem
) -> Range | None:
    if demand.power_q10 is None or demand.power_q50 is None or demand.power_q90 is None:
        return None
    return energy_saved(
        (demand.power_q10, demand.power_q50, demand.power_q90),
        job.options[0],
        job.options[option],
        catalogue=problem.catalogue,
        slot_hours=problem.planning.slot_minutes / 60,
        energy=problem.energy,
    )


def _action(job: JobProblem, option: int) -> Action:
    now, proposed = job.options[0].configuration, job.options[option].configuration
    if proposed.gpu_count == 0:
        return Action.RECLAIM
    if proposed.power_cap_watts is not None:
        return Action.POWER_CAP
    if proposed.mig_profile != now.mig_profile:
        return Action.MIG_SLICE
    return Action.SMALLER_GPU if proposed.gpu_model != now.gpu_model else Action.FEWER_GPUS


def _why(job: JobProblem, option: int, problem: PlanningProblem) -> str:
    demand, proposed = job.demand, job.options[option]
    memory = f"{(demand.memory_mib or 0) / 1024:.1f} GiB"
    if proposed.configuration.gpu_count == 0:
        return (
            f"It held {job.options[0].configuration.describe()} for the last "
            f"{demand.idle_hours:.1f} h with utilization of at most "
            f"{100 * problem.planning.idle_utilization_ratio:g} %."
        )
    peak = 0.0 if demand.demand_q90 is None else float(demand.demand_q90.max())
    if proposed.configuration.power_cap_watts is not None:
        return (
            f"Its forecast leaves room for the slowdown of a cap: at most {peak:.2f} of "
            f"{demand.job.gpu_count} devices' work at q90, while its boards exceed "
            f"{proposed.configuration.power_cap_watts:g} W."
        )
    return (
        f"Over the next {len(problem.slot_starts) * problem.planning.slot_minutes / 60:g} h it is "
        f"forecast to do at most {peak:.2f} of {demand.job.gpu_count} devices' work (q90) with "
        f"{memory} per device; {proposed.configuration.describe()} gives {proposed.service:.2f}."
    )


def _fallbacks(demand: JobDemand, savings: Savings) -> tuple[str, ...]:
    notes = []
    if savings.energy_kwh is None:
        notes.append("energy and emissions unknown: power was never reported")
    if isinstance(demand.forecast, DemandForecast):
        notes += [f"{quantity}: {reason}" for quantity, reason in demand.forecast.missing]
        estimated = demand.forecast.path(Quantity.POWER)
        if estimated is not None and Quantity.POWER in dict(demand.forecast.missing):
            notes += [f"{Quantity.POWER}: {note}" for note in estimated.notes]
    return tuple(notes)


def _evidence(one: _Candidate, plan: Plan, problem: PlanningProblem) -> Evidence:
    demand = one.job.demand
    path = (
        demand.forecast.path(Quantity.EFFECTIVE_GPUS)
        if isinstance(demand.forecast, DemandForecast)
        else None
    )
    losses = dict(path.backtest.losses) if path is not None and path.backtest else {}
    start = demand.window_start
    return Evidence(
        signal=problem.signals.get(demand.job.job_id, "unknown"),
        samples=demand.samples,
        window_start=problem.as_of if start is None else start.to_pydatetime(),
        window_end=problem.as_of,
        completeness_ratio=demand.coverage_ratio,
        utilization_p95_ratio=demand.utilization_p95_ratio,
        memory_max_mib=demand.memory_max_mib,
        power_mean_watts=demand.power_mean_watts,
        forecast_model="none" if path is None else path.model,
        backtest_error=losses.get(path.model) if path is not None else None,
        backtest_baseline=losses.get("seasonal-naive"),
        factors=_factors(one, problem),
        assumed=demand.job.assumed,
        fallbacks=_fallbacks(demand, one.savings),
        plan_gap_ratio=plan.gap_ratio,
    )


def _factors(one: _Candidate, problem: PlanningProblem) -> tuple[tuple[str, str], ...]:
    carbon, energy = problem.carbon, problem.energy
    grid = (
        f"{carbon.gco2e_per_kwh:g} ({carbon.low:g}–{carbon.high:g}) gCO2e/kWh, "
        f"{carbon.name}, {carbon.year}, {carbon.source}, {carbon.licence}"
    )
    factors = [
        (
            "GPU price",
            f"{model.price_per_hour:g} {energy.currency}/h for {model.name} (catalogue default)",
        )
        for name in dict.fromkeys(
            (
                one.job.options[0].configuration.gpu_model,
                one.job.options[one.option].configuration.gpu_model,
            )
        )
        if (model := problem.catalogue.find(name)) is not None
    ]
    if one.savings.energy_kwh is not None:
        factors += [
            ("PUE", f"{energy.pue:g} ± {energy.pue_uncertainty:g}"),
            ("grid carbon", grid),
        ]
    return tuple(factors)


def _recommendation(one: _Candidate, plan: Plan, problem: PlanningProblem) -> Recommendation:
    job = one.job.demand.job
    action = _action(one.job, one.option)
    evidence = _evidence(one, plan, problem)
    return Recommendation(
        plan_id=plan.plan_id,
        created_at=plan.created_at,
        expires_at=plan.created_at + timedelta(hours=problem.planning.expiry_hours),
        action=action,
        job_id=job.job_id,
        job_name=job.name,
        namespace=job.namespace,
        platform=job.platform,
        now=one.job.options[0].configuration,
        proposed=one.job.options[one.option].configuration,
        why=_why(one.job, one.option, problem),
        evidence=evidence,
        savings=one.savings,
        risk=_RISK.get(action, Risk.MEDIUM),
        confidence=_CONFIDENCE.get(evidence.signal, "unknown: the signal was not reported"),
    )
