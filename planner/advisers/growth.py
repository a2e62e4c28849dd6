"""Growth of training jobs into free boards, and the return of those boards on demand.

Growing costs: it is proposed for an earlier end, never to save, and only where the setting
`planning.grow_elastic_training` lets it. No job is ever made smaller or put off for it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np

from data.base.units import SECONDS_PER_HOUR
from data.facts.jobs import JobState, WorkloadKind
from data.records.actions import Action
from data.records.feasible_changes import ELASTIC_KUEUE, names_its_nodes, why_not
from data.records.plans import Plan
from data.records.recommendations import Range, Recommendation, Savings, Transition
from planner.advisers.growth_gain import Gain, gain_of, is_measured, larger_sizes, speed_ups
from planner.advisers.growth_room import GrowthFacts, GrowthRoom
from planner.costs.carbon import emissions_of, market_emissions_of
from planner.costs.configurations import Option
from planner.costs.cost import ChangeTime, change_costs, idle_watts, rent_per_hour
from planner.jobs.elasticity import Elasticity
from planner.jobs.expected_value import mean_of
from planner.jobs.job_end import likely_ends, told_end
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.guardrails import HYSTERESIS_RATIO
from planner.proposals.job_advice import job_advice
from planner.proposals.proposal import Proposal
from planner.proposals.suppressions import Rejections, rejected

_BUSY = 0.5
"""Mean utilization below which boards count as little used (Gao et al., ICSE 2024)."""
_MEASURED = "measured: finished runs of the same job on each of both numbers"
_ASSUMED = (
    "assumed: twice the boards bring 1.45 to 1.97 times the speed (80 %, five programs of Sia's "
    "profiles) where each board keeps its batch, next to nothing where all together keep theirs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growing:
    """The facts of growth; `past_runs` are lengths of ended runs of the same job, s, by job."""

    plan: Plan
    problem: PlanningProblem
    room: GrowthRoom
    facts: GrowthFacts
    past_runs: Mapping[str, Sequence[float]]
    rejections: Rejections = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """Another number of boards for a job, with its gain, None where that is not known.

    `middle` is the median end without it, `by` what tells it, `basis` how its speed is known.
    """

    proposal: Proposal
    option: Option
    costs: ChangeTime
    gain: Gain | None
    middle: datetime | None
    by: str
    basis: str


def give_backs(
    proposals: Sequence[Proposal], unchanged: Collection[str], growing: Growing
) -> Iterator[Recommendation]:
    """Yield the way back of each grown job of `unchanged` whose boards others want."""
    for proposal in proposals:
        job = proposal.job.demand.job
        had = growing.facts.had.get(job.job_id)
        if had is None or job.job_id not in unchanged or _is_held(proposal) or why_not(job, had):
            continue
        demand = growing.room.wanted(job)
        if demand and had.gpu_count < job.gpu_count:
            text = f"It was grown from {had.describe()}, and boards like its own are wanted: "
            change = _change(proposal, had.gpu_count, growing)
            yield _recommendation(Action.GIVE_BACK, change, f"{text}{demand}.", growing)


def growths(
    proposals: Sequence[Proposal], unchanged: Collection[str], growing: Growing
) -> tuple[list[Recommendation], dict[str, str]]:
    """Return the growth of `unchanged` jobs, and for other elastic ones the reason against it."""
    rows, reasons = [], {}
    for proposal in proposals:
        job, standing = proposal.job.demand.job, proposal.job.demand.standing
        elastic = standing.elasticity is Elasticity.ELASTIC and standing.most is not None
        if job.job_id not in unchanged or not elastic or job.kind is not WorkloadKind.TRAINING:
            continue
        again = "it was grown already" if job.job_id in growing.facts.had else ""
        grown = again or _why_not_grown(proposal) or _grown(proposal, growing)
        if isinstance(grown, str):
            reasons[job.job_id] = grown
        else:
            rows.append(grown)
    return rows, reasons


def _is_held(proposal: Proposal) -> bool:
    job = proposal.job
    return (
        bool(job.demand.standing.protected or job.demand.job.mig_profile) or job.pinned is not None
    )


def _why_not_grown(proposal: Proposal) -> str:
    """Return the reason of the job itself not to grow, '' where there is none."""
    job, busy = proposal.job.demand.job, proposal.job.demand.utilization_mean_ratio
    facts = job.scheduling
    extra = dict(facts.extra)
    keepers = " and ".join(name for name in facts.managed_by if name != ELASTIC_KUEUE)
    fixed = {"named_processes", "named_pods", "fixed_work", "own_shares"} & extra.keys()
    reasons = (
        (proposal.job.keep_reason, True),
        ("it is pinned, or on MIG instances", _is_held(proposal)),
        ("it does not run", facts.state is not JobState.RUNNING),
        (f"{keepers} would undo it", keepers),
        (f"its own words fix its size ({', '.join(sorted(fixed))})", fixed),
        ("its pods may not be on all nodes of their model", names_its_nodes(job)),
        ("how busy its boards are is not known", busy is None),
        (
            f"its boards are busy for {100 * (busy or 0):.0f} % of the time only",
            (busy or 0) < _BUSY,
        ),
    )
    return next((reason for reason, holds in reasons if reason and holds), "")


def _grown(proposal: Proposal, growing: Growing) -> Recommendation | str:
    """Return the largest growth that surely pays, or why there is none."""
    job, problem = proposal.job.demand.job, growing.problem
    runs, mode = growing.facts.runs.get(job.job_id, {}), problem.planning.grow_elastic_training
    sizes = larger_sizes(job.gpu_count, runs, mode)
    if not sizes:
        return "its speed on more boards was not measured"
    now = proposal.present.configuration
    can = [size for size in sizes if not why_not(job, replace(now, gpu_count=size))]
    if not can:
        return "its bounds let it have no more"
    most, bound = growing.room.most(proposal.job)
    fits = [size for size in can if size - job.gpu_count <= most]
    if not fits:
        return f"too few boards are free for it in every slot: {bound}"
    for size in fits:
        change = _change(proposal, size, growing)
        if change.gain is None:
            return f"its end is not known: {change.by}"
        takes = mean_of(*change.costs.seconds) / SECONDS_PER_HOUR
        if change.gain.earlier.low >= HYSTERESIS_RATIO * takes:
            why = _why_grown(change, change.gain, most, problem.terms.horizon_hours)
            row = _recommendation(Action.GROW, change, why, growing)
            no = rejected(growing.rejections, job.job_id, Action.GROW, row.savings)
            if not no:
                growing.room.take(proposal.job, size - job.gpu_count)
            return no or row
    return "it would not surely end earlier on more boards"


def _change(proposal: Proposal, size: int, growing: Growing) -> _Change:
    """Return the change of a job to so many boards."""
    demand, problem = proposal.job.demand, growing.problem
    job, as_of = demand.job, problem.as_of
    now, runs = job.gpu_count, growing.facts.runs.get(job.job_id, {})
    configuration = replace(proposal.present.configuration, gpu_count=size)
    option = Option(configuration=configuration, boards=float(size), service=float(size))
    costs = change_costs(demand, proposal.present, option, problem.terms)
    reports = growing.facts.progress.get(job.job_id, ())
    # Runs of other sizes tell another end, where enough of the present one are known.
    measured = is_measured(now, now, runs)
    lengths = runs[now] if measured else growing.past_runs.get(job.job_id, ())
    ends, by = likely_ends(job, lengths, reports, as_of, as_of)
    limit = told_end(job, as_of)
    if limit is not None and ends and limit[0] < ends[-1]:
        ends, by = [], f"{limit[1]} may end it first"
    speeds = speed_ups(min(now, size), max(now, size), runs, problem.planning.grow_elastic_training)
    gain = None
    if ends and len(speeds):
        gain = gain_of(
            (now, size),
            ends,
            speeds if size > now else 1 / speeds,
            costs.seconds,
            as_of=as_of,
            known_hours=problem.terms.horizon_hours,
        )
    return _Change(
        proposal=proposal,
        option=option,
        costs=costs,
        gain=gain,
        middle=ends[len(ends) // 2] if ends else None,
        by=by or "neither its progress nor enough finished runs tell it",
        basis=_MEASURED if is_measured(now, size, runs) else _ASSUMED,
    )


def _why_grown(change: _Change, gain: Gain, most: int, hours: float) -> str:
    job, then = change.proposal.job.demand.job, ""
    if change.middle is not None:
        end = change.middle - timedelta(hours=gain.earlier.central)
        then = f", around {end:%Y-%m-%d %H:%M} UTC instead of {change.middle:%Y-%m-%d %H:%M}"
    return (
        f"{most} {job.gpu_model} that it can use are free in every slot of the next {hours:.3g} h, "
        "by the plan and by q95 of what all jobs, those to come too, are forecast to hold, and "
        f"nobody waits for them. With {change.option.boards:g} instead of {job.gpu_count} it is "
        f"expected to end {_text(gain.earlier)} h earlier{then}, and takes "
        f"{_text(gain.board_hours)} GPU-hours more (80 %). When others want the boards, the way "
        "back is recommended."
    )


def _text(value: Range) -> str:
    return f"{value.central:.2g} ({value.low:.2g}–{value.high:.2g})"


def _less(value: Range) -> Range:
    return Range(low=-value.high, central=-value.central, high=-value.low, unit=value.unit)


def _recommendation(action: Action, change: _Change, why: str, growing: Growing) -> Recommendation:
    problem, gain, costs = growing.problem, change.gain, change.costs
    low, central, high = costs.seconds
    level = "medium" if change.basis == _MEASURED else "weak"
    advice = job_advice(
        action,
        change.proposal,
        growing.plan,
        problem,
        change="",
        why=why,
        savings=_savings(change, problem),
        confidence=f"{level}: {change.basis}" if gain else "weak: what it costs the job is unknown",
        factors=(("speed on other numbers of boards", change.basis), ("end told by", change.by)),
        signal=problem.signals.get(change.proposal.job.demand.job.job_id, "unknown"),
        proposed=change.option.configuration,
    )
    return replace(
        advice,
        transition=Transition(
            seconds=Range(low=low, central=central, high=high, unit="s"),
            parts=costs.parts,
            gpu_hours=mean_of(*costs.gpu_hours),
            cost=mean_of(*costs.cost),
        ),
        delay_hours=None if gain is None else _less(gain.earlier),
    )


def _savings(change: _Change, problem: PlanningProblem) -> Savings:
    """Return the boards' cost as a loss, given back as a saving; None where not known.

    All boards are taken to draw what the job's draw now: at most, as more wait for each other.
    """
    terms, demand, present = problem.terms, change.proposal.job.demand, change.proposal.present
    gpu_hours = energy = cost = None
    if change.gain is not None:
        gpu_hours = _less(change.gain.board_hours)
        price = rent_per_hour(present, terms) / present.boards
        if demand.power_q50 is not None:
            watts = float(np.mean(demand.power_q50)) - idle_watts(present, terms)
            each = max(0.0, watts) / present.boards / 1000 * terms.energy.pue
            energy = replace(gpu_hours.times(each), unit="kWh")
            price += each * max(0.0, float(terms.tariff.per_kwh.mean()))
        cost = replace(gpu_hours.times(price), unit=terms.energy.currency)
    return Savings(
        horizon_hours=demand.remaining.hours(terms.slot_hours),
        gpu_hours=gpu_hours,
        energy_kwh=energy,
        emissions_kgco2e=None if energy is None else emissions_of(energy, terms.carbon),
        cost=cost,
        market_emissions_kgco2e=market_emissions_of(energy, terms.energy.market_factor),
    )
