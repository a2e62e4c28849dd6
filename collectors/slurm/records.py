"""One job, one node as Slurm answered them, in one shape for every release and both backends."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from collectors.slurm.values import (
    Gpus,
    gpu_shares_of,
    gpus_of,
    has_unread_gpus,
    hosts_of,
    identifier_of,
    job_state_of,
    moment_of,
    number_of,
    seconds_of_minutes,
    text_of,
    words_of,
)
from data.facts.jobs import ENDED_STATES, JobState
from data.facts.queue_waits import EXPECTED_START, HELD_BACK, PRIORITY
from data.records.feasible_changes import CHECKPOINT_AT, CHECKPOINTS, NODE_TASKS

Record = Mapping[str, Any]

_NODES_ASKED = re.compile(r"(?:^|,)node=(\d+)")
_UNUSABLE_STATES = (
    "DOWN",
    "DRAIN",
    "FAIL",
    "ERROR",
    "UNKNOWN",
    "FUTURE",
    "MAINT",
    "NOT_RESPONDING",
    "INVAL",
)
_FIT = (
    *("IDLE", "ALLOC", "MIX", "COMPLETING", "PLANNED", "RESERVED", "CLOUD", "DYNAMIC_NORM"),
    *("POWER", "REBOOT", "RESUME", "UNDRAIN", "PERFCTRS", "NPC"),
)
"""Beginnings of the words for nodes that take jobs, at once or soon; of other words none knows."""


_CHECKPOINTS = "trimtab/checkpoints=true"
_CHECKPOINT_AT = re.compile(r"trimtab/checkpoint-at=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)Z")
"""Words of a job's --comment by which its owner says that it writes checkpoints, and of which time
the last one is: a job sets it anew by `scontrol update JobId=$SLURM_JOB_ID Comment=…`."""
_PLAIN_FEATURES = re.compile(r"[A-Za-z0-9_.-]+(?:[&,][A-Za-z0-9_.-]+)*")
COUNTS_CPUS_BY_GPU = (22, 5)
"""The last release measured that starts a job again whose GPUs changed under --cpus-per-gpu, and
that takes nodes from a running job of --ntasks-per-node: 24.11.5 does neither."""
GPU_FIELDS = {
    "node": "Gres",
    "job": "TresPerJob",
    "task": "TresPerTask",
    "socket": "TresPerSocket",
}
"""By how a job asks for GPUs: the keyword of `scontrol update` for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """One job, or one of its periods in accounting (a requeue or a resize starts another).

    `gpus_by_node` has an entry for every node of `nodes`, without GPUs (); `requested` is what
    was asked for, in total. `state_word` is Slurm's own.
    """

    raw_id: str
    workload: str
    name: str
    user: str
    account: str
    qos: str
    partition: str
    state: JobState
    state_word: str
    reason: str
    submitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    time_limit_seconds: float | None
    nodes: tuple[str, ...]
    gpus_by_node: tuple[tuple[Gpus, ...], ...]
    allocated: tuple[Gpus, ...]
    requested: tuple[Gpus, ...]
    extra: tuple[tuple[str, str], ...]

    @property
    def is_over(self) -> bool:
        """Return whether it holds nothing and waits for nothing."""
        return self.state in ENDED_STATES

    @property
    def gpus(self) -> tuple[Gpus, ...]:
        """The GPUs that it has or had; the requested ones while it waits or if it never started."""
        return (
            tuple(entry for node in self.gpus_by_node for entry in node)
            or self.allocated
            or self.requested
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """One node: memory in MiB, GPUs that it has and that are in use, None where that is unknown.

    `shared_gpus` are those by index of which shares are in use, `shares` all that it has by kind.
    """

    name: str
    state: str
    reason: str
    schedulable: bool
    gpus: tuple[Gpus, ...]
    gpus_in_use: int | None
    shared_gpus: frozenset[str]
    shares: Mapping[str, int]
    cpus: int | None
    memory_mib: float | None
    partitions: tuple[str, ...]
    features: tuple[str, ...]


def read_queue_job(record: Record, *, release: tuple[int, int] = (0, 0)) -> SlurmJob:
    """Read a job of `squeue --json` or of `/slurm/…/jobs`. Errors: ValueError, KeyError."""
    words = words_of(record["job_state"])
    state = job_state_of(words)
    over = state in ENDED_STATES
    nodes = hosts_of(text_of(record.get("nodes")))
    pending = state is JobState.PENDING
    allocated = () if pending or over else _allocated_gpus(record.get("gres_detail"), len(nodes))
    times = {name: moment_of(record.get(f"{name}_time")) for name in ("submit", "start", "end")}
    resized_at = moment_of(record.get("resize_time"))
    # A pending job may carry the time when the scheduler expects to start it, a running one the
    # time when its limit ends it: neither has happened.
    started_at = times["start"] if nodes and not pending else None
    reason = text_of(record.get("state_reason"))
    return SlurmJob(
        raw_id=raw_id_of(record["job_id"]),
        workload=workload_of(record),
        name=str(record.get("name") or ""),
        user=text_of(record.get("user_name")) or identifier_of(record.get("user_id")),
        account=text_of(record.get("account")),
        qos=text_of(record.get("qos")),
        partition=text_of(record.get("partition")),
        state=state,
        state_word=words[0] if words else "",
        reason=reason,
        submitted_at=times["submit"],
        started_at=started_at,
        ended_at=times["end"] if over else None,
        time_limit_seconds=seconds_of_minutes(record.get("time_limit")),
        nodes=nodes,
        gpus_by_node=allocated,
        allocated=() if pending else _gpus_in(record.get("tres_alloc_str"), nodes=len(nodes) or 1),
        requested=_requested(record, len(nodes)),
        extra=_queue_extra(record, resized_at, release),
    )


def _allocated_gpus(detail: object, node_count: int) -> tuple[tuple[Gpus, ...], ...]:
    """Return the GPUs by node, in the order of the node list; nothing when the two do not match."""
    if not isinstance(detail, list) or len(detail) != node_count:
        return ()
    return tuple(_gpus_in(entry) for entry in detail)


def _gpus_in(gres: object, *, nodes: int = 1) -> tuple[Gpus, ...]:
    """Return the GPUs of a gres or TRES string, else those of which it names shares."""
    return gpus_of(gres) or gpu_shares_of(gres, nodes=nodes)


def raw_id_of(value: object) -> str:
    """Return a job's number as text. Errors: ValueError when it is none."""
    raw = identifier_of(value)
    if not raw.isdecimal() or raw == "0":
        raise ValueError("a job without a number")
    return raw


def workload_of(record: Record) -> str:
    """Return `123_4` of an array, `123_[5-9%2]` of its tasks that wait, `123+1` of a het job."""
    array, het = identifier_of(record.get("array_job_id")), identifier_of(record.get("het_job_id"))
    if array not in ("", "0"):
        task = identifier_of(record.get("array_task_id"))
        waiting = text_of(record.get("array_task_string"))
        return f"{array}_{task}" if task else f"{array}_[{waiting}]" if waiting else array
    if het not in ("", "0"):
        return f"{het}+{identifier_of(record.get('het_job_offset')) or '0'}"
    return identifier_of(record.get("job_id"))


def node_counts(record: Record) -> tuple[int, int]:
    """Return the nodes that a job asks for at least, and the nodes that Slurm counts it with.

    A requeued job shows the count of its last run until it starts again, whatever it asks for
    since; 22.05 then shows no maximum either. What it asks for stands in `tres_req_str`.
    """
    count = int(number_of(record.get("node_count")) or 0)
    match = _NODES_ASKED.search(text_of(record.get("tres_req_str")))
    minimum = int(match[1]) if match else count
    requeued = number_of(record.get("restart_cnt")) and "PENDING" in words_of(record["job_state"])
    is_stale = requeued and match and not number_of(record.get("max_nodes"))
    return minimum, minimum if is_stale else count


def _requested(record: Record, node_count: int) -> tuple[Gpus, ...]:
    """Return the GPUs that a job asks for in total.

    `tres_req_str` comes last: without slurmdbd it holds no GPUs, and after a change of the node
    count of a waiting job it keeps the old total.
    """
    nodes = node_counts(record)[1] or node_count or 1
    tasks = int(number_of(record.get("tasks")) or 1)
    times = {"node": nodes, "job": 1, "task": tasks}
    for per, text in gpu_requests(record):
        if per in times and (gpus := gpus_of(text)):
            return tuple(
                Gpus(gpu_type=entry.gpu_type, count=entry.count * times[per]) for entry in gpus
            )
    gpus = gpus_of(record.get("tres_req_str"))
    return gpus or next(
        filter(None, (gpu_shares_of(record.get(name), nodes=nodes) for name in _SHARE_FIELDS)), ()
    )


_SHARE_FIELDS = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_req_str")


def takes_whole_nodes(record: Record) -> bool:
    """Return whether a job was given its nodes whole (--exclusive): it holds all their GPUs."""
    return "NONE" in words_of(record.get("shared"))


def gpu_requests(record: Record) -> tuple[tuple[str, str], ...]:
    """Return the ways in which a job asks for GPUs, as (node, job, task or socket; request).

    One reader for what is planned, applied and submitted: from 23.02 on the same fields hold CPUs
    too (`-c 8` is `tres_per_task: "cpu=8"`), which ask for no GPU. A share of GPUs is one.
    """
    pairs = ((per, text_of(record.get(f"tres_per_{per}"))) for per in GPU_FIELDS)
    return tuple((per, text) for per, text in pairs if gpus_of(text) or gpu_shares_of(text))


def has_cpus_by_gpu(record: Record) -> bool:
    """Return whether a job asks for CPUs by GPU (--cpus-per-gpu)."""
    return "gpu" in text_of(record.get("cpus_per_tres"))


def fixed_size(record: Record, release: tuple[int, int] = (0, 0)) -> str:
    """Return the reason why no change of its number of GPUs reaches a job, '' when one may."""
    if identifier_of(record.get("het_job_id")) not in ("", "0"):
        return "it is a component of a heterogeneous job"
    requests = dict(gpu_requests(record))
    if "socket" in requests:
        return "it asks for GPUs by socket"
    if any(gpu_shares_of(record.get(name)) for name in _SHARE_FIELDS):
        return "it asks for shares of GPUs (gres/shard, gres/mps)"
    if len(requests) > 1:
        return "it asks for GPUs in several ways"
    if takes_whole_nodes(record):
        return "it takes whole nodes (--exclusive)"
    if has_cpus_by_gpu(record) and release > COUNTS_CPUS_BY_GPU:
        return "it asks for CPUs by GPU (--cpus-per-gpu), and with fewer GPUs it would never start"
    return ""


def _queue_extra(
    record: Record, resized_at: datetime | None, release: tuple[int, int]
) -> tuple[tuple[str, str], ...]:
    spelling = next(((per, text) for per, text in gpu_requests(record) if gpus_of(text)), ("", ""))
    array, het = identifier_of(record.get("array_job_id")), identifier_of(record.get("het_job_id"))
    deadline = moment_of(record.get("deadline"))
    comment = text_of(record.get("comment"))
    reason = text_of(record.get("state_reason"))
    in_line = "PENDING" in words_of(record["job_state"]) and not reason.startswith(HELD_BACK)
    expected = moment_of(record.get("start_time")) if in_line else None
    written = _CHECKPOINT_AT.search(comment)
    written_at = moment_of(written[1]) if written else None
    pairs = {
        "array_job": array if array != "0" else "",
        "array_task": identifier_of(record.get("array_task_id")) if array != "0" else "",
        "array_waiting": text_of(record.get("array_task_string")),
        "het_job": het if het != "0" else "",
        "restarts": identifier_of(record.get("restart_cnt")),
        "requeue": {"True": "yes", "False": "no"}.get(str(record.get("requeue")), ""),
        "batch": {"True": "yes", "False": "no"}.get(str(record.get("batch_flag")), ""),
        "fixed_size": fixed_size(record, release),
        NODE_TASKS: "yes"
        if release > COUNTS_CPUS_BY_GPU and number_of(record.get("tasks_per_node"))
        else "",
        "slurm_release": f"{release[0]}.{release[1]:02}" if any(release) else "",
        "features": text_of(record.get("features")),
        "reservation": text_of(record.get("resv_name")),
        "licenses": text_of(record.get("licenses")),
        "required_nodes": ",".join(hosts_of(text_of(record.get("required_nodes")))),
        "nodes_requested": str(node_counts(record)[1] or ""),
        "gres": spelling[1],
        "gres_per": spelling[0],
        "resized_at": resized_at.isoformat() if resized_at else "",
        "deadline_at": deadline.isoformat() if deadline else "",
        CHECKPOINTS: "its --comment" if _CHECKPOINTS in comment else "",
        CHECKPOINT_AT: written_at.isoformat() if written_at else "",
        EXPECTED_START: expected.isoformat() if expected else "",
        PRIORITY: str(int(number_of(record.get("priority")) or 0) or "") if in_line else "",
        "time_min_minutes": str(int(number_of(record.get("time_minimum")) or 0) or ""),
    } | requested_facts(gpus_of(spelling[1]))
    return tuple((name, value) for name, value in pairs.items() if value)


def requested_facts(requests: tuple[Gpus, ...]) -> dict[str, str]:
    """Return the requested GPUs as (fact, value) pairs of a job."""
    return {
        "requested_gpu_type": ",".join(gpus.gpu_type for gpus in requests if gpus.gpu_type),
        "requested_gpus": str(sum(gpus.count for gpus in requests)) if requests else "",
    }


def plain_features(text: str) -> set[str]:
    """Return the features that a request lists; none of an expression such as `[a|b]`."""
    return set(re.split("[&,]", text)) if _PLAIN_FEATURES.fullmatch(text) else set()


def read_node(record: Record) -> SlurmNode:
    """Read a node of `sinfo --json`, `scontrol show nodes --json` or `/slurm/…/nodes`."""
    words = words_of(record["state"]) + words_of(record.get("state_flags"))
    cpus = number_of(record.get("cpus"))
    features = record.get("active_features") or record.get("features")
    partitions = record.get("partitions")
    return SlurmNode(
        name=text_of(record["name"]),
        state="+".join(word.lower() for word in dict.fromkeys(words)),
        reason=text_of(record.get("reason")),
        schedulable=bool(words)
        and all(word.startswith(_FIT) and not word.startswith(_UNUSABLE_STATES) for word in words),
        gpus=gpus_of(record.get("gres")),
        gpus_in_use=None
        if "gres_used" not in record or has_unread_gpus(record["gres_used"])
        else sum(gpu.count for gpu in gpus_of(record["gres_used"])),
        shared_gpus=frozenset(
            index for gpu in gpu_shares_of(record.get("gres_used")) for index in gpu.indices or ()
        ),
        shares={gpu.share: gpu.amount for gpu in gpu_shares_of(record.get("gres"))},
        cpus=None if cpus is None else int(cpus),
        memory_mib=number_of(record.get("real_memory")),
        partitions=tuple(text_of(partitions).split(",")) if partitions else (),
        features=tuple(text_of(features).split(",")) if text_of(features) else (),
    )
