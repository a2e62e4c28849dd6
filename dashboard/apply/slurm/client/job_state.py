"""One job as Slurm sees it at this moment, in the words of `scontrol update`."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from collectors.slurm.records import (
    Record,
    SlurmJob,
    gpu_requests,
    node_counts,
    read_queue_job,
    takes_whole_nodes,
)
from collectors.slurm.values import (
    gpus_of,
    hosts_of,
    identifier_of,
    moment_of,
    number_of,
    text_of,
    words_of,
)
from dashboard.apply.slurm.client.gres_text import canonical_gres

_ENDED_STATES = {
    "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "DEADLINE",
    "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
}  # fmt: skip
_BILLING = re.compile(r",?billing=[^,]*")
"""The controller's own weighing of a request; it differs by whether the job has run before."""
_EACH_GPU = re.compile(r"gpu[^,]*:(\d+)(?:,|$)")
_HELD_BY_USER = ("JobHeldUser", "job_requeued_in_held_state")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """Facts of a job that a change touches or depends on.

    `state` is PENDING, RUNNING, SUSPENDED, COMPLETING, OVER or Slurm's own word. `gpus_by` are the
    (per, request) pairs that ask for GPUs, in one spelling; a job has one, or it is not touched.
    `eligible_at` is the earliest start, None while it is held; `least_seconds` the run that it
    needs before `deadline_at`. `nodes_asked` is the least number of nodes that the request names,
    also while the job runs; `tres_asked` is the request in total, as `tres_req_str` says it. Counts
    are whole numbers as text.
    """

    job: SlurmJob
    state: str
    address: str
    is_het: bool
    array_state: str
    gpus_by: tuple[tuple[str, str], ...]
    nodes_asked: int
    nodes_maximum: int
    tres_asked: str
    tasks: int
    cpus: int
    memory_mib_per_node: float
    memory_mib_per_cpu: float
    cpus_per_gpu: float
    memory_mib_per_gpu: float
    batch_host: str
    is_batch: bool
    may_requeue: bool
    takes_whole_nodes: bool
    tasks_by_node: bool
    restarts: int
    held: str
    eligible_at: datetime | None
    deadline_at: datetime | None
    least_seconds: float | None
    features: str
    excluded_nodes: tuple[str, ...]
    read_at: datetime

    @property
    def submitted(self) -> str:
        """The submit time: with the number it names a job, for numbers are used again."""
        at = self.job.submitted_at
        return "" if at is None else at.isoformat()

    @property
    def starts_not_before(self) -> str:
        """The start time that was asked for, '' when the job may start now."""
        at = self.eligible_at
        return "" if at is None or at <= self.read_at else at.isoformat()

    @property
    def node_count(self) -> str:
        """`2-2` or the range `1-4` while it waits, `2` when it has its nodes."""
        if self.state == "PENDING":
            return f"{self.nodes_asked}-{self.nodes_maximum}"
        return str(len(self.job.nodes))

    def value(self, field: str) -> str:
        """Return the value of a field as `scontrol update` and the steps call it."""
        per, limit = dict(self.gpus_by), self.job.time_limit_seconds
        values = {
            "Gres": per.get("node", ""),
            "TresPerJob": per.get("job", ""),
            "TresPerTask": per.get("task", ""),
            "NumNodes": self.node_count,
            "NumTasks": str(self.tasks),
            "TimeLimit": "" if limit is None else f"{limit / 60:g}",
            "StartTime": self.starts_not_before,
            "Partition": self.job.partition,
            "Features": self.features,
            "Hold": self.held,
            "Restarts": str(self.restarts),
            "JobState": self.state,
            "TRES": self.tres_asked,
            "nodes_asked": str(self.nodes_asked),
            "gpus": str(sum(gpu.count for gpu in self.job.gpus)),
        }
        return values[field]

    @property
    def total_is_stale(self) -> bool:
        """Return whether the total still counts the GPUs of another number of nodes.

        `NumNodes=` leaves it as it was, and limits are checked against it; `Gres=` corrects it.
        """
        each = gpus_of(dict(self.gpus_by).get("node"))
        total = sum(gpu.count for gpu in gpus_of(self.tres_asked))
        expected = sum(entry.count for entry in each) * self.nodes_asked
        return self.state == "PENDING" and bool(each and total) and total != expected


def _state(words: tuple[str, ...]) -> str:
    if "COMPLETING" in words:
        return "COMPLETING"
    if set(words) & _ENDED_STATES:
        return "OVER"
    for word in ("PENDING", "RUNNING", "SUSPENDED"):
        if word in words:
            # CONFIGURING, RESIZING, STOPPED and the like: on its way to something else.
            return word if set(words) <= {word, "REQUEUE_HOLD"} else "+".join(words)
    return "+".join(words) or "UNKNOWN"


def _hold(record: Record, reason: str) -> str:
    if number_of(record.get("priority")) != 0:
        return "no"
    if reason.startswith(_HELD_BY_USER):
        return "user"
    if "RUNNING" in words_of(record.get("job_state")):
        # Somebody holds it for the time after this run: only a requeue shows it.
        return "admin"
    # Priority 0 without being held is what BadConstraints leaves behind.
    return "admin" if reason.startswith("JobHeld") else "no"


def _count(value: Any) -> int:
    return int(number_of(value) or 0)


def _each_gpu(record: Record, field: str) -> float:
    """Return a job's request beside each of its GPUs (`gres:gpu:4`), 0 for nothing."""
    match = _EACH_GPU.search(text_of(record.get(field)))
    return float(match[1]) if match else 0.0


def _address(record: Record, number: str) -> str:
    """Return `123`, `123_4` of a task, `123_[5-9]` of the tasks of an array that wait together.

    22.05 takes a task's raw number for `scontrol update`, and ignores it for `scancel`.
    """
    array = identifier_of(record.get("array_job_id"))
    if array in ("", "0"):
        return number
    task = identifier_of(record.get("array_task_id"))
    if task:
        return f"{array}_{task}"
    waiting = text_of(record.get("array_task_string")).partition("%")[0]
    return f"{array}_[{waiting}]" if waiting else number


def _array_state(record: Record, others: list[Record]) -> str:
    """Return '' outside arrays, `task` of one task, `waiting`, or `mixed` of several at once."""
    array = identifier_of(record.get("array_job_id"))
    if array in ("", "0"):
        return ""
    if identifier_of(record.get("array_task_id")):
        return "task"
    states = {_state(words_of(other.get("job_state"))) for other in others}
    return "waiting" if states <= {"PENDING"} else "mixed"


def read_job(record: Record, others: list[Record], read_at: datetime) -> JobFacts:
    """Read a job from its record; `others` are the other records of its array.

    Errors: ValueError, KeyError for what is no job.
    """
    job = read_queue_job(record)
    requested, most = (max(1, count) for count in node_counts(record))
    return JobFacts(
        job=job,
        state=_state(words_of(record["job_state"])),
        address=_address(record, job.raw_id),
        is_het=identifier_of(record.get("het_job_id")) not in ("", "0"),
        array_state=_array_state(record, others),
        gpus_by=tuple((per, canonical_gres(request)) for per, request in gpu_requests(record)),
        nodes_asked=requested,
        nodes_maximum=max(requested, _count(record.get("max_nodes")) or most),
        tres_asked=_BILLING.sub("", text_of(record.get("tres_req_str"))),
        tasks=max(1, _count(record.get("tasks"))),
        cpus=max(1, _count(record.get("cpus"))),
        memory_mib_per_node=number_of(record.get("memory_per_node")) or 0.0,
        memory_mib_per_cpu=number_of(record.get("memory_per_cpu")) or 0.0,
        cpus_per_gpu=_each_gpu(record, "cpus_per_tres"),
        memory_mib_per_gpu=_each_gpu(record, "memory_per_tres"),
        batch_host=text_of(record.get("batch_host")),
        is_batch=record.get("batch_flag", True) in (True, 1),
        may_requeue=record.get("requeue", True) in (True, 1),
        takes_whole_nodes=takes_whole_nodes(record),
        tasks_by_node=_count(record.get("tasks_per_node")) > 0,
        restarts=_count(record.get("restart_cnt")),
        held=_hold(record, job.reason),
        eligible_at=moment_of(record.get("eligible_time")),
        deadline_at=moment_of(record.get("deadline")),
        least_seconds=60 * least
        if (least := number_of(record.get("time_minimum")))
        else job.time_limit_seconds,
        features=text_of(record.get("features")),
        excluded_nodes=hosts_of(text_of(record.get("excluded_nodes"))),
        read_at=read_at,
    )
