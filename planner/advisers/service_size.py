"""Advice on services whose model fits a cheaper GPU model, which their memory does not show.

An engine takes its share of whatever board it gets, so that no reading says that less would do: its
own command and the memory of its model do. Nothing applies it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from data.records.actions import Action
from data.records.plans import Plan
from data.records.recommendations import Range, Recommendation
from data.records.serving import ModelFit, ServiceOutlook
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.job_advice import job_advice, per_day_text, savings_of
from planner.proposals.proposal import Proposal

_HOURS_PER_DAY = 24.0


def smaller_advice(
    services: Sequence[ServiceOutlook],
    proposals: Mapping[str, Proposal],
    unchanged: Collection[str],
    plan: Plan,
    problem: PlanningProblem,
) -> Iterator[Recommendation]:
    """Yield one recommendation at most for each service whose job is kept as it is.

    Not where the slow end of the doubt costs more than now, and not where others than an autoscaler
    keep the object: they would undo it.
    """
    for service in services:
        proposal = proposals.get(service.job_id)
        if proposal is None or service.job_id not in unchanged or _is_held(proposal):
            continue
        savings = [(fit, _saved(service, fit, proposal, problem)) for fit in service.fits]
        worth = [(fit, saved) for fit, saved in savings if saved is not None]
        if worth:
            fit, saved = max(worth, key=lambda pair: pair[1].central)
            yield _advice(service, fit, saved, proposal, plan, problem)


def _is_held(proposal: Proposal) -> bool:
    standing, facts = proposal.job.demand.standing, proposal.job.demand.job.scheduler
    keepers = set(facts.managed_by) if facts is not None else set()
    return proposal.job.demand.is_fixed or bool(keepers - {standing.scaled_by})


def _saved(
    service: ServiceOutlook, fit: ModelFit, proposal: Proposal, problem: PlanningProblem
) -> Range | None:
    """Return the money of a day that a model saves, None where it may be none or is too little."""
    here = problem.catalogue.find(proposal.job.demand.job.gpu_model)
    there = problem.catalogue.find(fit.gpu_model)
    if here is None or there is None:
        return None
    hours = _HOURS_PER_DAY * fit.gpus
    now = hours * service.replicas * here.price_per_hour
    then = fit.replicas.times(hours * there.price_per_hour)
    saved = Range(
        low=now - then.high,
        central=now - then.central,
        high=now - then.low,
        unit=problem.energy.currency,
    )
    is_worth_it = saved.low > 0 and saved.central >= problem.planning.min_saving_ratio * now
    return saved if is_worth_it else None


def _advice(
    service: ServiceOutlook,
    fit: ModelFit,
    saved: Range,
    proposal: Proposal,
    plan: Plan,
    problem: PlanningProblem,
) -> Recommendation:
    count = proposal.present.configuration.gpu_count
    span = f"{fit.replicas.central:.3g} ({fit.replicas.low:.3g}–{fit.replicas.high:.3g})"
    fits = f"with {100 * fit.fit_probability:.1f} %"
    at_once = f"{fit.sequences} sequences of {fit.context_tokens:,} tokens"
    return job_advice(
        Action.MODEL_FITS,
        proposal,
        plan,
        problem,
        change=f"{fit.gpu_model} instead of {proposal.present.configuration.gpu_model}",
        why=(
            f"{fit.model}, which its engine's command names, and a cache of {at_once}, as full as "
            f"the fullest of the week, fit on {fit.gpus} × {fit.gpu_model} {fits}. Tokens come "
            f"more slowly there: the {service.replicas} replicas of now become {span} at the "
            f"highest demand foreseen, for "
            f"{per_day_text(saved, problem.energy.currency)} less. That speed is not measured: try "
            f"one replica, and watch its time to first token."
        ),
        savings=savings_of(problem, cost=saved.times(problem.terms.horizon_hours / _HOURS_PER_DAY)),
        confidence="weak: memory is estimated, and speed is the catalogue's",
        factors=(
            ("memory needed with 95 %", f"{fit.p95_gib:.3g} GiB of each GPU"),
            ("fits", f"{fits}: {at_once}"),
            ("replicas there", f"{span} for {service.replicas} of now"),
        ),
        proposed=replace(proposal.present.configuration, gpu_model=fit.gpu_model, gpu_count=count),
    )
