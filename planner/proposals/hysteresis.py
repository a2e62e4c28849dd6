"""A change that was proposed is kept up, while noise moves the plan between changes much alike.

The plans of two cycles choose another power cap, or two boards where there were three, for a few
percent of the forecast. What the plan before proposed stays proposed while the plan still changes
the job, while it passes the limits less their margin itself, and while the plan's own choice is
refused or is not better by as much.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from data.records.actions import ACTIONS, NOT_FOR_SAVING, Action
from data.records.plans import Configuration, Plan
from planner.costs.terms import Terms
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.guardrails import refusal
from planner.proposals.proposal import STEADY_SHARE, Proposal, steady_proposal
from planner.proposals.savings import outcome_of

ProposedBefore = Mapping[tuple[str, Action], Configuration]
"""What changes lead to, by target and kind."""
_STICKY_ACTIONS = tuple(
    action
    for action, spec in ACTIONS.items()
    if (spec.resizes or spec.caps_power or spec.takes_all) and action not in NOT_FOR_SAVING
)
"""Changes of one job for good, to save."""
ENTRY_MARGIN_RATIO = 0.1
"""By it a change keeps its limits to be proposed, or misses them to be withdrawn."""
_NEAR_PEAK = timedelta(hours=2)
"""A peak that comes before it is worth a proposal at once."""


def margin_of(proposal: Proposal, before: ProposedBefore | None, terms: Terms) -> float:
    """Return by which share a proposal must be better than its limits; below 0: may be worse.

    What is proposed already is the same kind, and of a kind that is kept up the same change.
    """
    if before is None or proposal.action is None:
        return 0.0
    margin = ENTRY_MARGIN_RATIO
    led_to = before.get((proposal.job.demand.job.job_id, proposal.action))
    same = led_to is not None and (
        proposal.action not in _STICKY_ACTIONS or led_to == proposal.chosen.configuration
    )
    return -margin if same else margin


def sticky_change(
    proposal: Proposal,
    before: ProposedBefore | None,
    terms: Terms,
    past_runs: Mapping[str, Sequence[float]],
) -> Proposal:
    """Return the change that was proposed before where it is kept up, else the plan's."""
    earlier = _earlier(proposal, before or {})
    if earlier is None or earlier.option == proposal.option:
        return proposal
    runs = past_runs.get(proposal.job.demand.job.job_id, ())
    margin = ENTRY_MARGIN_RATIO
    worth, other = _worth(earlier, terms, runs, -margin), _worth(proposal, terms, runs, margin)
    if worth is None:
        return proposal
    return earlier if other is None or other <= (1.0 + margin) * worth else proposal


def early_peak_reason(
    proposal: Proposal, problem: PlanningProblem, before: ProposedBefore | None, last: Plan | None
) -> str:
    """Return the reason not to propose more GPUs for a peak yet, '' for none.

    A peak that is hours away is proposed once two plans in a row foresee it: waiting for the second
    costs nothing, and of what one plan alone foresees the next mostly knows nothing.
    """
    job_id, first = proposal.job.demand.job.job_id, proposal.first
    if proposal.action is None or not proposal.action.spec.serves or not first or last is None:
        return ""
    if (job_id, proposal.action) in (before or {}):
        return ""
    if problem.slot_starts[first] - problem.slot_starts[0] < _NEAR_PEAK:
        return ""
    planned = next((job for job in last.jobs if job.job_id == job_id), None)
    if planned and any(step.gpu_count > planned.now.gpu_count for step in planned.steps):
        return ""
    return (
        f"the plan before foresaw no peak at {problem.slot_starts[first]:%Y-%m-%d %H:%M} UTC: more "
        "GPUs are proposed when the next one does"
    )


def _earlier(proposal: Proposal, before: ProposedBefore) -> Proposal | None:
    """Return the earlier proposal for the job, None where the plan changes it no more."""
    job_id = proposal.job.demand.job.job_id
    if proposal.action not in _STICKY_ACTIONS or proposal.share < STEADY_SHARE:
        return None
    options = [option.configuration for option in proposal.job.options]
    for action in _STICKY_ACTIONS:
        led_to = before.get((job_id, action))
        if led_to is not None and led_to in options[1:]:
            earlier = steady_proposal(
                proposal.job, proposal.planned, options.index(led_to), proposal.share
            )
            return earlier if earlier.action is action else None
    return None


def _worth(
    proposal: Proposal, terms: Terms, past_runs: Sequence[float], margin: float
) -> float | None:
    """Return the plan's gain by it, in money, None where it is refused at this margin."""
    outcome = outcome_of(proposal, terms)
    if refusal(proposal, outcome, terms, past_runs, margin_ratio=margin):
        return None
    return outcome.savings.money + outcome.shortfall_saved
