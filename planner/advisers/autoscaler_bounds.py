"""The bounds of a service's autoscaler: a minimum above need, a maximum below it.

It is a change of the object that holds them, where the collector names one that nobody else keeps;
else advice. What it saves is the rent of the replicas that the minimum kept above what the service
model says was needed.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from data.facts.jobs import Platform
from data.records.actions import Action
from data.records.feasible_changes import unit_of
from data.records.plans import Plan
from data.records.recommendations import Recommendation, Savings
from data.records.serving import BoundsUse, ServiceOutlook
from planner.fleet.quota_room import QuotaRoom
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.job_advice import job_advice, per_day_text, savings_of
from planner.proposals.proposal import Proposal

_MIN_KNOWN_HOURS = 24.0
"""A day has its quiet hours; less of it may have none of them."""
_COMPLETE = 0.8
_MIN_HOURS_AT_MAX = 0.25
_HOURS_PER_DAY = 24.0


def bounds_advice(
    services: Sequence[ServiceOutlook],
    proposals: Mapping[str, Proposal],
    unchanged: Collection[str],
    plan: Plan,
    problem: PlanningProblem,
) -> Iterator[Recommendation]:
    """Yield one recommendation at most for each service whose job is kept as it is.

    A maximum that is too low comes before a minimum that is too high. Where requests waited at a
    maximum that was enough by the model, the model is not trusted with either.
    """
    for proposal, use in _used_bounds(services, proposals, unchanged):
        if (most := _maximum_met(use)) is not None:
            target, limit = _maximum(use, proposal, problem)
            if target > most:
                yield _raised(use, (most, target), limit, proposal, plan, problem)
        elif _is_worth_it(use, problem):
            yield _lowered(use, proposal, plan, problem)


def capped_maxima(
    services: Sequence[ServiceOutlook],
    proposals: Mapping[str, Proposal],
    unchanged: Collection[str],
    problem: PlanningProblem,
) -> Iterator[tuple[str, str]]:
    """Yield each service whose maximum a resource quota keeps from being raised, and which."""
    for proposal, use in _used_bounds(services, proposals, unchanged):
        most = _maximum_met(use)
        target, limit = _maximum(use, proposal, problem)
        if most is not None and target <= most < use.most_needed:
            yield proposal.job.demand.job.job_id, f"its maximum is not raised. {limit}"


def _used_bounds(
    services: Sequence[ServiceOutlook], proposals: Mapping[str, Proposal], jobs: Collection[str]
) -> Iterator[tuple[Proposal, BoundsUse]]:
    """Yield the services of `jobs` whose bounds are known for long enough, with their use."""
    for service in services:
        proposal, use = proposals.get(service.job_id), service.bounds
        if proposal is None or use is None or service.job_id not in jobs:
            continue
        if not proposal.job.demand.is_fixed and use.known_hours >= _MIN_KNOWN_HOURS:
            yield proposal, use


def _maximum_met(use: BoundsUse) -> int | None:
    """Return the maximum at which requests waited, None where they did not."""
    return use.max_replicas if use.hours_at_max >= _MIN_HOURS_AT_MAX else None


def _is_worth_it(use: BoundsUse, problem: PlanningProblem) -> bool:
    """Return whether the spare replicas are a share of all that is worth a change."""
    spare = use.spare_replica_hours.central
    return spare > 0 and spare >= problem.planning.min_saving_ratio * use.replica_hours


def _maximum(use: BoundsUse, proposal: Proposal, problem: PlanningProblem) -> tuple[int, str]:
    """Return the replicas that were needed, cut down to what resource quotas admit, and by which.

    What is in use of a quota holds the replicas of now.
    """
    job = proposal.job.demand.job
    room, why = QuotaRoom(problem.rules.quotas).beside(job)
    fits = (job.gpu_count + room) / unit_of(job)
    if fits >= use.most_needed:
        return use.most_needed, ""
    return int(fits), f"No more than {int(fits)} fit: {why}."


def _raised(
    use: BoundsUse,
    bound: tuple[int, int],
    limit: str,
    proposal: Proposal,
    plan: Plan,
    problem: PlanningProblem,
) -> Recommendation:
    times = "once" if use.times_at_max == 1 else f"{use.times_at_max} times"
    return _advice(
        Action.RAISE_MAXIMUM,
        use,
        proposal,
        plan,
        problem,
        bound=bound,
        why=(
            f"All {bound[0]} replicas that its autoscaler allows were there {times} in "
            f"{_days(use.span_hours)} while requests waited longer than promised, "
            f"{use.hours_at_max:.3g} h in all. By the requests that came, up to "
            f"{use.most_needed} replicas were needed then." + f" {limit}" * bool(limit)
        ),
        savings=savings_of(problem),
    )


def _lowered(
    use: BoundsUse, proposal: Proposal, plan: Plan, problem: PlanningProblem
) -> Recommendation:
    job, present = proposal.job.demand.job, proposal.present
    model = problem.catalogue.find(job.gpu_model)
    each = unit_of(job) / max(1, job.gpu_count)
    ahead = problem.terms.horizon_hours / use.known_hours
    devices = use.spare_replica_hours.times(each * job.gpu_count * ahead)
    boards = use.spare_replica_hours.times(each * present.boards * ahead)
    cost = None if model is None else boards.times(model.price_per_hour)
    currency = problem.energy.currency
    money = ""
    if cost is not None:
        per_day = cost.times(_HOURS_PER_DAY / problem.terms.horizon_hours)
        money = f" Their boards cost {per_day_text(per_day, currency)}."
    return _advice(
        Action.LOWER_MINIMUM,
        use,
        proposal,
        plan,
        problem,
        bound=(use.min_replicas, use.least_needed),
        why=(
            f"Its autoscaler keeps {use.min_replicas} replicas at least. In "
            f"{use.spare_hours * _HOURS_PER_DAY / use.known_hours:.3g} h a day of "
            f"{_days(use.span_hours)} fewer were needed by the requests that came, down to "
            f"{use.least_needed}.{money} That it goes lower then is left to its own metric."
        ),
        savings=savings_of(
            problem,
            gpu_hours=replace(devices, unit="GPU-h"),
            cost=None if cost is None else replace(cost, unit=currency),
        ),
    )


def _days(hours: float) -> str:
    return f"{hours / _HOURS_PER_DAY:.2g} days"


def _advice(
    action: Action,
    use: BoundsUse,
    proposal: Proposal,
    plan: Plan,
    problem: PlanningProblem,
    *,
    bound: tuple[int, int],
    why: str,
    savings: Savings,
) -> Recommendation:
    spare, (now, target) = use.spare_replica_hours, bound
    holder, who = _holder(proposal)
    details = (("autoscaler", holder), ("bound_now", str(now)), ("bound_proposed", str(target)))
    span = f"{spare.central:.3g} ({spare.low:.3g}–{spare.high:.3g})"
    most = "unknown" if use.max_replicas is None else str(use.max_replicas)
    return job_advice(
        action,
        proposal,
        plan,
        problem,
        change=f"{action.spec.bound} of {target} instead of {now}",
        why=f"{why} {who}",
        details=details if holder else (),
        savings=savings,
        confidence=_confidence(use),
        factors=(
            ("bounds of its autoscaler", f"{use.min_replicas} to {most} replicas"),
            ("hours known", f"{use.known_hours:.3g} of {use.span_hours:.3g} h"),
            ("replicas above need", f"{span} of {use.replica_hours:.3g} replica-h"),
            ("late at the maximum", f"{use.times_at_max} times, {use.hours_at_max:.3g} h"),
        ),
    )


def _holder(proposal: Proposal) -> tuple[str, str]:
    """Return the object whose bounds can change, '' without one, and the text of their owner."""
    job = proposal.job.demand.job
    facts = job.scheduling
    labels = dict(facts.extra)
    holder = labels.get("autoscaler", "") if job.platform is Platform.KUBERNETES else ""
    if not holder:
        kept_by = labels.get("bounds_kept_by") or " and ".join(facts.managed_by)
        return "", f"Only who owns its bounds can move them: {kept_by or 'nobody is named'}."
    by_keda = ", of which KEDA makes the autoscaler" if holder.startswith("scaledobject") else ""
    return holder, f"The change is of {holder}{by_keda}; nobody else is seen to keep its bounds."


def _confidence(use: BoundsUse) -> str:
    share = use.known_hours / use.span_hours
    basis = "what was needed is a queueing formula's answer to the requests that came"
    if share < _COMPLETE:
        return f"weak: {basis}; {100 * share:.0f} % of the time is known"
    return f"medium: {basis}"
