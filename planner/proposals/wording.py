"""Reasons for a proposed change, in words with its figures."""

from collections.abc import Sequence
from dataclasses import replace

from data.base.units import IDLE_RATIO
from data.facts.jobs import Job, Platform
from data.records.actions import Action
from data.records.feasible_changes import NO_DISRUPTIONS, unit_of
from data.records.recommendations import APPLY_FIRST, Recommendation
from planner.costs.cost import missed_service
from planner.costs.time_shift import is_delayed, work_means
from planner.costs.transitions import leaving
from planner.jobs.job_end import waits_for_start
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.proposal import Proposal

_MAX_NAMES = 5
_ADMISSION_PREFIX = "admitted"
"""The beginning of Kueue's word on a job whose pods the scheduler may bind."""


def proposal_reason(proposal: Proposal, problem: PlanningProblem) -> str:
    """Return the reason for a proposal, and the load of a service whose engines tell it."""
    text = _REASONS.get(proposal.action or Action.FEWER_GPUS, _less_work)(proposal, problem)
    if proposal.action is Action.SCALE_OUT and proposal.job.limited_by:
        text += f" More are not asked for: {proposal.job.limited_by}."
    text += _ends_pods(proposal) + _loses_work(proposal) + _goes_to_others(proposal, problem)
    load = proposal.job.demand.peak_load_ratio
    if load is None:
        return text
    return f"{text} At their peak its requests take {100 * load:.0f} % of what its replicas carry."


def _ends_pods(proposal: Proposal) -> str:
    """Return that a disruption budget allows none of the pods to be ended that a change ends."""
    facts = proposal.job.demand.job.scheduler
    budget = "" if facts is None else dict(facts.extra).get(NO_DISRUPTIONS, "")
    now, then = proposal.present.configuration, proposal.chosen.configuration
    stays = replace(then, gpu_count=now.gpu_count, power_cap_watts=now.power_cap_watts) == now
    if not budget or (stays and then.gpu_count >= now.gpu_count):
        return ""
    return (
        f" Risk: its PodDisruptionBudget {budget} allows 0 disruptions now, and the change ends "
        "pods all the same: a budget holds back evictions alone. Ask its owner first."
    )


def _goes_to_others(proposal: Proposal, problem: PlanningProblem) -> str:
    """Return that jobs wait for the boards that a change gives back."""
    job, then = proposal.job.demand.job, proposal.chosen.configuration
    rest = then.gpu_count if (then.gpu_model, then.mig_profile) == _devices(job) else 0
    if rest >= job.gpu_count or waits_for_start(job):
        return ""
    line = job.extra.get("waiting", "")
    if job.platform is Platform.SLURM and line:
        return f" {line}: they may take what is freed, and the way back would then wait for room."
    if job.platform is not Platform.KUBERNETES:
        return ""
    waiting = [
        other.job_id
        for other in (planned.demand.job for planned in problem.jobs)
        if waits_for_start(other)
        and (other.platform, other.cluster) == (job.platform, job.cluster)
        and _devices(other) in (_devices(job), ("", job.mig_profile))
        and unit_of(other) <= job.gpu_count - rest
        and other.extra.get("kueue", _ADMISSION_PREFIX).startswith(_ADMISSION_PREFIX)
    ]
    if not waiting:
        return ""
    names = ", ".join(waiting[:_MAX_NAMES])
    more = f" and {len(waiting) - _MAX_NAMES} more" if len(waiting) > _MAX_NAMES else ""
    return (
        f" {names}{more} {'wait' if len(waiting) > 1 else 'waits'} for such GPUs and may take what "
        "is freed: the way back would then wait for room."
    )


def _devices(job: Job) -> tuple[str, str]:
    return job.gpu_model, job.mig_profile


def is_unsaved_run_lost(proposal: Proposal) -> bool:
    """Return whether a change ends a run that nothing tells of a checkpoint of."""
    parts = leaving(proposal.job.demand.standing, proposal.present, proposal.chosen)
    return not waits_for_start(proposal.job.demand.job) and any(part.at_worst for part in parts)


def _gpus(boards: float) -> str:
    return f"{boards:g} GPU{'' if boards == 1 else 's'}"


def _loses_work(proposal: Proposal) -> str:
    standing = proposal.job.demand.standing
    lost = standing.lost
    if lost is None:
        return ""
    stops = proposal.action is not None and proposal.action.spec.takes_all
    hours = proposal.job.demand.hours_to_redo
    if stops and hours and lost.at_worst and not waits_for_start(proposal.job.demand.job):
        return (
            f" Nothing says that it writes checkpoints: if its work returns, up to all {hours:.1f} "
            f"h of its run on {_gpus(proposal.present.boards)} before the present rest are done "
            "again, which the saving counts by that chance."
        )
    if not is_unsaved_run_lost(proposal):
        return ""
    return (
        f" Risk: nothing says that it writes checkpoints, so that up to all {lost.hours:.1f} h of "
        f"its run on {_gpus(proposal.present.boards)} may be lost and done again: that is counted."
    )


RESTART_ON_KEPT_NODE = "it starts again, and is to do so on a node that stays on"


def name_of(proposal: Proposal) -> str:
    """Return the name by which another change says that this one comes first."""
    return f"{proposal.job.demand.job.job_id} ({proposal.action})"


def named_first(
    revision: Recommendation, first: Sequence[str], why: str = "it counts on what that frees"
) -> Recommendation:
    """Return a recommendation that says which changes have to come before it, if any do."""
    if not first:
        return revision
    names = ", ".join(first)
    text = f"Apply {names} first: {why}."
    before = dict(revision.evidence.factors).get(APPLY_FIRST, "")
    others = [pair for pair in revision.evidence.factors if pair[0] != APPLY_FIRST]
    factors = ((APPLY_FIRST, ", ".join(filter(None, (before, names)))), *others)
    evidence = replace(revision.evidence, factors=factors)
    return replace(revision, why=f"{revision.why} {text}", evidence=evidence)


def change_text(proposal: Proposal, problem: PlanningProblem) -> str:
    """Return the change in words where the configurations do not say it, '' where they do."""
    if proposal.first is None:
        return ""
    # What begins with the plan begins at once: its hour would be another in every cycle.
    starts = f"from {problem.slot_starts[proposal.first]:%Y-%m-%d %H:%M} UTC " * (
        proposal.first > 0
    )
    until = (
        f"{problem.slot_starts[proposal.last + 1]:%Y-%m-%d %H:%M} UTC"
        if proposal.last is not None
        else "further on"
    )
    if proposal.spec.pauses:
        return f"pause {starts}{'to' if starts else 'until'} {until}"
    end = f"until {until}" if proposal.last is not None else until
    return f"{proposal.chosen.configuration.describe()} {starts}{end}"


def _peak(proposal: Proposal) -> float:
    path, remaining = proposal.job.demand.demand_q90, proposal.job.demand.remaining
    return 0.0 if path is None else float((path * (remaining.high > 0)).max())


def _less_work(proposal: Proposal, problem: PlanningProblem) -> str:
    memory = f"{(proposal.job.demand.memory_mib or 0) / 1024:.1f} GiB"
    hours = proposal.job.demand.remaining.hours(problem.terms.slot_hours)
    return (
        f"Over the next {hours:.3g} h it is forecast to do at most {_peak(proposal):.2f} of "
        f"{proposal.job.demand.job.gpu_count} devices' work (q90) with {memory} per device; "
        f"{proposal.chosen.configuration.describe()} gives {proposal.chosen.service:.2f}."
    )


def _idle(proposal: Proposal, problem: PlanningProblem) -> str:
    return (
        f"It held {proposal.present.configuration.describe()} for the last "
        f"{proposal.job.demand.idle_hours:.1f} h with utilization of at most "
        f"{100 * IDLE_RATIO:g} %. Risk: "
        f"{proposal.job.demand.work_return.describe()}."
    )


def _hot(proposal: Proposal, problem: PlanningProblem) -> str:
    low, middle, high = (100 * (value - 1) for value in proposal.chosen.slowdown)
    law = problem.cap_laws[proposal.chosen.configuration.gpu_model]
    measured = "" if law.measured else "; its own generation was not measured"
    return (
        f"Its boards exceed {proposal.chosen.configuration.power_cap_watts:g} W, and its forecast "
        f"leaves room for work that takes {middle:.1f} % ({low:.1f}–{high:.1f} %) longer at the "
        f"hottest: at most {_peak(proposal):.2f} of {proposal.job.demand.job.gpu_count} devices' "
        f"work at q90 ({law.source}{measured})."
    )


def _waits(proposal: Proposal, problem: PlanningProblem) -> str:
    slots = len(problem.slot_starts)
    assert proposal.first is not None  # noqa: S101 - a shift has its slots by construction
    last = slots - 1 if proposal.last is None else proposal.last
    tariff, currency, demand = problem.tariff, problem.energy.currency, proposal.job.demand
    prices, carbon = (
        work_means(demand.remaining.central, last + 1, ahead, mean)
        if is_delayed(demand)
        else (float(ahead[proposal.first : last + 1].mean()), mean)
        for ahead, mean in (
            (tariff.per_kwh_ahead, tariff.mean_per_kwh),
            (tariff.gco2e_ahead, tariff.mean_gco2e),
        )
    )
    able = f"It can be stopped and started again ({demand.standing.reason}), may"
    hours, then = "in these hours", "over the day"
    if is_delayed(demand):
        hours, then = "if it goes on at once", "after the pause"
        able = "It waits for its start, and may" if waits_for_start(demand.job) else able
    text = (
        f"{able} wait {problem.planning.shift_slack_hours:g} h, and a kWh costs {prices[0]:.3g} "
        f"{currency} {hours} against {prices[1]:.3g} {then}"
    )
    if tariff.hourly_carbon:
        text += f" (grid {carbon[0]:.0f} against {carbon[1]:.0f} gCO2e/kWh)"
    return text + "."


def _outgrows(proposal: Proposal, problem: PlanningProblem) -> str:
    demand, planning = proposal.job.demand, problem.planning
    now = missed_service(demand, proposal.present, proposal.present, planning)
    then = missed_service(demand, proposal.present, proposal.chosen, planning)
    worst = int(now.argmax())
    return (
        f"Its forecast reaches {_peak(proposal):.2f} of the {proposal.present.service:g} devices "
        f"that it has (q90); with {100 * planning.headroom_ratio:g} % headroom it is expected to "
        f"miss {now[worst]:.2g} devices' work around "
        f"{problem.slot_starts[worst]:%Y-%m-%d %H:%M} UTC, "
        f"and {then[worst]:.2g} with {proposal.chosen.configuration.describe()}."
    )


_REASONS = {
    Action.RECLAIM: _idle,
    Action.POWER_CAP: _hot,
    Action.SHIFT_IN_TIME: _waits,
    Action.SCALE_OUT: _outgrows,
}
