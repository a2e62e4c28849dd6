"""Nodes that may be empty together: their jobs may leave them and fit on the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from data.records.feasible_changes import nodes_apart, whole_fact
from planner.fleet.host_room import held_shares, host_share, kept_boards, room_of
from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.proposal import Proposal

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def removable_nodes(
    problem: PlanningProblem,
    proposed: Mapping[str, Proposal],
    stretches: Mapping[str, tuple[int, int]],
) -> Mapping[str, Sequence[JobProblem]]:
    """Return those nodes, off in `stretches` of slots, whose jobs may leave and fit elsewhere.

    With each the jobs that leave it. A job holds in a stretch the most that its recommended change
    lets it hold there, or what it holds now until it has surely ended. The largest are put first,
    each where the least is left. A Slurm job that keeps several nodes stays on those that it has;
    on those of another model it takes each part on a node of its own.
    """
    nodes, fleet = problem.facts.nodes, _fleet(problem, proposed)
    spans = [stretches.get(node.name, (0, 0)) for node in nodes]
    off = [number for number in np.flatnonzero(fleet.takes) if spans[number][1] > spans[number][0]]

    @cache
    def held_in(span: tuple[int, int]) -> tuple[Ints, Ints]:
        return _held_by_all(problem, proposed, fleet, slice(*span))

    gone = np.zeros(len(nodes) + 1, dtype=np.bool_)
    going: dict[str, list[JobProblem]] = {}
    for candidate in sorted(off, key=lambda n: (spans[n][0] - spans[n][1], nodes[n].name)):
        local, others = held_in(spans[candidate])
        gone[candidate] = True
        parts = fleet.parts_held(local, gone)
        leave = (parts > 0) & gone[fleet.node]
        parts[leave] = 0
        nowhere = local - np.bincount(fleet.job, parts, len(local)).astype(np.int64)
        leaving = others + fleet.by_size(fleet.model_of_job, nowhere)
        rooms = fleet.rooms(parts, gone)
        if (
            fleet.stays[leave].any()
            or not all_fit(rooms, leaving)
            or any(rooms[model, size:].sum() < count for model, size, count in fleet.apart)
        ):
            gone[candidate] = False
            continue
        movers = fleet.job[leave & (fleet.node == candidate)]
        going[nodes[candidate].name] = [problem.jobs[job] for job in movers]
    return going


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fleet:
    """Nodes [N] and parts of jobs on them: job, node, boards [parts].

    `first` is the first part of the same job, `stays` one of a job that no plan may move. A node
    that nobody knows has the number N. `takes` [N] are nodes that take jobs. Models without nodes
    share the last number. Of milli-CPUs and bytes, `host` [N, 2] is what nodes have (infinite where
    not checked), `asks` [parts, 2] what parts ask for, `each` [N, 2] the most of any job beside a
    board of the node's model. `apart` are (model, boards, nodes) of jobs that change to equal parts
    on several nodes of another model.
    """

    job: Ints
    node: Ints
    boards: Ints
    first: Ints
    stays: Bools
    takes: Bools
    usable: Ints
    model_of_node: Ints
    model_of_job: Ints
    models: Mapping[str, int]
    host: Floats
    asks: Floats
    each: Floats
    apart: Sequence[tuple[int, int, int]]

    def parts_held(self, needs: Ints, gone: Bools) -> Ints:
        """Return the boards of parts that jobs still hold who may hold `needs` [J] of their model.

        What a job loses it gives back on its last nodes; what is on nodes that are `gone` [N + 1]
        is no part of what it keeps.
        """
        boards = np.where(gone[self.node], 0, self.boards)
        before = np.cumsum(boards) - boards
        rest = needs[self.job] - (before - before[self.first])
        return np.asarray(np.clip(rest, 0, self.boards), dtype=np.int64)

    def rooms(self, parts: Ints, gone: Bools) -> Ints:
        """Return the number of nodes by model and free boards that take jobs beside these parts."""
        used = np.bincount(self.node, parts, len(gone))[:-1].astype(np.int64)
        free = np.minimum(self.usable - used, self._fed(parts > 0))
        free = np.where(self.takes & ~gone[:-1], np.maximum(free, 0), 0)
        return self.by_size(self.model_of_node, free.astype(np.int64))

    def _fed(self, in_use: Bools) -> Floats:
        """Return for how many boards each node has CPUs and memory left beside held parts."""
        fed = np.full(len(self.host), np.inf)
        for column in np.flatnonzero((self.each > 0).any(axis=0)):
            used = np.bincount(self.node, self.asks[:, column] * in_use, len(self.host) + 1)[:-1]
            room, each = self.host[:, column] - used, self.each[:, column]
            fed = np.minimum(fed, np.where(each > 0, np.floor(room / np.maximum(each, 1)), np.inf))
        return fed

    def by_size(self, model: Ints, boards: Ints) -> Ints:
        """Return the counts by model and boards, 0 of none; sizes beyond all nodes count as one."""
        largest = int(self.usable.max(initial=0)) + 1
        counts = np.zeros((len(self.models) + 1, largest + 1), dtype=np.int64)
        np.add.at(counts, (model, np.minimum(boards, largest)), 1)
        counts[:, 0] = 0
        return counts


def _fleet(problem: PlanningProblem, proposed: Mapping[str, Proposal]) -> _Fleet:
    nodes, jobs = problem.facts.nodes, problem.jobs
    number = {node.name: index for index, node in enumerate(nodes)}
    models = {name: index for index, name in enumerate({node.gpu_model: 0 for node in nodes})}
    rows = [
        (
            column,
            number.get(name, len(nodes)),
            boards,
            bool(apart) or not problem.movable(column),
            *needs.get(name, (0, 0)),
        )
        for column, job in enumerate(jobs)
        if (home := problem.facts.homes.get(job.demand.job.job_id)) is not None
        for needs in ({name: asks for name, _boards, *asks in held_shares(job.demand.job, home)},)
        for apart in (_apart(job, proposed).get(job.demand.job.gpu_model),)
        for name, boards in (
            home.boards
            if apart is None
            else kept_boards(home.boards, apart[0] * apart[1], apart[0])
        )
    ]
    job, node, boards, stays, *asks = np.array(rows, dtype=np.int64).reshape(-1, 6).T
    each = _each(problem, proposed)
    rooms = [[np.inf if room is None else room for room in room_of(entry)] for entry in nodes]
    return _Fleet(
        job=job,
        node=node,
        boards=boards,
        first=np.searchsorted(job, job),
        stays=stays.astype(np.bool_),
        takes=np.array([entry.open and entry.read for entry in nodes], dtype=np.bool_),
        usable=np.array([entry.usable for entry in nodes], dtype=np.int64),
        model_of_node=np.array([models[entry.gpu_model] for entry in nodes], dtype=np.int64),
        model_of_job=np.array(
            [models.get(entry.demand.job.gpu_model, len(models)) for entry in jobs], dtype=np.int64
        ),
        models=models,
        host=np.array(rooms, dtype=np.float64).reshape(-1, 2),
        asks=np.array(asks, dtype=np.float64).T,
        each=np.array(
            [each.get(entry.gpu_model, (0, 0)) for entry in nodes], dtype=np.float64
        ).reshape(-1, 2),
        apart=[
            (models[model], boards, count)
            for job in jobs
            for model, (count, boards) in _apart(job, proposed).items()
            if model in models and model != job.demand.job.gpu_model
        ],
    )


def _apart(job: JobProblem, proposed: Mapping[str, Proposal]) -> dict[str, tuple[int, int]]:
    """Return by model the nodes, and boards on each, of a Slurm job of several that changes."""
    run, by_model = job.demand.job, dict[str, tuple[int, int]]()
    change = proposed.get(run.job_id)
    if change is None or (whole_fact(run.extra, "nodes_requested") or 1) == 1:
        return by_model
    for option in (change.job.options[number] for number in {*change.proposed}):
        count, model = nodes_apart(run, option.configuration), option.configuration.gpu_model
        if option.boards and count:
            each = int(np.ceil(option.boards / count - 1e-6))
            by_model[model] = max(by_model.get(model, (0, 0)), (count, each))
    return by_model


def _each(problem: PlanningProblem, proposed: Mapping[str, Proposal]) -> dict[str, tuple[int, int]]:
    """Return the most milli-CPUs and bytes that a job which may move asks for beside a board."""
    needs: dict[str, tuple[int, int]] = {}
    for column, job in enumerate(problem.jobs):
        run, change = job.demand.job, proposed.get(job.demand.job.job_id)
        if change is None and not problem.movable(column):
            continue
        options = {0} if change is None else {0, *change.proposed}
        options_of_job = job.options if change is None else change.job.options
        for option in (options_of_job[number] for number in options):
            model, count = option.configuration.gpu_model, option.configuration.gpu_count
            if count:
                cpu, memory = needs.get(model, (0, 0))
                more = host_share(run, count, 1, of=max(1, int(option.boards)))
                needs[model] = max(cpu, more[0]), max(memory, more[1])
    return needs


def _held_by_all(
    problem: PlanningProblem, proposed: Mapping[str, Proposal], fleet: _Fleet, span: slice
) -> tuple[Ints, Ints]:
    """Return the boards that jobs may hold in slots of a plan: of their own model [J], and others.

    Others by model and boards.
    """
    counts, others = np.zeros(len(problem.jobs), dtype=np.int64), list[tuple[int, int]]()
    for column, job in enumerate(problem.jobs):
        by_model = _held_in(job, proposed.get(job.demand.job.job_id), span)
        counts[column] = by_model.pop(job.demand.job.gpu_model, 0)
        apart = _apart(job, proposed)
        others += [
            (fleet.models.get(name, len(fleet.models)), -(-boards // parts))
            for name, boards in by_model.items()
            for parts in (apart.get(name, (1, 0))[0],)
            for _ in range(parts)
        ]
    return counts, fleet.by_size(*np.array(others, dtype=np.int64).reshape(-1, 2).T)


def _held_in(job: JobProblem, change: Proposal | None, span: slice) -> dict[str, int]:
    """Return the boards by model that a job may hold in slots of a plan, its change made."""
    there = job.demand.remaining.high[span] > 0
    options = {0} if change is None else {*np.array(change.proposed)[span][there].tolist()}
    by_model: dict[str, int] = {}
    configs = job.options if change is None else change.job.options
    more = float(job.more_boards[span].max(initial=0.0))
    for option in (configs[number] for number in options if there.any()):
        model, boards = option.configuration.gpu_model, option.boards
        if option.configuration.boards is not None:
            # Of a shared board each of its jobs keeps the node.
            boards = float(option.configuration.gpu_count)
        boards += more if boards else 0.0
        by_model[model] = max(by_model.get(model, 0), int(np.ceil(boards - 1e-6)))
    return by_model


def all_fit(rooms: Ints, leaving: Ints) -> bool:
    """Return whether all that leaves finds room, counts of both by model and boards [M, B].

    The largest are put first, each where the least is left. A node that has taken one is the next
    to take another as long as it can, so nodes of one size are filled one after the other.
    """
    free = rooms.tolist()
    for model, boards in reversed(np.argwhere(leaving).tolist()):
        waiting, room = int(leaving[model, boards]), free[model]
        for size in range(boards, len(room)):
            each = size // boards
            full = min(room[size], waiting // each)
            rest = waiting % each if room[size] > full else 0
            for count, part in ((full, each), (int(rest > 0), rest)):
                room[size] -= count
                room[size - part * boards] += count
                waiting -= count * part
        if waiting:
            return False
    return True
