"""State of a workload: by its live pods, else by its own conditions, else by its dead pods."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from collectors.kubernetes.api import Document
from collectors.kubernetes.objects import GpuRequest, PodFacts
from collectors.kubernetes.pod_templates import added
from collectors.kubernetes.workloads import Workload
from collectors.shared.json_parts import list_in, part, text_in, time_in
from data.boards.board_shares import mixed_profile
from data.facts.jobs import JobState

_FINISHED_STATES = frozenset({"Complete", "Completed", "Succeeded", "SUCCEEDED", "STOPPED"})
_FAILED = frozenset({"Failed", "FAILED"})
_DEADLINE = "activeDeadlineSeconds"
_MAX_SECONDS = 10**9
"""A longer deadline, of some thirty years, is none."""
_WHY_NO_PODS = frozenset({("ReplicaFailure", "True"), ("Progressing", "False")})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadState:
    """A workload's state, why, and since when it is over.

    `devices` are those that its pods hold; else those that it waits for; else those it held.
    """

    state: JobState
    reason: str
    ended_at: datetime | None
    devices: tuple[GpuRequest, ...]

    @property
    def count(self) -> int:
        """Devices of all kinds."""
        return sum(device.count for device in self.devices)

    @property
    def profile(self) -> str:
        """The MIG profile of its devices, '' of boards; of several kinds how many of each."""
        kinds = Counter[str]()
        for device in self.devices:
            kinds[device.mig_profile] += device.count
        return next(iter(kinds), "") if len(kinds) < 2 else mixed_profile(kinds)


def state_of_workload(
    workload: Workload, pods: Sequence[PodFacts], requests: tuple[GpuRequest, ...]
) -> WorkloadState:
    """Return the state of a workload; `requests` are those of all its pod templates."""
    holding = [pod for pod in pods if pod.holds]
    living = holding or [pod for pod in pods if pod.waits]
    if living:
        runs = any(facts.phase != "Pending" for facts in holding)
        why = next((pod.reason for pod in pods if pod.phase == "Pending" and pod.reason), "")
        return WorkloadState(
            state=JobState.RUNNING if runs else JobState.PENDING,
            reason=why,
            ended_at=None,
            devices=added(request for facts in living for request in facts.requests),
        )
    state, reason, ended_at = _without_living(workload, pods)
    over = state in (JobState.FINISHED, JobState.FAILED)
    at_once = _at_once(pods) if pods else ()
    return WorkloadState(
        state=state,
        reason=reason,
        ended_at=ended_at if over else None,
        devices=at_once or requests if over else requests or at_once,
    )


def _without_living(
    workload: Workload, pods: Sequence[PodFacts]
) -> tuple[JobState, str, datetime | None]:
    """Return (state, reason, end) of a workload without a live pod."""
    last = max((pod.ended_at for pod in pods if pod.ended_at), default=None)
    waiting = ""
    for document in workload.chain:
        state, reason, ended_at = _own_word(document)
        if state is not None:
            return state, reason, last or ended_at
        waiting = waiting or reason
    if any(is_suspended(document) for document in workload.chain):
        return JobState.SUSPENDED, "suspended", None
    if not pods:
        return JobState.PENDING, waiting, None
    newest = max(pods, key=lambda pod: pod.ended_at.timestamp() if pod.ended_at else 0.0)
    if newest.phase == "Failed":
        return JobState.FAILED, newest.reason, last
    finished = newest.phase == "Succeeded"
    return (JobState.FINISHED if finished else JobState.UNKNOWN), "", last


def _own_word(document: Document) -> tuple[JobState | None, str, datetime | None]:
    """Return (state, reason, end) that an object's conditions tell; else why it has no pods."""
    status = part(document, "status")
    ended_at = time_in(status, "completionTime") or time_in(status, "endTime")
    waiting = ""
    for entry in list_in(status, "conditions"):
        kind, holds = text_in(entry, "type"), text_in(entry, "status")
        reason = ": ".join(filter(None, (text_in(entry, "reason"), text_in(entry, "message"))))
        if holds == "True" and kind in _FINISHED_STATES:
            return JobState.FINISHED, "", ended_at or time_in(entry, "lastTransitionTime")
        if holds == "True" and kind in _FAILED:
            return JobState.FAILED, reason, ended_at or time_in(entry, "lastTransitionTime")
        if (kind, holds) in _WHY_NO_PODS:
            waiting = reason
    word = text_in(status, "jobStatus")  # RayJob has no condition for it
    if word in _FINISHED_STATES | _FAILED:
        state = JobState.FINISHED if word in _FINISHED_STATES else JobState.FAILED
        return state, text_in(status, "message"), ended_at
    return None, waiting, None


def deadline_of(chain: Sequence[Document]) -> str:
    """Return the time at which activeDeadlineSeconds ends a workload, '' when nothing does.

    It counts from the start that the object's status tells, which a suspension takes away.
    """
    limits = (
        (time_in(document, "status", "startTime"), part(document, "spec", *where, _DEADLINE))
        for document in chain
        for where in ((), ("runPolicy",))
    )
    ends = [
        started_at + timedelta(seconds=seconds)
        for started_at, seconds in limits
        if started_at is not None and type(seconds) is int and 0 < seconds < _MAX_SECONDS
    ]
    return min(ends).isoformat() if ends else ""


def is_suspended(document: Mapping[str, Any]) -> bool:
    """Return whether a workload is suspended, so that it has no pods."""
    spec = part(document, "spec")
    return part(spec, "suspend") is True or part(spec, "runPolicy", "suspend") is True


def _at_once(pods: Sequence[PodFacts]) -> tuple[GpuRequest, ...]:
    """Return the most devices that dead pods held at a time: retried, they took turns."""
    moments: list[tuple[datetime, int, PodFacts]] = []
    for pod in pods:
        if pod.started_at is not None and pod.ended_at is not None:
            moments += [(pod.started_at, 1, pod), (pod.ended_at, 0, pod)]
    holders: list[PodFacts] = []
    most = [max(pods, key=lambda facts: facts.gpus)]
    for _moment, begins, pod in sorted(moments, key=lambda moment: moment[:2]):
        if begins:
            holders.append(pod)
        elif pod in holders:
            holders.remove(pod)
        if sum(facts.gpus for facts in holders) > sum(facts.gpus for facts in most):
            most = list(holders)
    return added(request for facts in most for request in facts.requests)
