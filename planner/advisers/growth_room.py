"""Boards that a training job may grow into: free in every slot of the horizon, by every source.

Free is a board that no job holds now, in the plan or as recommended, in any slot (the most of each
job counts, whenever it is); that the upper quantile of all demand for its model leaves; that nobody
waits for; and that no quota keeps.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeVar

import numpy as np

from data.facts.cluster_names import cluster_in, named_in
from data.facts.gpu_resources import resource_of
from data.facts.jobs import Job
from data.facts.progress import ProgressReport
from data.facts.quotas import Quota, QuotaKind, quotas_of_jobs
from data.records.forecasts import GroupForecast, GroupKind, Quantity
from data.records.plans import Configuration, JobPlan, Plan
from data.settings.all_settings import PlanningSettings
from planner.advisers.growth_gain import RunsBySize
from planner.costs.cost import needed_service
from planner.fleet.fleet import runs_under
from planner.fleet.fleet_nodes import Home
from planner.fleet.host_room import held_shares, host_share, room_of
from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.fleet_advice import slot_length
from planner.proposals.proposal import Proposal
from planner.slots.slot_problem import NOTHING

Key = TypeVar("Key")
_NOTICEABLE_BOARDS = 0.5
_HOST = ("milli-CPUs", "bytes")
"""What a job asks of a node beside boards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthFacts:
    """The facts of growth beside the plan: jobs that wait for boards.

    By job: what it reported of its work, ended runs of it, and what it had before it was grown.
    """

    waiting: Sequence[Job] = ()
    progress: Mapping[str, Sequence[ProgressReport]] = field(default_factory=dict)
    runs: Mapping[str, RunsBySize] = field(default_factory=dict)
    had: Mapping[str, Configuration] = field(default_factory=dict)


class GrowthRoom:
    """The boards left once all others have theirs; each grown job leaves fewer to the next."""

    def __init__(
        self,
        problem: PlanningProblem,
        plan: Plan,
        changes: Sequence[Proposal],
        groups: Sequence[GroupForecast],
        facts: GrowthFacts,
        closed: Collection[str],
    ) -> None:
        """Count free resources. `closed` are nodes of which another change is recommended.

        Nodes of a power domain are left alone: its limit may be what keeps their boards free.
        """
        self._problem, self._plan, self._facts = problem, plan, facts
        changed = {change.job.demand.job.job_id: change for change in changes}
        on_node: Counter[str] = Counter()
        in_use: Counter[tuple[str, str]] = Counter()
        self._usable: Counter[tuple[str, tuple[str, ...], str]] = Counter()
        for node in problem.facts.nodes:
            self._usable[node.gpu_model, node.schedulers, cluster_in(node.name)] += node.usable
        self._most_used: Counter[tuple[str, str]] = Counter()
        self._unserved: dict[tuple[str, str], str] = {}
        for job, planned in zip(problem.jobs, plan.jobs, strict=True):
            home = problem.facts.homes.get(planned.job_id)
            places = [*(() if home is None else home.boards)]
            places += [(stay.node, stay.gpus) for stay in planned.stays]
            _add_most(on_node, places)
            _add_most(in_use, _host_use(job, planned, home))
            boards = _boards(job, planned, changed.get(planned.job_id))
            under = problem.facts.scheduler[planned.job_id]
            _add_most(self._most_used, [((model, under), count) for model, count in boards])
            if short := _unserved(job, planned, problem.planning):
                self._unserved[job.demand.job.gpu_model, under] = short
        self._free = {
            node.name: node.usable - on_node[node.name]
            for node in problem.facts.nodes
            if node.read and node.observed and node.open and not (node.foreign or node.away)
            if node.name not in closed and node.known_as not in closed
            if not any(fnmatchcase(node.name, row.nodes) for row in problem.rules.power.domains)
        }
        self._hosts = {
            (node.name, what): room - in_use[node.name, what]
            for node in problem.facts.nodes
            for what, room in zip(_HOST, room_of(node), strict=True)
            if room is not None
        }
        self._nodes_of: dict[tuple[str, str], Sequence[str]] = {}
        self._upper = _upper_demand(problem, groups)
        rows = problem.tenants.of_job.tolist()
        self._tenant_of = {job.job_id: row for job, row in zip(plan.jobs, rows, strict=True)}
        self._granted: Counter[tuple[str, ...]] = Counter()

    def wanted(self, job: Job) -> str:
        """Return the text of other demand for boards like those of a job, '' without any."""
        source = self._problem.facts.scheduler[job.job_id]
        for other in self._facts.waiting:
            if other.source == source and other.gpu_model in ("", job.gpu_model):
                return f"{other.job_id} waits for {other.gpu_count} GPUs"
        free = self._left_by_forecast(job)
        if free is not None and free < -_NOTICEABLE_BOARDS:
            return f"all jobs are forecast to want {-free:.3g} more boards (q95) than there are"
        place = job.gpu_model, source
        return self._unserved.get(place, "") if self._left_by_plan(place) < 1 else ""

    def most(self, job: JobProblem) -> tuple[int, str]:
        """Return by how many boards a job may grow, in whole units, and what bounds it."""
        if reason := self.wanted(job.demand.job):
            return 0, reason
        least, bound = math.inf, ""
        for key, free, why in self._bounds(job):
            if free is None:
                return 0, why
            if free - self._granted[key] < least:
                least, bound = free - self._granted[key], why
        return self._steps_of(least, job), bound

    def take(self, job: JobProblem, count: int) -> None:
        """Take boards for a job, node by node."""
        for key, _left, _why in self._bounds(job):
            self._granted[key] += count
        each = _each_step(job)
        for name in self._nodes(job.demand.job):
            fits = min(count, self._fits(name, job, each))
            self._free[name] -= fits
            for what, amount in each.items():
                if (name, what) in self._hosts:
                    self._hosts[name, what] -= amount * (fits // job.demand.standing.step)
            count -= fits
            if not count:
                break

    def _steps_of(self, boards: float, job: JobProblem) -> int:
        step = job.demand.standing.step
        return step * int(max(0.0, boards + 1e-6) // step)

    def _fits(self, name: str, job: JobProblem, each: Mapping[str, int]) -> int:
        """Return the boards of a node that a job may take, in units with their CPUs and memory."""
        steps = [
            max(0, self._hosts[name, what] // amount)
            for what, amount in each.items()
            if amount and (name, what) in self._hosts
        ]
        step = job.demand.standing.step
        return min([self._steps_of(self._free[name], job), *(step * count for count in steps)])

    def _bounds(self, job: JobProblem) -> Iterator[tuple[tuple[str, ...], float | None, str]]:
        """Yield each limit: its name, the boards that it leaves (None: not known), and in words."""
        run, tenants = job.demand.job, self._problem.tenants
        place = run.gpu_model, self._problem.facts.scheduler[run.job_id]
        # Of the nodes themselves what is taken is taken at once.
        each = _each_step(job)
        steps = sum(self._fits(name, job, each) for name in self._nodes(run))
        yield (
            ("nodes", *place, run.job_id),
            float(steps),
            "whole pods that fit the free boards, CPUs and memory of its nodes",
        )
        free = self._left_by_plan(place)
        yield ("plan", *place), free, "boards that no job holds in any slot of the plan"
        yield (
            ("forecast", named_in(run.gpu_model, run.cluster)),
            self._left_by_forecast(run),
            "q95 of what all jobs are forecast to hold of its model",
        )
        row = self._tenant_of[run.job_id]
        if tenants.limiting and row != NOTHING:
            tenant = self._plan.tenants[row]
            used = max(tenant.now, *tenant.used)
            yield ("tenant", str(row)), tenant.quota - used, f"the quota of {tenant.tenant}"
        yield from self._quota_bounds(run)

    def _left_by_plan(self, place: tuple[str, str]) -> float:
        """Return the boards of a model under a scheduler that no job holds in any slot."""
        usable = sum(
            boards
            for (model, schedulers, _cluster), boards in self._usable.items()
            if model == place[0] and runs_under(place[1], schedulers)
        )
        return usable - self._most_used[place]

    def _left_by_forecast(self, job: Job) -> float | None:
        name = named_in(job.gpu_model, job.cluster)
        have = sum(
            boards
            for (model, _schedulers, cluster), boards in self._usable.items()
            if named_in(model, cluster) == name
        )
        return have - self._upper[name] if name in self._upper else None

    def _quota_bounds(self, job: Job) -> Iterator[tuple[tuple[str, ...], float | None, str]]:
        """Yield the free nominal quota of its queues: nothing is borrowed to grow.

        What other queues borrow may be lent by its own, whose use of it would end their jobs.
        """
        rows = self._problem.rules.quotas
        quotas = [
            quota
            for quota in quotas_of_jobs(rows, (job,))
            if quota.resource == resource_of("", job.scheduling.extra)
            and quota.gpu_model in ("", job.gpu_model)
        ]
        queue = job.extra.get("queue", "")
        if queue and all(quota.kind is QuotaKind.RESOURCE_QUOTA for quota in quotas):
            yield ("queue", queue), None, f"what its queue {queue} may hold is not known"
        for quota in quotas:
            if quota.nominal is not None:
                excess = [_beyond(row) for row in rows if _shares_with(row, quota)]
                free = quota.nominal - _in_use(quota) - sum(excess)
                whose = "" if quota.kind is QuotaKind.RESOURCE_QUOTA else "quota of "
                why = f"the {whose}{quota.kind} {quota.queue}"
                yield ("quota", *quota.key), None if math.isnan(free) else free, why

    def _nodes(self, job: Job) -> Sequence[str]:
        """Return the nodes on which a job of Kubernetes may grow."""
        place = job.gpu_model, self._problem.facts.scheduler[job.job_id]
        if place not in self._nodes_of:
            self._nodes_of[place] = [
                node.name
                for node in self._problem.facts.nodes
                if node.gpu_model == place[0] and node.name in self._free
                if runs_under(place[1], node.schedulers)
            ]
        return self._nodes_of[place]


def _each_step(job: JobProblem) -> dict[str, int]:
    """Return the milli-CPUs and bytes that one more unit of a job asks for."""
    run, step = job.demand.job, job.demand.standing.step
    return dict(zip(_HOST, host_share(run, run.gpu_count, step), strict=True))


def _host_use(
    job: JobProblem, planned: JobPlan, home: Home | None
) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield the milli-CPUs and bytes that a job asks of nodes: now, and where the plan has it."""
    run = job.demand.job
    now = [(name, (milli, size)) for name, _boards, milli, size in held_shares(run, home)]
    for stay in planned.stays:
        of = None if stay.mig_board is None else 1
        share = host_share(run, planned.steps[stay.start].gpu_count, stay.gpus, of=of)
        now.append((stay.node, share))
    for name, share in now:
        yield from (((name, what), need) for what, need in zip(_HOST, share, strict=True))


def _in_use(quota: Quota) -> float:
    """Return the use or reservation of a queue, NaN where unknown."""
    values = [value for value in (quota.used, quota.reserved) if value is not None]
    return max(values, default=math.nan)


def _beyond(quota: Quota) -> float:
    """Return the use of a queue beyond its nominal quota."""
    # Not max(0.0, …), which would make 0 of NaN.
    return float(np.maximum(0.0, _in_use(quota) - quota.most))


def _shares_with(other: Quota, quota: Quota) -> bool:
    """Return whether another queue may borrow what a queue of a cohort leaves."""
    same = [(row.source, row.kind, row.resource, row.flavor) for row in (other, quota)]
    return bool(quota.parent and other.parent) and same[0] == same[1] and other.key != quota.key


def _unserved(job: JobProblem, planned: JobPlan, planning: PlanningSettings) -> str:
    """Return that a job may have more boards and needs more than the plan has, '' if not."""
    steps = set(planned.steps)
    has = max(option.boards for option in job.options if option.configuration in steps)
    forecast = 0.0 if job.demand.foreseen_devices is None else job.demand.foreseen_devices.max()
    needs = float(max(forecast, needed_service(job.demand, job.options[0], planning).max()))
    more = any(option.grows and option.boards > has for option in job.options)
    if not more or needs <= has:
        return ""
    how = "q90 with headroom" if forecast < needs else "by its requests"
    return f"{planned.job_id} is forecast to need {needs:.3g} ({how}), of {has:g}"


def _add_most(total: Counter[Key], amounts: Iterable[tuple[Key, float]]) -> None:
    """Add the largest use of a job of each kind, at any time."""
    most: dict[Key, float] = {}
    for key, amount in amounts:
        most[key] = max(most.get(key, 0.0), amount)
    for key, amount in most.items():
        total[key] += math.ceil(amount)


def _boards(
    job: JobProblem, planned: JobPlan, change: Proposal | None
) -> Iterator[tuple[str, float]]:
    """Yield GPU model and boards of all that a job holds: now, in the plan, as recommended."""
    options = job.options if change is None else change.job.options
    steps = {job.options[0].configuration, *planned.steps}
    steps |= {options[place].configuration for place in (() if change is None else change.proposed)}
    for option in options:
        if option.configuration in steps:
            yield option.configuration.gpu_model, option.boards


def _upper_demand(problem: PlanningProblem, groups: Sequence[GroupForecast]) -> dict[str, float]:
    """Return the most boards of each model that jobs, those to come too, are forecast to hold.

    At q95, else q90, within the horizon, by the forecast with the shortest slots.
    """
    demand: dict[str, float] = {}
    for group in sorted(groups, key=slot_length):
        path = group.path(Quantity.ALLOCATED_GPUS) if group.kind is GroupKind.GPU_MODEL else None
        if path is None or group.name in demand:
            continue
        upper = zip(group.slot_starts, path.q95 or path.q90, strict=True)
        values = [value for at, value in upper if at <= problem.slot_starts[-1]]
        if values:
            demand[group.name] = max(values)
    return demand
