"""Recommendations, made of a proposal for a job or of advice on the fleet."""

from dataclasses import replace
from datetime import timedelta

from data.records.actions import Action, Risk
from data.records.plans import Configuration, Plan
from data.records.recommendations import LIFETIME, Recommendation, Transition
from planner.costs.transitions import entering
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.evidence import FleetEvidence, confidence_of, evidence_of
from planner.proposals.fleet_advice import FleetAdvice
from planner.proposals.proposal import Proposal
from planner.proposals.savings import ProposalOutcome
from planner.proposals.wording import change_text, loses_a_run, name_of, named_first, why


def recommendation_of_proposal(
    proposal: Proposal, outcome: ProposalOutcome, plan: Plan, problem: PlanningProblem
) -> Recommendation:
    """Return the recommendation of a proposal for a job."""
    job, action = proposal.job.demand.job, proposal.action or Action.FEWER_GPUS
    evidence = evidence_of(proposal, outcome.savings, plan, problem)
    first, last = proposal.first, proposal.last
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
        proposed=proposal.chosen.configuration,
        why=why(proposal, problem),
        evidence=evidence,
        savings=outcome.savings,
        risk=Risk.HIGH if loses_a_run(proposal) else action.spec.risk,
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


def recommendation_of_advice(
    evidence: FleetEvidence, plan: Plan, problem: PlanningProblem, advice: FleetAdvice
) -> Recommendation:
    """Return the recommendation of advice on the fleet."""
    recommendation = Recommendation(
        plan_id=plan.plan_id,
        created_at=plan.created_at,
        expires_at=plan.created_at + LIFETIME,
        action=advice.action,
        job_id="",
        job_name=advice.subject,
        namespace="",
        platform=advice.platform,
        now=Configuration(gpu_model=advice.gpu_model, gpu_count=advice.gpus_now),
        proposed=Configuration(gpu_model=advice.gpu_model, gpu_count=advice.gpus_then),
        why=advice.why,
        evidence=evidence.of(advice.factors),
        savings=advice.savings,
        risk=advice.action.spec.risk,
        confidence="medium: it follows from the plan and the forecasts of all jobs",
        details=((("node", advice.subject),) if advice.action.spec.of_node else ())
        + advice.details,
        change=advice.change,
        starts_at=advice.starts_at,
        ends_at=advice.ends_at,
    )
    return named_first(recommendation, [name_of(entry) for entry in advice.first])
