"""Autoscalers of a service of the Kubernetes bed, and a stand-in of KEDA.

KEDA is a ScaledObject's definition with a structural schema, and a function that makes the
autoscaler of it by the rules of KEDA's controller.
"""

from typing import Any

from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import bind_in, deployment, gpus, pod_spec, proposal

from data.records.actions import Action
from data.records.recommendations import Recommendation

AUTOSCALER, SCALED = "horizontalpodautoscaler.autoscaling/serve", "scaledobject.keda.sh/serve"
SERVE = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "serve"}
_ANYTHING: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
HELM = {"labels": {"app.kubernetes.io/managed-by": "Helm"}}


def bound(namespace: str, now: int, wanted: int, holder: str = AUTOSCALER) -> Recommendation:
    """A lower minimum, or a higher maximum, of the service of a namespace."""
    action = Action.LOWER_MINIMUM if wanted < now else Action.RAISE_MAXIMUM
    details = (("autoscaler", holder), ("bound_now", str(now)), ("bound_proposed", str(wanted)))
    return proposal(
        f"{namespace}/deployment/serve",
        gpus(10),
        gpus(10),
        action=action,
        details=details,
        change=f"{action.spec.bound} of {wanted} instead of {now}",
    )


def scaler(namespace: str, name: str = "serve", **changes: Any) -> dict[str, Any]:
    """An autoscaler from 5 to 8 of the service, with fields of its metadata or spec changed."""
    about = {"name": name, "namespace": namespace, **changes.pop("metadata", {})}
    spec = {"minReplicas": 5, "maxReplicas": 8, "scaleTargetRef": SERVE, **changes}
    return {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
            "metadata": about, "spec": spec}  # fmt: skip


def served(bed: KubernetesBed, namespace: str, *more: dict[str, Any]) -> None:
    """Have a service in a namespace of its own, and what scales it."""
    bind_in(bed, namespace)
    bed.apply(deployment(namespace, replicas=5, pod=pod_spec(2)), *more)


def define_scaled_objects(bed: KubernetesBed) -> None:
    """Have the kind that KEDA defines, as far as bounds go: other fields are dropped."""
    whole = {"type": "integer"}
    target = {"type": "object", "required": ["name"], "properties": {
        name: {"type": "string"} for name in ("apiVersion", "kind", "name")}}  # fmt: skip
    spec = {"type": "object", "required": ["scaleTargetRef"], "properties": {
        "scaleTargetRef": target, "minReplicaCount": whole, "maxReplicaCount": whole,
        "idleReplicaCount": whole,
        "triggers": {"type": "array", "items": _ANYTHING}}}  # fmt: skip
    schema = {"type": "object", "properties": {"spec": spec, "status": _ANYTHING}}
    bed.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "scaledobjects.keda.sh"},
            "spec": {
                "group": "keda.sh",
                "names": {"kind": "ScaledObject", "plural": "scaledobjects",
                          "singular": "scaledobject"},
                "scope": "Namespaced",
                "versions": [{"name": "v1alpha1", "served": True, "storage": True,
                              "subresources": {"status": {}},
                              "schema": {"openAPIV3Schema": schema}}],
            },
        }
    )  # fmt: skip


def scaled_object(namespace: str, **changes: Any) -> dict[str, Any]:
    """A ScaledObject of the service: of a Deployment, as it names no kind."""
    about = {"name": "serve", "namespace": namespace, **changes.pop("metadata", {})}
    return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": about,
            "spec": {"scaleTargetRef": {"name": "serve"}, **changes}}  # fmt: skip


def reconciled(bed: KubernetesBed, namespace: str) -> None:
    """Make the autoscaler of a ScaledObject, as KEDA does."""
    found = bed.get("ScaledObject", "serve", namespace=namespace)
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "serve",
             "uid": found["metadata"]["uid"], "controller": True}  # fmt: skip
    bed.apply(
        scaler(
            namespace,
            "keda-hpa-serve",
            metadata={"ownerReferences": [owner]},
            minReplicas=found["spec"].get("minReplicaCount") or 1,
            maxReplicas=found["spec"].get("maxReplicaCount", 100),
        )
    )


def under_keda(bed: KubernetesBed, namespace: str, **changes: Any) -> None:
    """Have a service that KEDA scales."""
    served(bed, namespace, scaled_object(namespace, **changes))
    reconciled(bed, namespace)
