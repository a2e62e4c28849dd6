"""From a pod up to the workload that a person would change, and who would undo a change of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from collectors.kubernetes.client import Document, Inventory
from collectors.kubernetes.objects import Owner, controller_of, labels_of, part, text_in
from data.records.jobs import WorkloadKind

_MOST_OWNERS = 8
_TRAINING = {"Job", "CronJob", "PyTorchJob", "MPIJob", "TrainJob", "JobSet", "RayJob"}
_INFERENCE = {"Deployment", "StatefulSet", "RayService", "LeaderWorkerSet"}
_QUEUE = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The topmost controller of pods; `chain` are its known objects, itself first."""

    namespace: str
    kind: str
    name: str
    chain: tuple[Document, ...] = field(default=(), compare=False, hash=False)

    @property
    def job_id(self) -> str:
        """The id of the job that it is."""
        return f"{self.namespace}/{self.kind.lower()}/{self.name}"

    @property
    def work(self) -> WorkloadKind:
        """What it does with its GPUs, as far as its kind tells."""
        if self.kind in _TRAINING:
            return WorkloadKind.TRAINING
        return WorkloadKind.INFERENCE if self.kind in _INFERENCE else WorkloadKind.UNKNOWN


class Owners:
    """Every object that can own another, by kind, namespace and name."""

    def __init__(self, inventory: Inventory) -> None:
        self._objects = {
            (kind, text_in(one, "metadata", "namespace"), text_in(one, "metadata", "name")): one
            for kind, found in inventory.objects.items()
            for one in found
        }
        self._scaled = {
            (
                text_in(one, "metadata", "namespace"),
                text_in(one, "spec", "scaleTargetRef", "kind"),
                text_in(one, "spec", "scaleTargetRef", "name"),
            ): one
            for one in inventory.of("HorizontalPodAutoscaler")
        }

    def workload_of(self, namespace: str, pod: str, owner: Owner | None) -> Workload:
        """Give the workload of a pod: its topmost controller, or the pod itself.

        An owner that may not be read ends the walk: it is named, and what owns it stays unknown.
        """
        kind, name = "Pod", pod
        chain: list[Document] = []
        for _step in range(_MOST_OWNERS):
            if owner is None or owner.kind == "Node":  # a static pod is of its node
                break
            kind, name = owner.kind, owner.name
            found = self._objects.get((kind, namespace, name))
            if found is None:
                break
            chain.insert(0, found)
            owner = controller_of(found)
        return Workload(namespace=namespace, kind=kind, name=name, chain=tuple(chain))

    def autoscaler_of(self, workload: Workload) -> Document | None:
        """Give the autoscaler of a workload, None without one."""
        return self._scaled.get((workload.namespace, workload.kind, workload.name))

    def bounds_of(self, workload: Workload) -> Iterator[tuple[str, str]]:
        """Give between how many replicas something else moves the workload."""
        scaler = part(self.autoscaler_of(workload), "spec")
        elastic = (part(one, "spec", "elasticPolicy") for one in workload.chain[:1])
        policy = scaler or next(elastic, None)
        for fact, name in (("min_replicas", "minReplicas"), ("max_replicas", "maxReplicas")):
            found = part(policy, name)
            if isinstance(found, int):
                yield fact, str(found)

    def managers_of(self, workload: Workload) -> tuple[str, ...]:
        """Name who would undo a change of the workload, from what its objects carry."""
        marks: dict[str, str] = {}
        for one in reversed(workload.chain):
            marks |= labels_of(one)
        found = [name for name, holds in _MANAGERS.items() if holds(marks)]
        if self.autoscaler_of(workload) is not None:
            found.append("HorizontalPodAutoscaler")
        return tuple(found)

    def queue_of(self, workload: Workload) -> str:
        """Give the Kueue queue of a workload, '' without one."""
        return next(
            (queue for one in workload.chain if (queue := labels_of(one).get(_QUEUE, ""))), ""
        )


def _helm(marks: Mapping[str, str]) -> bool:
    named = marks.get("app.kubernetes.io/managed-by") == "Helm"
    return named or "meta.helm.sh/release-name" in marks


def _argo(marks: Mapping[str, str]) -> bool:
    return any(name.startswith("argocd.argoproj.io/") for name in marks)


def _flux(marks: Mapping[str, str]) -> bool:
    return any(".toolkit.fluxcd.io/" in name for name in marks)


def _kueue(marks: Mapping[str, str]) -> bool:
    return bool(marks.get(_QUEUE))


_MANAGERS = {"Helm": _helm, "Argo CD": _argo, "Flux": _flux, "Kueue": _kueue}


def admissions(inventory: Inventory) -> dict[tuple[str, str, str], str]:
    """Give Kueue's word on an object, by (kind, namespace, name): admitted, or why it waits."""
    found = {}
    for one in inventory.of("Workload"):
        owner = controller_of(one)
        if owner is None:
            continue
        conditions = part(one, "status", "conditions")
        said = {
            text_in(condition, "type"): condition
            for condition in (conditions if isinstance(conditions, list) else [])
        }
        admitted = text_in(said.get("Admitted"), "status") == "True"
        waiting = text_in(said.get("QuotaReserved"), "message")
        namespace = text_in(one, "metadata", "namespace")
        word = "admitted" if admitted else waiting or "waits for quota"
        priority = part(one, "spec", "priority")
        if isinstance(priority, int):
            word += f", priority {priority}"
        found[(owner.kind, namespace, owner.name)] = word
    return found
