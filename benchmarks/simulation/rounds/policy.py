"""HAS, GPUs by job: all jobs at once, round by round, by memory, goodput and work left."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.simulation.rounds.idle_fill_kernel import fill_idle
from benchmarks.simulation.rounds.objective import (
    ObjectiveSettings,
    RoundJobs,
    completion_seconds,
    costs,
)
from benchmarks.simulation.rounds.round_problem import (
    Floats,
    Ints,
    RoundProblem,
    RoundSolution,
    solve_round,
)
from benchmarks.simulation.rounds.round_reading import Allocation, RoundReader, RoundView

_LAST_PART = 30.0
"""Seconds of its last goodput that a job did between its last round and its end, on average."""

_MIN_LEFT = 0.03
_CLASS_PRIOR = 7200.0
"""Seconds of one fastest GPU that a job of an unknown kind takes at least."""


class WorkHistory:
    """Work in goodput seconds: of every running job, and totals of finished ones by application."""

    def __init__(self) -> None:
        self._totals: dict[str, list[float]] = {}
        self._median: dict[str, float] = {}
        self._work: dict[str, float] = {}
        self._last_goodput: dict[str, float] = {}
        self._application: dict[str, str] = {}
        self._used: dict[str, float] = {}

    def see(self, job: str, application: str, used_gpu_seconds: float, gpus: int) -> None:
        """Count the work of a job since the last round, at the goodput it had then."""
        before = self._used.get(job, 0.0)
        if gpus:
            spent = max(0.0, used_gpu_seconds - before) / gpus
            self._work[job] = self._work.get(job, 0.0) + spent * self._last_goodput.get(job, 0.0)
        self._application[job] = application
        self._used[job] = used_gpu_seconds

    def note_goodput(self, job: str, goodput: float) -> None:
        """Store the job's expected goodput until the next round."""
        self._last_goodput[job] = goodput

    def forget_finished(self, active: Mapping[str, object]) -> None:
        """Count jobs that are no longer active as finished: their work is a total."""
        for job in [name for name in self._used if name not in active]:
            application = self._application.pop(job)
            work = self._work.pop(job, 0.0)
            self._used.pop(job)
            total = work + _LAST_PART * self._last_goodput.pop(job, 0.0)
            if work > 0:
                totals = self._totals.setdefault(application, [])
                totals.append(total)
                self._median[application] = float(np.median(totals))

    def remaining(
        self, jobs: Sequence[str], applications: Sequence[str], reference: Floats
    ) -> Floats:
        """Return the work left [J]; `reference` [J] is the goodput of one fastest GPU.

        Of an application with finished jobs the median total less the work done. Otherwise jobs of
        one application are taken to share a total of twice what the furthest has done.
        """
        furthest: dict[str, float] = {}
        for job, application in zip(jobs, applications, strict=True):
            furthest[application] = max(furthest.get(application, 0.0), self._work.get(job, 0.0))
        work = np.empty(len(jobs))
        for index, (job, application) in enumerate(zip(jobs, applications, strict=True)):
            done = self._work.get(job, 0.0)
            median = self._median.get(application)
            if median is not None:
                work[index] = max(median - done, _MIN_LEFT * median)
            else:
                total = max(2 * furthest[application], _CLASS_PRIOR * reference[index])
                work[index] = max(total - done, 0.0)
        return np.maximum(work, 1e-9)


class HeterogeneousPolicy:
    """The policy of GPUs by job and type in every round; it learns from rounds.

    `batch_factor` says up to how many times the submitted batch size a job may train, where the
    job does not state its largest: 1 takes the submitted one for a limit. `idle_gain` is what a
    move into idle GPUs must save, `idle_moves` how many there are in a round at most; no job takes
    more than `most_nodes` nodes. The same calls give the same answers.
    """

    def __init__(
        self,
        *,
        objective: ObjectiveSettings | None = None,
        batch_factor: float = 8.0,
        idle_gain: float = 0.1,
        idle_moves: int = 6,
        most_nodes: int = 16,
        shares_speed: bool = True,
    ) -> None:
        self.objective = objective or ObjectiveSettings()
        self.idle_gain = idle_gain
        self.idle_moves = idle_moves
        self.last_problem: RoundProblem | None = None
        self.last_solution: RoundSolution | None = None
        self._reader = RoundReader(
            batch_factor=batch_factor, most_nodes=most_nodes, shares_speed=shares_speed
        )
        self._history = WorkHistory()
        self._prices: Floats | None = None
        self._since: dict[str, tuple[int, float]] = {}

    def optimize(
        self,
        jobs: Mapping[str, Any],
        nodes: Mapping[str, Mapping[int, Any]],
        prev_allocations: Mapping[str, Allocation],
    ) -> dict[str, Allocation]:
        """Return (GPU type, node of every GPU) of every job; (None, ()) holds nothing.

        `jobs` and `nodes` are read as docs/internals/placement.md lists; `nodes` are by GPU type
        and number.
        """
        self._history.forget_finished(jobs)
        if not jobs:
            return {}
        view = self._reader.read(jobs, nodes, prev_allocations)
        round_jobs = self._weigh(view)
        table = view.table
        problem = RoundProblem(
            cost=costs(round_jobs, self.objective),
            kind=np.append(table.kind, 0),
            gpus=np.append(table.gpus, 0),
            capacity=table.capacity,
            previous=np.where(view.present >= 0, view.present, len(table.gpus)),
        )
        warm = self._prices if self._prices is not None else np.zeros(len(table.capacity))
        solution = solve_round(problem, prices=warm if len(warm) == len(table.capacity) else None)
        self._prices = solution.prices
        self.last_problem, self.last_solution = problem, solution
        choice = self._with_idle(problem, round_jobs, solution.choice.copy())
        self._note(view, choice)
        return view.allocations(choice)

    def _weigh(self, view: RoundView) -> RoundJobs:
        """Add the lessons of earlier rounds: work left, and the time of each job on its GPUs."""
        gpus = np.where(view.present >= 0, view.table.gpus[view.present], 0)
        for row, name in enumerate(view.names):
            self._history.see(name, view.applications[row], float(view.used[row]), int(gpus[row]))
        per_gpu = view.goodput / view.table.gpus
        # Of one fastest GPU, per GPU where one is not allowed.
        single = per_gpu[:, view.table.gpus == 1].max(axis=1, initial=0.0)
        best = np.where(single > 0, single, per_gpu.max(axis=1, initial=0.0))
        reference = np.where(best > 0, best, 1.0)
        guessed = self._history.remaining(view.names, view.applications, reference)
        low, high = self.objective.horizons_s
        return RoundJobs(
            goodput=view.goodput,
            allowed=view.allowed,
            remaining=np.where(np.isnan(view.stated_work), guessed, view.stated_work),
            reference=reference,
            present=view.present,
            locked=view.locked,
            restart=view.restart_seconds,
            horizon=np.clip(view.age / (view.restarts + 1), low, high),
            resident=np.array(
                [self._resident(view, row) for row in range(len(view.names))], dtype=np.float64
            ),
        )

    def _resident(self, view: RoundView, row: int) -> float:
        name, config, age = view.names[row], int(view.present[row]), float(view.age[row])
        since = self._since.get(name)
        if since is None or since[0] != config:
            self._since[name] = since = (config, age)
        return age - since[1]

    def _with_idle(self, problem: RoundProblem, jobs: RoundJobs, choice: Ints) -> Ints:
        use = np.bincount(
            problem.kind[choice], weights=problem.gpus[choice], minlength=len(problem.capacity)
        )
        fill_idle(
            completion_seconds(jobs),
            jobs.allowed,
            jobs.restart,
            ~jobs.locked & (choice == jobs.present),
            problem.kind,
            problem.gpus,
            problem.capacity - use.astype(np.int64),
            self.idle_gain,
            self.idle_moves,
            choice,
        )
        return choice

    def _note(self, view: RoundView, choice: Ints) -> None:
        nothing = len(view.table.gpus)
        for row, name in enumerate(view.names):
            config = int(choice[row])
            goodput = 0.0 if config == nothing else float(view.goodput[row, config])
            self._history.note_goodput(name, goodput)
        active = set(view.names)
        for name in [entry for entry in self._since if entry not in active]:
            del self._since[name]
