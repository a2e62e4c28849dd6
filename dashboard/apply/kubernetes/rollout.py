"""How a workload takes a change: by its own status, and by its pods."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from collectors.kubernetes.objects import count_of, list_in, part, text_in, time_in
from dashboard.apply.kubernetes.api import Document
from dashboard.apply.kubernetes.room import asked_by
from dashboard.apply.kubernetes.shape import pods_of

_BROKEN = frozenset(
    {
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "ErrImagePull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
_WITH_GENERATION = ("Deployment", "StatefulSet")

SELECTORS: Mapping[str, str] = {
    "PyTorchJob": "training.kubeflow.org/job-name",
    "MPIJob": "training.kubeflow.org/job-name",
    "JobSet": "jobset.sigs.k8s.io/jobset-name",
    "RayCluster": "ray.io/cluster",
    "LeaderWorkerSet": "leaderworkerset.sigs.k8s.io/name",
}
"""The label by which an operator marks the pods of an object of its kind."""


def selector_of(kind: str, name: str, document: Document) -> str:
    """Give the label selector of a workload's pods, '' where none is known."""
    labels = part(document, "spec", "selector", "matchLabels")
    if isinstance(labels, Mapping) and labels:
        return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return f"{SELECTORS[kind]}={name}" if kind in SELECTORS else ""


def has_no_pods(document: Document) -> bool:
    """Whether a Job is suspended and its controller counts no pod."""
    status = part(document, "status")
    suspended = part(document, "spec", "suspend") is True
    return suspended and not part(status, "active") and not part(status, "terminating")


def has_rolled_out(document: Document) -> bool:
    """Whether every pod of a Deployment or StatefulSet is of its present template and ready."""
    return not list(_unfinished(document))


def _unfinished(document: Document) -> Iterator[str]:
    """Give what a Deployment or StatefulSet still has to do."""
    status = part(document, "status")
    if part(status, "observedGeneration") is None or not _observed(document):
        yield "its controller has not seen the change yet"
        return
    replicas = part(document, "spec", "replicas")
    wanted = 1 if replicas is None else count_of(replicas)
    updated, revision = part(status, "updatedReplicas"), text_in(status, "updateRevision")
    if revision and revision == text_in(status, "currentRevision"):
        updated = wanted  # a StatefulSet counts them only while it rolls
    for word, found in (
        ("updated", updated),
        ("ready", part(status, "readyReplicas")),
        ("left in all", part(status, "replicas")),
    ):
        if count_of(found or 0) != wanted:
            yield f"{count_of(found or 0)} of {wanted} pods are {word}"


def still_to_do(kind: str, document: Document, pods: Sequence[Document]) -> str:
    """Give what has still to happen until the change has its effect, '' when nothing has."""
    if kind in _WITH_GENERATION:
        stopped = part(document, "spec", "replicas") == 0
        ending = f"{len(pods)} pods are ending" if stopped and pods else ""
        return next(_unfinished(document), ending)
    living = [one for one in pods if not _over(one)]
    if kind == "Job" and part(document, "spec", "suspend") is not True:
        return _job_to_do(document, living)
    suspended = part(document, "spec", "suspend") is True or (
        part(document, "spec", "runPolicy", "suspend") is True
    )
    wanted = 0 if suspended else pods_of(kind, document)
    held = [one for one in living if asked_by(part(one, "spec")).total()]
    if len(held) != wanted:
        return f"{len(held)} of {wanted} pods with GPUs are there"
    return ""


def _job_to_do(document: Document, living: Sequence[Document]) -> str:
    spec, status = part(document, "spec"), part(document, "status")
    wanted = count_of(part(spec, "parallelism"))
    if part(spec, "completions") is not None:
        left = count_of(part(spec, "completions")) - count_of(part(status, "succeeded") or 0)
        wanted = min(wanted, max(0, left))
    if part(status, "completionTime") or len(living) == wanted:
        return ""
    return f"{len(living)} of {wanted} pods are there"


def trouble(
    document: Document, pods: Sequence[Document], *, now: datetime | None, patience: timedelta
) -> str:
    """Give what the work suffers from: pods that wait too long, crash or run out of memory.

    A pod may wait for `patience` since it was made, and for as long as another one ends that holds
    what it waits for.
    """
    failed = _own_trouble(document)
    if failed:
        return failed
    ending = any(map(_ends, pods))
    for pod in pods:
        if _ends(pod) or _over(pod):
            continue
        name = text_in(pod, "metadata", "name")
        broken = next(_broken(pod), "")
        if broken:
            return f"pod {name}: {broken}"
        made = time_in(pod, "metadata", "creationTimestamp")
        old = now is not None and made is not None and now - made >= patience
        waits = _waits(pod)
        if waits and old and not ending:
            return f"pod {name} waits: {waits}"
    return ""


def _own_trouble(document: Document) -> str:
    """Give what a controller itself says of the change, once it has seen it.

    A condition outlives its cause for a moment: where every pod is there and ready, it is over.
    """
    if not _observed(document) or has_rolled_out(document):
        return ""
    for one in list_in(document, "status", "conditions"):
        kind, holds = text_in(one, "type"), text_in(one, "status")
        if (kind, holds) in (("ReplicaFailure", "True"), ("Progressing", "False")):
            return f"{text_in(one, 'reason')}: {text_in(one, 'message')}"
    return ""


def _observed(document: Document) -> bool:
    """Whether the status is of the present spec, as far as the kind tells."""
    seen = part(document, "status", "observedGeneration")
    return seen is None or count_of(seen) >= count_of(part(document, "metadata", "generation"))


def _broken(pod: Document) -> Iterator[str]:
    for section in ("initContainerStatuses", "containerStatuses"):
        for one in list_in(pod, "status", section):
            waiting = text_in(one, "state", "waiting", "reason")
            if waiting in _BROKEN:
                last = text_in(one, "lastState", "terminated", "reason")
                yield f"{waiting} {f'after {last}' if last else ''}".strip()
            for state in ("state", "lastState"):
                reason = text_in(one, state, "terminated", "reason")
                if reason == "OOMKilled" and part(one, "ready") is not True:
                    yield "OOMKilled: it ran out of memory"


def _waits(pod: Document) -> str:
    for one in list_in(pod, "status", "conditions"):
        if text_in(one, "type") == "PodScheduled" and text_in(one, "status") == "False":
            return text_in(one, "message") or text_in(one, "reason")
    return ""


def waiting_for(pods: Sequence[Document]) -> str:
    """Give why the first pod waits that has found no node, '' when all have one."""
    return next(filter(None, map(_waits, pods)), "")


def rewritten(document: Document, pods: Sequence[Document]) -> tuple[str, str, str] | None:
    """Give (pod, wanted, found) of a pod whose GPUs are not those of the template."""
    template = part(document, "spec", "template", "spec")
    if not isinstance(template, Mapping):
        return None
    wanted = asked_by(template)
    for pod in pods:
        found = asked_by(part(pod, "spec"))
        if not (_over(pod) or _ends(pod)) and +found != +wanted:
            name = text_in(pod, "metadata", "name")
            return name, _resources(wanted), _resources(found)
    return None


def _resources(asked: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(asked.items()) if count) or "none"


def _over(pod: Document) -> bool:
    return text_in(pod, "status", "phase") in ("Succeeded", "Failed")


def _ends(pod: Document) -> bool:
    return text_in(pod, "metadata", "deletionTimestamp") != ""
