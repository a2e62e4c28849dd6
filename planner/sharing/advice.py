"""Advice to let jobs share boards: one for each GPU model of a scheduler, with all of its jobs.

No applier sets sharing up, so it is advice with its steps, and its worth is told beside the sum.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

import numpy as np

from data.base.counts import count_text
from data.base.units import gib
from data.catalogue.gpu_catalogue import GpuModel
from data.facts.cluster_names import name_in_cluster, named_in
from data.facts.job_history import JobHistory
from data.records.actions import Action
from data.records.plans import Plan
from data.records.recommendations import Range, Savings
from planner.fleet.fleet_nodes import Home
from planner.jobs.job_end import waits_for_start
from planner.memory.estimate.bounds import USABLE_RATIO
from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.fleet_advice import FleetAdvice, SharedPlace
from planner.proposals.job_advice import savings_of
from planner.sharing.memory_bound import CHANCE, MIN_JOBS
from planner.sharing.shared_boards import (
    MAX_LATE_SHARE,
    SharedBoard,
    SharingFit,
    SharingLimits,
    SharingLoad,
    shared_boards,
)
from planner.sharing.shared_nodes import (
    SharedNode,
    ShareMove,
    moves_to,
    node_advice,
    shared_node,
)
from planner.sharing.steps import SharingPlan, steps

_LOOK_BACK = timedelta(days=7)
_MIN_HISTORY = timedelta(hours=2)
_NAMED_BOARDS = 100
_UNKNOWN_NODES = ("", "unknown")
SPEEDS = ((0.6, 0.74, 0.95, 1.00), (1.0, 0.60, 0.90, 0.97))
"""Up to a sum of solo utilizations: lowest, likely and highest speed of the slower of two jobs.

Likely is between the medians of Lucid's 1,388 pairs (0.97 and 0.94; ASPLOS 2023, small vision and
language models) and those of 22 pairs that take turns on an H200 (0.92 and 0.86); by MPS they were
0.99 and 0.94 there. The lowest is the worst of these, the highest Lucid's median of both jobs
(benchmarks/measured/shared_board_h200.json)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingAdvice:
    """The advice, and by its subject the place of every job that was looked at, by job id.

    `nodes` are free ones that are to offer shares, `moves` those of jobs to nodes that do.
    """

    advice: tuple[FleetAdvice, ...] = ()
    nodes: tuple[FleetAdvice, ...] = ()
    moves: tuple[ShareMove, ...] = ()
    places: Mapping[str, Mapping[str, SharedPlace]] = field(default_factory=dict)

    def of(self, subjects: Collection[str]) -> dict[str, SharedPlace]:
        """Return the places of the jobs, without those in boards of pools that are not advised."""
        return {
            job_id: place
            for subject, places in self.places.items()
            for job_id, place in places.items()
            if subject in subjects or place.is_ready or not place.partners
        }


def sharing_advice(
    problem: PlanningProblem,
    candidates: Collection[str],
    last: Plan | None,
    wanted: Collection[str],
) -> SharingAdvice:
    """Return which of the jobs should share boards; `candidates` have no other proposal.

    Boards that the `last` plan let jobs share are kept while they are feasible. Free nodes of the
    models `wanted` are left to others.
    """
    pools: dict[str, list[JobProblem]] = defaultdict(list)
    for job in problem.jobs:
        run = job.demand.job
        if run.job_id in candidates and _may_share(job, problem):
            runs_it = "" if run.scheduler is None else f" of {run.source}"
            pools[named_in(run.gpu_model + runs_it, run.cluster)].append(job)
    partners = (
        {} if last is None else {job.job_id: job.idle.partners for job in last.jobs if job.idle}
    )
    advice, nodes = [], []
    moves: list[ShareMove] = []
    places: dict[str, dict[str, SharedPlace]] = {}
    for subject in sorted(pools):
        pool = _SharingPool(pools[subject], problem, partners)
        place = pool.shared_node(problem, wanted)
        if place is not None and place.node.shares:
            pool.move_to(place)
            moves += moves_to(place, pool.ids, pool.usable_mib)
        elif place is not None:
            nodes.append(node_advice(place, pool.ids, problem))
        places[subject] = dict(pool.places())
        if pool.shared:
            advice.append(_advice(subject, pool, problem))
    return SharingAdvice(
        advice=tuple(advice), nodes=tuple(nodes), moves=tuple(moves), places=places
    )


def _may_share(job: JobProblem, problem: PlanningProblem) -> bool:
    """Return whether a job holds one whole board alone, can be restarted, and was read enough."""
    demand, planning = job.demand, problem.planning
    run, past = demand.job, demand.past
    readings = np.isfinite(past.memory_used_mib) & np.isfinite(past.utilization_max_ratio)
    return (
        planning.board_sharing != "none"
        and run.gpu_count == 1
        and not (run.mig_profile or job.keep_reason or demand.share)
        and demand.standing.may_restart
        and not waits_for_start(run)
        and not demand.may_stop(planning)
        and demand.demand_q90 is not None
        and problem.catalogue.find(run.gpu_model) is not None
        and int(readings.sum()) * timedelta(minutes=planning.slot_minutes) >= _MIN_HISTORY
    )


class _SharingPool:
    """Jobs on boards of one model, and the boards that would hold them."""

    def __init__(
        self,
        jobs: Sequence[JobProblem],
        problem: PlanningProblem,
        partners: Mapping[str, Sequence[str]],
    ) -> None:
        self.jobs = jobs
        self.ids = [job.demand.job.job_id for job in jobs]
        self.model: GpuModel = problem.catalogue.get(jobs[0].demand.job.gpu_model)
        number = {job_id: index for index, job_id in enumerate(self.ids)}
        standing = {
            tuple(
                sorted(
                    number[other]
                    for other in (job_id, *partners.get(job_id, ()))
                    if other in number
                )
            )
            for job_id in self.ids
        }
        members = set[int]()
        groups: list[tuple[int, ...]] = []
        for group in sorted(standing):
            if len(group) > 1 and not members & set(group):
                groups.append(group)
                members |= set(group)
        self.usable_mib = USABLE_RATIO * self.model.memory_mib
        self.load = _load(jobs, problem)
        self.limits = SharingLimits(
            usable_mib=self.usable_mib,
            window_slots=problem.planning.horizon_slots,
            headroom_ratio=problem.planning.memory_headroom_ratio,
        )
        self.boards = shared_boards(self.load, self.limits, groups)
        self.place: SharedNode | None = None

    @property
    def shared(self) -> list[SharedBoard]:
        """The boards with more than one job."""
        return [board for board in self.boards if len(board.jobs) > 1]

    def shared_node(self, problem: PlanningProblem, wanted: Collection[str]) -> SharedNode | None:
        """Return the node of Kubernetes for jobs of the shared boards."""
        fit = partial(SharingFit, self.load, self.limits)
        return shared_node(self.jobs, self.shared, fit, problem, wanted)

    def move_to(self, place: SharedNode) -> None:
        """Take the jobs of a node that offers shares from the boards."""
        self.place = place
        rest = (
            replace(board, jobs=tuple(job for job in board.jobs if job not in place.jobs))
            for board in self.boards
        )
        self.boards = [board for board in rest if board.jobs]

    def names(self, board: SharedBoard) -> list[str]:
        """Return the jobs of a board, the one that keeps its place first."""
        return [self.ids[job] for job in board.jobs]

    def places(self) -> Iterator[tuple[str, SharedPlace]]:
        """Yield what becomes of every job."""
        memory = gib(self.model.memory_mib)
        names_on_node = [] if self.place is None else [self.ids[job] for job in self.place.jobs]
        for index, job_id in enumerate(names_on_node):
            others = tuple(name for name in names_on_node if name != job_id)
            why = f"a share of a board beside {', '.join(others)} is proposed"
            frees = self.place is not None and index >= self.place.boards
            yield job_id, SharedPlace(frees=frees, is_ready=True, partners=others, why=why)
        for board in self.boards:
            names = self.names(board)
            bound = f"their memory stays below {gib(board.bound_mib)} of {memory} GiB"
            for place, job_id in enumerate(names) if len(names) > 1 else ():
                others = tuple(name for name in names if name != job_id)
                why = f"{', '.join(others)}; {bound}"
                yield job_id, SharedPlace(frees=place > 0, partners=others, why=why)
            if len(names) == 1 and board.nearest is not None:
                why = self._alone(board, self.ids[board.nearest])
                yield names[0], SharedPlace(frees=False, partners=(), why=why)

    def _alone(self, board: SharedBoard, other: str) -> str:
        if board.bound_mib > self.usable_mib:
            return (
                f"memory: beside {other}, which comes closest, up to {gib(board.bound_mib)} of "
                f"{gib(self.model.memory_mib)} GiB would be needed"
            )
        if board.late_share > MAX_LATE_SHARE:
            return (
                f"compute: beside {other}, which comes closest, {100 * board.late_share:.1f} % of "
                f"a board's work would be late, at most {100 * MAX_LATE_SHARE:g} % may"
            )
        return f"it would fit beside {other}, which would share its board with others"


def _load(jobs: Sequence[JobProblem], problem: PlanningProblem) -> SharingLoad:
    """Return what the jobs took in the last week, on one clock of slots."""
    demands = [job.demand for job in jobs]
    slot = np.timedelta64(problem.planning.slot_minutes * 60, "s")
    newest = max(demand.past.slot_start[-1] for demand in demands)
    first = max(
        newest - np.timedelta64(_LOOK_BACK), min(demand.past.slot_start[0] for demand in demands)
    )
    slots = int((newest - first) / slot) + 1
    rows = np.full((3, len(demands), slots), np.nan)
    for number, demand in enumerate(demands):
        past: JobHistory = demand.past
        at = ((past.slot_start - first) / slot).astype(np.int64)
        inside = at >= 0
        rows[0, number, at[inside]] = past.memory_used_mib[inside]
        rows[1, number, at[inside]] = past.utilization_ratio[inside]
        rows[2, number, at[inside]] = past.utilization_max_ratio[inside]
        # The forecast, or the requests of a service, may say more than was read.
        high = 0.0 if demand.demand_q90 is None else float(demand.demand_q90.max())
        most = float(np.nanmax(rows[2, number], initial=0.0))
        if 0 < most < high:
            rows[1:, number] *= high / most
    by_namespace = problem.planning.board_sharing == "namespace"
    rooms = [demand.job.namespace if by_namespace else "" for demand in demands]
    return SharingLoad(
        memory_mib=rows[0],
        mean_ratio=rows[1],
        peak_ratio=rows[2],
        room=np.unique(rooms, return_inverse=True)[1],
    )


def _advice(subject: str, pool: _SharingPool, problem: PlanningProblem) -> FleetAdvice:
    """Return the advice for the jobs of a pool."""
    names = [pool.names(board) for board in pool.shared]
    jobs, boards, most = sum(map(len, names)), len(names), max(map(len, names))
    run, model = pool.jobs[0].demand.job, pool.model
    homes = problem.facts.homes
    nodes = {name_in_cluster(name) for group in names for name in _nodes_of(homes.get(group[0]))}
    plan = SharingPlan(
        boards=boards, most=most, nodes=sorted(nodes), share_mib=pool.usable_mib / most
    )
    below = f"{gib(max(board.bound_mib for board in pool.shared))} of {gib(model.memory_mib)} GiB"
    memory = (
        f"With a chance of {100 * (1 - CHANCE):g} % a board, its jobs stay below {below} together "
        "until the end of the horizon, judged by how far such groups exceeded their usual memory"
        if len(pool.jobs) >= MIN_JOBS
        else f"The most that each of them took, with headroom, comes to at most {below} a board"
    )
    late = 100 * max(board.late_share for board in pool.shared)
    _upto, slowest, likely, _best = SPEEDS[0]
    return FleetAdvice(
        action=Action.CO_LOCATE,
        subject=subject,
        platform=run.platform,
        gpu_model=model.name,
        gpus_now=jobs,
        gpus_then=boards,
        change=(
            f"{count_text(boards, 'board')} for {jobs} jobs that hold one each, at most {most} on "
            "one"
        ),
        why=(
            f"{jobs} jobs hold a whole {model.name} each and would do with {boards}. {memory}. At "
            f"most {late:.1f} % of a board's work would be late. Pairs of programs measured "
            f"{likely:g} of their speed, the worst {slowest:g}. Each job is restarted once. "
            "Time slicing holds no job to a part of the memory: where they exceed the board "
            "together, a program among them fails."
        ),
        savings=_savings(pool, problem),
        factors=(("restarts", f"{jobs} jobs, each once"),),
        details=(("boards", _groups_text(names)), ("steps", steps(plan, run.platform))),
        frees=tuple(job_id for group in names for job_id in group[1:]),
    )


def _nodes_of(home: Home | None) -> Iterator[str]:
    """Yield the known nodes of a job."""
    if home is not None:
        yield from (name for name, _boards in home.boards if name not in _UNKNOWN_NODES)


def _groups_text(names: Sequence[Sequence[str]]) -> str:
    more = f"; and {len(names) - _NAMED_BOARDS} more" if len(names) > _NAMED_BOARDS else ""
    return "; ".join(" + ".join(group) for group in names[:_NAMED_BOARDS]) + more


def _savings(pool: _SharingPool, problem: PlanningProblem) -> Savings:
    """Return the hours of the freed boards; they stay powered. A board in CHANCE goes back."""
    hours = 0.0
    for board in pool.shared:
        there = np.array([pool.jobs[job].demand.remaining.central for job in board.jobs])
        hours += float((there.sum(axis=0) - there.max(axis=0)).sum()) * problem.terms.slot_hours
    freed = Range(low=0.0, central=(1 - CHANCE) * hours, high=hours, unit="GPU-h")
    money = replace(freed.times(pool.model.price_per_hour), unit=problem.energy.currency)
    return savings_of(problem, gpu_hours=freed, cost=money)
