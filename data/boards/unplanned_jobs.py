"""Needs of jobs that are not planned: nodes that stay on, occupied boards. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta

from data.base.units import SECONDS_PER_HOUR
from data.boards.board_shares import boards_named, parts_of_profile
from data.facts.cluster_names import named_in
from data.facts.fleet import Node
from data.facts.gpu_resources import UNREAD_SUFFIX
from data.facts.jobs import Job, JobState, Platform
from data.records.feasible_changes import required_nodes

SCHEDULER_LAG = timedelta(hours=1)
"""A job seen this long before its scheduler last described its nodes may be there still."""
_QUIET_AFTER_SECONDS = 2 * SECONDS_PER_HOUR
RESERVED_STATES = frozenset({"planned", "reserved", "reservation-ahead"})
"""Words in the state of a Slurm node that its scheduler means to use."""
_HELD_REASONS = ("JobHeld", "DependencyNeverSatisfied", "BadConstraints")
"""Beginnings of Slurm's reasons of jobs that wait for a person, not for a node."""


def is_quiet(last: datetime, first_slot: float, slot_seconds: int) -> bool:
    """Return whether a job is not planned from `first_slot`, being without readings for so long.

    `last` is its last slot with any, `first_slot` in s of the epoch.
    """
    return quiet_seconds(last, first_slot, slot_seconds) > max(
        _QUIET_AFTER_SECONDS, 2 * slot_seconds
    )


def quiet_seconds(last: datetime, first_slot: float, slot_seconds: int) -> float:
    """Return for how long before `first_slot` a job has had no readings, s, as in `is_quiet`."""
    return first_slot - last.timestamp() - slot_seconds


def required_nodes_on(
    jobs: Iterable[Job], read: Collection[str], nodes: Iterable[Node]
) -> frozenset[str]:
    """Return the names of the nodes that must not be powered down.

    Those on which jobs run or are suspended that have no readings lately (`read` are the ids of
    those that have), on which jobs that wait may start, or that the scheduler has promised, as it
    last said, or that have accelerators which are not read. A job that its scheduler does not list
    any more, when it last describes its nodes, is over.
    """
    nodes = tuple(nodes)
    names = {
        node.name
        for node in nodes
        if RESERVED_STATES.intersection(node.state.split("+")) or UNREAD_SUFFIX in node.reason
    }
    for job in _listed(jobs, nodes):
        names.update(_needed_by(job, job.job_id in read, nodes))
    return frozenset(names)


def occupied(
    jobs: Iterable[Job], read: Collection[str], nodes: Iterable[Node]
) -> dict[tuple[str, str], int]:
    """Return the boards by (node, GPU model) that jobs without readings hold, suspended ones too.

    Slurm gives the CPUs of a suspended job to others, and its GPUs to nobody (gres.html, "Running
    Jobs"). The model is '' where the job does not tell it. Jobs that share a node evenly are
    rounded up. A job on a MIG slice counts no board, and a board that several jobs share is one.
    """
    boards_of: Counter[tuple[str, str]] = Counter()
    shared: set[tuple[str, str, str]] = set()
    for job in unread(jobs, read, nodes):
        names = job.scheduling.nodes
        boards = parts_of_profile(job.mig_profile, job.gpu_count).get("", 0)
        shared |= {(*place, job.gpu_model) for place in boards_named(job)}
        for name in () if boards_named(job) or not boards else names:
            boards_of[name, job.gpu_model] += -(-boards // len(names))
    boards_of.update((node, model) for node, _board, model in shared)
    return dict(boards_of)


def unread(jobs: Iterable[Job], read: Collection[str], nodes: Iterable[Node]) -> tuple[Job, ...]:
    """Return the running jobs with GPUs that have no readings (`read` are the ids of those)."""
    return tuple(
        job
        for job in _listed(jobs, tuple(nodes))
        if job.job_id not in read
        and job.gpu_count
        and job.scheduler is not None
        and job.scheduler.state in (JobState.RUNNING, JobState.SUSPENDED)
    )


def _listed(jobs: Iterable[Job], nodes: Iterable[Node]) -> Iterator[Job]:
    """Yield the jobs that their scheduler still listed when it last described its nodes."""
    said_at: dict[str, datetime] = {}
    for node in nodes:
        said_at[node.source] = max(node.seen_at, said_at.get(node.source, node.seen_at))
    for job in jobs:
        if job.source in said_at and job.last_seen_at > said_at[job.source] - SCHEDULER_LAG:
            yield job


def _needed_by(job: Job, is_read: bool, nodes: Iterable[Node]) -> Iterator[str]:
    facts = job.scheduler
    if facts is None:
        return
    if facts.state in (JobState.RUNNING, JobState.SUSPENDED) and not is_read:
        yield from facts.nodes
    elif facts.state is JobState.PENDING and not facts.reason.startswith(_HELD_REASONS):
        yield from _may_start_on(job, nodes)


def _may_start_on(job: Job, nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the nodes on which a job that waits may start: all where nothing says otherwise."""
    partitions = {*job.namespace.split(",")} if job.platform is Platform.SLURM else set()
    required = {named_in(name, job.cluster) for name in required_nodes(job)}
    for node in nodes:
        if (
            (not required or node.name in required)
            and node.source == job.source
            and job.gpu_model in ("", node.gpu_model)
            and (not partitions or not node.partitions or partitions & {*node.partitions})
        ):
            yield node.name
