"""The kinds of objects that are read, where an API serves them, and what is kept of them."""

from collections.abc import Callable, Mapping
from typing import Any

from collectors.shared.json_parts import list_in, part, text_in
from data.facts.gpu_resources import (
    DYNAMO_GROUP,
    MIG_LAYOUT_LABEL,
    NIM_GROUP,
    PLUGIN_CONFIG_LABEL,
    is_accelerator,
    is_of_vendor,
)
from data.facts.identifiers import canonical_json

KINDS: dict[str, tuple[str, ...]] = {
    "Node": ("api/v1/nodes",),
    "Pod": ("api/v1/pods",),
    "ReplicaSet": ("apis/apps/v1/replicasets",),
    "Deployment": ("apis/apps/v1/deployments",),
    "StatefulSet": ("apis/apps/v1/statefulsets",),
    "DaemonSet": ("apis/apps/v1/daemonsets",),
    "Job": ("apis/batch/v1/jobs",),
    "CronJob": ("apis/batch/v1/cronjobs", "apis/batch/v1beta1/cronjobs"),
    "HorizontalPodAutoscaler": (
        "apis/autoscaling/v2/horizontalpodautoscalers",
        "apis/autoscaling/v1/horizontalpodautoscalers",
    ),
    "ScaledObject": ("apis/keda.sh/v1alpha1/scaledobjects",),
    "PyTorchJob": ("apis/kubeflow.org/v1/pytorchjobs",),
    "MPIJob": ("apis/kubeflow.org/v2beta1/mpijobs", "apis/kubeflow.org/v1/mpijobs"),
    "TrainJob": ("apis/trainer.kubeflow.org/v1alpha1/trainjobs",),
    "JobSet": ("apis/jobset.x-k8s.io/v1alpha2/jobsets",),
    "RayCluster": ("apis/ray.io/v1/rayclusters", "apis/ray.io/v1alpha1/rayclusters"),
    "RayJob": ("apis/ray.io/v1/rayjobs", "apis/ray.io/v1alpha1/rayjobs"),
    "RayService": ("apis/ray.io/v1/rayservices", "apis/ray.io/v1alpha1/rayservices"),
    "LeaderWorkerSet": ("apis/leaderworkerset.x-k8s.io/v1/leaderworkersets",),
    # Above others: each is asked for where an object that was listed before it names it as owner.
    "InferenceService": ("apis/serving.kserve.io/v1beta1/inferenceservices",),
    "NIMService": (f"apis/{NIM_GROUP}/v1alpha1/nimservices",),
    "PodClique": ("apis/grove.io/v1alpha1/podcliques",),
    "PodCliqueScalingGroup": ("apis/grove.io/v1alpha1/podcliquescalinggroups",),
    "PodCliqueSet": ("apis/grove.io/v1alpha1/podcliquesets",),
    "DynamoComponentDeployment": (f"apis/{DYNAMO_GROUP}/v1alpha1/dynamocomponentdeployments",),
    "DynamoGraphDeployment": (f"apis/{DYNAMO_GROUP}/v1alpha1/dynamographdeployments",),
    "ResourceQuota": ("api/v1/resourcequotas",),
    "PodDisruptionBudget": (
        "apis/policy/v1/poddisruptionbudgets",
        "apis/policy/v1beta1/poddisruptionbudgets",
    ),
    "Workload": (
        "apis/kueue.x-k8s.io/v1beta2/workloads",
        "apis/kueue.x-k8s.io/v1beta1/workloads",
    ),
    **{
        kind: tuple(
            f"apis/kueue.x-k8s.io/{version}/{kind.lower()}s" for version in ("v1beta2", "v1beta1")
        )
        for kind in ("ClusterQueue", "LocalQueue", "ResourceFlavor", "Cohort")
    },
    "KaiQueue": ("apis/scheduling.run.ai/v2/queues",),
    "VolcanoQueue": ("apis/scheduling.volcano.sh/v1beta1/queues",),
    **{
        kind: tuple(
            f"apis/resource.k8s.io/{version}/{plural}" for version in ("v1", "v1beta2", "v1beta1")
        )
        for kind, plural in {
            "ResourceClaim": "resourceclaims",
            "ResourceSlice": "resourceslices",
            "ResourceClaimTemplate": "resourceclaimtemplates",
            "DeviceClass": "deviceclasses",
        }.items()
    },
}
"""Kind to the paths under which versions of Kubernetes list it, the newest first."""

GROUPS = {
    kind: paths[0].split("/")[1] if paths[0].startswith("apis/") else ""
    for kind, paths in KINDS.items()
}
"""Kind to its API group: another group may have a kind of the same name."""

_OF_QUEUES = ("ClusterQueue", "ResourceFlavor", "Cohort", "KaiQueue", "VolcanoQueue")
WITHOUT_NAMESPACE = ("Node", "ResourceSlice", "DeviceClass", *_OF_QUEUES)


def _scheduled_by(name: str) -> "Condition":
    """Return the condition that a pod with devices names this scheduler."""

    def is_met(objects: Mapping[str, list[Any]]) -> bool:
        return any(text_in(pod, "spec", "schedulerName") == name for pod in objects.get("Pod", ()))

    return is_met


def _has_claims(objects: Mapping[str, list[Any]]) -> bool:
    claims = any(part(pod, "spec", "resourceClaims") for pod in objects.get("Pod", ()))
    return claims or bool(objects.get("ResourceClaim") or objects.get("ResourceSlice"))


def _in_a_cohort(objects: Mapping[str, list[Any]]) -> bool:
    queues, names = objects.get("ClusterQueue", ()), ("cohort", "cohortName")
    return any(part(queue, "spec", name) for queue in queues for name in names)


def _owns(kind: str) -> "Condition":
    """Return the condition that an object names an owner of this kind."""

    def is_met(objects: Mapping[str, list[Any]]) -> bool:
        return any(
            text_in(owner, "kind") == kind
            for entries in objects.values()
            for entry in entries
            for owner in list_in(entry, "metadata", "ownerReferences")
        )

    return is_met


_OUTER_KINDS = (
    "InferenceService", "NIMService", "PodClique", "PodCliqueScalingGroup", "PodCliqueSet",
    "DynamoComponentDeployment", "DynamoGraphDeployment",
)  # fmt: skip
Condition = Callable[[Mapping[str, list[Any]]], bool]
ASKED_WHERE: dict[str, Condition] = {
    **dict.fromkeys(
        ("ClusterQueue", "LocalQueue", "ResourceFlavor"), lambda objects: "Workload" in objects
    ),
    **{kind: _owns(kind) for kind in ("ScaledObject", *_OUTER_KINDS)},
    "Cohort": _in_a_cohort,
    "KaiQueue": _scheduled_by("kai-scheduler"),
    "VolcanoQueue": _scheduled_by("volcano"),
    **dict.fromkeys(("ResourceClaimTemplate", "DeviceClass"), _has_claims),
}
"""Kinds that are asked for only where what was listed before them has a use for them."""

NEEDED = ("Node", "Pod")
"""Without one of these nothing is known; every other kind only makes the picture fuller."""

_KAI_SHARES = ("gpu-fraction", "gpu-memory")


def without_unread_fields(kind: str, entry: Any) -> Any:
    """Return an entry of a list without what is never read of it."""
    if kind == "ReplicaSet" and isinstance(entry, dict):
        return {"metadata": entry.get("metadata")}
    if kind != "Pod" or not isinstance(entry, dict) or _may_hold_devices(entry):
        return entry
    fields = {"metadata": _only(entry.get("metadata"), "name", "namespace")}
    if spec := _only(entry.get("spec"), "nodeName", "resources", "overhead"):
        for place in ("containers", "initContainers"):
            group = entry["spec"].get(place)
            if isinstance(group, list) and group:
                spec[place] = [_only(item, "resources", "restartPolicy") for item in group]
        fields |= {"spec": spec, "status": _only(entry.get("status"), "phase")}
    return fields


def _only(entry: Any, *names: str) -> dict[str, Any]:
    return (
        {name: entry[name] for name in names if entry.get(name)} if isinstance(entry, dict) else {}
    )


def _may_hold_devices(pod: Mapping[str, Any]) -> bool:
    spec, notes = pod.get("spec"), part(pod, "metadata", "annotations")
    if not isinstance(spec, dict) or spec.get("resourceClaims"):
        return True
    if isinstance(notes, dict) and any(name in notes for name in _KAI_SHARES):
        return True
    containers = [*list_in(spec, "containers"), *list_in(spec, "initContainers")]
    limits = (part(container, "resources", "limits") for container in containers)
    names = (name for limit in limits if isinstance(limit, dict) for name in limit)
    return any(is_accelerator(str(name)) for name in names)


_KEPT_FIELDS = frozenset(
    {
        "spec",
        "template",
        "jobTemplate",
        "replicas",
        "parallelism",
        "completions",
        "completionMode",
        "suspend",
        "paused",
        "runPolicy",
        "elasticPolicy",
        "minReplicas",
        "maxReplicas",
        "minReplicaCount",
        "maxReplicaCount",
        "idleReplicaCount",
        "replicatedJobs",
        "name",
        "headGroupSpec",
        "workerGroupSpecs",
        "groupName",
        "numOfHosts",
        "rayClusterConfig",
        "rayClusterSpec",
        "leaderWorkerTemplate",
        "leaderTemplate",
        "workerTemplate",
        "size",
        "trainer",
        "numNodes",
        "unschedulable",
    }
)
_WHOLE = frozenset(
    {"strategy", "updateStrategy", "nodeSelector", "scaleTargetRef", "resourceClaims"}
)
EXCERPT, SCALER_EXCERPT = "excerpt", "autoscaler_excerpt"
"""Facts of a workload: the excerpts of its object and its autoscaler, as changes are shown of."""
_MAX_EXCERPT = 16_384
_OF_CONTAINERS = ("containers", "initContainers")


def excerpt_text(document: Mapping[str, Any]) -> str:
    """Return the excerpt as JSON, '' of no object and of one that is too large to be kept."""
    text = canonical_json(excerpt(document)) if document else ""
    return text if len(text) <= _MAX_EXCERPT else ""


def excerpt(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an object that decides about its GPUs; of a node its layouts too."""
    fields: dict[str, Any] = {"spec": _lean(part(document, "spec") or {})}
    layouts = {
        name: layout
        for name in (MIG_LAYOUT_LABEL, PLUGIN_CONFIG_LABEL)
        if (layout := part(document, "metadata", "labels", name)) is not None
    }
    if layouts:
        fields["metadata"] = {"labels": layouts}
    return fields


def _lean(value: Any, *, all_names: bool = False) -> Any:
    if isinstance(value, list):
        return [_lean(entry) for entry in value]
    if not isinstance(value, Mapping):
        return value
    fields = {
        name: entry if name in _WHOLE else _lean(entry, all_names=name.endswith("ReplicaSpecs"))
        for name, entry in value.items()
        # Roles go by names of their own under the one field that holds them.
        if all_names or name in _KEPT_FIELDS or name in _WHOLE or name.endswith("ReplicaSpecs")
    }
    for name in _OF_CONTAINERS:
        if isinstance(value.get(name), list):
            fields[name] = [_lean_container(entry) for entry in value[name]]
    return fields


def _lean_container(container: Any) -> dict[str, Any]:
    fields = {name: part(container, name) for name in ("name", "restartPolicy")}
    resources = part(container, "resources")
    if isinstance(resources, Mapping):
        fields["resources"] = {
            section: {name: entry for name, entry in quantities.items() if is_of_vendor(name)}
            for section, quantities in resources.items()
            if section in ("limits", "requests") and isinstance(quantities, Mapping)
        }
    return {name: text for name, text in fields.items() if text is not None}
