"""HAS, who gets which GPUs: all jobs at once, round by round, by memory, goodput and work left."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.scheduling.configurations import Configurations, configurations
from planner.scheduling.goodput import GoodputModel, GoodputTables
from planner.scheduling.idle_fill_kernel import fill_idle
from planner.scheduling.job_reading import (
    allowed_configurations,
    application_of,
    called_goodput,
    flat_throughputs,
    model_of,
    ratio,
    restart_seconds,
)
from planner.scheduling.node_mapping import map_to_nodes
from planner.scheduling.objective import ObjectiveSettings, RoundJobs, completion_seconds, costs
from planner.scheduling.round_problem import RoundProblem, RoundSolution, solve_round
from planner.scheduling.work_history import WorkHistory

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Allocation = tuple[str | None, tuple[int, ...]]

_GPUS = "nvidia.com/gpu"


class HeterogeneousPolicy:
    """Decides every round which job holds which GPUs of which type; keeps what rounds teach.

    `batch_factor` says up to how many times the submitted batch size a job may train, where the
    job does not state its largest: 1 takes the submitted one for a limit. `idle_gain` is what a
    move into idle GPUs must save, `idle_moves` how many there are in a round at most.
    The same calls give the same answers.
    """

    def __init__(
        self,
        *,
        objective: ObjectiveSettings | None = None,
        batch_factor: float = 8.0,
        idle_gain: float = 0.1,
        idle_moves: int = 6,
        most_nodes: int = 16,
    ) -> None:
        self.objective = objective or ObjectiveSettings()
        self.batch_factor = batch_factor
        self.idle_gain = idle_gain
        self.idle_moves = idle_moves
        self.most_nodes = most_nodes
        self.last_problem: RoundProblem | None = None
        self.last_solution: RoundSolution | None = None
        self._history = WorkHistory()
        self._cluster: tuple[tuple[str, tuple[int, ...]], ...] = ()
        self._table: Configurations | None = None
        self._tables: GoodputTables | None = None
        self._prices: Floats | None = None
        self._since: dict[str, tuple[int, float]] = {}

    def optimize(
        self,
        jobs: Mapping[str, Any],
        nodes: Mapping[str, Mapping[int, Any]],
        prev_allocations: Mapping[str, Allocation],
    ) -> dict[str, Allocation]:
        """Give (GPU type, node of every GPU) of every job; (None, ()) holds nothing.

        `jobs` and `nodes` are read as docs/placement.md lists; `nodes` are by GPU type and number.
        """
        room = {kind: {key: _gpus(node) for key, node in of.items()} for kind, of in nodes.items()}
        table = self._configurations(room)
        held = _held(jobs, prev_allocations, table)
        self._history.forget_finished(jobs)
        if not jobs:
            return {}
        round_jobs = self._read(jobs, held, table)
        problem = RoundProblem(
            cost=costs(round_jobs, self.objective),
            kind=np.append(table.kind, 0),
            gpus=np.append(table.gpus, 0),
            capacity=table.capacity,
            previous=np.where(held >= 0, held, len(table.gpus)),
        )
        solution = solve_round(problem, prices=self._prices)
        self._prices = solution.prices
        self.last_problem, self.last_solution = problem, solution
        choice = self._with_idle(problem, round_jobs, solution.choice.copy())
        self._note(jobs, round_jobs, choice)
        return _on_nodes(list(jobs), choice, table, prev_allocations, room)

    def _configurations(self, room: Mapping[str, Mapping[int, int]]) -> Configurations:
        cluster = tuple((kind, tuple(of.values())) for kind, of in room.items())
        if self._table is None or cluster != self._cluster:
            self._cluster = cluster
            self._table = configurations(dict(cluster), most_nodes=self.most_nodes)
            self._tables = GoodputTables(self._table)
            self._prices = None
        return self._table

    def _read(self, jobs: Mapping[str, Any], held: Ints, table: Configurations) -> RoundJobs:
        names = list(jobs)
        applications = [application_of(name, jobs[name]) for name in names]
        for row, name in enumerate(names):
            gpus = int(table.gpus[held[row]]) if held[row] >= 0 else 0
            used = getattr(jobs[name], "used_gpu_seconds", None)
            if used is None:
                used = getattr(jobs[name], "attained_service", 0.0)
            self._history.see(name, applications[row], float(used), gpus)
        allowed = np.array([allowed_configurations(jobs[name], table) for name in names])
        goodput = self._goodput([jobs[name] for name in names], allowed, table)
        goodput = np.where(allowed, goodput, 0.0)
        unknown = ~goodput.any(axis=1)
        allowed[unknown] &= _smallest(allowed[unknown], table)
        reference = _one_gpu(goodput, table)
        low, high = self.objective.horizons_s
        age = np.array([float(getattr(jobs[name], "age", 0.0)) for name in names])
        restarts = np.array([getattr(jobs[name], "num_restarts", 0) or 0 for name in names])
        return RoundJobs(
            goodput=goodput,
            allowed=allowed,
            remaining=self._history.remaining(names, applications, reference),
            reference=reference,
            held=held,
            locked=np.array(
                [bool(getattr(jobs[name], "scaling_underway", False)) for name in names]
            ),
            restart=np.array(
                [
                    restart_seconds(application, jobs[name])
                    for name, application in zip(names, applications, strict=True)
                ]
            ),
            horizon=np.clip(age / (restarts + 1), low, high),
            resident=np.array(
                [self._resident(name, int(held[row]), age[row]) for row, name in enumerate(names)]
            ),
        )

    def _resident(self, name: str, held: int, age: float) -> float:
        since = self._since.get(name)
        if since is None or since[0] != held:
            self._since[name] = since = (held, age)
        return age - since[1]

    def _goodput(self, jobs: list[Any], allowed: Flags, table: Configurations) -> Floats:
        """Give goodput [J, C], all models in one call."""
        assert self._tables is not None  # noqa: S101 - made with the table of configurations
        goodput = np.zeros(allowed.shape)
        rows: list[tuple[int, int, float]] = []
        models: list[GoodputModel] = []
        for row, job in enumerate(jobs):
            speeds = getattr(job, "speedup_fn", None) or {}
            known = [name for name in table.gpu_types if speeds.get(name) is not None]
            flat = flat_throughputs(job, table.gpu_types)
            if flat is not None:
                goodput[row] = np.array(flat)[table.kind]
                continue
            for kind, name in enumerate(table.gpu_types):
                if not known:
                    continue
                source = name if name in known else known[0]
                factor = 1.0 if source == name else ratio(job, name, source)
                model = model_of(speeds[source], self.batch_factor)
                if model is None:
                    wanted = allowed[row] & (table.kind == kind)
                    goodput[row] += factor * called_goodput(speeds[source], table, wanted)
                else:
                    models.append(model)
                    rows.append((row, kind, factor))
        found = self._tables.goodput(models)
        for (row, kind, factor), values in zip(rows, found, strict=True):
            goodput[row] += np.where(table.kind == kind, factor * values, 0.0)
        return goodput

    def _with_idle(self, problem: RoundProblem, jobs: RoundJobs, choice: Ints) -> Ints:
        use = np.bincount(
            problem.kind[choice], weights=problem.gpus[choice], minlength=len(problem.capacity)
        )
        free = problem.capacity - use.astype(np.int64)
        fill_idle(
            completion_seconds(jobs),
            jobs.allowed,
            jobs.restart,
            ~jobs.locked & (choice == jobs.held),
            problem.kind,
            problem.gpus,
            free,
            self.idle_gain,
            self.idle_moves,
            choice,
        )
        return choice

    def _note(self, jobs: Mapping[str, Any], of: RoundJobs, choice: Ints) -> None:
        nothing = of.goodput.shape[1]
        for row, name in enumerate(jobs):
            config = int(choice[row])
            goodput = 0.0 if config == nothing else float(of.goodput[row, config])
            self._history.note_goodput(name, goodput)
        for name in [one for one in self._since if one not in jobs]:
            del self._since[name]


def _gpus(node: Any) -> int:
    """Give the GPUs of a node: a number, or the Kubernetes resource of an object."""
    resources = getattr(node, "resources", None)
    return int(resources.get(_GPUS, 0)) if isinstance(resources, Mapping) else int(node)


def _held(
    jobs: Mapping[str, Any], allocations: Mapping[str, Allocation], table: Configurations
) -> Ints:
    """Give the configuration [J] that each job holds, -1 for none or one handed out no more."""
    held = np.full(len(jobs), -1, dtype=np.int64)
    for row, name in enumerate(jobs):
        gpu_type, given = allocations.get(name) or (None, ())
        if gpu_type is not None and len(given):
            index = table.index(gpu_type, len(given))
            held[row] = -1 if index is None else index
    return held


def _smallest(allowed: Flags, table: Configurations) -> Flags:
    """Give the least allowed configuration of every type: where a job without a profile starts."""
    least = np.zeros_like(allowed)
    for kind in range(len(table.gpu_types)):
        columns = np.flatnonzero(table.kind == kind)
        if len(columns):
            first = allowed[:, columns].argmax(axis=1)
            least[np.arange(len(allowed)), columns[first]] = True
    return least


def _one_gpu(goodput: Floats, table: Configurations) -> Floats:
    """Give the goodput per GPU of the fastest smallest configuration [J]; 1 where none is known."""
    per_gpu = goodput / table.gpus
    single = per_gpu[:, table.gpus == 1].max(axis=1, initial=0.0)
    best = np.where(single > 0, single, per_gpu.max(axis=1, initial=0.0))
    return np.where(best > 0, best, 1.0)


def _on_nodes(
    names: list[str],
    choice: Ints,
    table: Configurations,
    before: Mapping[str, Allocation],
    room: Mapping[str, Mapping[int, int]],
) -> dict[str, Allocation]:
    given: dict[str, Allocation] = dict.fromkeys(names, (None, ()))
    for kind, gpu_type in enumerate(table.gpu_types):
        wanted = {
            name: int(table.gpus[choice[row]])
            for row, name in enumerate(names)
            if choice[row] < len(table.gpus) and table.kind[choice[row]] == kind
        }
        held = {
            name: tuple(nodes)
            for name in wanted
            for on, nodes in [before.get(name) or (None, ())]
            if on == gpu_type and len(nodes) == wanted[name]
        }
        for name, nodes in map_to_nodes(wanted, held, room[gpu_type]).items():
            given[name] = (gpu_type, nodes)
    return given
