"""A relief as a recommendation: the memory that runs out, the proposed change, its cost.

An avoided out-of-memory is worth the work since the last checkpoint. Nobody tells when a job saved
one, so that worth is named as unknown and never counted; the dearer devices are, as a loss.
"""

from dataclasses import replace
from datetime import datetime

from data.base.errors import sentence
from data.base.units import gib
from data.records.actions import Action
from data.records.forecasts import DemandForecast, QuantilePath, Quantity
from data.records.memory import MemoryFinding, MemoryRemedy
from data.records.plans import Plan
from data.records.recommendations import LIFETIME, Evidence, Recommendation, Savings
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.evidence import evidence_of
from planner.proposals.relief import Relief

_PROGRAM_REMEDIES = (MemoryRemedy.SHARD, MemoryRemedy.RECOMPUTE, MemoryRemedy.SMALLER_MICRO_BATCH)
_UNKNOWN_WORTH = "unknown: nobody tells when it last saved a checkpoint; not counted as saved"
_STRONG_CHANCE = 0.5


def memory_recommendation(relief: Relief, plan: Plan, problem: PlanningProblem) -> Recommendation:
    """Return the recommendation of a relief.

    It expires when the memory is likely to be gone, where that is before a plan's own expiry.
    """
    job, proposal = relief.proposal.job.demand.job, relief.proposal
    savings = _savings(relief, problem)
    advice = relief.outcome is None
    return Recommendation(
        plan_id=plan.plan_id,
        created_at=plan.created_at,
        expires_at=_expiry(relief.finding, plan.created_at, problem),
        action=relief.action,
        job_id=job.job_id,
        job_name=job.name,
        namespace=job.namespace,
        platform=job.platform,
        now=proposal.present.configuration,
        proposed=proposal.chosen.configuration,
        why=f"{sentence(relief.finding.why)} {_REASONS[relief.action](relief)}",
        evidence=_evidence(relief, savings, plan, problem),
        savings=savings,
        risk=relief.action.spec.risk,
        confidence=_confidence(relief),
        details=() if advice else (("memory_limit_mib", f"{relief.limit_mib:.0f}"),),
        change=f"in its own program: {', or '.join(_in_program(relief.finding))}" if advice else "",
        transition=None if relief.outcome is None else relief.outcome.transition,
        delay_hours=None if relief.outcome is None else relief.outcome.delay_hours,
    )


def _expiry(finding: MemoryFinding, created_at: datetime, problem: PlanningProblem) -> datetime:
    usual = created_at + LIFETIME
    if finding.at is None or finding.at <= created_at:
        return usual
    return min(usual, finding.at)


def _savings(relief: Relief, problem: PlanningProblem) -> Savings:
    """Return the cost of the change, as negative savings; that of advice is unknown."""
    if relief.outcome is None:
        hours = relief.proposal.job.demand.remaining.hours(problem.terms.slot_hours)
        return Savings(
            horizon_hours=hours, gpu_hours=None, energy_kwh=None, emissions_kgco2e=None, cost=None
        )
    return relief.outcome.savings


def _larger(relief: Relief) -> str:
    return (
        f"{relief.proposal.chosen.configuration.describe()} offers a program "
        f"{gib(relief.limit_mib)} GiB, and {_needed(relief)}. "
        "It restarts there from its last checkpoint, as it would after running out, but before."
    )


def _needed(relief: Relief) -> str:
    needed = gib(relief.finding.needed_mib)
    if relief.cut_off:
        return f"at least {needed} are needed (the forecast ends at the device's own memory)"
    return f"{needed} are needed with 95 %"


def _spread(relief: Relief) -> str:
    share = (
        relief.finding.needed_mib
        * relief.proposal.present.configuration.gpu_count
        / relief.proposal.chosen.configuration.gpu_count
    )
    return (
        f"No larger device is free. On {relief.proposal.chosen.configuration.describe()} it needs "
        f"{gib(share)} GiB of each if it shares its memory out evenly; what every device holds "
        "whole, such as weights that are not sharded, does not fall. Memory is read after the "
        "change: where it fell short, roll back."
    )


def _by_hand(relief: Relief) -> str:
    return (
        f"Nothing that can be changed from outside helps: {relief.why_not}. What helps is in the "
        "job's own program, so this can only be done by hand."
    )


_REASONS = {
    Action.LARGER_GPU: _larger,
    Action.SPREAD: _spread,
    Action.LESS_MEMORY: _by_hand,
}


def _in_program(finding: MemoryFinding) -> list[str]:
    """Return the remedies that a person makes in the job's own program, the mildest first."""
    texts = [entry.text for entry in finding.advice if entry.remedy in _PROGRAM_REMEDIES]
    return texts or [entry.text for entry in finding.advice]


def _confidence(relief: Relief) -> str:
    """Return the confidence in the forecast and in the help of the change."""
    chance = relief.finding.probability or 0.0
    text = f"it runs out with a chance of at least {100 * chance:.0f} % by its forecast"
    if relief.action is Action.SPREAD:
        return f"weak: {text}; that its memory is shared out evenly is not known"
    return f"{'strong' if chance >= _STRONG_CHANCE else 'medium'}: {text}"


def _evidence(relief: Relief, savings: Savings, plan: Plan, problem: PlanningProblem) -> Evidence:
    """Return the evidence of a proposal with that of its memory in front."""
    evidence = evidence_of(relief.proposal, savings, plan, problem)
    path = _memory_path(relief)
    losses = dict(path.backtest.losses) if path is not None and path.backtest else {}
    return replace(
        evidence,
        signal="memory used",
        forecast_model="none" if path is None else path.model,
        backtest_error=losses.get(path.model) if path is not None else None,
        backtest_baseline=losses.get("seasonal-naive"),
        factors=(*_memory_factors(relief), *evidence.factors),
    )


def _memory_path(relief: Relief) -> QuantilePath | None:
    forecast = relief.proposal.job.demand.forecast
    return forecast.path(Quantity.MEMORY) if isinstance(forecast, DemandForecast) else None


def _memory_factors(relief: Relief) -> tuple[tuple[str, str], ...]:
    finding = relief.finding
    chance = f"at least {100 * (finding.probability or 0.0):.0f} %"
    when = "" if finding.at is None else f", first likely at {finding.at:%Y-%m-%d %H:%M} UTC"
    return (
        (
            "memory per device",
            (
                f"{gib(finding.now_mib)} GiB now, {gib(finding.largest_mib)} at most so far, "
                f"{gib(finding.limit_mib)} on the device"
            ),
        ),
        (
            "memory forecast",
            (
                f"{gib(finding.peak_q50_mib)} GiB expected at most, "
                f"{gib(finding.peak_q95_mib)} with 95 %, over {finding.horizon_hours:g} h; "
                + "; ".join(finding.evidence)
            ),
        ),
        ("chance to run out", chance + when),
        ("an avoided out-of-memory", _UNKNOWN_WORTH),
        ("in its own program", "; ".join(_in_program(finding))),
    )
