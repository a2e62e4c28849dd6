"""Fate of the GPUs that jobs hold and do not use: freed, needed at peaks, or kept and why.

    idle = freed by recommendations + after a change by hand + needed at peaks + stays

holds for each job and, summed, for the fleet. Units are GPUs (board equivalents for slices),
averaged over the slots of the horizon. A service that rests, and whose work is likely to return, is
not stopped: advice is that it be started on demand. Idle holders of one board stop together.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from data.base.errors import sentence
from data.facts.cluster_names import name_in_cluster
from data.facts.jobs import Job
from data.records.actions import Action
from data.records.feasible_changes import SCALES_TO_ZERO, configuration_refusal, runs_in_slurm
from data.records.plans import IdleCause, IdleGpus, Plan
from data.records.recommendations import Range, Recommendation
from data.records.serving import ServiceOutlook
from data.settings.all_settings import PlanningSettings
from planner.costs.cost import needed_service
from planner.costs.terms import Terms
from planner.jobs.elasticity import Elasticity
from planner.jobs.job_end import waits_for_start
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.fleet_advice import SharedPlace
from planner.proposals.guardrails import no_smaller_reason, reclaim_refusal
from planner.proposals.job_advice import job_advice, savings_of
from planner.proposals.proposal import Proposal

_NEGLIGIBLE = 1e-9


def idle_gpus(
    proposal: Proposal,
    terms: Terms,
    *,
    recommended: bool,
    kept: str,
    resting: bool,
    place: SharedPlace | None = None,
    starts_on_demand: bool = False,
) -> IdleGpus:
    """Return what a job's GPUs do over the horizon, and why those that stay idle stay.

    `kept` is the reason why nothing is proposed, '' when something is. `place` is where advice on
    sharing would have the job, None where none speaks of it.
    """
    job, present = proposal.job, proposal.present
    demand, there = job.demand, job.demand.remaining.central
    if waits_for_start(demand.job):
        return IdleGpus(held=0.0, cause=IdleCause.WAITS, reason=kept)
    allocated = present.boards * float(there.mean())
    if demand.demand_q50 is None or allocated <= 0:
        unknown = IdleCause.UNKNOWN if allocated > 0 else IdleCause.NONE
        return IdleGpus(held=allocated, cause=unknown, reason=kept)
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
    idle = allocated - work
    needed = share * need * float(there.mean()) - work
    peaks = min(idle - min(freed, idle), max(0.0, needed))
    partners = () if place is None else place.partners
    split = IdleGpus(held=allocated, work=work, peaks=peaks, freed=freed, partners=partners)
    if place is not None and place.frees:
        # Its peaks are met on the board that it shares.
        if place.is_ready:
            return replace(split, peaks=0.0, freed=idle)
        return replace(split, peaks=0.0, after=idle, change=Action.CO_LOCATE.spec.title)
    if starts_on_demand:
        split = replace(split, after=split.stays, change=Action.SCALE_TO_ZERO.spec.title)
    if split.stays <= _NEGLIGIBLE:
        return split
    if place is not None:
        cause = IdleCause.HOST if partners else IdleCause.SMALLEST
        return replace(split, cause=cause, reason=place.why)
    cause, reason = _why_it_stays(
        proposal, terms, recommended=recommended, kept=kept, resting=resting
    )
    return replace(split, cause=cause, reason=reason)


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
    if proposal.action is not None or reclaim_refusal(proposal, terms):
        return IdleCause.HELD_BACK, kept
    why = no_smaller_reason(proposal, terms)
    if not why:
        return IdleCause.COSTLY, kept
    rigid = not proposal.job.demand.standing.may_restart
    return (IdleCause.RIGID if rigid else IdleCause.SMALLEST), why


def rest_advice(
    services: Sequence[ServiceOutlook],
    proposals: Mapping[str, Proposal],
    unchanged: Collection[str],
    plan: Plan,
    problem: PlanningProblem,
) -> Iterator[Recommendation]:
    """Yield for each service that rests, and is not stopped for good, that it start on demand."""
    starts = {service.job_id: service.cold_start for service in services}
    for job_id in unchanged:
        proposal = proposals.get(job_id)
        if proposal is None or not _may_scale_to_zero(proposal, problem.terms):
            continue
        demand = proposal.job.demand
        cold, horizon = starts.get(job_id), problem.terms.horizon_hours
        takes = "not known: no start of it was seen"
        if cold is not None:
            takes = f"{cold.seconds / 60:.2g} min ({cold.source})"
        back, off = demand.work_return.chance, _hours_off(proposal, problem.terms)
        yield _advice_at_rest(
            proposal,
            plan,
            problem,
            change="no replica while nothing asks for it",
            why=(
                f"{sentence(reclaim_refusal(proposal, problem.terms))} It need not be stopped "
                "for good: KEDA, Knative or a culler of notebooks stops its last pod at rest and "
                f"starts it when it is asked. Whoever asks first waits for it: {takes}. {off}"
                f"The chance that its work returns within {horizon:g} h is {100 * back:.0f} %; "
                "of that nothing is counted as saved."
            ),
            factors=(("cold start", takes),),
        )


def shared_rest_advice(
    proposals: Mapping[str, Proposal],
    unchanged: Collection[str],
    plan: Plan,
    problem: PlanningProblem,
) -> Iterator[Recommendation]:
    """Yield for each job on shared boards where every holder is idle that all stop together."""
    others = {
        job_id: names
        for job_id in unchanged
        if (proposal := proposals.get(job_id))
        and (names := _idle_beside(proposal, problem.planning))
    }
    # Who shares with a job at work stays, and so does everyone on a board with it.
    while stay := [job_id for job_id, names in others.items() if not others.keys() >= {*names}]:
        others = {job_id: names for job_id, names in others.items() if job_id not in stay}
    for job_id, names in others.items():
        proposal, partners = proposals[job_id], ", ".join(names)
        stops = [_stop_of(proposals[name].job.demand.job) for name in (job_id, *names)]
        yield _advice_at_rest(
            proposal,
            plan,
            problem,
            change=f"no GPU while nothing asks for it or for {partners}, which share its boards",
            why=(
                f"Its boards have been idle for {proposal.job.demand.seen_idle_hours:.1f} h, and "
                f"with it {partners}: {proposal.job.demand.work_return.describe()}. They are free "
                "once all of these are stopped; one that stops alone frees nothing. When their "
                f"owners agree: {'; '.join(stops)}."
            ),
        )


def _idle_beside(proposal: Proposal, planning: PlanningSettings) -> tuple[str, ...]:
    """Return for whom alone an idle job is kept, () where it is not, or not for them alone."""
    demand = proposal.job.demand
    share = demand.share
    if share is None or proposal.job.keep_reason != share.why or demand.hours_to_redo:
        return ()
    return share.others if demand.may_stop(planning) else ()


def _stop_of(job: Job) -> str:
    """Return the command that stops a job."""
    name = name_in_cluster(job.job_id)
    if runs_in_slurm(job):
        return f"scancel {name.partition(':')[2]}"
    namespace, _slash, target = name.partition("/")
    if "/" not in target:
        return f"kubectl -n {namespace} delete pod {target}"
    if target.partition("/")[0] in ("deployment", "statefulset"):
        return f"kubectl -n {namespace} scale {target} --replicas=0"
    return f"kubectl -n {namespace} delete {target}"


def _advice_at_rest(
    proposal: Proposal,
    plan: Plan,
    problem: PlanningProblem,
    *,
    change: str,
    why: str,
    factors: tuple[tuple[str, str], ...] = (),
) -> Recommendation:
    """Return the advice to hold no GPU at rest."""
    demand = proposal.job.demand
    model = problem.catalogue.find(demand.job.gpu_model)
    most = proposal.present.boards * problem.terms.horizon_hours
    # When within the horizon its work returns nobody knows: of that chance nothing is counted.
    central = (1 - demand.work_return.chance) * most
    hours = Range(low=0.0, central=central, high=most, unit="GPU-h")
    return job_advice(
        Action.SCALE_TO_ZERO,
        proposal,
        plan,
        problem,
        change=change,
        why=why,
        savings=savings_of(
            problem,
            gpu_hours=hours,
            cost=None
            if model is None
            else replace(hours.times(model.price_per_hour), unit=problem.energy.currency),
        ),
        confidence="medium: its own rests and those of similar jobs",
        factors=(*factors, ("return of work", demand.work_return.describe())),
        signal="utilization",
    )


def _hours_off(proposal: Proposal, terms: Terms) -> str:
    """Return how to keep a service off in the hours in which it rests, '' where none are sure."""
    off = proposal.job.demand.work_return.off
    if off is None or off.chance > terms.planning.max_return_chance:
        return ""
    return (
        f"Or it has hours off: from {off.start:02}:00 to {off.end:02}:00 UTC it did nothing, and a "
        f"day has work then with a chance of {100 * off.chance:.0f} % ({off.days} days). In a KEDA "
        "ScaledObject with minReplicaCount 0 that is a trigger of type cron with timezone UTC, "
        f'start "0 {off.end} * * *", end "0 {off.start} * * *" and desiredReplicas as now. '
    )


def _may_scale_to_zero(proposal: Proposal, terms: Terms) -> bool:
    """Return whether something could stop a service at rest and start it again when it is asked."""
    demand, facts = proposal.job.demand, proposal.job.demand.job.scheduling
    if proposal.job.keep_reason or demand.is_fixed or SCALES_TO_ZERO in dict(facts.extra):
        return False
    if demand.standing.elasticity is not Elasticity.SERVICE or facts.managed_by:
        return False
    if 1 - demand.work_return.chance < terms.planning.min_saving_ratio:
        return False
    gone = replace(proposal.present.configuration, gpu_count=0)
    return bool(reclaim_refusal(proposal, terms)) and not configuration_refusal(demand.job, gone)
