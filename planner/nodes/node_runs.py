"""A slot plan's requests to nodes: stretches of equal GPUs per job, and their fixed places.

A stretch is cut where maintenance of its present node begins or ends, so that a job leaves only
when it has to. A job that no plan may move stays: whoever maintains the node has to see to it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from data.base.units import BYTES_PER_MIB
from data.catalogue.gpu_catalogue import MigPlacement
from data.facts.jobs import Job
from data.records.feasible_changes import nodes_apart
from planner.fleet.fleet_nodes import Home
from planner.fleet.host_room import (
    MILLI,
    held_shares,
    host_need,
    memory_bytes,
    milli_cpus,
    share_of,
)
from planner.fleet.required_nodes import allowed_nodes
from planner.jobs.job_end import waits_for_start
from planner.problem.planning_problem import PlanningProblem
from planner.problem.slot_mapping import SlotMapping

Places = dict[int, tuple[tuple[int, int], ...]]
"""Nodes by number with GPUs, of a unit by its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A job on `gpus` whole boards of a pool, or on one slice, in slots [start, end).

    `option` is the job's option; `home` the nodes and GPUs where it is now, () when unknown or not
    to be had in these slots: `displaced` where that is in maintenance then. `only` are the nodes on
    which alone it may be, None for any. `cpus` and `memory_mib` are asked for, None when nobody
    said. A job that shares boards stays on `shared`; `gpus` and `home` are those that it counts.
    Slurm starts equal parts on `apart` nodes.
    """

    job: int
    start: int
    end: int
    option: int
    row: int
    pool: int
    gpus: int
    home: tuple[tuple[str, int], ...] = ()
    slice_: MigPlacement | None = None
    mig_board: str = ""
    displaced: bool = False
    only: frozenset[str] | None = None
    cpus: float | None = None
    memory_mib: float | None = None
    shared: tuple[tuple[str, int], ...] = ()
    apart: int = 0

    @property
    def needs_a_place(self) -> bool:
        """Whether a plan is wrong without one; of a job as it is now the nodes may be unknown."""
        return self.option != 0 or bool(self.home) or self.displaced


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit of placement: a stretch on whole boards, or a board cut into slices of several.

    `stretch` is the number of the stretch, -1 for a cut board. `settled`: at home in all slots.
    `only` are the nodes on which alone it may be, None for any. Parts on `apart` nodes are equal,
    and may lie in several `pools`.
    """

    name: str
    group: str
    pool: int
    pools: frozenset[int]
    start: int
    end: int
    gpus: int
    home: tuple[tuple[str, int], ...]
    may_move: bool
    settled: bool
    cpus: float | None = None
    memory_mib: float | None = None
    move_cost: float = 0.0
    stretch: int = -1
    must: bool = True
    only: frozenset[str] | None = None
    apart: int = 0

    def needs(self, count: int) -> tuple[int, int, int]:
        """Return the need of so many of its GPUs: GPUs, milli-CPUs and bytes."""
        cpu, memory = milli_cpus(self.cpus or 0.0), memory_bytes(self.memory_mib or 0.0)
        return count, share_of(cpu, count, self.gpus), share_of(memory, count, self.gpus)


def stretches(
    problem: PlanningProblem, mapping: SlotMapping, paths: npt.NDArray[np.int16]
) -> tuple[Stretch, ...]:
    """Return the stretches of all jobs of a plan [J, H] in rows of the mapping's grid."""
    runs: list[Stretch] = []
    grid, pool_of = mapping.slots.grid, pool_of_name(problem)
    away_of = {node.name: np.array(node.away) for node in problem.facts.nodes if node.away}
    for job, path in enumerate(paths):
        profiles = [
            problem.jobs[job].options[option].configuration.mig_profile
            for option in mapping.option_of[job, path]
        ]
        keys = list(
            zip(grid.gpu_type[path].tolist(), grid.boards[path].tolist(), profiles, strict=True)
        )
        begin = 0
        for slot in range(1, len(path) + 1):
            if slot < len(path) and keys[slot] == keys[begin]:
                continue
            if keys[begin][0] >= 0:
                row = int(path[begin])
                option = int(mapping.option_of[job, row])
                run = stretch_of(problem, pool_of, job, option, (keys[begin][0], row, begin, slot))
                runs += _cut(run, away_of) if problem.movable(job) else [run]
            begin = slot
    return tuple(runs)


def stretch_of(
    problem: PlanningProblem,
    pool_of: Mapping[str, int],
    job: int,
    option: int,
    where: tuple[int, int, int, int],
) -> Stretch:
    """Return a stretch of an option; `where` is its pool, row, start and end."""
    planned, (pool, row, start, end) = problem.jobs[job], where
    configuration = planned.options[option].configuration
    placement = _placement(problem, configuration.gpu_model, configuration.mig_profile)
    home = problem.facts.homes.get(planned.demand.job.job_id)
    pools: Collection[int] = (pool,)
    if pool == problem.pools.of_job[job]:
        # It may hold boards of several pools, whichever one counts them, and now of any model.
        pools = problem.pools.of_model(configuration.gpu_model) if option else pool_of.values()
    here = () if home is None else tuple(at for at in home.boards if pool_of.get(at[0]) in pools)
    cpus, memory_mib = _host_need(planned.demand.job, configuration.gpu_count, option, home)
    shared = here if planned.demand.share is not None else ()
    gpus = 1 if placement else int(np.ceil(planned.options[option].boards - 1e-6))
    if home is not None and shared:
        here = tuple(at for at in home.counted if at[1] and pool_of.get(at[0]) in pools)
        gpus = sum(count for _name, count in here)
        placement = placement if gpus else None
    return Stretch(
        job=job,
        start=start,
        end=end,
        option=option,
        row=row,
        pool=pool,
        gpus=gpus,
        home=here,
        slice_=placement,
        mig_board=home.mig_board if home and here and option == 0 else "",
        only=allowed_nodes(planned.demand.job, pool_of),
        cpus=cpus,
        memory_mib=memory_mib,
        shared=shared,
        apart=nodes_apart(planned.demand.job, configuration),
    )


def nodes_of_parts(
    problem: PlanningProblem, job: int, option: int, pool: int
) -> frozenset[str] | None:
    """Return the nodes that can take equal parts of a Slurm job, None of a job of one part.

    Those of a pool or, where these are too few, of all that its partition joins, if they suffice.
    """
    planned, nodes = problem.jobs[job], problem.facts.nodes
    parts = nodes_apart(planned.demand.job, planned.options[option].configuration)
    if parts < 2:
        return None
    each = -(-planned.options[option].boards // parts)
    large = [
        (node.name, at)
        for node, at in zip(nodes, problem.pools.of_node.tolist(), strict=True)
        if node.open and node.usable >= each
    ]
    enough = sum(at == pool for _name, at in large) >= parts
    pools = (pool,) if enough else problem.pools.joined(planned.demand.job, pool)
    names = frozenset(name for name, at in large if at in pools)
    return names if len(names) >= parts else frozenset()


def _host_need(
    job: Job, gpu_count: int, option: int, home: Home | None
) -> tuple[float | None, float | None]:
    """Return the CPUs and MiB that a stretch asks of nodes; of a slice, those beside its board.

    What a job that runs holds on nodes that nobody knows is taken there already: it asks for none.
    """
    if option == 0 and home is None and not waits_for_start(job):
        return None, None
    if option == 0 and home is not None and job.mig_profile:
        ((_node, _boards, milli, size),) = held_shares(job, home)
        return milli / MILLI, size / BYTES_PER_MIB
    return host_need(job, gpu_count)


def _placement(problem: PlanningProblem, model: str, profile: str) -> MigPlacement | None:
    entry = problem.catalogue.find(model)
    mig = entry.mig_profile(profile) if entry and profile else None
    return entry.mig_placement(mig) if entry and mig else None


def pool_of_name(problem: PlanningProblem) -> dict[str, int]:
    """Return the pool of every node by name."""
    nodes = problem.facts.nodes
    return {node.name: int(pool) for node, pool in zip(nodes, problem.pools.of_node, strict=True)}


def _cut(stretch: Stretch, away_of: Mapping[str, npt.NDArray[np.bool_]]) -> list[Stretch]:
    """Cut a stretch where a node of its home goes away or comes back."""
    hit = [away_of[name] for name, _count in stretch.home if name in away_of]
    if not hit:
        return [stretch]
    stretch = replace(stretch, mig_board="")
    away = np.logical_or.reduce(hit)
    edges = [slot for slot in range(stretch.start + 1, stretch.end) if away[slot] != away[slot - 1]]
    bounds = [stretch.start, *edges, stretch.end]
    return [
        replace(stretch, start=start, end=end, home=(), displaced=True)
        if away[start]
        else replace(stretch, start=start, end=end)
        for start, end in pairwise(bounds)
    ]
