"""Workloads above pods, which a person would change, and managers that would undo a change."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from collectors.kubernetes.api import Document
from collectors.kubernetes.client import Inventory
from collectors.kubernetes.kinds import GROUPS, SCALER_EXCERPT, excerpt_text
from collectors.kubernetes.objects import Owner, PodFacts, controller_of, labels_of
from collectors.readings.serving_metric_names import slot_functions
from collectors.shared.json_parts import list_in, part, text_in
from data.facts.jobs import WorkloadKind
from data.records.feasible_changes import ELASTIC_KUEUE, SCALES_TO_ZERO

_MAX_OWNERS = 8
_TRAINING = {"Job", "CronJob", "PyTorchJob", "MPIJob", "TrainJob", "JobSet", "RayJob"}
_INFERENCE = {
    "Deployment", "StatefulSet", "RayService", "LeaderWorkerSet", "InferenceService", "NIMService",
    "DynamoComponentDeployment", "DynamoGraphDeployment",
}  # fmt: skip
_USER_LABELS = ("owner", "user", "hub.jupyter.org/username", "workflows.argoproj.io/creator")
_QUEUE = "kueue.x-k8s.io/queue-name"
_ELASTIC = "kueue.x-k8s.io/elastic-job"
_LEAST, _MOST = "kueue.x-k8s.io/job-min-parallelism", "trimtab/max-parallelism"
"""Annotations of the bounds of such a Job: Kueue's own word for the least, ours for the most."""
_COUNT = re.compile("[0-9]{1,9}")
"""Pattern of a number of pods: a longer text is none."""
INSTANCE = "app.kubernetes.io/instance"
"""Label that Helm charts set, and by which Argo CD may track an object."""

AUTOSCALER, SCALED_OBJECT = "HorizontalPodAutoscaler", "ScaledObject"
KEDA_GROUP = "keda.sh"
_OWN_TRIGGER_NAMES = ("trimtab_required_replicas", "/api/v1/serving")
"""Names in a trigger that asks Trimtab."""
MANIFEST_TOOLS = ("Helm", "Argo CD", "Flux")
"""Tools that keep manifests, and send them again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The topmost controller of pods; `chain` are its known objects, itself first.

    `group` is that of a kind whose name another group has too; `assumed` what was concluded.
    """

    namespace: str
    kind: str
    name: str
    group: str = ""
    assumed: tuple[tuple[str, str], ...] = ()
    chain: tuple[Document, ...] = field(default=(), compare=False, hash=False)

    @property
    def job_id(self) -> str:
        """The id of the job that it is."""
        return f"{self.namespace}/{self.word}/{self.name}"

    @property
    def key(self) -> tuple[str, str, str]:
        """The key by which an owner reference of its namespace names it."""
        return self.kind, self.namespace, self.name

    @property
    def word(self) -> str:
        """Its kind as kubectl takes it: with the group where the kind alone means another."""
        return f"{self.kind.lower()}.{self.group}" if self.group else self.kind.lower()

    @property
    def work(self) -> WorkloadKind:
        """The use that it makes of its GPUs, as far as its kind tells."""
        if self.kind in _TRAINING:  # of any group: a Job of Volcano trains as well
            return WorkloadKind.TRAINING
        return WorkloadKind.INFERENCE if self.kind in _INFERENCE else WorkloadKind.UNKNOWN


class Owners:
    """Every object that can own another, by kind, namespace and name."""

    def __init__(self, inventory: Inventory) -> None:
        self._objects = {
            (
                kind,
                text_in(entry, "metadata", "namespace"),
                text_in(entry, "metadata", "name"),
            ): entry
            for kind, entries in inventory.objects.items()
            for entry in entries
        }
        self._scaled: dict[tuple[str, str, str], list[Document]] = {}
        for entry in inventory.of(AUTOSCALER):
            key = (
                text_in(entry, "metadata", "namespace"),
                text_in(entry, "spec", "scaleTargetRef", "kind"),
                text_in(entry, "spec", "scaleTargetRef", "name"),
            )
            self._scaled.setdefault(key, []).append(entry)

    def workload_of(self, pod: PodFacts) -> Workload:
        """Return the workload of a pod: its topmost controller, or the pod itself.

        An owner that may not be read ends the walk: it is named, and what owns it stays unknown.
        Only of a ReplicaSet it can be told: its name is its Deployment's and the hash of its pods.
        """
        workload = self._above(pod.namespace, Owner(kind="Pod", name=pod.name), pod.owner)
        name = workload.name.removesuffix(f"-{pod.template_hash}")
        if workload.kind == "ReplicaSet" and not workload.chain and name != workload.name:
            return Workload(
                namespace=pod.namespace,
                kind="Deployment",
                name=name,
                assumed=(("workload", f"deployment/{name}: its ReplicaSet cannot be read"),),
            )
        return workload

    def workload_over(self, kind: str, document: Document) -> Workload | None:
        """Return the workload of an object; None when another known object controls it."""
        namespace = text_in(document, "metadata", "namespace")
        name = text_in(document, "metadata", "name")
        owner = controller_of(document)
        if not namespace or not name or (owner and self._object(namespace, owner) is not None):
            return None
        return self._above(namespace, Owner(kind=kind, name=name), Owner(kind=kind, name=name))

    def _object(self, namespace: str, owner: Owner) -> Document | None:
        if owner.group not in ("", GROUPS.get(owner.kind)):
            return None
        return self._objects.get((owner.kind, namespace, owner.name))

    def _above(self, namespace: str, top: Owner, owner: Owner | None) -> Workload:
        chain: list[Document] = []
        for _step in range(_MAX_OWNERS):
            if owner is None or owner.kind == "Node":  # a static pod is of its node
                break
            top = owner
            document = self._object(namespace, owner)
            if document is None:
                break
            chain.insert(0, document)
            owner = controller_of(document)
        group = GROUPS.get(top.kind)
        return Workload(
            namespace=namespace,
            kind=top.kind,
            name=top.name,
            group=top.group if group is not None and top.group != group else "",
            chain=tuple(chain),
        )

    def _autoscalers_of(self, workload: Workload) -> list[Document]:
        return self._scaled.get((workload.namespace, workload.kind, workload.name), [])

    def bounds_of(self, workload: Workload) -> Iterator[tuple[str, str]]:
        """Yield the bounds between which something else scales the workload, and their owner.

        That is `autoscaler`, the one object that holds the bounds, or `bounds_kept_by`, who does.
        """
        scalers = self._autoscalers_of(workload)
        scaler = part(scalers[-1], "spec") if scalers else None
        elastic = (part(document, "spec", "elasticPolicy") for document in workload.chain[:1])
        policy = scaler or next(elastic, None)
        for fact, name in (("min_replicas", "minReplicas"), ("max_replicas", "maxReplicas")):
            bound = part(policy, name)
            if isinstance(bound, int):
                yield fact, str(bound)
        marks = labels_of(workload.chain[0]) if workload.chain else {}
        if policy is None and workload.kind == "Job" and is_elastic_in_kueue(marks):
            for fact, name in (("min_replicas", _LEAST), ("max_replicas", _MOST)):
                if _COUNT.fullmatch(marks.get(name, "")):
                    yield fact, marks[name]
        if len(scalers) == 1 and self._stops_the_last(scalers[0]):
            yield SCALES_TO_ZERO, "yes"
        if scalers:
            kept_by = ", ".join(self._keepers_of(workload, scalers))
            yield ("bounds_kept_by", kept_by) if kept_by else ("autoscaler", holder_of(scalers[0]))
            if not kept_by and (excerpt := excerpt_text(self._holder_of(scalers[0]))):
                yield SCALER_EXCERPT, excerpt

    def _holder_of(self, scaler: Document) -> Document:
        """Return the object that holds an autoscaler's bounds, an empty one where it is unknown."""
        if holder_of(scaler).startswith(AUTOSCALER.lower()):
            return scaler
        owner = controller_of(scaler)
        holder = owner and self._object(text_in(scaler, "metadata", "namespace"), owner)
        return holder or {}

    def _stops_the_last(self, scaler: Document) -> bool:
        """Return whether an autoscaler may stop the last replica, and something starts it again."""
        owner = controller_of(scaler)
        if owner is None:
            metrics = list_in(scaler, "spec", "metrics")
            return part(scaler, "spec", "minReplicas") == 0 and any(map(_tells_demand, metrics))
        spec = part(self._object(text_in(scaler, "metadata", "namespace"), owner), "spec")
        counts = (part(spec, "minReplicaCount") or 0, part(spec, "idleReplicaCount"))
        return 0 in counts and any(map(_triggers_at_zero, list_in(spec, "triggers")))

    def _keepers_of(self, workload: Workload, scalers: list[Document]) -> Iterator[str]:
        """Yield the owners of autoscalers' bounds: a change of one object would not last."""
        names = sorted(text_in(scaler, "metadata", "name") for scaler in scalers)
        if len(names) > 1:
            yield f"several autoscalers ({', '.join(names)})"
        for name in MANIFEST_TOOLS:
            for document in (*workload.chain, *scalers):
                if _MANAGERS[name](labels_of(document)) or name in _appliers(document):
                    yield name
                    break
        owner = controller_of(scalers[0])
        if owner is not None and (owner.kind, owner.group) != (SCALED_OBJECT, KEDA_GROUP):
            yield f"{owner.kind} {owner.name}"

    def managers_of(self, workload: Workload) -> tuple[str, ...]:
        """Return the managers that would undo a change of the workload, by its objects' marks."""
        marks: dict[str, str] = {}
        for document in reversed(workload.chain):
            marks |= labels_of(document)
        managers = [name for name, holds in _MANAGERS.items() if holds(marks)]
        if self._autoscalers_of(workload):
            managers.append(AUTOSCALER)
        for document in workload.chain:
            cluster = part(document, "spec", "rayClusterSpec") or part(document, "spec")
            if part(cluster, "enableInTreeAutoscaling") is True:
                managers.append("Ray autoscaler")
            managers += _appliers(document)
        return tuple(dict.fromkeys(managers))

    def user_of(self, workload: Workload) -> str:
        """Return the owner of a workload by its own labels; no field of Kubernetes states it."""
        marks = labels_of(workload.chain[0]) if workload.chain else {}
        return next((marks[label] for label in _USER_LABELS if marks.get(label)), "")

    def queue_of(self, workload: Workload) -> str:
        """Return the Kueue queue of a workload, '' without one."""
        return next(
            (
                queue
                for document in workload.chain
                if (queue := labels_of(document).get(_QUEUE, ""))
            ),
            "",
        )


def holder_of(scaler: Document) -> str:
    """Return the object that holds an autoscaler's bounds: itself, or the one KEDA made it of."""
    owner = controller_of(scaler)
    if owner is not None and (owner.kind, owner.group) == (SCALED_OBJECT, KEDA_GROUP):
        return f"{SCALED_OBJECT.lower()}.{KEDA_GROUP}/{owner.name}"
    name = text_in(scaler, "metadata", "name")
    return f"{AUTOSCALER.lower()}.{GROUPS[AUTOSCALER]}/{name}"


def _tells_demand(metric: object) -> bool:
    """Return whether a metric of an autoscaler tells where no pod runs, and is not Trimtab's."""
    name = text_in(metric, "external", "metric", "name") or text_in(
        metric, "object", "metric", "name"
    )
    return bool(name) and name not in _OWN_TRIGGER_NAMES


def _triggers_at_zero(trigger: object) -> bool:
    """Return whether a trigger of KEDA tells where no pod runs, and does not ask Trimtab.

    CPU, memory and what engines say of themselves are of pods that run.
    """
    kind, about = text_in(trigger, "type"), part(trigger, "metadata")
    words = " ".join(text_in(about, name) for name in ("query", "url"))
    of_engines = slot_functions().keys() & set(re.findall(r"[\w:]+", words))
    return kind not in ("", "cpu", "memory") and not (
        of_engines or any(map(words.count, _OWN_TRIGGER_NAMES))
    )


def _helm(marks: Mapping[str, str]) -> bool:
    is_managed = marks.get("app.kubernetes.io/managed-by") == "Helm"
    return is_managed or "meta.helm.sh/release-name" in marks


def _argo(marks: Mapping[str, str]) -> bool:
    return any(name.startswith("argocd.argoproj.io/") for name in marks)


def _flux(marks: Mapping[str, str]) -> bool:
    return any(".toolkit.fluxcd.io/" in name for name in marks)


def _kueue(marks: Mapping[str, str]) -> bool:
    return bool(marks.get(_QUEUE)) and not is_elastic_in_kueue(marks)


def is_elastic_in_kueue(marks: Mapping[str, str]) -> bool:
    """Return whether the labels and annotations of an object let its number of pods change."""
    return bool(marks.get(_QUEUE)) and marks.get(_ELASTIC) == "true"


_APPLIERS = {
    "argocd-controller": "Argo CD",
    "helm": "Helm",
    "helm-controller": "Flux",
    "kustomize-controller": "Flux",
    "kubectl": "",  # a person's
}


def _appliers(document: Document) -> Iterator[str]:
    """Return the owners of spec fields by server-side apply: they would set them again."""
    for entry in list_in(document, "metadata", "managedFields"):
        manager = text_in(entry, "manager")
        applied = text_in(entry, "operation") == "Apply"
        if applied and manager and part(entry, "fieldsV1", "f:spec") is not None:
            name = _APPLIERS.get(manager, f"server-side apply by {manager}")
            if name:
                yield name


_MANAGERS = {
    "Helm": _helm,
    "Argo CD": _argo,
    "Flux": _flux,
    "Kueue": _kueue,
    ELASTIC_KUEUE: is_elastic_in_kueue,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KueueWord:
    """Kueue's word on an object: admitted, or why it waits. `is_new`: it never ran before."""

    word: str
    priority: int | None
    is_new: bool

    @property
    def text(self) -> str:
        """The word, with the priority."""
        return self.word + ("" if self.priority is None else f", priority {self.priority}")


def admissions(inventory: Inventory) -> dict[tuple[str, str, str], KueueWord]:
    """Return Kueue's word on objects, by (kind, namespace, name)."""
    word_by_object = {}
    for entry in inventory.of("Workload"):
        owner = controller_of(entry)
        if owner is None or owner.group not in ("", GROUPS.get(owner.kind)):
            continue
        conditions = list_in(entry, "status", "conditions")
        condition_by_type = {text_in(condition, "type"): condition for condition in conditions}
        admitted = text_in(condition_by_type.get("Admitted"), "status") == "True"
        waiting = text_in(condition_by_type.get("QuotaReserved"), "message") or "waits for quota"
        stopped = "Evicted" in condition_by_type or part(entry, "spec", "active") is False
        priority = part(entry, "spec", "priority")
        namespace = text_in(entry, "metadata", "namespace")
        word_by_object[(owner.kind, namespace, owner.name)] = KueueWord(
            word="admitted" if admitted else waiting,
            priority=priority if isinstance(priority, int) else None,
            is_new=not admitted and not stopped,
        )
    return word_by_object
