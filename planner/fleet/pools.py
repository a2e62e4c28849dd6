"""Pools: boards of one model that are alike to a plan, and their limits.

The solver counts boards per type, so boards under different power limits, of different schedulers
or in different Slurm partitions have to be types of their own. Without such limits a pool is a GPU
model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from data.facts.jobs import Job, Platform
from data.settings.fleet import PowerDomain
from planner.fleet.fleet import in_partition, runs_under, scheduler_of
from planner.fleet.fleet_nodes import FleetNode, Home
from planner.fleet.required_nodes import allowed_nodes
from planner.slots.slot_problem import NOTHING

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Boards of a model behind the same power limits and open to the same jobs.

    `schedulers` are () where all nodes have the same, None for nodes of none beside others' nodes.
    """

    gpu_model: str
    domains: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    schedulers: tuple[str, ...] | None = ()

    @property
    def name(self) -> str:
        """Return the model with what sets the pool apart."""
        owners = ("no scheduler",) if self.schedulers is None else self.schedulers
        parts = (
            *owners,
            *self.domains,
            *(f"partition {partition}" for partition in self.partitions),
        )
        apart = "; ".join(parts)
        return f"{self.gpu_model} ({apart})" if apart else self.gpu_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """The pools by model, and the pool of every node [N] and of every job now [J] (-1: none).

    `schedulers` are those that have nodes, `common` those of all nodes where all have the same.
    """

    pools: tuple[Pool, ...]
    of_node: Indices
    of_job: Indices
    schedulers: frozenset[str] = frozenset()
    common: tuple[str, ...] = ()

    def of_model(self, gpu_model: str) -> tuple[int, ...]:
        """Return the pools that have boards of a model."""
        return tuple(n for n, pool in enumerate(self.pools) if pool.gpu_model == gpu_model)

    def open_to(self, job: Job, gpu_model: str) -> tuple[int, ...]:
        """Return the pools of a model in which a job may run: its scheduler's, in its partition."""
        scheduler = scheduler_of(job, self.schedulers)
        return tuple(
            number
            for number in self.of_model(gpu_model)
            if in_partition(job, self.pools[number].partitions)
            and runs_under(scheduler, self._owners(number))
        )

    def joined(self, job: Job, pool: int) -> tuple[int, ...]:
        """Return the pools open to a job that differ from one in their partitions alone."""
        like = replace(self.pools[pool], partitions=())
        return tuple(
            number
            for number in self.open_to(job, like.gpu_model)
            if replace(self.pools[number], partitions=()) == like
        )

    def _owners(self, number: int) -> tuple[str, ...]:
        schedulers = self.pools[number].schedulers
        return () if schedulers is None else schedulers or self.common


def make_pools(
    nodes: Sequence[FleetNode],
    gpu_models: Sequence[str],
    jobs: Sequence[Job],
    homes: Mapping[str, Home],
    domains: Sequence[PowerDomain],
) -> Pools:
    """Return the pools of the nodes; a model without a node has an empty one.

    A job is in the pool of its home, else of the nodes that it requires, else in the largest.
    """
    fed = [
        tuple(domain.name for domain in domains if fnmatchcase(node.name, domain.nodes))
        for node in nodes
    ]
    site = set(fed[0]).intersection(*fed[1:]) if fed else set()
    slurm = any(job.platform is Platform.SLURM for job in jobs)
    wide = {node.partitions for node in nodes if node.partitions}
    by_partition = slurm and len(wide) > 1
    owners = {node.schedulers for node in nodes}
    by_scheduler = len(owners) > 1
    of_nodes = [
        Pool(
            gpu_model=node.gpu_model,
            domains=tuple(name for name in names if name not in site),
            partitions=node.partitions if by_partition else (),
            schedulers=(node.schedulers or None) if by_scheduler else (),
        )
        for node, names in zip(nodes, fed, strict=True)
    ]
    present = {pool.gpu_model for pool in of_nodes}
    missing = {Pool(gpu_model=name) for name in gpu_models if name not in present}
    order = {name: index for index, name in enumerate(gpu_models)}
    pools = sorted({*of_nodes, *missing}, key=lambda entry: (order[entry.gpu_model], entry.name))
    number = {pool: index for index, pool in enumerate(pools)}
    of_node = np.array([number[pool] for pool in of_nodes], dtype=np.int64)
    result = Pools(
        pools=tuple(pools),
        of_node=of_node,
        of_job=np.full(len(jobs), NOTHING, dtype=np.int64),
        schedulers=frozenset(name for names in owners for name in names),
        common=next(iter(owners), ()) if not by_scheduler else (),
    )
    at = {node.name: int(of_node[index]) for index, node in enumerate(nodes)}
    size = np.zeros(len(pools))
    np.add.at(size, of_node, [node.gpus for node in nodes])
    for index, job in enumerate(jobs):
        home = homes.get(job.job_id)
        hosts = (
            [name for name, _count in home.boards] if home else sorted(allowed_nodes(job, at) or ())
        )
        here = [at[name] for name in hosts if name in at]
        mine = [entry for entry in here if pools[entry].gpu_model == job.gpu_model]
        likely = result.open_to(job, job.gpu_model) or result.of_model(job.gpu_model)
        result.of_job[index] = mine[0] if mine else max(likely, key=lambda position: size[position])
    return result


def feeds(
    pools: Pools, nodes: Sequence[FleetNode], domains: Sequence[PowerDomain]
) -> npt.NDArray[np.bool_]:
    """Return a mask of domains that feed pools [D, P]; a pool lies in a domain or outside it."""
    members = np.zeros((len(domains), len(pools.pools)), dtype=np.bool_)
    for node, pool in zip(nodes, pools.of_node, strict=True):
        for row, domain in enumerate(domains):
            members[row, pool] |= fnmatchcase(node.name, domain.nodes)
    return members
