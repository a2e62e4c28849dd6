"""State of a rollout: by the workload's own status, and by its pods."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from collectors.kubernetes.api import Document
from collectors.kubernetes.objects import controller_of, labels_of
from collectors.shared.json_parts import count_of, list_in, part, text_in, time_in, whole_number
from dashboard.apply.kubernetes.state.free_capacity import asked_by
from dashboard.apply.kubernetes.state.pod_spec import pods_of

_FAILURE_REASONS = frozenset(
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
_REVISION = "deployment.kubernetes.io/revision"
_HASH, _REVISION_HASH = "pod-template-hash", "controller-revision-hash"

SELECTORS: Mapping[str, str] = {
    "PyTorchJob": "training.kubeflow.org/job-name",
    "MPIJob": "training.kubeflow.org/job-name",
    "JobSet": "jobset.sigs.k8s.io/jobset-name",
    "RayCluster": "ray.io/cluster",
    "LeaderWorkerSet": "leaderworkerset.sigs.k8s.io/name",
}
"""The label by which an operator marks the pods of an object of its kind."""


def selector_of(kind: str, name: str, document: Document) -> str:
    """Return the label selector of a workload's pods, '' where none is known."""
    labels = part(document, "spec", "selector", "matchLabels")
    if isinstance(labels, Mapping) and labels:
        return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return f"{SELECTORS[kind]}={name}" if kind in SELECTORS else ""


def has_no_pods(document: Document) -> bool:
    """Return whether a Job is suspended and its controller counts no pod."""
    status = part(document, "status")
    suspended = part(document, "spec", "suspend") is True
    return suspended and not part(status, "active") and not part(status, "terminating")


def has_rolled_out(document: Document) -> bool:
    """Tell whether every pod of a Deployment or StatefulSet is of its template and ready."""
    return not list(_unfinished(document))


def _unfinished(document: Document) -> Iterator[str]:
    """Yield the unfinished parts of a rollout of a Deployment or StatefulSet."""
    status = part(document, "status")
    if part(status, "observedGeneration") is None or not _observed(document):
        yield "its controller has not seen the change yet"
        return
    replicas = part(document, "spec", "replicas")
    target = 1 if replicas is None else whole_number(replicas)
    updated, revision = part(status, "updatedReplicas"), text_in(status, "updateRevision")
    if revision and revision == text_in(status, "currentRevision"):
        updated = target  # a StatefulSet counts them only while it rolls
    for word, value in (
        ("updated", updated),
        ("ready", part(status, "readyReplicas")),
        ("left in all", part(status, "replicas")),
    ):
        count = whole_number(value or 0)
        if target is None or count != target:
            yield f"{_count_text(count, value)} of {_count_text(target, replicas)} pods are {word}"


def _count_text(count: int | None, written: object) -> str:
    return f"{str(written)[:40]!r} (not understood)" if count is None else str(count)


def missing_events(kind: str, document: Document, pods: Sequence[Document]) -> str:
    """Return the events still missing until the change has its effect, '' for none."""
    if kind in _WITH_GENERATION:
        stopped = part(document, "spec", "replicas") == 0
        ending = f"{len(pods)} pods are ending" if stopped and pods else ""
        return next(_unfinished(document), ending)
    living = [pod for pod in pods if not _over(pod)]
    if kind == "Job" and part(document, "spec", "suspend") is not True:
        return _job_to_do(document, living)
    suspended = part(document, "spec", "suspend") is True or (
        part(document, "spec", "runPolicy", "suspend") is True
    )
    target = 0 if suspended else pods_of(kind, document)
    with_gpus = [entry for entry in living if asked_by(part(entry, "spec")).total()]
    if len(with_gpus) != target:
        return f"{len(with_gpus)} of {target} pods with GPUs are there"
    return ""


def _job_to_do(document: Document, living: Sequence[Document]) -> str:
    spec, status = part(document, "spec"), part(document, "status")
    written = [part(spec, "parallelism"), part(spec, "completions"), part(status, "succeeded")]
    counts = [whole_number(value) for value in written]
    for count, value in zip(counts, written, strict=True):
        if count is None and value is not None:
            return f"{_count_text(count, value)} pods are there"
    target, completions, succeeded = counts
    # The server fills in a parallelism of 1.
    target = 1 if target is None else target
    if completions is not None:
        target = min(target, max(0, completions - (succeeded or 0)))
    if part(status, "completionTime") or len(living) == target:
        return ""
    return f"{len(living)} of {target} pods are there"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPods:
    """A workload and its pods. `sets`: its ReplicaSets, None where they may not be listed."""

    kind: str
    document: Document
    pods: Sequence[Document]
    sets: Sequence[Document] | None = None

    @property
    def present_set(self) -> Document | None:
        """The ReplicaSet of a Deployment's present template, None where it cannot be told."""
        revision = labels_of(self.document).get(_REVISION, "")
        for entry in self.sets or () if _observed(self.document) else ():
            if labels_of(entry).get(_REVISION) == revision:
                return entry
        return None

    def pods_of_template(self) -> list[Document]:
        """Return the pods made of the present template; those of the one before are about to go."""
        if self.kind == "Deployment" and self.sets is not None:
            made_by = self.present_set
            template_hash = "" if made_by is None else labels_of(made_by).get(_HASH, "")
            return [pod for pod in self.pods if template_hash == labels_of(pod).get(_HASH)]
        if self.kind == "StatefulSet":
            return self._of_stateful_set()
        template = part(self.document, "spec", "template", "spec")
        if self.kind != "Deployment" or not isinstance(template, Mapping):
            return list(self.pods)
        request, selector = +asked_by(template), part(template, "nodeSelector")
        return [
            pod
            for pod in self.pods
            if +asked_by(part(pod, "spec")) == request
            and part(pod, "spec", "nodeSelector") == selector
        ]

    def _of_stateful_set(self) -> list[Document]:
        """Return all pods where each is waited for, of whatever template, before the next one."""
        if not _observed(self.document):
            return []
        if part(self.document, "spec", "podManagementPolicy") != "Parallel":
            return list(self.pods)
        revision = text_in(self.document, "status", "updateRevision")
        return [pod for pod in self.pods if labels_of(pod).get(_REVISION_HASH) == revision]


def controlled_replica_sets(document: Document, sets: Iterable[Document]) -> list[Document]:
    """Return the ReplicaSets that a Deployment controls."""
    name = text_in(document, "metadata", "name")
    owners = ((entry, controller_of(entry)) for entry in sets)
    return [
        entry
        for entry, owner in owners
        if owner is not None and (owner.kind, owner.name) == ("Deployment", name)
    ]


def trouble(work: WorkloadPods, *, now: datetime | None, rollout_timeout: timedelta) -> str:
    """Return the trouble of the work: pods that cannot be made, wait, crash or lack memory.

    Each may last for `rollout_timeout`, and a pod may wait for as long as another one ends that
    holds what it waits for. What is left of the template before is no trouble of this one.
    """
    if now is None:
        return ""
    failed = _own_trouble(work, now - rollout_timeout)
    if failed:
        return failed
    ending = any(map(ends, work.pods))
    for pod in work.pods_of_template():
        start = time_in(pod, "metadata", "creationTimestamp")
        if ends(pod) or _over(pod) or start is None or now - start < rollout_timeout:
            continue
        name = text_in(pod, "metadata", "name")
        broken, waits = next(_broken(pod), ""), _waits(pod)
        if broken:
            return f"pod {name}: {broken}{_left_over(work, pod)}"
        if waits and not ending:
            return f"pod {name} waits: {waits}{_left_over(work, pod)}"
    return ""


def _left_over(work: WorkloadPods, pod: Document) -> str:
    """Tell of a StatefulSet's pod that is of another template: only a person can replace it."""
    revision = text_in(work.document, "status", "updateRevision")
    if work.kind != "StatefulSet" or labels_of(pod).get(_REVISION_HASH, revision) == revision:
        return ""
    name, namespace = (text_in(pod, "metadata", field) for field in ("name", "namespace"))
    return (
        "; it is of the template before, and a StatefulSet replaces no pod that is not ready: "
        f"kubectl -n {namespace} delete pod {name}"
    )


def _own_trouble(work: WorkloadPods, before: datetime) -> str:
    """Return the controllers' messages since `before` about the present template.

    A condition outlives its cause: that of the Deployment may be of the template before, so the
    ReplicaSet of the present one is asked, and the Deployment only where it names that set.
    """
    made_by = work.present_set
    if made_by is None or not _observed(made_by) or has_rolled_out(work.document):
        return ""
    name = text_in(made_by, "metadata", "name")
    for owner, failing in ((made_by, ("ReplicaFailure", "True")),
                           (work.document, ("Progressing", "False"))):  # fmt: skip
        for entry in list_in(owner, "status", "conditions"):
            message = f"{text_in(entry, 'reason')}: {text_in(entry, 'message')}"
            since = time_in(entry, "lastTransitionTime")
            if (text_in(entry, "type"), text_in(entry, "status")) != failing or since is None:
                continue
            if since <= before and (owner is made_by or f'"{name}"' in message):
                return message
    return ""


def _observed(document: Document) -> bool:
    """Return whether the status is of the present spec, as far as the kind tells."""
    last = part(document, "status", "observedGeneration")
    return last is None or count_of(last) >= count_of(part(document, "metadata", "generation"))


def _broken(pod: Document) -> Iterator[str]:
    for section in ("initContainerStatuses", "containerStatuses"):
        for entry in list_in(pod, "status", section):
            waiting = text_in(entry, "state", "waiting", "reason")
            if waiting in _FAILURE_REASONS:
                last = text_in(entry, "lastState", "terminated", "reason")
                yield f"{waiting} {f'after {last}' if last else ''}".strip()
            for state in ("state", "lastState"):
                reason = text_in(entry, state, "terminated", "reason")
                if reason == "OOMKilled" and part(entry, "ready") is not True:
                    yield "OOMKilled: it ran out of memory"


def _waits(pod: Document) -> str:
    for entry in list_in(pod, "status", "conditions"):
        if text_in(entry, "type") == "PodScheduled" and text_in(entry, "status") == "False":
            return text_in(entry, "message") or text_in(entry, "reason")
    return ""


def waiting_for(work: WorkloadPods) -> str:
    """Return the condition that the work waits for now, '' when none is known."""
    for pod in work.pods_of_template():
        reason = _waits(pod) or next(_broken(pod), "")
        if reason and not ends(pod):
            return f"pod {text_in(pod, 'metadata', 'name')}: {reason}"
    return ""


def rewritten(work: WorkloadPods) -> tuple[str, str, str] | None:
    """Return (pod, wanted, found) of a pod whose GPUs are not those of the template."""
    template = part(work.document, "spec", "template", "spec")
    if not isinstance(template, Mapping):
        return None
    target = asked_by(template)
    for pod in work.pods:
        request = asked_by(part(pod, "spec"))
        if not (_over(pod) or ends(pod)) and +request != +target:
            name = text_in(pod, "metadata", "name")
            return name, _resources(target), _resources(request)
    return None


def _resources(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if count) or "none"


def _over(pod: Document) -> bool:
    return text_in(pod, "status", "phase") in ("Succeeded", "Failed")


def ends(pod: Document) -> bool:
    """Return whether a pod was told to end: until it has, it holds its GPUs."""
    return text_in(pod, "metadata", "deletionTimestamp") != ""
