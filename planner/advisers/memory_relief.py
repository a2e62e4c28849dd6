"""Relief of a job whose GPU memory will run out: larger devices, or more of them.

A larger device that offers what the forecast needs is sure to hold it; of those with free boards
the cheapest is taken. More devices hold it only where the job shares its memory out between them,
so they come second. What neither reaches is left to the job's own program.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from data.catalogue.gpu_catalogue import GpuModel, MigProfile
from data.facts.jobs import Platform
from data.records.actions import Action
from data.records.feasible_changes import REQUEUE_NEEDED, configuration_refusal, runs_in_slurm
from data.records.memory import MemoryFinding, MemoryOutlook, MemoryRemedy
from data.records.plans import Configuration
from planner.advisers.admission import AdmissionRoom
from planner.costs.configurations import Option
from planner.costs.terms import Terms
from planner.memory.estimate.bounds import USABLE_RATIO
from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.proposal import Proposal
from planner.proposals.relief import Relief, is_censored
from planner.proposals.savings import ProposalOutcome, outcome_of

_ROOM_FACTOR = 1.25
"""Room asked for above a forecast that ends at the device's own memory: the rest was cut."""


def _asked_mib(finding: MemoryFinding) -> float:
    """Return the memory required of other devices, MiB."""
    return finding.needed_mib * (_ROOM_FACTOR if is_censored(finding) else 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReliefOption:
    """One change that may help: an option beyond those of the plan."""

    action: Action
    option: Option
    limit_mib: float


def reliefs(
    findings: Sequence[MemoryFinding],
    proposals: Sequence[Proposal],
    problem: PlanningProblem,
    room: AdmissionRoom,
) -> tuple[Relief, ...]:
    """Return one relief for every job of the plan that will run out, the likeliest first.

    `proposals` are what the plan proposes, one per job. The boards taken are taken from `room`.
    """
    planned = {proposal.job.demand.job.job_id: proposal for proposal in proposals}
    return tuple(
        _relief(finding, planned[finding.job_id], problem, room)
        for finding in findings
        if finding.outlook is MemoryOutlook.RUNS_OUT
        and finding.job_id in planned
        and planned[finding.job_id].job.demand.remaining.central.any()
    )


def _relief(
    finding: MemoryFinding, planned: Proposal, problem: PlanningProblem, room: AdmissionRoom
) -> Relief:
    job = planned.job
    why_not = _unchangeable(job, may_requeue=problem.rules.may_requeue)
    if not why_not:
        ways = list(_ways(job, finding, problem))
        why_not = "no GPU type of the fleet is large enough for it"
        for entry, way, outcome in _ordered(ways, planned, problem.terms):
            why_not = room.take(entry)
            if not why_not:
                return Relief(
                    finding=finding, proposal=entry, outcome=outcome, limit_mib=way.limit_mib
                )
    keeps = replace(planned, option=0, proposed=(0,) * len(planned.planned), action=None)
    return Relief(
        finding=finding,
        proposal=keeps,
        outcome=None,
        limit_mib=USABLE_RATIO * finding.limit_mib,
        why_not=why_not,
    )


def _unchangeable(job: JobProblem, *, may_requeue: bool) -> str:
    """Return the reason why no configuration of the job can change, '' when one can."""
    if job.keep_reason:
        return job.keep_reason
    if job.pinned is not None:
        return "planning.pins holds its configuration"
    standing = job.demand.standing
    if not standing.may_restart:
        return f"it cannot be restarted: {standing.reason}"
    if job.demand.job.platform is Platform.UNKNOWN:
        return "its platform is unknown, so nothing can change it"
    if runs_in_slurm(job.demand.job) and not may_requeue:
        return REQUEUE_NEEDED
    return ""


def _ways(
    job: JobProblem, finding: MemoryFinding, problem: PlanningProblem
) -> Iterator[_ReliefOption]:
    for way in (*_larger(job, finding, problem), *_spread(job, finding)):
        proposed = way.option.configuration
        if not configuration_refusal(
            job.demand.job,
            proposed,
            may_requeue=problem.rules.may_requeue,
            behind_others=problem.rules.behind_others,
        ):
            yield way


def _ordered(
    ways: Sequence[_ReliefOption], planned: Proposal, terms: Terms
) -> list[tuple[Proposal, _ReliefOption, ProposalOutcome]]:
    """Return the ways with what they bring: larger devices first, of each kind the cheapest."""
    candidates = []
    for way in ways:
        options = (*planned.job.options, way.option)
        proposal = replace(
            planned,
            job=replace(planned.job, options=options),
            option=len(options) - 1,
            proposed=(len(options) - 1,) * len(planned.planned),
            share=1.0,
            action=way.action,
            first=None,
            last=None,
        )
        candidates.append((proposal, way, outcome_of(proposal, terms)))
    return sorted(
        candidates,
        key=lambda each: (
            each[1].action is Action.SPREAD,
            -each[2].savings.money,
            each[1].limit_mib,
        ),
    )


def _larger(
    job: JobProblem, finding: MemoryFinding, problem: PlanningProblem
) -> Iterator[_ReliefOption]:
    """Yield the devices of the fleet that offer each of the job's devices what it will need."""
    now = job.demand.job
    here = problem.catalogue.get(now.gpu_model)
    reach = problem.facts.reach[now.job_id]
    offered = reach.slices.get(here.name, frozenset())
    speed = here.relative_speed * _compute(here.mig_profile(now.mig_profile))
    for name in sorted({now.gpu_model, *reach.models}):
        model = problem.catalogue.find(name)
        if model is None or not model.runs_what_runs_on(here):
            continue
        profiles: list[MigProfile | None] = [None]
        if now.mig_profile and model.name == here.name:
            profiles += [entry for entry in model.mig_profiles if entry.name in offered]
        for profile in profiles:
            memory = model.memory_mib if profile is None else profile.memory_mib
            if memory <= finding.limit_mib or USABLE_RATIO * memory < _asked_mib(finding):
                continue
            ratio = model.relative_speed * _compute(profile) / speed
            yield _ReliefOption(
                action=Action.LARGER_GPU,
                option=_option(now.gpu_count, model, profile, ratio),
                limit_mib=USABLE_RATIO * memory,
            )


def _compute(profile: MigProfile | None) -> float:
    return 1.0 if profile is None else profile.compute_fraction


def _option(count: int, model: GpuModel, profile: MigProfile | None, ratio: float) -> Option:
    share = 1.0 if profile is None else model.board_share(profile)
    return Option(
        configuration=Configuration(
            gpu_model=model.name,
            gpu_count=count,
            mig_profile="" if profile is None else profile.name,
        ),
        boards=count * share,
        service=count * ratio,
        slowdown=(1.0, 1.0, max(1.0, 1 / ratio)),
    )


def _spread(job: JobProblem, finding: MemoryFinding) -> Iterator[_ReliefOption]:
    """Yield the fewest devices that hold what is needed if its memory is shared out evenly.

    A job whose recipe is known was sent by Trimtab, and its command says over how many devices.
    """
    now, standing = job.demand.job, job.demand.standing
    fixed = any(
        entry.remedy is MemoryRemedy.SPREAD and entry.expected_mib is not None
        for entry in finding.advice
    )
    if fixed or standing.scaled_by or now.mig_profile:
        return
    limit = USABLE_RATIO * finding.limit_mib
    required = now.gpu_count * _asked_mib(finding) / limit
    more = max(1, math.ceil((required - now.gpu_count) / standing.step - 1e-9))
    count = now.gpu_count + more * standing.step
    if standing.most is not None and count > standing.most:
        return
    yield _ReliefOption(
        action=Action.SPREAD,
        option=Option(
            configuration=Configuration(gpu_model=now.gpu_model, gpu_count=count),
            boards=float(count),
            service=float(count),
        ),
        limit_mib=limit,
    )
