"""Facts of a job from the rest of the queue: jobs that wait for its end or for its nodes."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from collectors.slurm.records import Record, SlurmJob, SlurmNode, plain_features
from collectors.slurm.reservations import RESERVED_AHEAD
from collectors.slurm.values import hosts_of, identifier_of, text_of
from data.facts.jobs import ENDED_STATES, JobState
from data.facts.queue_waits import HELD_BACK

DEPENDENTS = "dependents"
"""The fact of a job that names those jobs, such as `7 (afterok), 12 (afternotok)`."""

WAITING = "waiting"
"""The fact of a running job that says why, requeued, it might not start again at once."""
UNTYPED = "untyped"
"""The fact of a running job that names no GPU type: those on which it may start, if several."""
_SOLE_REASONS = ("Licenses", "JobArrayTaskLimit")
"""Reasons of jobs that wait for nothing else."""
_TAKEN_STATES = frozenset({RESERVED_AHEAD, "reserved", "maint", "maintenance"})
_MAX_NAMED = 3
OWN_REASON_PREFIX = "trimtab "
"""Begins the reason of a node that Trimtab drains."""

_SINGLETON = "singleton"
_CONDITION = re.compile(r"\b(after[a-z]+):([0-9_*+:]+)")
"""`after:12` alone is met by the start of a job, so its end changes nothing."""


def with_queue_facts(
    jobs: Iterable[SlurmJob], records: Iterable[Record], nodes: Iterable[SlurmNode]
) -> tuple[SlurmJob, ...]:
    """Return the jobs with the facts DEPENDENTS, WAITING and UNTYPED, where there is any.

    `records` are Slurm's answer of all jobs; a job of an array is waited for by its own number, by
    that of its array, or as `ARRAY_TASK`. A reservation that takes a node of a job
    (`with_reservations`) waits for it, too.
    """
    jobs = tuple(jobs)
    conditions = {
        identifier_of(record.get("job_id")): text_of(record.get("dependency")) for record in records
    }
    dependents = _waiting_for(jobs, conditions)
    lines = _lines(jobs)
    by_name = {node.name: node for node in nodes}
    return tuple(job if job.is_over else _extended(job, dependents, lines, by_name) for job in jobs)


def is_reserved(node: SlurmNode) -> bool:
    """Return whether a reservation takes a node now, or soon (`with_reservations`)."""
    return bool(_TAKEN_STATES.intersection(node.state.split("+")))


def _extended(
    job: SlurmJob,
    dependents: Mapping[str, list[str]],
    lines: Mapping[str, list[tuple[str, frozenset[str]]]],
    nodes: Mapping[str, SlurmNode],
) -> SlurmJob:
    """Return a job with its facts."""
    line: list[str] = []
    if job.state is JobState.RUNNING:
        hosts = [nodes[name] for name in job.nodes if name in nodes]
        busy = [node.name for node in hosts if is_reserved(node)]
        if not dict(job.extra).get("reservation"):
            line += [f"a reservation of {name}" for name in busy]
        # One that Trimtab drains is to be left: whether others have room is looked at where it is.
        line += [
            f"{node.name} takes no jobs"
            for node in hosts
            if not (
                node.schedulable or node.name in busy or node.reason.startswith(OWN_REASON_PREFIX)
            )
        ]
        # Another partition may hold the same nodes.
        keys = [*_keys(job), *(name for node in hosts for name in node.partitions)]
        waiting = (
            who
            for key in keys
            for who, only in lines[key]
            if not (only and job.nodes) or only.intersection(job.nodes)
        )
        line += dict.fromkeys(waiting)
    head = line[:_MAX_NAMED]
    if len(line) > _MAX_NAMED:
        head.append(f"{len(line) - _MAX_NAMED} more")
    facts = {
        DEPENDENTS: ", ".join(_dependents(job, dependents)),
        WAITING: ", ".join(head),
        UNTYPED: " or ".join(_types_open_to(job, nodes.values())),
    }
    pairs = tuple((name, value) for name, value in facts.items() if value)
    return replace(job, extra=(*job.extra, *pairs)) if pairs else job


def _keys(job: SlurmJob) -> list[str]:
    """Return the keys that a job may free as it leaves: its partitions, a limit that it fills."""
    extra = dict(job.extra)
    keys = [*job.partition.split(","), f"QOS {job.qos}", f"Assoc {job.account}"]
    if "licenses" in extra:
        keys.append("Licenses")
    if "array_job" in extra:
        keys.append(f"JobArrayTaskLimit {extra['array_job']}")
    return keys


def _lines(jobs: Iterable[SlurmJob]) -> Mapping[str, list[tuple[str, frozenset[str]]]]:
    """Return by key the jobs that wait for room or for a limit, with GPUs or without.

    One that waits for a limit may take another partition, and the limit is full again. One without
    GPUs may take the CPUs of a node with GPUs. Beside each stand the nodes that alone are room for
    it, none where any is.
    """
    by_key = defaultdict(list)
    for job in jobs:
        if job.state is not JobState.PENDING or job.reason.startswith(HELD_BACK):
            continue
        limited = {key for key in _keys(job) if job.reason.startswith(key.partition(" ")[0])}
        anywhere = () if job.reason.startswith(_SOLE_REASONS) else job.partition.split(",")
        for key in {*anywhere, *limited}:
            only = frozenset[str]() if key in limited else _only_on(job)
            by_key[key].append((f"job {job.workload} waits ({job.reason or 'None'})", only))
    return by_key


def _only_on(job: SlurmJob) -> frozenset[str]:
    """Return the nodes on which alone a waiting job can run, none where others may serve too."""
    extra = dict(job.extra)
    hosts, count = hosts_of(extra.get("required_nodes", "")), extra.get("nodes_requested", "")
    return frozenset(hosts if count.isdigit() and int(count) <= len(hosts) else ())


def _types_open_to(job: SlurmJob, nodes: Iterable[SlurmNode]) -> tuple[str, ...]:
    """Return the GPU types on which a running job may start again, () where its request says."""
    extra = dict(job.extra)
    if job.state is not JobState.RUNNING or extra.get("requested_gpu_type") or not job.gpus:
        return ()
    hosts = hosts_of(extra.get("required_nodes", ""))
    features = plain_features(extra.get("features", ""))
    types = {
        gpus.gpu_type
        for node in nodes
        if {*job.partition.split(",")} & {*node.partitions}
        and (not hosts or node.name in hosts)
        and features <= {*node.features}
        for gpus in node.gpus
        if gpus.gpu_type
    }
    return tuple(sorted(types)) if len(types) > 1 else ()


def _waiting_for(
    jobs: Iterable[SlurmJob], conditions: Mapping[str, str]
) -> Mapping[str, list[str]]:
    """Return the waiting jobs, in words, by the name under which a job is waited for."""
    by_name = defaultdict(list)
    for job in jobs:
        if job.state in ENDED_STATES:
            continue
        condition = conditions.get(job.raw_id, "")
        if _SINGLETON in condition:
            by_name[_chain(job)].append(f"{job.workload} ({_SINGLETON})")
        for word, names in _CONDITION.findall(condition):
            for name in names.split(":"):
                by_name[name.partition("+")[0]].append(f"{job.workload} ({word})")
    return by_name


def _chain(job: SlurmJob) -> str:
    """Return the name under which jobs of one name and user wait for each other."""
    return f"{_SINGLETON} of {job.user}: {job.name}"


def _dependents(job: SlurmJob, waiting: Mapping[str, list[str]]) -> list[str]:
    extra = dict(job.extra)
    array, task = extra.get("array_job", ""), extra.get("array_task", "")
    names = {job.raw_id, job.workload, _chain(job)}
    if array:
        names |= {array, f"{array}_*", f"{array}_{task}"}
    return sorted({who for name in names for who in waiting.get(name, ())})
