"""The fleet of a plan from telemetry and schedulers: nodes, usable boards by slot, and homes.

Nodes come from schedulers and from telemetry: a node that only telemetry has seen counts too, and
belongs to no scheduler. A job runs on nodes of its own scheduler, and a node with work that its
scheduler does not explain stays as it is. A node that takes no new jobs (cordoned, draining) counts
with what its jobs hold; maintenance takes whole nodes away for a while. Boards that jobs hold
beyond all that was seen are kept on a node of their own, so that today's allocation always has
room.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from data.boards.board_shares import HOLD_TIMEOUT
from data.facts.cluster_names import cluster_in
from data.facts.fleet import Cluster, Gpu, Node
from data.facts.jobs import Job, Platform
from data.settings.fleet import Maintenance
from planner.fleet.fleet_nodes import FleetFacts, FleetNode, Home, Reach
from planner.fleet.host_room import with_host_room
from planner.fleet.occupied_boards import is_unexplained_work, short_name, taken_boards

_GONE_AFTER = timedelta(days=1)
"""A board not seen for so long is no capacity."""
_HOLDING = frozenset({"allocated", "mixed", "completing"})
"""Slurm's words for a node that holds jobs, of GPUs or not."""
UNSEEN = "(unseen)"


def scheduler_of(job: Job, schedulers: Collection[str]) -> str:
    """Return the scheduler that runs a job, '' when none does or none of the known has nodes.

    `schedulers` are those of the nodes. A further cluster without any is a scheduler of its own:
    boards are never planned across clusters.
    """
    nobody = _nobody_in(job.cluster)
    local = (name for name in schedulers if name != nobody and cluster_in(name) == job.cluster)
    return job.source if job.scheduler is not None and any(local) else nobody


def _nobody_in(cluster: str) -> str:
    """Return the name that stands for the scheduler of a cluster whose nodes none describes."""
    return f"@{cluster}" if cluster else ""


def runs_under(scheduler: str, schedulers: tuple[str, ...]) -> bool:
    """Return whether a node of these schedulers takes what one runs, '' what none of them does."""
    return scheduler in schedulers or (not scheduler and not schedulers)


def in_partition(job: Job, partitions: tuple[str, ...]) -> bool:
    """Return whether a node is open to a job's partition: a Slurm job keeps its own."""
    return job.platform is not Platform.SLURM or not partitions or job.namespace in partitions


def fleet_facts(
    cluster: Cluster,
    jobs: Iterable[Job],
    gpus_by_job: Mapping[str, float],
    *,
    slot_starts: Sequence[datetime],
    slot: timedelta,
    maintenance: Sequence[Maintenance],
    ended: Iterable[Job] = (),
) -> FleetFacts:
    """Return the nodes with what can be used of them, and where the jobs are.

    `gpus_by_job` maps a job to the boards that it holds now; `ended` jobs hold nothing.
    """
    jobs = list(jobs)
    times = [gpu.last_seen_at for gpu in cluster.gpus] + [entry.seen_at for entry in cluster.nodes]
    since = max(times, default=cluster.as_of) - _GONE_AFTER
    present = [gpu for gpu in cluster.gpus if gpu.last_seen_at > since]
    described: dict[str, list[Node]] = defaultdict(list)
    for node in cluster.nodes:
        if node.seen_at > since:
            described[short_name(node.name)].append(node)
    homes = _homes(present, jobs, described, cluster.shares)
    on_node: Counter[str] = Counter()
    for home in homes.values():
        for name, count in home.counted:
            on_node[name] += count
    on_node.subtract(_cut_again(homes))
    described_nodes = _nodes(present, described)
    foreign = _foreign(described_nodes, present, [*jobs, *ended], homes, described)
    kept_on = {short_name(name) for name in cluster.kept_on}
    places = [(node.name, node.gpu_model, node.gpus) for node in described_nodes]
    occupied = taken_boards(places, filter(is_unexplained_work, present), cluster.occupied)
    nodes = [
        replace(
            node,
            allocated=min(node.gpus, on_node[node.name]),
            occupied=occupied[node.name, node.gpu_model],
            away=_away(node.name, slot_starts, slot, maintenance),
            foreign=node.name in foreign or short_name(node.name) in kept_on,
        )
        for node in described_nodes
    ]
    all_nodes = (*nodes, *_unseen(nodes, jobs, gpus_by_job, homes))
    schedulers = {name for node in all_nodes for name in node.schedulers}
    scheduler = {job.job_id: scheduler_of(job, schedulers) for job in jobs}
    owners = {node.name: node.schedulers for node in all_nodes}
    strays = {
        job_id
        for job_id, home in homes.items()
        if not all(runs_under(scheduler[job_id], owners[name]) for name, _count in home.boards)
    }
    return FleetFacts(
        nodes=with_host_room(all_nodes, described, jobs, homes),
        homes=homes,
        scheduler=scheduler,
        reach=_reaches(all_nodes, jobs, scheduler),
        strays=frozenset(strays),
    )


def _reaches(
    nodes: Sequence[FleetNode], jobs: Sequence[Job], scheduler: Mapping[str, str]
) -> dict[str, Reach]:
    """Return the reach of every job; jobs of one scheduler and partition reach the same."""
    reaches: dict[tuple[str, str], Reach] = {}
    for job in jobs:
        key = scheduler[job.job_id], _partition(job)
        if key in reaches:
            continue
        boards: Counter[str] = Counter()
        slices: dict[str, frozenset[str]] = defaultdict(frozenset)
        models = set()
        for node in nodes:
            if runs_under(key[0], node.schedulers) and in_partition(job, node.partitions):
                boards[node.gpu_model] += node.gpus
                slices[node.gpu_model] |= node.mig_profiles
                models |= {node.gpu_model} if node.nameable and node.observed else set()
        reaches[key] = Reach(boards=dict(boards), slices=dict(slices), models=frozenset(models))
    return {job.job_id: reaches[scheduler[job.job_id], _partition(job)] for job in jobs}


def _partition(job: Job) -> str:
    return job.namespace if job.platform is Platform.SLURM else ""


def _unseen(
    nodes: Sequence[FleetNode],
    jobs: Sequence[Job],
    gpus_by_job: Mapping[str, float],
    homes: Mapping[str, Home],
) -> Iterator[FleetNode]:
    """Yield nodes for the boards that jobs of a scheduler hold beyond what is seen of its own."""
    owners = {node.name: node.schedulers for node in nodes}
    all_names = {name for names in owners.values() for name in names}
    allocated: dict[tuple[str, tuple[str, ...]], float] = defaultdict(float)
    for job in jobs:
        home, scheduler = homes.get(job.job_id), scheduler_of(job, all_names)
        at = [owners[name] for name, _count in home.boards if name in owners] if home else []
        matching = (names for names in owners.values() if runs_under(scheduler, names))
        where = at[0] if at else next(matching, (scheduler,) if scheduler else ())
        allocated[job.gpu_model, where] += gpus_by_job.get(job.job_id, 0.0)
    usable: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for node in nodes:
        usable[node.gpu_model, node.schedulers] += node.usable
    several = len(set(owners.values())) > 1
    for (model, schedulers), count in sorted(allocated.items()):
        beyond = math.ceil(count - usable[model, schedulers] - 1e-6)
        if beyond > 0:
            whose = f" of {' and '.join(schedulers) or 'no scheduler'}" if several else ""
            yield FleetNode(
                name=f"{UNSEEN} {model}{whose}",
                gpu_model=model,
                gpus=beyond,
                observed=False,
                schedulers=schedulers,
            )


def _foreign(
    nodes: Sequence[FleetNode],
    gpus: Sequence[Gpu],
    jobs: Sequence[Job],
    homes: Mapping[str, Home],
    described: Mapping[str, Sequence[Node]],
) -> set[str]:
    """Return the nodes on which something runs that no scheduler of theirs explains."""
    schedulers = {name for node in nodes for name in node.schedulers}
    runs = {job.job_id: scheduler_of(job, schedulers) for job in jobs}
    newest = max((gpu.last_seen_at for gpu in gpus), default=None)
    on_host: dict[str, set[str]] = defaultdict(set)
    for gpu in gpus:
        if newest and gpu.last_seen_at > newest - HOLD_TIMEOUT:
            on_host[short_name(gpu.node)].update(gpu.holders)
    for job_id, home in homes.items():
        for name, _count in home.boards:
            on_host[short_name(name)].add(job_id)
    nameless = {short_name(gpu.node) for gpu in gpus if is_unexplained_work(gpu)}
    foreign = set()
    for node in nodes:
        host = short_name(node.name)
        words = {word for entry in described.get(host, ()) for word in entry.state.split("+")}
        local = [runs.get(job_id, "") in node.schedulers for job_id in on_host[host]]
        if host in nameless or not all(local) or (words & _HOLDING and not local):
            foreign.add(node.name)
    return foreign


def _nodes(gpus: Sequence[Gpu], described: Mapping[str, Sequence[Node]]) -> list[FleetNode]:
    """Return nodes of telemetry, completed by their schedulers, and those of schedulers alone."""
    boards: dict[tuple[str, str], set[str]] = defaultdict(set)
    slices: dict[tuple[str, str], set[str]] = defaultdict(set)
    for gpu in gpus:
        boards[gpu.node, gpu.gpu_model].add(gpu.gpu_uuid)
        slices[gpu.node, gpu.gpu_model] |= {gpu.mig_profile} - {""}
    models = Counter(name for name, _model in boards)
    rows = []
    for (name, model), uuids in sorted(boards.items()):
        alone = models[name] == 1
        row = FleetNode(
            name=name if alone else f"{name} ({model})",
            gpu_model=model,
            gpus=len(uuids),
            mig_profiles=frozenset(slices[name, model]),
        )
        rows.append(_completed(row, described.get(short_name(name), ()), alone=alone))
    read = {short_name(name) for name, _model in boards}
    for short, nodes in sorted(described.items()):
        largest = max(nodes, key=lambda node: node.gpu_count)
        if short not in read and largest.gpu_count > 0:
            row = FleetNode(name=largest.name, gpu_model=largest.gpu_model, gpus=0, read=False)
            rows.append(_completed(row, nodes, alone=True))
    return rows


def _completed(row: FleetNode, nodes: Sequence[Node], *, alone: bool) -> FleetNode:
    """Return a node with what its schedulers say of it.

    A node with boards of several models is several, each named with its model.
    """
    if not nodes:
        return replace(row, schedulers=tuple(filter(None, (_nobody_in(cluster_in(row.name)),))))
    newest = max(nodes, key=lambda node: (node.seen_at, node.source))
    schedulers = tuple(sorted({node.source for node in nodes}))
    sole = alone and len(schedulers) == 1
    offered = {
        profile
        for node in nodes
        for profile, count in node.mig_instances
        if count and (alone or node.gpu_model == row.gpu_model)
    }
    return replace(
        row,
        gpus=max(row.gpus, *(node.gpu_count for node in nodes)) if alone else row.gpus,
        partitions=tuple(sorted({name for node in nodes for name in node.partitions})),
        open=all(node.schedulable for node in nodes),
        schedulers=schedulers,
        platform=newest.platform if sole else Platform.UNKNOWN,
        known_as=newest.name if sole else "",
        mig_profiles=row.mig_profiles | offered,
        mig_manager=newest.mig_manager if sole else None,
        shares=newest.board_shares if sole else 0,
        nameable=any(node.gpu_model == row.gpu_model for node in nodes),
    )


def _homes(
    gpus: Sequence[Gpu],
    jobs: Sequence[Job],
    described: Mapping[str, Sequence[Node]],
    shares: Collection[str],
) -> dict[str, Home]:
    """Return the homes of jobs: by telemetry, else the nodes that their scheduler names.

    Of a job in `shares` its nodes do not tell which boards are its own.
    """
    newest = max((gpu.last_seen_at for gpu in gpus), default=None)
    models = Counter(name for name, _model in {(gpu.node, gpu.gpu_model) for gpu in gpus})
    boards_by_job: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    again: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    sliced: dict[str, str] = {}
    present = {job.job_id for job in jobs}
    for gpu in gpus:
        if not newest or gpu.last_seen_at <= newest - HOLD_TIMEOUT:
            continue
        name = gpu.node if models[gpu.node] == 1 else f"{gpu.node} ({gpu.gpu_model})"
        for number, job_id in enumerate(job for job in gpu.holders if job in present):
            boards_by_job[job_id][name].add(gpu.gpu_uuid)
            if number:
                again[job_id][name].add(gpu.gpu_uuid)
            if gpu.mig_instance:
                sliced[job_id] = gpu.gpu_uuid
    homes = {
        job_id: Home(
            boards=tuple(
                sorted(
                    ((name, len(uuids)) for name, uuids in nodes.items()),
                    key=lambda group: (-group[1], group[0]),
                )
            ),
            mig_board=sliced.get(job_id, ""),
            counted_by_others=tuple(
                (name, len(uuids)) for name, uuids in sorted(again[job_id].items())
            ),
        )
        for job_id, nodes in boards_by_job.items()
    }
    full = {short_name(gpu.node): gpu.node for gpu in gpus}
    for job in jobs:
        names = job.scheduling.nodes
        places = [
            full.get(short_name(entry), entry)
            for entry in names
            if short_name(entry) in {**full, **described}
        ]
        if job.job_id in homes or job.job_id in shares:
            continue
        if places and not job.mig_profile:
            each, rest = divmod(job.gpu_count, len(places))
            counts = [(name, each + (index < rest)) for index, name in enumerate(places)]
            homes[job.job_id] = Home(boards=tuple(count for count in counts if count[1] > 0))
    return homes


def _cut_again(homes: Mapping[str, Home]) -> Counter[str]:
    """Return per node how often a board cut by MIG was counted for more than one of its slices."""
    counted: Counter[tuple[str, str]] = Counter(
        (home.boards[0][0], home.mig_board)
        for home in homes.values()
        if home.mig_board and dict(home.counted)[home.boards[0][0]]
    )
    again: Counter[str] = Counter()
    for (name, _board), times in counted.items():
        again[name] += times - 1
    return again


def _away(
    name: str, starts: Sequence[datetime], slot: timedelta, maintenance: Sequence[Maintenance]
) -> tuple[bool, ...]:
    """Return in which slots a node is in maintenance, () when in none."""
    windows = [entry for entry in maintenance if fnmatchcase(name, entry.nodes)]
    away = tuple(
        any(at < window.end and at + slot > window.start for window in windows) for at in starts
    )
    return away if any(away) else ()
