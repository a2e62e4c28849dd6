"""The fleet as plans see it: nodes, what of them can be used in which slot, and where jobs are.

Nodes come from schedulers and from telemetry: a node that only telemetry has seen counts too. A
node that takes no new jobs (cordoned, draining) counts with what its jobs hold; maintenance takes
whole nodes away for a while. Boards that jobs hold beyond all that was seen are kept on a node of
their own, so that today's allocation always has room.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from data.fleet_settings import Maintenance
from data.records.cluster import Cluster, Gpu, Node
from data.records.jobs import Job

_GONE_AFTER = timedelta(days=1)
"""A board not seen for so long is no capacity."""
_HOLDS_FOR = timedelta(hours=1)
"""A board last seen with a job this long before the newest sample is still the job's."""
UNSEEN = "(unseen)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetNode:
    """One node, or the part of one that has boards of this model.

    `held` boards belong to jobs now. Not `open`: only these jobs may be here. `away` [slots] marks
    maintenance. CPUs and memory are None where no scheduler said.
    """

    name: str
    gpu_model: str
    gpus: int
    cpus: int | None = None
    memory_mib: float | None = None
    partitions: tuple[str, ...] = ()
    open: bool = True
    held: int = 0
    away: tuple[bool, ...] = ()
    seen: bool = True

    @property
    def usable(self) -> int:
        """Give the boards that plans may use outside maintenance."""
        return self.gpus if self.open else self.held


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where a job is now: boards per node; of a MIG instance, its board and profile."""

    boards: tuple[tuple[str, int], ...]
    mig_board: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFacts:
    """Nodes by name, and the home of every job whose boards are known."""

    nodes: tuple[FleetNode, ...]
    homes: Mapping[str, Home]


def fleet_facts(
    cluster: Cluster,
    jobs: Iterable[Job],
    held: Mapping[str, float],
    *,
    slot_starts: Sequence[datetime],
    slot: timedelta,
    maintenance: Sequence[Maintenance],
) -> FleetFacts:
    """Give the nodes with what can be used of them, and where the jobs are.

    `held` maps a GPU model to the boards that jobs hold of it now.
    """
    newest = max((gpu.last_seen_at for gpu in cluster.gpus), default=None)
    present = [gpu for gpu in cluster.gpus if newest and gpu.last_seen_at > newest - _GONE_AFTER]
    described = {_short(node.name): node for node in cluster.nodes}
    homes = _homes(present, list(jobs), described)
    on_node: Counter[str] = Counter()
    for home in homes.values():
        for name, count in home.boards:
            on_node[name] += count
    on_node.subtract(_shared_boards(homes))
    nodes = [
        replace(
            node,
            held=min(node.gpus, on_node[node.name]),
            away=_away(node.name, slot_starts, slot, maintenance),
        )
        for node in _nodes(present, cluster.nodes, described)
    ]
    usable: Counter[str] = Counter()
    for node in nodes:
        usable[node.gpu_model] += node.usable
    beyond = {model: math.ceil(count - usable[model] - 1e-6) for model, count in held.items()}
    nodes += [
        FleetNode(name=f"{UNSEEN} {model}", gpu_model=model, gpus=count, seen=False)
        for model, count in sorted(beyond.items())
        if count > 0
    ]
    return FleetFacts(nodes=tuple(nodes), homes=homes)


def _short(name: str) -> str:
    """Give a host name without its domain: schedulers and exporters differ in that."""
    return name.partition(".")[0].casefold()


def _nodes(
    gpus: Sequence[Gpu], nodes: Sequence[Node], described: Mapping[str, Node]
) -> list[FleetNode]:
    """Give the nodes of telemetry, completed by their schedulers, and those of schedulers alone."""
    boards: dict[tuple[str, str], set[str]] = defaultdict(set)
    for gpu in gpus:
        boards[gpu.node, gpu.gpu_model].add(gpu.gpu_uuid)
    models = Counter(name for name, _model in boards)
    found = [
        _completed(name, model, len(uuids), described.get(_short(name)), alone=models[name] == 1)
        for (name, model), uuids in sorted(boards.items())
    ]
    seen = {_short(name) for name, _model in boards}
    alone = {_short(node.name): node for node in nodes if node.gpu_count > 0}
    found += [
        _completed(node.name, node.gpu_model, node.gpu_count, node, alone=True)
        for short, node in sorted(alone.items())
        if short not in seen
    ]
    return found


def _completed(name: str, model: str, count: int, node: Node | None, *, alone: bool) -> FleetNode:
    """Give a node; a node with boards of several models is several, each named with its model."""
    own = FleetNode(name=name if alone else f"{name} ({model})", gpu_model=model, gpus=count)
    if node is None:
        return own
    return replace(
        own,
        gpus=max(count, node.gpu_count) if alone else count,
        cpus=node.cpus,
        memory_mib=node.memory_mib,
        partitions=tuple(sorted(node.partitions)),
        open=node.schedulable,
    )


def _homes(
    gpus: Sequence[Gpu], jobs: Sequence[Job], described: Mapping[str, Node]
) -> dict[str, Home]:
    """Give where jobs are: as telemetry says, else on the nodes that their scheduler names."""
    newest = max((gpu.last_seen_at for gpu in gpus), default=None)
    models = Counter(name for name, _model in {(gpu.node, gpu.gpu_model) for gpu in gpus})
    held: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    sliced: dict[str, str] = {}
    wanted = {job.job_id for job in jobs}
    for gpu in gpus:
        if gpu.job_id in wanted and newest and gpu.last_seen_at > newest - _HOLDS_FOR:
            name = gpu.node if models[gpu.node] == 1 else f"{gpu.node} ({gpu.gpu_model})"
            held[gpu.job_id][name].add(gpu.gpu_uuid)
            if gpu.mig_instance:
                sliced[gpu.job_id] = gpu.gpu_uuid
    homes = {
        job_id: Home(
            boards=tuple(
                sorted(
                    ((name, len(uuids)) for name, uuids in nodes.items()),
                    key=lambda one: (-one[1], one[0]),
                )
            ),
            mig_board=sliced.get(job_id, ""),
        )
        for job_id, nodes in held.items()
    }
    full = {_short(gpu.node): gpu.node for gpu in gpus}
    for job in jobs:
        named = () if job.scheduler is None else job.scheduler.nodes
        known = [
            full.get(_short(one), one) for one in named if _short(one) in {**full, **described}
        ]
        if job.job_id not in homes and known and not job.mig_profile:
            each, rest = divmod(job.gpu_count, len(known))
            counts = [(name, each + (index < rest)) for index, name in enumerate(known)]
            homes[job.job_id] = Home(boards=tuple(one for one in counts if one[1] > 0))
    return homes


def _shared_boards(homes: Mapping[str, Home]) -> Counter[str]:
    """Give per node how often a board cut by MIG was counted for more than one of its slices."""
    counted: Counter[tuple[str, str]] = Counter(
        (home.boards[0][0], home.mig_board) for home in homes.values() if home.mig_board
    )
    again: Counter[str] = Counter()
    for (name, _board), times in counted.items():
        again[name] += times - 1
    return again


def _away(
    name: str, starts: Sequence[datetime], slot: timedelta, maintenance: Sequence[Maintenance]
) -> tuple[bool, ...]:
    """Give in which slots a node is in maintenance, () when in none."""
    windows = [one for one in maintenance if fnmatchcase(name, one.nodes)]
    away = tuple(any(at < one.end and at + slot > one.start for one in windows) for at in starts)
    return away if any(away) else ()
