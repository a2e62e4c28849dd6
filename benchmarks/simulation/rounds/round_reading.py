"""A round's jobs and nodes as arrays: the same reading for every policy.

A liberal reader of jobs' attributes: whatever is missing has a stated default.
"""

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.simulation.rounds.configurations import Configurations, configurations
from benchmarks.simulation.rounds.goodput import GoodputModel, GoodputTables
from benchmarks.simulation.rounds.node_mapping import map_to_nodes
from benchmarks.simulation.rounds.speed_history import SpeedHistory
from data.facts.gpu_resources import WHOLE_GPU

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_FIXED_SIZE = ("rigid", "scale-gpus")
"""Categories of Sia's simulator whose GPUs are a limit that their users gave."""


def application_of(name: str, job: Any) -> str:
    """Return `job.application`, or the part of the job's name before its first dash."""
    stated = getattr(job, "application", None)
    return stated if isinstance(stated, str) else name.split("-")[0]


def model_of(speed: Any, batch_factor: float) -> GoodputModel | None:
    """Return the goodput model behind a speed-up function, None when it can only be called.

    Understood are `.model`, and the private fields of Pollux's and Sia's speed-up functions.
    `batch_factor` multiplies the largest batch of the latter, which is the one submitted.
    """
    stated = getattr(speed, "model", None)
    if isinstance(stated, GoodputModel):
        return stated
    goodput = getattr(speed, "_goodput_fn", None)
    step, noise = getattr(goodput, "_perf_params", None), getattr(goodput, "_grad_params", None)
    initial = getattr(goodput, "_init_batch_size", None)
    tuned = getattr(speed, "tune_bsz", True) and getattr(speed, "_accumulation", True)
    if step is None or noise is None or initial is None or len(step) != 7 or not tuned:
        return None
    if type(goodput).__name__ == "GoodputFunctionPMP":
        return None
    submitted = getattr(speed, "_max_batch_size", None) or initial
    low, high = getattr(speed, "_atomic_bsz_range", None) or (None, None)
    a, b, c, d, e, f, g = (float(entry) for entry in step)
    return GoodputModel(
        step=(a, b, c, d, e, f, g),
        noise=(float(noise[0]), float(noise[1])),
        initial_batch=float(initial),
        largest_batch=max(float(submitted) * batch_factor, float(initial)),
        least_local_batch=float(low or 1),
        largest_local_batch=float(high or submitted),
    )


def called_goodput(speed: Any, table: Configurations, mask: Flags) -> Floats:
    """Return goodput [C] of a function that can only be called; 0 where it is not wanted."""
    goodput = np.zeros(len(table.gpus))
    nodes, gpus = table.nodes[mask].astype(float), table.gpus[mask].astype(float)
    if len(gpus):
        call = getattr(speed, "get_goodput", speed)
        values = np.nan_to_num(np.asarray(call(nodes, gpus), dtype=np.float64), posinf=0.0)
        goodput[mask] = np.maximum(values, 0.0)
    return goodput


def allowed_configurations(job: Any, table: Configurations, *, max_gpus: int = 0) -> Flags:
    """Return a mask of configurations [C] open to the job: replicas, memory, earlier failures.

    The replicas of all types bound every type, as in Sia with shared maxima: a job that has shown
    that it scales on one type may be as large on another. `max_gpus` is what siblings have shown.
    """
    least = max(1, _bound(getattr(job, "min_replicas", None), min, 1))
    most = max(1, max_gpus, _bound(getattr(job, "max_replicas", None), max, 64))
    allowed = np.asarray((table.gpus >= least) & (table.gpus <= most))
    units = getattr(job, "scale_unit", None)
    if isinstance(units, Mapping):
        unit = np.array([int(units.get(name, 1) or 1) for name in table.gpu_types])[table.kind]
        in_units = table.gpus % unit == 0
        allowed = in_units & (table.gpus >= least * unit) & (table.gpus <= most * unit)
    memory, room = getattr(job, "memory_gib", None), getattr(job, "gpu_memory_gib", None)
    if memory and room:
        need = np.array([memory.get(int(gpus), math.inf) for gpus in table.gpus])
        have = np.array([room.get(name, math.inf) for name in table.gpu_types])[table.kind]
        allowed &= need <= have
    for gpu_type, gpus in getattr(job, "failed_on", ()):
        index = table.index(gpu_type, gpus)
        if index is not None:
            allowed[index] = False
    return allowed


def _bound(stated: Any, pick: Any, default: int) -> int:
    if stated is None:
        return default
    if isinstance(stated, Mapping):
        return int(pick(stated.values())) if stated else default
    return int(stated)


def growing_limit(job: Any) -> int | None:
    """Return the largest of `max_replicas` by type, which an agent raises as the job grows.

    None where the limit is its user's: one number, or the size of a rigid job.
    """
    most = getattr(job, "max_replicas", None)
    fixed = getattr(job, "category", None) in _FIXED_SIZE
    return _bound(most, max, 1) if isinstance(most, Mapping) and most and not fixed else None


def ratio(job: Any, gpu_type: str, measured: str) -> float:
    """Return the speed of one GPU type over another by `cluster_throughput_ratios`.

    1 if unknown.
    """
    ratios = getattr(job, "cluster_throughput_ratios", None)
    row = ratios.get(gpu_type) if isinstance(ratios, Mapping) else None
    value = row.get(measured) if isinstance(row, Mapping) else None
    return float(value) if value is not None and math.isfinite(float(value)) else 1.0


def flat_throughputs(job: Any, gpu_types: Sequence[str]) -> list[float] | None:
    """Return throughput by type of a rigid job that states it so, as Sia's simulator does."""
    ratios = getattr(job, "cluster_throughput_ratios", None)
    if not isinstance(ratios, Mapping) or not ratios:
        return None
    values = [ratios.get(name) for name in gpu_types]
    if any(value is None or isinstance(value, Mapping) for value in values):
        return None
    return [max(0.0, float(value)) for value in values if value is not None]


Ints = npt.NDArray[np.int64]
Allocation = tuple[str | None, tuple[int, ...]]
OTHER_RESTART_SECONDS = 62.0
"""Mean preemption overhead of Tiresias' jobs, as quoted by Lucid (ASPLOS 2023)."""

_KEPT = 15
_SHORTEST = 1.0
"""Seconds below which nothing was restarted: what is left of a difference of two large sums."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundView:
    """Arrays over the jobs [J] and configurations [C] of a round; times in s.

    `goodput` [J, C] is 0 where it is unknown or barred; `profiled` [J] says whether any is known.
    A job without a profile may take the smallest configuration of each type alone. `present` [J] is
    the configuration of now (-1: none), `used` [J] the GPU-seconds spent so far, `stated_work` [J]
    the work left in goodput seconds where the job says it, else NaN.
    """

    names: tuple[str, ...]
    applications: tuple[str, ...]
    table: Configurations
    room: Mapping[str, Mapping[int, int]]
    before: Mapping[str, Allocation]
    goodput: Floats
    allowed: Flags
    profiled: Flags
    present: Ints
    locked: Flags
    age: Floats
    restarts: Ints
    restart_seconds: Floats
    used: Floats
    stated_work: Floats

    def allocations(self, choice: Ints) -> dict[str, Allocation]:
        """Return the nodes of the chosen configurations [J]; the number of them is nothing."""
        allocations: dict[str, Allocation] = dict.fromkeys(self.names, (None, ()))
        for kind, gpu_type in enumerate(self.table.gpu_types):
            counts = {
                name: int(self.table.gpus[config])
                for name, config in zip(self.names, choice, strict=True)
                if config < len(self.table.gpus) and self.table.kind[config] == kind
            }
            before = {}
            for name in counts:
                on, nodes = self.before.get(name) or (None, ())
                if on == gpu_type:
                    before[name] = tuple(nodes)
            for name, nodes in map_to_nodes(counts, before, self.room[gpu_type]).items():
                allocations[name] = (gpu_type, nodes)
        return allocations


class RoundReader:
    """Reads rounds; keeps the configurations of the cluster and the tables of the models."""

    def __init__(self, *, batch_factor: float, most_nodes: int, shares_speed: bool = False) -> None:
        self._batch_factor = batch_factor
        self._most_nodes = most_nodes
        self._history = SpeedHistory() if shares_speed else None
        self._restarts = RestartHistory()
        self._cluster: tuple[tuple[str, tuple[int, ...]], ...] = ()
        self._table: Configurations | None = None
        self._tables: GoodputTables | None = None

    def read(
        self,
        jobs: Mapping[str, Any],
        nodes: Mapping[str, Mapping[int, Any]],
        before: Mapping[str, Allocation],
    ) -> RoundView:
        """Return the round; jobs and nodes are read as docs/internals/placement.md lists."""
        room = {kind: {key: _gpus(node) for key, node in of.items()} for kind, of in nodes.items()}
        table, tables = self._configurations(room)
        names, infos = tuple(jobs), list(jobs.values())
        applications = tuple(
            application_of(name, job) for name, job in zip(names, infos, strict=True)
        )
        shape = (len(names), len(table.gpus))
        present = _present(names, before, table)
        models = [self._own_models(job, table.gpu_types) for job in infos]
        self._learn(names, applications, infos, models, present, table)
        allowed = np.array(
            [
                allowed_configurations(job, table, max_gpus=self._sibling_size(application, job))
                for application, job in zip(applications, infos, strict=True)
            ],
            dtype=np.bool_,
        ).reshape(shape)
        values = self._goodput(applications, infos, models, allowed, table, tables)
        goodput = np.where(allowed, values, 0.0)
        profiled = np.asarray(goodput.any(axis=1))
        allowed[~profiled] &= _smallest(allowed[~profiled], table)
        return RoundView(
            names=names,
            applications=applications,
            table=table,
            room=room,
            before=before,
            goodput=goodput,
            allowed=allowed,
            profiled=profiled,
            present=present,
            locked=np.array([bool(getattr(job, "scaling_underway", False)) for job in infos]),
            age=np.array([float(getattr(job, "age", 0.0)) for job in infos]),
            restarts=np.array([int(getattr(job, "num_restarts", 0) or 0) for job in infos]),
            restart_seconds=np.array(
                [
                    self._restart_seconds(application, job)
                    for application, job in zip(applications, infos, strict=True)
                ]
            ),
            used=np.array([_used(job) for job in infos]),
            stated_work=np.array([_stated_work(job) for job in infos]),
        )

    def _configurations(
        self, room: Mapping[str, Mapping[int, int]]
    ) -> tuple[Configurations, GoodputTables]:
        cluster = tuple((kind, tuple(of.values())) for kind, of in room.items())
        if self._table is None or self._tables is None or cluster != self._cluster:
            self._cluster = cluster
            self._table = configurations(dict(cluster), most_nodes=self._most_nodes)
            self._tables = GoodputTables(self._table)
        return self._table, self._tables

    def _goodput(
        self,
        applications: tuple[str, ...],
        jobs: list[Any],
        own_models: list[dict[str, GoodputModel]],
        allowed: Flags,
        table: Configurations,
        tables: GoodputTables,
    ) -> Floats:
        """Return goodput [J, C], all models in one call."""
        goodput = np.zeros(allowed.shape)
        rows: list[int] = []
        factors: list[Floats] = []
        models: list[GoodputModel] = []
        for row, (application, job) in enumerate(zip(applications, jobs, strict=True)):
            flat = flat_throughputs(job, table.gpu_types)
            if flat is not None:
                goodput[row] = np.array(flat)[table.kind]
                continue
            speeds = getattr(job, "speedup_fn", None) or {}
            models_by_type: Mapping[str, GoodputModel] = own_models[row]
            if self._history is not None:
                models_by_type = self._history.models(application, models_by_type, table.gpu_types)
            sources = {name: speeds.get(name) for name in table.gpu_types} | dict(models_by_type)
            for source, factor in _factors(job, sources, table):
                model = models_by_type.get(source)
                if model is None:
                    mask = allowed[row] & (factor > 0)
                    goodput[row] += factor * called_goodput(speeds[source], table, mask)
                else:
                    models.append(model)
                    rows.append(row)
                    factors.append(factor)
        used = (
            np.array(factors, dtype=np.float64).reshape(len(rows), -1) > 0
            if rows
            else np.zeros((0, len(table.gpus)), dtype=np.bool_)
        )
        tables_rows = tables.goodput(models, used & allowed[rows])
        for row, factor, values in zip(rows, factors, tables_rows, strict=True):
            goodput[row] += factor * values
        return goodput

    def _own_models(self, job: Any, gpu_types: tuple[str, ...]) -> dict[str, GoodputModel]:
        speeds = getattr(job, "speedup_fn", None) or {}
        models = {name: model_of(speeds.get(name), self._batch_factor) for name in gpu_types}
        return {name: model for name, model in models.items() if model is not None}

    def _learn(
        self,
        names: tuple[str, ...],
        applications: tuple[str, ...],
        jobs: list[Any],
        own_models: list[dict[str, GoodputModel]],
        present: Ints,
        table: Configurations,
    ) -> None:
        """Learn from the jobs' steps and restarts since the last round."""
        self._restarts.forget_finished(names)
        if self._history is not None:
            self._history.forget_finished(names)
        for name, application, job, models, config in zip(
            names, applications, jobs, own_models, present, strict=True
        ):
            gpus = int(table.gpus[config]) if config >= 0 else 0
            underway = bool(getattr(job, "scaling_underway", False))
            self._restarts.see(name, application, _wasted(job), gpus, underway=underway)
            if self._history is not None:
                on = (table.gpu_types[table.kind[config]], int(table.nodes[config]), gpus)
                self._history.learn(name, application, models, on if gpus else None)

    def _sibling_size(self, application: str, job: Any) -> int:
        """Return the largest size by a job's siblings; 0 where they do not limit it."""
        limit = growing_limit(job)
        if self._history is None or limit is None:
            return 0
        return self._history.max_gpus(application, limit)

    def _restart_seconds(self, application: str, job: Any) -> float:
        stated = getattr(job, "restart_seconds", None)
        return self._restarts.seconds(application) if stated is None else float(stated)


def _factors(
    job: Any, sources: Mapping[str, Any], table: Configurations
) -> list[tuple[str, Floats]]:
    """Return the types of known speed, each with the factor [C] of where it is used.

    On a type of unknown speed that is the first known one, by the ratio of both types.
    """
    usable = [name for name in table.gpu_types if sources.get(name) is not None]
    factors = {name: np.zeros(len(table.gpus)) for name in usable}
    for kind, name in enumerate(table.gpu_types):
        if name in factors:
            factors[name][table.kind == kind] = 1.0
        elif usable:
            factors[usable[0]][table.kind == kind] = ratio(job, name, usable[0])
    return list(factors.items())


def _gpus(node: Any) -> int:
    """Return the GPUs of a node: a number, or the Kubernetes resource of an object."""
    resources = getattr(node, "resources", None)
    return int(resources.get(WHOLE_GPU, 0)) if isinstance(resources, Mapping) else int(node)


def _used(job: Any) -> float:
    used = getattr(job, "used_gpu_seconds", None)
    return float(getattr(job, "attained_service", 0.0) if used is None else used)


def _wasted(job: Any) -> float:
    """Return GPU-seconds held and not used; 0 where the job does not tell, so none is learned."""
    wasted = getattr(job, "wasted_gpu_seconds", None)
    return 0.0 if wasted is None else float(wasted)


def _stated_work(job: Any) -> float:
    stated = getattr(job, "remaining_work", None)
    return math.nan if stated is None else float(stated)


def _present(
    names: tuple[str, ...], allocations: Mapping[str, Allocation], table: Configurations
) -> Ints:
    """Return the configuration [J] that each job holds, -1 for none or one handed out no more."""
    present = np.full(len(names), -1, dtype=np.int64)
    for row, name in enumerate(names):
        gpu_type, nodes = allocations.get(name) or (None, ())
        if gpu_type is not None and len(nodes):
            index = table.index(gpu_type, len(nodes))
            present[row] = -1 if index is None else index
    return present


def _smallest(allowed: Flags, table: Configurations) -> Flags:
    """Return least allowed configuration of every type: where a job without a profile starts."""
    least = np.zeros_like(allowed)
    for kind in range(len(table.gpu_types)):
        columns = np.flatnonzero(table.kind == kind)
        if len(columns):
            first = allowed[:, columns].argmax(axis=1)
            least[np.arange(len(allowed)), columns[first]] = True
    return least


class RestartHistory:
    """Seconds from GPUs given to the first step, of the newest starts of every application."""

    def __init__(self) -> None:
        self._took: dict[str, deque[float]] = {}
        self._running: dict[str, tuple[float, float]] = {}

    def forget_finished(self, active: Collection[str]) -> None:
        """Drop the state of jobs that have ended; the fits learned from them stay."""
        for job in [name for name in self._running if name not in active]:
            del self._running[job]

    def see(
        self, job: str, application: str, wasted_gpu_seconds: float, gpus: int, *, underway: bool
    ) -> None:
        """Count a job's wasted time since the last round on so many GPUs; `underway`: it goes on.

        A start counts once it is over. A job without GPUs wastes nothing.
        """
        before, lost = self._running.get(job, (0.0, 0.0))
        if gpus:
            lost += max(0.0, wasted_gpu_seconds - before) / gpus
        if not underway and lost >= _SHORTEST:
            self._took.setdefault(application, deque(maxlen=_KEPT)).append(lost)
            lost = 0.0
        self._running[job] = (wasted_gpu_seconds, lost)

    def seconds(self, application: str) -> float:
        """Return the median of an application, or what was published where none was seen."""
        took = self._took.get(application)
        return float(np.median(took)) if took else OTHER_RESTART_SECONDS
