"""Guardrails that keep a change from being proposed, and doubts of its evidence."""

from collections.abc import Sequence
from dataclasses import replace

from data.facts.jobs import Job
from data.records.feasible_changes import configuration_refusal, requeue_refusal, runs_in_slurm
from planner.costs.cost import needed_service
from planner.costs.terms import Terms
from planner.jobs.job_demand import JobDemand
from planner.jobs.job_end import waits_for_start
from planner.proposals.proposal import STEADY_SHARE, Proposal, steady_proposal
from planner.proposals.savings import ProposalOutcome

HYSTERESIS_RATIO = 2.0
"""A change must save this many times its own cost: what barely pays is not worth its risk."""
_MIN_HOURS = 1.0
"""A change is held at least so long: rescaling costs 15-250 s each way (Sia, SOSP 2023)."""
_BUSY, _COOL = 0.9, 0.15
"""Utilization from which a job looks busy, and share of the board's power range that busy work
exceeds: one spinning kernel gives 100 % utilization at 5-10 % of the range."""


def refusal(
    proposal: Proposal,
    outcome: ProposalOutcome,
    terms: Terms,
    past_runs: Sequence[float],
    *,
    margin_ratio: float = 0.0,
) -> str:
    """Return the reason not to recommend the change, '' for none.

    `past_runs` are the lengths of ended runs of the same job, s. `margin_ratio` is how much better
    than its limits the change must be: below 0 how much worse it may be, as what the plan before
    proposed, so that noise does not withdraw in one cycle what it proposes in the next.
    """
    if proposal.job.keep_reason:
        return proposal.job.keep_reason
    if not proposal.job.demand.remaining.central.any():
        if waits_for_start(proposal.job.demand.job):
            return f"{proposal.job.demand.remaining.why}, after the horizon"
        return f"it ends before the plan begins: {proposal.job.demand.remaining.why}"
    if proposal.action is None:
        flag = contradiction(proposal.job.demand, terms)
        least = (
            _idle_for_good(proposal, terms)
            or reclaim_refusal(proposal, terms)
            or no_smaller_reason(proposal, terms)
            or "its present configuration costs least for what it is forecast to need"
        )
        why = _requeue_refusal(proposal.job.demand.job, terms)
        if why and why not in least:
            least += f"; other changes cannot be made: {why}"
        if proposal.job.limited_by:
            least += f"; more are not asked for: {proposal.job.limited_by}"
        return f"{least}; {flag}" if flag else least
    margin = 1.0 + margin_ratio
    reason = (
        _unsteady(proposal, terms, margin)
        or _starved(proposal, terms, margin)
        or _overruns(proposal, past_runs)
        or _poor(proposal, outcome, terms, margin)
    )
    if reason and margin_ratio > 0 and not refusal(proposal, outcome, terms, past_runs):
        return f"{reason}; what is new must be {100 * margin_ratio:g} % better than its limit"
    return reason


def no_smaller_reason(proposal: Proposal, terms: Terms) -> str:
    """Return the reason that no option of a job has fewer GPUs than now, '' where one has."""
    present, demand = proposal.present, proposal.job.demand
    others = [option for option in proposal.job.options if not option.autoscaled]
    if any(option.boards < present.boards for option in others):
        return ""
    now, standing = present.configuration, demand.standing
    if not standing.may_restart:
        return standing.reason
    if standing.scaled_by:
        return f"{standing.scaled_by} scales it"
    if now.gpu_count > 1:
        fewer = replace(now, gpu_count=now.gpu_count // 2)
        why = configuration_refusal(
            demand.job, fewer, may_requeue=terms.may_requeue, behind_others=terms.behind_others
        )
        return why or f"no size below {now.describe()} holds its memory"
    return f"no slice or cheaper GPU in reach can take what runs on {now.describe()}"


def _requeue_refusal(job: Job, terms: Terms) -> str:
    """Return the reason that a job of Slurm stays as it runs, '' for any other."""
    if not runs_in_slurm(job):
        return ""
    return requeue_refusal(job, may_requeue=terms.may_requeue, behind_others=terms.behind_others)


def _idle_for_good(proposal: Proposal, terms: Terms) -> str:
    """Name a job that holds its GPUs idle and that no applier can stop, '' for any other."""
    demand, now = proposal.job.demand, proposal.present.configuration
    why = configuration_refusal(demand.job, replace(now, gpu_count=0))
    if not why or demand.seen_idle_hours < terms.planning.reclaim_idle_hours:
        return ""
    return f"it has held {now.describe()} idle for {demand.seen_idle_hours:.1f} h, but {why}"


def reclaim_refusal(proposal: Proposal, terms: Terms) -> str:
    """Return the reason that a job that has long been idle keeps its GPUs, '' for any other."""
    demand, planning = proposal.job.demand, terms.planning
    long_idle = demand.seen_idle_hours >= planning.reclaim_idle_hours
    idle = f"it has been idle for {demand.seen_idle_hours:.1f} h"
    if long_idle and demand.may_stop(planning) and demand.hours_to_redo:
        return (
            f"{idle}, but {demand.hours_to_redo:.1f} h of its run are done again if its work "
            f"returns ({100 * demand.work_return.chance:.0f} %), which costs more than a stop saves"
        )
    if not long_idle or demand.may_stop(planning) or _idle_for_good(proposal, terms):
        return ""
    if demand.idle_hours < planning.reclaim_idle_hours:
        return f"{idle}; a service is reclaimed after a week without work"
    limit = f"a job is stopped at most at {100 * planning.max_return_chance:g} %"
    return f"{idle}, but {demand.work_return.describe()}: {limit}, in no rest that it had before"


def _unsteady(proposal: Proposal, terms: Terms, margin: float) -> str:
    if proposal.share < min(1.0, margin * STEADY_SHARE):
        return f"the plan would change it for {100 * proposal.share:.0f} % of the horizon only"
    remaining = proposal.job.demand.remaining
    hours = float((proposal.held * remaining.central).sum()) * terms.slot_hours
    if hours < min(_MIN_HOURS, terms.horizon_hours) - 1e-9:
        end = f": {remaining.why}" if remaining.why else ""
        return f"the plan would hold the change for {hours:.3g} h only{end}"
    return ""


def _starved(proposal: Proposal, terms: Terms, margin: float) -> str:
    """Refuse less than what is needed; more than now, even if not all of it, is welcome.

    Whatever margin is given away is the headroom's: q90 itself is never missed.
    """
    option = proposal.chosen
    if not option.configuration.gpu_count or option.service > proposal.present.service:
        return ""
    bare = replace(terms.planning, headroom_ratio=0.0)
    need, least = (
        float(needed_service(proposal.job.demand, proposal.present, planning).max())
        for planning in (terms.planning, bare)
    )
    if option.service >= max(margin * need, least) - 1e-9:
        return ""
    return (
        f"{option.configuration.describe()} gives {option.service:.3g} of the "
        f"{need:.3g} devices' work needed at the forecast's q90 with headroom"
    )


def roomier(proposal: Proposal, terms: Terms, margin_ratio: float) -> Proposal:
    """Return the proposal, or where it gives too little the next that gives enough.

    Of the boards that the job has: fewer of them always fit where it runs. A change that misses its
    margin by little would else leave all of them.
    """
    margin, present, current = 1.0 + margin_ratio, proposal.present, proposal.chosen
    if proposal.action is None or proposal.first is not None:
        return proposal
    if not _starved(proposal, terms, margin):
        return proposal
    larger = [
        number
        for number, option in enumerate(proposal.job.options)
        if current.boards < option.boards < present.boards
        and option.configuration == replace(present.configuration, gpu_count=round(option.boards))
    ]
    for number in sorted(larger, key=lambda entry: proposal.job.options[entry].boards):
        tried = steady_proposal(proposal.job, proposal.planned, number, proposal.share)
        if not _starved(tried, terms, margin):
            return tried
    return proposal


def _overruns(proposal: Proposal, past_runs: Sequence[float]) -> str:
    """Refuse what would make the job hit its time limit, were it like its longest run."""
    facts = proposal.job.demand.job.scheduler
    limit = None if facts is None else facts.time_limit_seconds
    if limit is None or not past_runs or not proposal.chosen.boards:
        return ""
    longest = max(past_runs) * proposal.chosen.slowdown[1]
    if longest <= limit:
        return ""
    return f"it could take {longest / 3600:.1f} h, above its time limit of {limit / 3600:.1f} h"


def saving_ratio(proposal: Proposal, outcome: ProposalOutcome, terms: Terms) -> float:
    """Return the central saving as a share of what the job costs.

    For a power cap, of its energy; for waiting, of the price of its energy.
    """
    savings, power = outcome.savings, proposal.job.demand.power_q50
    if proposal.spec.caps_power:
        if savings.energy_kwh is None or power is None:
            return 0.0
        there = proposal.job.demand.remaining.central
        used = float(power @ there) * terms.slot_hours / 1000 * terms.energy.pue
        return float(savings.energy_kwh.central / used) if used > 0 else 0.0
    now = outcome.energy_bill if proposal.spec.pauses else outcome.cost_of_now
    return 0.0 if now <= 0 else savings.money / now


def _poor(proposal: Proposal, outcome: ProposalOutcome, terms: Terms, margin: float) -> str:
    """Refuse what saves too little for the change; more GPUs are not asked to save but to serve."""
    saved = outcome.savings.money
    cost = 0.0 if outcome.transition is None else outcome.transition.cost
    planning = terms.planning
    if proposal.spec.serves:
        saved += outcome.shortfall_saved
    else:
        ratio = saving_ratio(proposal, outcome, terms)
        if ratio < margin * planning.min_saving_ratio:
            return (
                f"it would save {100 * ratio:.1f} %, less than the "
                f"{100 * planning.min_saving_ratio:g} % that are worth a change"
            )
    if saved + cost < margin * HYSTERESIS_RATIO * cost:
        return (
            f"it would save {saved + cost:.3g} {terms.energy.currency}, less than "
            f"{HYSTERESIS_RATIO:g} times the {cost:.3g} that the change costs"
        )
    return ""


def contradiction(demand: JobDemand, terms: Terms) -> str:
    """Return the contradiction in a job's readings, '' for none: busy, yet cool boards.

    Spinning kernels and wrong readings look like this; whoever holds GPUs may make them.
    """
    job = demand.job
    model = terms.catalogue.find(job.gpu_model)
    busy, watts = demand.utilization_mean_ratio, demand.board_mean_watts
    if model is None or busy is None or watts is None or job.mig_profile or busy < _BUSY:
        return ""
    share = (watts - model.idle_watts) / (model.tdp_watts - model.idle_watts)
    if share > _COOL:
        return ""
    return (
        f"it reports {100 * busy:.0f} % utilization at {max(0.0, 100 * share):.0f} % of its "
        "boards' power range: it may look busy without working"
    )
