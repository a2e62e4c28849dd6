"""State of a workload on Kubernetes, as its conditions and its pods report it."""

from collections.abc import Iterator
from typing import Any

from collectors.kubernetes.api import Document
from collectors.shared.json_parts import list_in, part, text_in
from dashboard.submission.targets.target import SentJobState, ran_out_of_gpu_memory
from data.base.errors import scrub
from data.records.submissions import SubmissionState

_DONE = ("Complete", "Completed", "Succeeded")
_FAILED = ("Failed",)
_STARTING = ("ContainerCreating", "PodInitializing")
_MAX_REASON = 300


def standing_of(workload: Document, pods: list[Any]) -> SentJobState:
    """Return the state of a workload; its pods tell whether memory ran out, and why they wait."""
    conditions = [
        entry
        for entry in list_in(workload, "status", "conditions")
        if text_in(entry, "status") == "True"
    ]
    for condition in conditions:
        if text_in(condition, "type") in _DONE:
            return SentJobState(state=SubmissionState.FINISHED)
        if text_in(condition, "type") in _FAILED:
            reason = text_in(condition, "reason") or "failed"
            return _cause(pods) or SentJobState(state=SubmissionState.FAILED, reason=reason)
    waiting = next(filter(None, map(_why_waiting, pods)), "")
    if any(text_in(pod, "status", "phase") == "Running" for pod in pods):
        return SentJobState(state=SubmissionState.RUNNING, reason=waiting)
    return SentJobState(state=SubmissionState.PENDING, reason=waiting)


def _why_waiting(pod: Any) -> str:
    """Return the reason of a pod to wait: the scheduler's words, else those of a container."""
    if text_in(pod, "status", "phase") != "Pending":
        return ""
    for condition in list_in(pod, "status", "conditions"):
        if text_in(condition, "reason") == "Unschedulable":
            return scrub(text_in(condition, "message"), limit=_MAX_REASON)
    for status in list_in(pod, "status", "containerStatuses"):
        waiting = part(status, "state", "waiting")
        reason = text_in(waiting, "reason")
        if reason and reason not in _STARTING:
            return scrub(f"{reason} {text_in(waiting, 'message')}".strip(), limit=_MAX_REASON)
    return ""


def _cause(pods: list[Any]) -> SentJobState | None:
    """Return the memory that ran out: OOMKilled is the host's, a message of torch the GPU's."""
    for end in _ends(pods):
        message = part(end, "message")
        if isinstance(message, str) and ran_out_of_gpu_memory(message[-65_536:]):
            code = part(end, "exitCode")
            return SentJobState(
                state=SubmissionState.OUT_OF_GPU_MEMORY, reason=f"exit code {code}: CUDA memory"
            )
    if any(text_in(end, "reason") == "OOMKilled" for end in _ends(pods)):
        return SentJobState(state=SubmissionState.OUT_OF_HOST_MEMORY, reason="OOMKilled")
    return None


def _ends(pods: list[Any]) -> Iterator[Any]:
    for pod in pods:
        for status in list_in(pod, "status", "containerStatuses"):
            end = part(status, "state", "terminated")
            if end is not None:
                yield end


def waiting_on(workload: str, pods: list[Any]) -> str:
    """Name the object whose events tell why nothing runs: a pod that waits, else the workload."""
    waiting = (pod for pod in pods if text_in(pod, "status", "phase") == "Pending")
    return next((text_in(pod, "metadata", "name") for pod in waiting), workload)


def last_warning(events: list[Any]) -> str:
    """Return the words of the latest warning among events, '' when there is none."""
    warnings = [event for event in events if text_in(event, "type") == "Warning"]
    if not warnings:
        return ""
    latest = max(warnings, key=lambda event: text_in(event, "lastTimestamp"))
    text = f"{text_in(latest, 'reason')}: {text_in(latest, 'message')}"
    return scrub(text, limit=_MAX_REASON)
