"""Advice to let jobs share boards: one for each GPU model of a scheduler, with all of its jobs.

No applier sets sharing up, so it is advice with its steps, and its worth is told beside the sum.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from data.base.units import gib
from data.catalogue.gpu_catalogue import GpuModel
from data.facts.cluster_names import name_in_cluster, named_in
from data.facts.job_history import JobHistory
from data.records.actions import Action
from data.records.plans import Plan
from data.records.recommendations import Range, Savings
from planner.jobs.job_demand import JobDemand
from planner.jobs.job_end import waits_for_start
from planner.memory.estimate.bounds import USABLE
from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.fleet_advice import FleetAdvice
from planner.sharing.memory_bound import CHANCE
from planner.sharing.shared_boards import (
    MAX_LATE_SHARE,
    SharedBoard,
    SharingLimits,
    SharingLoad,
    shared_boards,
)
from planner.sharing.steps import SharingPlan, steps

Values = npt.NDArray[np.float64]
_PAST = timedelta(days=7)
_LEAST_KNOWN = timedelta(hours=2)
_NAMED_BOARDS = 100
SPEEDS = ((0.6, 0.74, 0.95, 1.00), (1.0, 0.60, 0.90, 0.97))
"""Up to a sum of solo utilizations: lowest, likely and highest speed of the slower of two jobs.

Likely is between the medians of Lucid's 1,388 pairs (0.97 and 0.94; ASPLOS 2023, small vision and
language models) and those of 22 pairs that take turns on an H200 (0.92 and 0.86); by MPS they were
0.99 and 0.94 there. The lowest is the worst of these, the highest Lucid's median of both jobs
(benchmarks/measured/shared_board_h200.json)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The outcome for a job: whether its own board becomes free, beside whom it is, and why."""

    frees: bool
    beside: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingAdvice:
    """The advice, and by its subject the place of every job that was looked at, by job id."""

    advice: tuple[FleetAdvice, ...] = ()
    places: Mapping[str, Mapping[str, Place]] = field(default_factory=dict)

    def of(self, subjects: Collection[str]) -> dict[str, Place]:
        """Return the places of the jobs, without those in boards of pools that are not advised."""
        return {
            job_id: place
            for subject, places in self.places.items()
            for job_id, place in places.items()
            if subject in subjects or not place.beside
        }


def sharing_advice(
    problem: PlanningProblem, candidates: Collection[str], last: Plan | None
) -> SharingAdvice:
    """Return which of the jobs should share boards; `candidates` have no other proposal.

    Boards that the `last` plan let jobs share are kept while they are feasible.
    """
    pools: dict[tuple[str, str], dict[str, list[JobProblem]]] = defaultdict(dict)
    for job in problem.jobs:
        run = job.demand.job
        if run.job_id in candidates and _may_share(job, problem):
            runs_it = run.cluster if run.scheduler is None else run.source
            room = run.namespace if problem.planning.board_sharing == "namespace" else ""
            pool = pools[named_in(run.gpu_model, run.cluster), runs_it]
            pool.setdefault(room, []).append(job)
    beside = {} if last is None else {job.job_id: job.idle.beside for job in last.jobs if job.idle}
    advice = []
    places: dict[str, dict[str, Place]] = defaultdict(dict)
    for (subject, _runs_it), rooms in sorted(pools.items()):
        groups = [_Room(jobs, problem, beside) for _room, jobs in sorted(rooms.items())]
        places[subject] |= {job_id: place for group in groups for job_id, place in group.places()}
        if any(group.shared for group in groups):
            advice.append(_advice(groups, problem))
    return SharingAdvice(advice=tuple(advice), places=places)


def _may_share(job: JobProblem, problem: PlanningProblem) -> bool:
    """Return whether a job holds one whole board alone, can be restarted, and was read enough."""
    demand, planning = job.demand, problem.planning
    run, past = demand.job, demand.past
    known = np.isfinite(past.memory_used_mib) & np.isfinite(past.utilization_max_ratio)
    return (
        planning.board_sharing != "none"
        and run.gpu_count == 1
        and not (run.mig_profile or job.keep_reason or demand.share)
        and demand.standing.may_restart
        and not waits_for_start(run)
        and not demand.may_stop(planning)
        and demand.demand_q90 is not None
        and problem.catalogue.find(run.gpu_model) is not None
        and int(known.sum()) * timedelta(minutes=planning.slot_minutes) >= _LEAST_KNOWN
    )


class _Room:
    """Jobs that may share with one another, and the boards that would hold them."""

    def __init__(
        self,
        jobs: Sequence[JobProblem],
        problem: PlanningProblem,
        beside: Mapping[str, Sequence[str]],
    ) -> None:
        self.jobs = jobs
        self.ids = [job.demand.job.job_id for job in jobs]
        self.model: GpuModel = problem.catalogue.get(jobs[0].demand.job.gpu_model)
        number = {job_id: index for index, job_id in enumerate(self.ids)}
        standing = {
            tuple(
                sorted(
                    number[other] for other in (job_id, *beside.get(job_id, ())) if other in number
                )
            )
            for job_id in self.ids
        }
        taken = set[int]()
        groups: list[tuple[int, ...]] = []
        for group in sorted(standing):
            if len(group) > 1 and not taken & set(group):
                groups.append(group)
                taken |= set(group)
        self.usable_mib = USABLE * self.model.memory_mib
        self.boards = shared_boards(
            _load([job.demand for job in jobs], problem),
            SharingLimits(
                usable_mib=self.usable_mib,
                window_slots=problem.planning.horizon_slots,
                headroom_ratio=problem.planning.memory_headroom_ratio,
            ),
            groups,
        )

    @property
    def shared(self) -> list[SharedBoard]:
        """The boards with more than one job."""
        return [board for board in self.boards if len(board.jobs) > 1]

    def names(self, board: SharedBoard) -> list[str]:
        """Return the jobs of a board, the one that keeps its place first."""
        return [self.ids[job] for job in board.jobs]

    def places(self) -> Iterator[tuple[str, Place]]:
        """Yield what becomes of every job."""
        memory = gib(self.model.memory_mib)
        for board in self.boards:
            names = self.names(board)
            bound = f"their memory stays below {gib(board.bound_mib)} of {memory} GiB"
            for place, job_id in enumerate(names) if len(names) > 1 else ():
                others = tuple(name for name in names if name != job_id)
                why = f"it would share a board with {', '.join(others)}: {bound}"
                yield job_id, Place(frees=place > 0, beside=others, why=why)
            if len(names) == 1:
                yield names[0], Place(frees=False, beside=(), why=self._alone(board))

    def _alone(self, board: SharedBoard) -> str:
        if board.nearest is None:
            return "no other job that may share a board with it holds one of its model alone"
        other = self.ids[board.nearest]
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


def _load(demands: Sequence[JobDemand], problem: PlanningProblem) -> SharingLoad:
    """Return what the jobs took in the last week, on one clock of slots."""
    slot = np.timedelta64(problem.planning.slot_minutes * 60, "s")
    newest = max(demand.past.slot_start[-1] for demand in demands)
    first = max(
        newest - np.timedelta64(_PAST), min(demand.past.slot_start[0] for demand in demands)
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
    return SharingLoad(memory_mib=rows[0], mean_ratio=rows[1], peak_ratio=rows[2])


def _advice(rooms: Sequence[_Room], problem: PlanningProblem) -> FleetAdvice:
    """Return the advice for the jobs of a pool."""
    boards = [(room, board) for room in rooms for board in room.shared]
    names = [room.names(board) for room, board in boards]
    jobs = sum(map(len, names))
    run, model = rooms[0].jobs[0].demand.job, rooms[0].model
    most = max(map(len, names))
    used = max(board.bound_mib for _room, board in boards)
    homes = problem.facts.homes
    nodes = sorted(
        {name_in_cluster(name) for group in names for name in _node_of(homes.get(group[0]))}
    )
    plan = SharingPlan(
        boards=len(boards), most=most, nodes=nodes, share_mib=rooms[0].usable_mib / most
    )
    late = max(board.late_share for _room, board in boards)
    _upto, slowest, likely, _best = SPEEDS[0]
    return FleetAdvice(
        action=Action.CO_LOCATE,
        subject=named_in(model.name, run.cluster),
        platform=run.platform,
        gpu_model=model.name,
        gpus_now=jobs,
        gpus_then=len(boards),
        change=f"{len(boards)} boards for {jobs} jobs that hold one each, at most {most} on one",
        why=(
            f"{jobs} jobs hold a whole {model.name} each and would do with {len(boards)} boards. "
            f"With a chance of {100 * (1 - CHANCE):g} % each, the jobs of a board stay below "
            f"{gib(used)} of {gib(model.memory_mib)} GiB together until the end of the horizon, "
            f"by how far such groups went beyond their usual memory before; at most "
            f"{100 * late:.1f} % of a board's work would be late. Beside one another, pairs "
            f"measured {likely:g} of their speed, the worst {slowest:g}. Each job is restarted "
            "once. Nothing but HAMi or MPS keeps a job within its part of the memory."
        ),
        savings=_savings(boards, problem, model),
        starts_at=None,
        ends_at=None,
        factors=(("moves", f"{jobs - len(boards)} jobs, each once"),),
        details=(
            ("boards", _groups_text(names)),
            ("steps", steps(plan, run.platform)),
        ),
        frees=tuple(job_id for group in names for job_id in group[1:]),
    )


def _node_of(home: object) -> Iterator[str]:
    yield from (name for name, _boards in getattr(home, "boards", ()) if name != "unknown")


def _groups_text(names: Sequence[Sequence[str]]) -> str:
    more = f"; and {len(names) - _NAMED_BOARDS} more" if len(names) > _NAMED_BOARDS else ""
    return "; ".join(" + ".join(group) for group in names[:_NAMED_BOARDS]) + more


def _savings(
    boards: Sequence[tuple[_Room, SharedBoard]], problem: PlanningProblem, model: GpuModel
) -> Savings:
    """Return the boards' hours over the horizon; free boards stay powered.

    Low is what is left if a board in CHANCE, and whatever shares with the slowest pairs, goes back.
    """
    hours = 0.0
    for room, board in boards:
        there = np.array([room.jobs[job].demand.remaining.central for job in board.jobs])
        hours += float((there.sum(axis=0) - there.max(axis=0)).sum()) * problem.terms.slot_hours
    freed = Range(low=0.0, central=(1 - CHANCE) * hours, high=hours, unit="GPU-h")
    money = freed.times(model.price_per_hour)
    return Savings(
        horizon_hours=problem.terms.horizon_hours,
        gpu_hours=freed,
        energy_kwh=None,
        emissions_kgco2e=None,
        cost=Range(
            low=money.low,
            central=money.central,
            high=money.high,
            unit=problem.energy.currency,
        ),
    )
