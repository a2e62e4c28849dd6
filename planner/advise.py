"""Recommendations from a plan, and for every other job the reason why nothing is proposed."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from data.records.actions import FOR_MEMORY, Action
from data.records.forecasts import GroupForecast
from data.records.memory import MemoryFinding
from data.records.plans import IdleGpus, Plan
from data.records.recommendations import Recommendation
from data.records.serving import ServiceOutlook
from data.records.slow_work import SlowWork
from planner.advisers.admission import AdmissionRoom, admitted
from planner.advisers.autoscaler_bounds import bounds_advice, capped_maxima
from planner.advisers.emptied_nodes import empty_nodes, nodes_first
from planner.advisers.idle_gpus import idle_gpus, rest_advice, shared_rest_advice
from planner.advisers.memory_advice import memory_recommendation
from planner.advisers.memory_relief import reliefs
from planner.advisers.mig_layouts import nodes_to_cut, wanted_models
from planner.advisers.service_size import smaller_advice
from planner.advisers.slow_work_advice import slow_work_advice
from planner.advisers.time_limits import advised_limit, limit_text, shorter_limit_reason
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.evidence import FleetEvidence
from planner.proposals.fleet_advice import (
    FleetAdvice,
    SharedPlace,
    missing_boards,
    recommendation_of_advice,
)
from planner.proposals.guardrails import refusal, roomier
from planner.proposals.hysteresis import ProposedBefore, early_peak_reason, margin_of, sticky_change
from planner.proposals.job_advice import recommendation_of_proposal
from planner.proposals.portfolio import Portfolio, portfolio_of
from planner.proposals.proposal import Proposal, proposal_of
from planner.proposals.relief import Relief
from planner.proposals.savings import ProposalOutcome, outcome_of
from planner.proposals.suppressions import Rejections, rejected
from planner.proposals.wording import RESTART_ON_KEPT_NODE, name_of, named_first
from planner.sharing.advice import sharing_advice
from planner.sharing.shared_nodes import move_recommendation


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Recommendations: memory that runs out first, then the largest central saving first.

    `kept` maps other jobs to the reason, `idle` every job to what its GPUs do and why.

    `portfolio` shows how the recommendations add up to what the plan saves.
    """

    recommendations: tuple[Recommendation, ...]
    kept: Mapping[str, str]
    portfolio: Portfolio
    idle: Mapping[str, IdleGpus]


def advise(
    plan: Plan,
    problem: PlanningProblem,
    *,
    groups: Sequence[GroupForecast] = (),
    past_runs: Mapping[str, Sequence[float]] | None = None,
    memory: Sequence[MemoryFinding] = (),
    services: Sequence[ServiceOutlook] = (),
    slow: Sequence[SlowWork] = (),
    resting: Mapping[str, str] | None = None,
    rejections: Rejections | None = None,
    proposed_before: ProposedBefore | None = None,
    last: Plan | None = None,
) -> Advice:
    """Return the recommendations of a plan of this problem.

    `groups` are forecasts of whole GPU models, `past_runs` maps a job to the lengths in s of ended
    runs of the same job. `memory` is what is foreseen of the jobs' memory: a job that will run out
    gets the first of the free boards, and nothing else is proposed for it. `services` are how
    inference services stand: advice on their autoscalers' bounds and on smaller GPUs follows.
    `slow` is why jobs are slow: advice on their programs follows. `resting` maps jobs, and
    what of the fleet advice is about, to the reason why nothing is proposed for it now.
    `rejections` are rejected recommendations; what keeps a job from running out of memory comes up
    again all the same. `proposed_before` is what the plan before proposed: it
    stays until it misses a limit by `ENTRY_MARGIN_RATIO`, and all else must be better than
    its limits, and than what was proposed, by as much. None: there is no plan before. `last` is
    that plan: of a peak that is hours away it must know too.
    """
    resting, no = resting or {}, rejections or {}
    runs = {job: lengths for job, lengths in (past_runs or {}).items() if job not in resting}
    memory = [finding for finding in memory if finding.job_id not in resting]
    proposals = [
        proposal_of(job, job_plan, problem.terms)
        for job, job_plan in zip(problem.jobs, plan.jobs, strict=True)
    ]
    proposals = [
        sticky_change(proposal, proposed_before, problem.terms, runs) for proposal in proposals
    ]
    proposals = [
        roomier(proposal, problem.terms, margin_of(proposal, proposed_before, problem.terms))
        for proposal in proposals
    ]
    outcomes = [outcome_of(proposal, problem.terms) for proposal in proposals]
    room = AdmissionRoom(problem)
    relieved = reliefs(memory, proposals, problem, room)
    out = frozenset(relief.job_id for relief in relieved)
    margins = [margin_of(proposal, proposed_before, problem.terms) for proposal in proposals]
    early = {
        proposal.job.demand.job.job_id: reason
        for proposal in proposals
        if (reason := early_peak_reason(proposal, problem, proposed_before, last))
    }
    waits = {**early, **resting}
    reasons, picks = _select(proposals, outcomes, problem, runs, room, out, waits, no, margins)
    findings = [memory_recommendation(relief, plan, problem) for relief in relieved]
    findings += [
        recommendation_of_proposal(proposals[entry], outcomes[entry], plan, problem)
        for entry in picks
    ]
    findings = [
        named_first(row, [name_of(change) for change in room.first.get(row.job_id, ())])
        for row in findings
    ]
    findings += _not_rejected(_shorter_limits(proposals, reasons, plan, problem, runs), no)
    by_job = {proposal.job.demand.job.job_id: proposal for proposal in proposals}
    # A job gets one advice at most: each kind sees only the jobs that the kinds before it left.
    for advice_on in (
        partial(bounds_advice, services),
        partial(smaller_advice, services),
        partial(slow_work_advice, slow),
        partial(rest_advice, services),
        shared_rest_advice,
    ):
        rows = advice_on(by_job, reasons.keys() - resting, plan, problem)
        advised = {row.job_id: row for row in _not_rejected(rows, no)}
        reasons = {job: why for job, why in reasons.items() if job not in advised}
        findings += advised.values()
    held_back = capped_maxima(services, by_job, reasons.keys() - resting, problem)
    reasons |= {job: f"{reasons[job]}; {why}" for job, why in held_back}
    changes = [relief.proposal for relief in relieved if relief.outcome]
    changes += [proposals[number] for number in picks]
    short = [
        advice
        for advice in missing_boards(problem, groups, changes)
        if advice.subject not in resting
    ]
    as_row = partial(recommendation_of_advice, FleetEvidence(plan, problem), plan, problem)
    findings += _not_rejected((as_row(advice) for advice in short), no)
    empty = list(empty_nodes(plan, problem, changes))
    scarce = wanted_models(problem, changes, {advice.gpu_model for advice in short})
    cuts = nodes_to_cut(
        problem,
        reasons.keys() - resting.keys(),
        unneeded={node.subject for node in empty},
        wanted=scarce,
        past_runs=runs,
        rejections=no,
    )
    cut = list(_not_rejected((as_row(node) for node in cuts if node.subject not in resting), no))
    findings += cut
    unchanged = {name for name, proposal in by_job.items() if proposal.action is None}
    in_slices = {job for node in cuts for job in node.frees}
    sharing = sharing_advice(
        problem, (unchanged & reasons.keys()) - resting.keys() - in_slices, last, scarce
    )
    shares = [advice for advice in sharing.advice if advice.subject not in resting]
    shared = list(_not_rejected(map(as_row, shares), no))
    findings += shared
    other_nodes = {row.target for row in cut} | resting.keys()
    nodes = (advice for advice in sharing.nodes if advice.subject not in other_nodes)
    offers = list(_not_rejected(map(as_row, nodes), no))
    findings += offers
    stays = other_nodes | {row.target for row in offers} | {move.node for move in sharing.moves}
    moves = (
        move_recommendation(move, by_job[move.job_id], plan, problem) for move in sharing.moves
    )
    share_rows = {row.job_id: row for row in _not_rejected(moves, no)}
    findings += share_rows.values()
    pools = {row.target for row in shared}
    places = {
        job: place
        for job, place in sharing.of(pools).items()
        if job in share_rows or not place.is_ready
    }
    reasons |= {job: place.why for job, place in places.items()}
    reasons = {job: why for job, why in reasons.items() if job not in share_rows}
    off = [
        (node, as_row(node))
        for node in empty
        if node.subject not in stays and not _needed(node, relieved, short)
    ]
    closed_rows = list(_not_rejected((row for _node, row in off), no))
    closing = [node for node, row in off if row in closed_rows]
    first = nodes_first(closing, changes, problem)
    findings = [
        named_first(row, first.get(row.job_id, ()), RESTART_ON_KEPT_NODE) for row in findings
    ]
    findings += closed_rows
    findings = [row for row in findings if not _has_begun(row, problem)]
    names = {proposals[entry].job.demand.job.job_id for entry in picks}
    rests = {row.job_id for row in findings if row.action is Action.SCALE_TO_ZERO}
    idle = {
        proposal.job.demand.job.job_id: _idle_of(
            proposal, problem, names, reasons, resting, places, rests
        )
        for proposal in proposals
    }
    return Advice(
        idle=idle,
        recommendations=tuple(sorted(findings, key=_by_saving)),
        kept=reasons | dict(problem.ended),
        portfolio=portfolio_of(
            proposals, names, plan, problem.terms, relieved=relieved, rows=findings
        ),
    )


def _has_begun(recommendation: Recommendation, problem: PlanningProblem) -> bool:
    """Return whether it was to begin later than the readings, at a time that has passed since."""
    starts = recommendation.starts_at
    return starts is not None and problem.slot_starts[0] < starts <= recommendation.created_at


def _not_rejected(
    rows: Iterable[Recommendation], rejections: Rejections
) -> Iterator[Recommendation]:
    for recommendation in rows:
        if not rejected(
            rejections, recommendation.target, recommendation.action, recommendation.savings
        ):
            yield recommendation


def _needed(empty: FleetAdvice, relieved: Sequence[Relief], short: Sequence[FleetAdvice]) -> bool:
    """Return whether a node stays on for memory, or for jobs yet to come: the plan knew neither."""
    relief = (entry.proposal.chosen.configuration.gpu_model for entry in relieved if entry.outcome)
    return empty.gpu_model in relief or any(
        advice.gpu_model == empty.gpu_model
        and (not empty.ends_at or not advice.starts_at or empty.ends_at > advice.starts_at)
        for advice in short
    )


def _idle_of(
    proposal: Proposal,
    problem: PlanningProblem,
    recommended: Collection[str],
    reasons: Mapping[str, str],
    resting: Mapping[str, str],
    places: Mapping[str, SharedPlace],
    rests: Collection[str],
) -> IdleGpus:
    job_id = proposal.job.demand.job.job_id
    return idle_gpus(
        proposal,
        problem.terms,
        recommended=job_id in recommended,
        kept=reasons.get(job_id, ""),
        resting=job_id in resting,
        place=places.get(job_id),
        starts_on_demand=job_id in rests,
    )


def _by_saving(recommendation: Recommendation) -> tuple[bool, float, str]:
    saved = recommendation.savings.money
    return recommendation.action not in FOR_MEMORY, -saved, recommendation.target


def _select(
    proposals: Sequence[Proposal],
    outcomes: Sequence[ProposalOutcome],
    problem: PlanningProblem,
    past_runs: Mapping[str, Sequence[float]],
    room: AdmissionRoom,
    relieved: frozenset[str],
    resting: Mapping[str, str],
    rejections: Rejections,
    margins: Sequence[float],
) -> tuple[dict[str, str], list[int]]:
    """Return the reason for every job that is kept, and the numbers of the proposals to recommend.

    Jobs that are relieved are neither.
    """
    terms, reasons, worthy = problem.terms, {}, []
    for number, (entry, outcome) in enumerate(zip(proposals, outcomes, strict=True)):
        job_id = entry.job.demand.job.job_id
        if job_id in relieved:
            continue
        reason = (
            resting.get(job_id)
            or refusal(
                entry, outcome, terms, past_runs.get(job_id, ()), margin_ratio=margins[number]
            )
            or rejected(rejections, job_id, entry.action, outcome.savings)
        )
        if reason:
            reasons[job_id] = reason
        else:
            worthy.append(number)
    # What is proposed already keeps its room against what saves as much, but for noise.
    worthy.sort(key=lambda number: -(1.0 - margins[number]) * outcomes[number].savings.money)
    positions, refusals = admitted([proposals[number] for number in worthy], room)
    for position, reason in sorted(refusals.items()):
        reasons[proposals[worthy[position]].job.demand.job.job_id] = reason
    return reasons, [worthy[position] for position in positions]


def _shorter_limits(
    proposals: Sequence[Proposal],
    reasons: dict[str, str],
    plan: Plan,
    problem: PlanningProblem,
    past_runs: Mapping[str, Sequence[float]],
) -> list[Recommendation]:
    """Advise a shorter limit for kept jobs; a job has one recommendation at most."""
    shorter = []
    for proposal in proposals:
        job = proposal.job.demand.job
        runs = past_runs.get(job.job_id, ())
        advised = advised_limit(job, runs)
        if (
            advised is None
            or reasons.get(job.job_id) is None
            or proposal.job.demand.standing.protected
        ):
            continue
        stay = replace(proposal, option=0, proposed=(0,) * len(proposal.planned), action=None)
        outcome = outcome_of(stay, problem.terms)
        savings = replace(outcome.savings, gpu_hours=None, cost=None)
        limit = recommendation_of_proposal(stay, outcome, plan, problem)
        shorter.append(
            replace(
                limit,
                action=Action.TIME_LIMIT,
                why=shorter_limit_reason(job, runs, advised),
                savings=savings,
                risk=Action.TIME_LIMIT.spec.risk,
                confidence=f"medium: {len(runs)} ended runs of the same job",
                details=(("time_limit_seconds", f"{advised:.0f}"),),
                change=f"time limit of {limit_text(advised)}",
                transition=None,
                delay_hours=None,
            )
        )
        del reasons[job.job_id]
    return shorter
