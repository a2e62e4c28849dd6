"""Advice on the fleet beside that on its jobs: GPU models that will run short."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from data.facts.cluster_names import cluster_in, name_in_cluster, named_in
from data.facts.jobs import Platform
from data.records.actions import Action
from data.records.forecasts import GroupForecast, GroupKind, Quantity
from data.records.plans import Configuration, Plan
from data.records.recommendations import LIFETIME, Recommendation, Savings
from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.evidence import FleetEvidence
from planner.proposals.job_advice import savings_of
from planner.proposals.proposal import Proposal
from planner.proposals.wording import name_of, named_first

Values = npt.NDArray[np.float64]
_MIN_BOARDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAdvice:
    """Advice about `subject`, a node by its scheduler's name or a GPU model, not about one job.

    `first` are changes of jobs that have to be followed before it, `later` those that start a job
    again, which must not find it open, and `frees` the jobs whose boards it frees.
    """

    action: Action
    subject: str
    platform: Platform
    gpu_model: str
    gpus_now: int
    gpus_then: int
    change: str
    why: str
    savings: Savings
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    factors: tuple[tuple[str, str], ...] = ()
    details: tuple[tuple[str, str], ...] = ()
    first: tuple[Proposal, ...] = ()
    later: tuple[Proposal, ...] = ()
    frees: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPlace:
    """The outcome of sharing for a job: whether its own board is freed, beside whom, and why.

    `is_ready`: a share can be had now, and is proposed.
    """

    frees: bool
    is_ready: bool = False
    partners: tuple[str, ...]
    why: str


def returned_boards(
    model: str, changes: Sequence[Proposal], slots: int, cluster: str = ""
) -> Values:
    """Return the boards of a model that changes give back, array [slots]; below 0: they take more.

    In one cluster. A change gives back no more than its job would still hold.
    """
    freed = np.zeros(slots)
    for change in changes:
        if change.job.demand.job.cluster != cluster:
            continue
        options = [change.present, *(change.job.options[number] for number in change.proposed)]
        now, *then = (
            indices.boards * (indices.configuration.gpu_model == model) for indices in options
        )
        freed += change.job.demand.remaining.central * (now - np.array(then))
    return freed


def missing_boards(
    problem: PlanningProblem, groups: Sequence[GroupForecast], changes: Sequence[Proposal]
) -> Iterator[FleetAdvice]:
    """Yield the GPU models of which the forecast wants more boards than the fleet has.

    The forecast of a model contains jobs yet to come, and those without readings. Only what starts
    within the horizon counts, and only what is still short once the recommended `changes` are made.
    Of several forecasts of a model the one by the shortest slots counts. Boards of another cluster
    help nobody.
    """
    slot = timedelta(minutes=problem.planning.slot_minutes)
    capacity = _boards_by_cluster(problem)
    end = problem.slot_starts[-1]
    judged = set[str]()
    for group in sorted(groups, key=slot_length):
        path = group.path(Quantity.ALLOCATED_GPUS) if group.kind is GroupKind.GPU_MODEL else None
        have = capacity.get(group.name, _Boards())
        if path is None or not have.total or group.name in judged:
            continue
        judged.add(group.name)
        model, cluster = name_in_cluster(group.name), cluster_in(group.name)
        freed = returned_boards(model, changes, len(problem.slot_starts), cluster)
        short = [
            _ShortSlot(at=at, forecast=high, freed=float(freed[number]))
            for at, high in zip(group.slot_starts, path.q90, strict=True)
            if at <= end
            and high - freed[number := max(0, (at - problem.slot_starts[0]) // slot)]
            > have.total + 0.5
        ]
        if short:
            yield _missing(group, have, short, problem)


@dataclass(slots=True)
class _Boards:
    """The boards of a model in a cluster outside maintenance, and how many of them are held now."""

    total: float = 0.0
    allocated: float = 0.0


def _boards_by_cluster(problem: PlanningProblem) -> dict[str, _Boards]:
    """Return the boards by MODEL@CLUSTER, at least what is held now, by jobs without readings too.

    For a node closed to new jobs, only held boards count.
    """
    by_model: dict[str, _Boards] = defaultdict(_Boards)
    for node in problem.facts.nodes:
        if node.observed:
            row = by_model[named_in(node.gpu_model, cluster_in(node.name))]
            row.total += node.gpus if node.open else min(node.gpus, node.allocated + node.occupied)
            row.allocated += node.occupied
    for job in problem.jobs:
        by_model[_model_of(job)].allocated += job.held_boards
    for boards in by_model.values():
        boards.total = max(boards.total, boards.allocated)
    return by_model


def _model_of(job: JobProblem) -> str:
    return named_in(job.demand.job.gpu_model, job.demand.job.cluster)


def slot_length(group: GroupForecast) -> timedelta:
    """Return the length of a slot, an hour where there is but one."""
    starts = group.slot_starts
    return starts[1] - starts[0] if len(starts) > 1 else timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShortSlot:
    """A slot without enough boards: the forecast's q90, and what recommendations give back."""

    at: datetime
    forecast: float
    freed: float

    @property
    def needed(self) -> float:
        return self.forecast - self.freed


def _missing(
    group: GroupForecast,
    have: _Boards,
    short: Sequence[_ShortSlot],
    problem: PlanningProblem,
) -> FleetAdvice:
    model, starts = group.name, short[0].at
    worst = max(short, key=lambda entry: entry.needed)
    needed = int(-(-worst.needed // 1))
    hours = len(short) * (slot_length(group) / timedelta(hours=1))
    changed = ""
    if abs(worst.freed) >= _MIN_BOARDS:
        verb = "give back" if worst.freed > 0 else "take"
        changed = f" The recommended changes of jobs {verb} {abs(worst.freed):.3g} by then."
    return FleetAdvice(
        action=Action.ADD_GPUS,
        subject=model,
        platform=Platform.UNKNOWN,
        gpu_model=name_in_cluster(model),
        gpus_now=int(have.total),
        gpus_then=needed,
        change=f"{needed - int(have.total)} more {model} from {starts:%Y-%m-%d %H:%M} UTC",
        why=(
            f"Jobs hold {have.allocated:.3g} {model} now and are forecast to want up to "
            f"{worst.forecast:.1f} (q90) from {starts:%Y-%m-%d %H:%M} UTC, in {hours:g} h of the "
            f"horizon, where the fleet has {have.total:g}, of which "
            f"{have.total - have.allocated:.3g} are free now.{changed} Some jobs would wait in the "
            "queue. More boards or other models for some jobs make room."
        ),
        savings=savings_of(problem),
        starts_at=starts,
    )


def recommendation_of_advice(
    evidence: FleetEvidence, plan: Plan, problem: PlanningProblem, advice: FleetAdvice
) -> Recommendation:
    """Return the recommendation of advice on the fleet."""
    recommendation = Recommendation(
        plan_id=plan.plan_id,
        created_at=plan.created_at,
        expires_at=plan.created_at + LIFETIME,
        action=advice.action,
        job_id="",
        job_name=advice.subject,
        namespace="",
        platform=advice.platform,
        now=Configuration(gpu_model=advice.gpu_model, gpu_count=advice.gpus_now),
        proposed=Configuration(gpu_model=advice.gpu_model, gpu_count=advice.gpus_then),
        why=advice.why,
        evidence=evidence.of(advice.factors),
        savings=advice.savings,
        risk=advice.action.spec.risk,
        confidence="medium: it follows from the plan and the forecasts of all jobs",
        details=((("node", advice.subject),) if advice.action.spec.of_node else ())
        + advice.details,
        change=advice.change,
        starts_at=advice.starts_at,
        ends_at=advice.ends_at,
    )
    return named_first(recommendation, [name_of(entry) for entry in advice.first])
