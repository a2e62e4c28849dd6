"""What came of the jobs that held the boards: whose hours led to something, and what ended others.

The hours are those of all runs of a job, so that of one that was requeued and finished none count
as lost. What a scheduler calls the end of a run is told apart by its words, in the order below.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from data.records.jobs import Job, JobState
from data.store.energy_parts import NO_NAME

_CAUSES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "out of memory": ("outofmemory", "oomkilled", "oom"),
        "time limit": ("timelimit", "timeout", "deadline"),
        "preempted": ("preempt", "evict"),
        "node failed": ("nodefail", "bootfail", "nodedown", "nodelost", "nodeshutdown"),
    }
)
"""Causes of failures, and what Slurm's and Kubernetes' reasons for them have in common."""
_STATES: Mapping[JobState, str] = MappingProxyType(
    {
        JobState.FINISHED: "finished",
        JobState.CANCELLED: "cancelled",
        JobState.PENDING: "waits again",
        JobState.RUNNING: "not over",
        JobState.SUSPENDED: "not over",
    }
)


def outcome_of(job: Job | None) -> str:
    """Return what came of a job, such as finished or failed: time limit; unknown is said so."""
    if job is None or job.scheduler is None:
        return NO_NAME
    if job.scheduler.state is not JobState.FAILED:
        return _STATES.get(job.scheduler.state, NO_NAME)
    said = re.sub(r"[^a-z]", "", job.scheduler.reason.lower())
    found = (cause for cause, words in _CAUSES.items() if any(word in said for word in words))
    return f"failed: {next(found, 'its program')}"
