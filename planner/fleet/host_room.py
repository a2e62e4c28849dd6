"""CPUs and memory beside GPUs: requests of jobs, and room on nodes for the jobs of a plan.

A scheduler takes a job only where its CPUs and memory are free beside its GPUs. What nobody told,
of a job or of a node, is not checked. Amounts are in the units in which Kubernetes adds them up,
so that what fits now fits in a plan, too.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from data.base.units import BYTES_PER_MIB
from data.facts.fleet import Node
from data.facts.jobs import Job, Platform
from data.records.feasible_changes import has_same_pods
from planner.fleet.fleet_nodes import FleetNode, Home
from planner.fleet.occupied_boards import short_name

MILLI = 1000


def host_need(job: Job, gpu_count: int) -> tuple[float | None, float | None]:
    """Return the CPUs and the memory in MiB that a job asks for with so many GPUs in all."""
    extra = job.extra
    count = job.gpu_count if has_same_pods(job, gpu_count) else gpu_count
    return (
        _amount(extra.get("cpus"), count, job.gpu_count),
        _amount(extra.get("memory_mib"), count, job.gpu_count),
    )


def _amount(text: str | None, count: int, total: int) -> float | None:
    try:
        return None if text is None else float(text) * count / total
    except ValueError:
        return None


def milli_cpus(cpus: float) -> int:
    """Return thousandths of a CPU, rounded up."""
    return math.ceil(round(cpus * MILLI, 6))


def memory_bytes(mib: float) -> int:
    """Return bytes, rounded up."""
    return math.ceil(mib * BYTES_PER_MIB)


def share_of(amount: int, gpus: int, all_gpus: int) -> int:
    """Return the part of an amount that some of a job's GPUs bring, rounded up."""
    return -(-amount * gpus // all_gpus)


def host_share(job: Job, gpu_count: int, boards: int, *, of: int | None = None) -> tuple[int, int]:
    """Return the milli-CPUs and bytes that a job of so many GPUs asks for beside some boards.

    Of all its boards, `of` where these are not its GPUs; 0 where nobody told.
    """
    (cpus, mib), total = host_need(job, gpu_count), gpu_count if of is None else of
    boards_here = min(boards, total)
    return (
        share_of(milli_cpus(cpus or 0.0), boards_here, total),
        share_of(memory_bytes(mib or 0.0), boards_here, total),
    )


def kept_boards(
    boards: Iterable[tuple[str, int]], count: int, apart: int = 0
) -> tuple[tuple[str, int], ...]:
    """Return the part of a home that so many GPUs keep, the fullest nodes first.

    As they are there or, `apart` on so many nodes, in equal parts.
    """
    each = -(-count // max(1, apart))
    retained: list[tuple[str, int]] = []
    for name, boards_here in boards:
        if count > 0:
            retained.append((name, min(boards_here, count, each)))
            count -= retained[-1][1]
    return tuple(retained)


def held_shares(job: Job, home: Home | None) -> Iterator[tuple[str, int, int, int]]:
    """Yield each node of a job's home: its boards, and the milli-CPUs and bytes held beside them.

    Of a job with slices on several boards, the board that plans know.
    """
    boards_of = () if home is None else kept_boards(home.boards, job.gpu_count)
    # Several slices may be on one board.
    total = sum(count for _name, count in boards_of) if job.mig_profile else job.gpu_count
    for name, count in boards_of[:1] if job.mig_profile else boards_of:
        boards = 1 if job.mig_profile else count
        yield (name, boards, *host_share(job, job.gpu_count, boards, of=total))


def with_host_room(
    nodes: Sequence[FleetNode],
    described: Mapping[str, Sequence[Node]],
    jobs: Iterable[Job],
    homes: Mapping[str, Home],
) -> tuple[FleetNode, ...]:
    """Return the nodes with the CPUs and memory that the jobs of a plan can share.

    Of a node whose scheduler tells what is free these, and what the jobs hold there now: what
    others hold is not known by itself. A node of Kubernetes whose scheduler does not tell has
    system pods of unknown size. Boards of several models on one node share evenly what is free.
    Of several sources that describe a node, one that tells what is free counts.
    """
    cpu, memory = _requests(jobs, homes)
    parts = Counter(short_name(node.name) for node in nodes)
    rows = []
    for node in nodes:
        host = short_name(node.name)
        facts = max(
            described.get(host, ()),
            key=lambda row: (row.free_cpus is not None, row.seen_at, row.source),
            default=None,
        )
        cpus = memory_mib = None
        if facts is not None and facts.free_cpus is not None and facts.free_memory_mib is not None:
            cpus = (milli_cpus(facts.free_cpus) // parts[host] + cpu[node.name]) / MILLI
            free = memory_bytes(facts.free_memory_mib) // parts[host]
            memory_mib = (free + memory[node.name]) / BYTES_PER_MIB
            # A job on nodes that are not all described is taken to be on the others.
            cpus = min(cpus, math.inf if facts.cpus is None else facts.cpus)
            memory_mib = min(memory_mib, math.inf if facts.memory_mib is None else facts.memory_mib)
        elif facts is not None and facts.platform is not Platform.KUBERNETES:
            cpus, memory_mib = facts.cpus, facts.memory_mib
        rows.append(replace(node, cpus=cpus, memory_mib=memory_mib))
    return tuple(rows)


def _requests(jobs: Iterable[Job], homes: Mapping[str, Home]) -> tuple[Counter[str], Counter[str]]:
    """Return the milli-CPUs and the bytes that jobs hold now, by node."""
    cpu, memory = Counter[str](), Counter[str]()
    for job in jobs:
        for name, _boards, milli, size in held_shares(job, homes.get(job.job_id)):
            cpu[name] += milli
            memory[name] += size
    return cpu, memory


def room_of(node: FleetNode) -> tuple[int | None, int | None]:
    """Return the milli-CPUs and the bytes that jobs of a plan can share, None: not checked."""
    return (
        None if node.cpus is None else math.floor(round(node.cpus * MILLI, 6)),
        None if node.memory_mib is None else math.floor(node.memory_mib * BYTES_PER_MIB),
    )
