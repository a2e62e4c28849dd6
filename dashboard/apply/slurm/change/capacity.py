"""Capacity of the site for a waiting job's request: Slurm itself does not report it.

`scontrol update` takes `gpu:h100:9` with return code 0, and the job is then stuck with
Reason=BadConstraints. So nodes are counted before anything is sent.
"""

import grp
import os
import pwd
from collections.abc import Mapping
from datetime import timedelta

from collectors.slurm.queue_facts import is_reserved
from collectors.slurm.records import GPU_FIELDS, SlurmNode, plain_features
from dashboard.apply.slurm.change.moves import Move, pending_nodes
from dashboard.apply.slurm.client.client import Partition
from dashboard.apply.slurm.client.gres_text import gpu_request
from dashboard.apply.slurm.client.job_state import JobFacts
from dashboard.common.quota_words import limit_words
from data.base.counts import count_text
from data.base.errors import ChangeRefusedError
from data.base.units import SECONDS_PER_HOUR
from data.facts.quotas import Quota
from data.records.feasible_changes import REQUEUE_TAKES

_CLOSED = ("DOWN", "INACTIVE")
"""States of a partition in which no job is started."""


def capacity_refusals(
    facts: JobFacts, moves: tuple[Move, ...], nodes: tuple[SlurmNode, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (refusals, warnings) about what the job would ask for after the moves."""
    target = {move.field: move.after for move in moves if move.verb == "update"}
    if not target.keys() & {*GPU_FIELDS.values(), "NumNodes", "Partition", "Features"}:
        return (), ()
    partition = target.get("Partition", facts.job.partition)
    features = target.get("Features", facts.features)
    eligible = _eligible(facts, partition, features, nodes)
    if not eligible:
        return (f"no node of partition {partition} has the features {features or 'any'}",), ()
    fit = [node for node in eligible if _fits(facts, target, node)]
    need = _nodes_needed(facts, target, fit)
    ready = sum(1 for node in fit if node.schedulable)
    if len(fit) < need:
        request = f"{need} node(s) with {_request(facts, target)}"
        has = f"partition {partition} has {len(fit)}: the job would be stuck with BadConstraints"
        return (f"{request} are needed, {has}",), ()
    if ready < need:
        return (), (f"only {ready} of the {need} node(s) needed can take jobs now",)
    return (), ()


def taken_gpus(facts: JobFacts, moves: tuple[Move, ...], nodes: tuple[SlurmNode, ...]) -> str:
    """Return the reason that a requeued job would wait for GPUs of others, '' for none.

    Those that the job holds itself count as free: it gives them back. Those of nodes that a
    reservation takes do not, unless the job is in one.
    """
    target = {move.field: move.after for move in moves if move.verb == "update"}
    stays_open = all(node.schedulable for node in nodes if node.name in facts.job.nodes)
    if stays_open and not target.keys() & {*GPU_FIELDS.values(), "NumNodes", "NumTasks"}:
        return ""
    partition = target.get("Partition", facts.job.partition)
    eligible = _eligible(facts, partition, target.get("Features", facts.features), nodes)
    inside = bool(dict(facts.job.extra).get("reservation"))
    fit = [
        node
        for node in eligible
        if node.schedulable and (inside or not is_reserved(node)) and _fits(facts, target, node)
    ]
    unknown = sorted(node.name for node in fit if node.gpus_in_use is None)
    counts = [sum(gpu.count for gpu in gpus) for gpus in facts.job.gpus_by_node]
    gpus_by_node = dict(zip(facts.job.nodes, counts, strict=False))
    free = sorted(
        (
            sum(gpu.count for gpu in node.gpus) - node.gpus_in_use + gpus_by_node.get(node.name, 0)
            for node in fit
            if node.gpus_in_use is not None
        ),
        reverse=True,
    )
    each, count = gpu_request(_request(facts, target)).count, _node_count(facts, target)
    if dict(facts.gpus_by).get("node"):
        ready = sum(1 for gpus in free if gpus >= each)
        short = ready < count
        reason = f"{count} node(s) with {each} free GPU(s) are needed, {ready} have them"
    else:
        needed = each * _tasks(facts, target)
        short = sum(free) < needed
        reason = f"{needed} free GPU(s) are needed, there are {sum(free)}"
    if short and unknown:
        return f"{reason}, and GPUs in use of {', '.join(unknown)} are not known: it might wait"
    return f"{reason}: the requeued job would wait for others to end" if short else ""


def full_limits(
    limits: tuple[Quota, ...], facts: JobFacts, moves: tuple[Move, ...], *, requeues: bool
) -> tuple[str, ...]:
    """Return the refusals of a change that a limit on GPUs would keep from starting, () for none.

    A requeue must not wait for what others hold; a job that waits already may, but not for ever.
    What is in use of a limit counts as nothing where it is not known.
    """
    target = {move.field: move.after for move in moves if move.verb == "update"}
    now = sum(gpu.count for gpu in facts.job.gpus)
    gpus = _total(facts, target) if target else now
    if not requeues and gpus <= now:
        return ()
    job, how = ("requeued job", "wait for") if requeues else ("job", "never start by")
    return tuple(
        f"the {job} would ask for {gpus} GPU(s) and {how} a limit: {limit_words(limit)}"
        for limit in limits
        for in_use in (limit.used - now if requeues and limit.used is not None else 0.0,)
        if limit.nominal is not None and in_use + gpus > limit.nominal
    )


def _total(facts: JobFacts, target: dict[str, str]) -> int:
    """Return the GPUs that a job asks for in all after the moves."""
    nodes = _node_count(facts, target) if dict(facts.gpus_by).get("node") else 1
    return gpu_request(_request(facts, target)).count * nodes * _tasks(facts, target)


def _tasks(facts: JobFacts, target: dict[str, str]) -> int:
    """Return the tasks of which each asks for GPUs, 1 where none does by itself."""
    return int(target.get("NumTasks", facts.tasks)) if dict(facts.gpus_by).get("task") else 1


def host_shares(facts: JobFacts, moves: tuple[Move, ...]) -> tuple[str, ...]:
    """Return the warnings that CPUs or host memory of a job go by its number of GPUs, or ().

    Slurm 22.05 sets the memory anew and leaves the CPUs.
    """
    target = {move.field: move.after for move in moves if move.verb == "update"}
    if not (facts.cpus_per_gpu or facts.memory_mib_per_gpu) or not target:
        return ()
    gpus = _total(facts, target)
    warnings = []
    if facts.cpus_per_gpu:
        warnings.append(
            f"by --cpus-per-gpu {gpus} GPU(s) have {facts.cpus_per_gpu * gpus:g} CPUs, but Slurm "
            "may leave the job those that it has now"
        )
    if facts.memory_mib_per_gpu:
        warnings.append(
            f"by --mem-per-gpu the job has {facts.memory_mib_per_gpu * gpus / 1024:g} GiB of host "
            f"memory with {gpus} GPU(s): the run may need more"
        )
    return tuple(warnings)


def closed_partitions(partitions: Mapping[str, Partition], facts: JobFacts) -> tuple[str, ...]:
    """Return the refusal of a requeue into partitions that would not start it, () when one does."""
    closed = {
        name: why for name, partition in partitions.items() if (why := _closed(partition, facts))
    }
    if not partitions or len(closed) < len(partitions):
        return ()
    text = ", ".join(f"{name} {why}" for name, why in sorted(closed.items()))
    return (f"the requeued job could not start again: partition {text}",)


def _closed(partition: Partition, facts: JobFacts) -> str:
    """Return the reason of a partition not to start a job again, '' for none."""
    job = facts.job
    longest, limit = partition.max_seconds, job.time_limit_seconds
    if partition.state in _CLOSED:
        return f"is {partition.state}"
    if longest is not None and (limit is None or limit > longest):
        return f"takes jobs of {longest / SECONDS_PER_HOUR:g} h at most"
    if partition.max_nodes is not None and facts.nodes_asked > partition.max_nodes:
        return f"takes jobs of {count_text(partition.max_nodes, 'node')} at most"
    names_of_job = {"account": {job.account}, "QOS": {job.qos}, "group": groups_of(job.user)}
    for kind, names in names_of_job.items():
        names = names - {""}
        allowed = partition.allowed.get(kind)
        if names and allowed is not None and not names & allowed:
            return f"no longer takes its {kind} ({', '.join(sorted(names))})"
        if denied := names & partition.denied.get(kind, frozenset()):
            return f"no longer takes its {kind} ({', '.join(sorted(denied))})"
    return ""


def groups_of(user: str) -> set[str]:
    """Return the groups of a user as this machine knows them, none where it does not.

    Slurm asks nothing of root.
    """
    if user == "root":
        return set()
    try:
        person = pwd.getpwnam(user)
        numbers = os.getgrouplist(user, person.pw_gid)
        return {grp.getgrgid(number).gr_name for number in numbers}
    except (KeyError, OSError):
        return set()


def missed_deadline(facts: JobFacts) -> tuple[str, ...]:
    """Return the refusal of a requeue that leaves no time before the deadline, () when it does.

    Slurm ends a waiting job whose time limit no longer fits before its deadline.
    """
    at = facts.deadline_at
    least = facts.least_seconds
    if at is None or least is None:
        return ()
    if facts.read_at + REQUEUE_TAKES + timedelta(seconds=least) <= at:
        return ()
    end = f"{at:%Y-%m-%d %H:%M} UTC"
    why = f"Slurm would end the requeued job: it needs {least / 60:g} min before its deadline {end}"
    return (why,)


def _eligible(
    facts: JobFacts, partition: str, features: str, nodes: tuple[SlurmNode, ...]
) -> list[SlurmNode]:
    partitions = set(partition.split(","))
    required = plain_features(features)  # an expression is left to Slurm
    return [
        node
        for node in nodes
        if partitions & set(node.partitions)
        and required <= set(node.features)
        and node.name not in facts.excluded_nodes
    ]


def _request(facts: JobFacts, target: dict[str, str]) -> str:
    per = dict(facts.gpus_by)
    requests = (target.get(field, per.get(key, "")) for key, field in GPU_FIELDS.items())
    return next(filter(None, requests), "")


def _node_count(facts: JobFacts, target: dict[str, str]) -> int:
    return int(pending_nodes(target.get("NumNodes", facts.node_count)).partition("-")[0])


def _fits(facts: JobFacts, target: dict[str, str], node: SlurmNode) -> bool:
    count = _node_count(facts, target)
    try:
        request = gpu_request(_request(facts, target))
    except ChangeRefusedError:
        return False
    per_node = request.count if dict(facts.gpus_by).get("node") else 1
    has = _gpus_of_type(node, request.gpu_type)
    cpus = -(-facts.cpus // count) if "NumTasks" not in target else 1
    memory = max(facts.memory_mib_per_node, facts.memory_mib_per_cpu * cpus)
    return (
        has >= per_node
        and (node.cpus is None or node.cpus >= cpus)
        and (node.memory_mib is None or node.memory_mib >= memory)
    )


def _gpus_of_type(node: SlurmNode, gpu_type: str) -> int:
    return sum(gpu.count for gpu in node.gpus if gpu_type in ("", gpu.gpu_type))


def _nodes_needed(facts: JobFacts, target: dict[str, str], fit: list[SlurmNode]) -> int:
    """Return the number of nodes that must fit: as asked, or enough for the total of the job."""
    count = _node_count(facts, target)
    if dict(facts.gpus_by).get("node"):
        return count
    request = gpu_request(_request(facts, target))
    total = request.count * _tasks(facts, target)
    sizes = sorted((_gpus_of_type(node, request.gpu_type) for node in fit), reverse=True)
    if sum(sizes) < total:
        return len(fit) + 1
    return max(count, next(n for n in range(len(sizes) + 1) if sum(sizes[:n]) >= total))
