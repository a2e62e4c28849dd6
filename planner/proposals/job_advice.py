"""Recommendations: of a proposal for a job, or of advice on how one is run."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from data.records.actions import Action, Risk
from data.records.plans import Configuration, Plan
from data.records.recommendations import LIFETIME, Range, Recommendation, Savings, Transition
from planner.costs.transitions import entering
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.evidence import confidence_of, evidence_of
from planner.proposals.proposal import Proposal
from planner.proposals.savings import ProposalOutcome
from planner.proposals.wording import change_text, is_unsaved_run_lost, proposal_reason


def _of_job(proposal: Proposal, plan: Plan, **fields: Any) -> Recommendation:
    job = proposal.job.demand.job
    return Recommendation(
        plan_id=plan.plan_id,
        created_at=plan.created_at,
        expires_at=plan.created_at + LIFETIME,
        job_id=job.job_id,
        job_name=job.name,
        namespace=job.namespace,
        platform=job.platform,
        now=proposal.present.configuration,
        **fields,
    )


def recommendation_of_proposal(
    proposal: Proposal, outcome: ProposalOutcome, plan: Plan, problem: PlanningProblem
) -> Recommendation:
    """Return the recommendation of a proposal for a job."""
    action = proposal.action or Action.FEWER_GPUS
    evidence = evidence_of(proposal, outcome.savings, plan, problem)
    first, last = proposal.first, proposal.last
    return _of_job(
        proposal,
        plan,
        action=action,
        proposed=proposal.chosen.configuration,
        why=proposal_reason(proposal, problem),
        evidence=evidence,
        savings=outcome.savings,
        risk=Risk.HIGH if is_unsaved_run_lost(proposal) else action.spec.risk,
        confidence=confidence_of(evidence),
        details=_details(proposal, problem),
        change=change_text(proposal, problem),
        transition=_with_queue(proposal, outcome.transition),
        delay_hours=outcome.delay_hours,
        starts_at=problem.slot_starts[first] if first else None,
        ends_at=None if last is None else problem.slot_starts[last + 1],
    )


def _with_queue(proposal: Proposal, transition: Transition | None) -> Transition | None:
    """Name the forecast of the queue where the job would be started again."""
    wait = proposal.job.demand.queue_wait
    starts_again = entering(
        proposal.job.demand.standing.elasticity, proposal.present, proposal.chosen
    )
    if transition is None or wait is None or not starts_again:
        return transition
    return replace(transition, queue=wait.describe())


def _details(proposal: Proposal, problem: PlanningProblem) -> tuple[tuple[str, str], ...]:
    """Return for a pause when the job may begin again."""
    if not proposal.spec.pauses or proposal.first is None:
        return ()
    slot = timedelta(minutes=problem.planning.slot_minutes)
    end = problem.slot_starts[-1] + slot
    if proposal.last is not None:
        end = problem.slot_starts[proposal.last + 1]
    return (("begin_at", end.isoformat()),)


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
    keeps = replace(proposal, option=0, proposed=(0,) * len(proposal.planned), action=None)
    evidence = evidence_of(keeps, savings, plan, problem)
    return _of_job(
        proposal,
        plan,
        action=action,
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
