"""One piece of advice on how a job is run: a recommendation that no plan makes."""

from collections.abc import Sequence
from dataclasses import replace

from data.records.actions import Action
from data.records.plans import Configuration, Plan
from data.records.recommendations import LIFETIME, Range, Recommendation, Savings
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.evidence import evidence_of
from planner.proposals.proposal import Proposal


def job_advice(
    action: Action,
    proposal: Proposal,
    plan: Plan,
    problem: PlanningProblem,
    *,
    change: str,
    why: str,
    savings: Savings,
    confidence: str,
    factors: Sequence[tuple[str, str]],
    signal: str = "requests of its engines",
    proposed: Configuration | None = None,
    details: tuple[tuple[str, str], ...] = (),
) -> Recommendation:
    """Return the advice, its `factors` in front of the evidence of the job that is kept."""
    job = proposal.job.demand.job
    keeps = replace(proposal, option=0, proposed=(0,) * len(proposal.planned), action=None)
    evidence = evidence_of(keeps, savings, plan, problem)
    return Recommendation(
        plan_id=plan.plan_id,
        created_at=plan.created_at,
        expires_at=plan.created_at + LIFETIME,
        action=action,
        job_id=job.job_id,
        job_name=job.name,
        namespace=job.namespace,
        platform=job.platform,
        now=proposal.present.configuration,
        proposed=proposed or proposal.present.configuration,
        why=why,
        evidence=replace(evidence, signal=signal, factors=(*factors, *evidence.factors)),
        savings=savings,
        risk=action.spec.risk,
        confidence=confidence,
        details=details,
        change=change,
    )


def savings_of(
    problem: PlanningProblem, *, gpu_hours: Range | None = None, cost: Range | None = None
) -> Savings:
    """Return savings over the plan's horizon; boards that are free stay powered."""
    return Savings(
        horizon_hours=problem.terms.horizon_hours,
        gpu_hours=gpu_hours,
        energy_kwh=None,
        emissions_kgco2e=None,
        cost=cost,
    )


def per_day_text(cost: Range, currency: str) -> str:
    """Return money of a day with its range in words."""
    return f"{cost.central:.2f} ({cost.low:.2f}–{cost.high:.2f}) {currency} a day"
