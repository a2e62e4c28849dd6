"""What becomes of the GPUs that jobs hold and do not use: freed, needed at peaks, or kept and why.

    idle = needed at peaks + freed by recommendations + stays

holds for each job and, summed, for the fleet. Units are GPUs (board equivalents for slices),
averaged over the slots of the horizon.
"""

from dataclasses import replace

import numpy as np

from data.records.plans import IdleCause, IdleGpus
from planner.costs.cost import needed_service
from planner.costs.terms import Terms
from planner.jobs.job_end import waits_for_start
from planner.proposals.guardrails import not_reclaimed_yet, why_none_smaller
from planner.proposals.proposal import Proposal

_NEGLIGIBLE = 1e-9


def idle_gpus(
    proposal: Proposal, terms: Terms, *, recommended: bool, kept: str, resting: bool
) -> IdleGpus:
    """Return what a job's GPUs do over the horizon, and why those that stay idle stay.

    `kept` is the reason why nothing is proposed, '' when something is.
    """
    job, present = proposal.job, proposal.present
    demand, there = job.demand, job.demand.remaining.central
    if waits_for_start(demand.job):
        return IdleGpus(held=0.0, cause=IdleCause.WAITS, reason=kept)
    held = present.boards * float(there.mean())
    if demand.demand_q50 is None or held <= 0:
        unknown = IdleCause.UNKNOWN if held > 0 else IdleCause.NONE
        return IdleGpus(held=held, cause=unknown, reason=kept)
    share = present.boards / present.service
    median = np.clip(demand.demand_q50, 0, present.service)
    work = share * float((there * median).mean())
    freed = 0.0
    if recommended:
        options = [job.options[number] for number in proposal.proposed]
        model = present.configuration.gpu_model
        then = [option.boards * (option.configuration.gpu_model == model) for option in options]
        freed = max(0.0, float((there * (present.boards - np.array(then))).mean()))
    need = min(present.service, float(needed_service(demand, present, terms.planning).max()))
    idle = held - work
    needed = share * need * float(there.mean()) - work
    peaks = min(idle - min(freed, idle), max(0.0, needed))
    found = IdleGpus(held=held, work=work, peaks=peaks, freed=freed)
    if found.stays <= _NEGLIGIBLE:
        return found
    cause, reason = _why_it_stays(
        proposal, terms, recommended=recommended, kept=kept, resting=resting
    )
    return replace(found, cause=cause, reason=reason)


def _why_it_stays(
    proposal: Proposal, terms: Terms, *, recommended: bool, kept: str, resting: bool
) -> tuple[IdleCause, str]:
    if recommended or not kept:
        then = proposal.chosen
        less = then.boards < proposal.present.boards
        cause = IdleCause.REMAINDER if less else IdleCause.OTHER_CHANGE
        return cause, f"{then.configuration.describe()} is proposed"
    if resting:
        return IdleCause.RESTING, kept
    if proposal.job.keep_reason:
        return IdleCause.KEPT, kept
    if proposal.action is not None or not_reclaimed_yet(proposal, terms):
        return IdleCause.HELD_BACK, kept
    why = why_none_smaller(proposal, terms)
    if not why:
        return IdleCause.COSTLY, kept
    rigid = not proposal.job.demand.standing.may_restart
    return (IdleCause.RIGID if rigid else IdleCause.SMALLEST), why
