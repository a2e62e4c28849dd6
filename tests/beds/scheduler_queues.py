"""The queues of KAI-scheduler and of Volcano on a real Kubernetes API, without their controllers.

The schemas hold the fields that both publish of these kinds, as far as GPUs go: another field is
pruned by the API, as it would be by their own definitions (NVIDIA/KAI-Scheduler,
deployments/kai-scheduler/crds; volcano-sh/volcano, config/crd).
"""

from typing import Any

from beds.kubernetes import KubernetesBed

_TEXT, _NUMBER = {"type": "string"}, {"type": "number"}
_COUNT = {"type": "integer", "format": "int32"}
_QUANTITY = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_LIST = {"type": "object", "additionalProperties": _QUANTITY}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


_SHARE = _object(quota=_NUMBER, limit=_NUMBER, overQuotaWeight=_NUMBER)
KAI = ("scheduling.run.ai", "v2")
VOLCANO = ("scheduling.volcano.sh", "v1beta1")
_SCHEMAS = {
    KAI: _object(
        spec=_object(
            parentQueue=_TEXT,
            priority={"type": "integer"},
            resources=_object(gpu=_SHARE, cpu=_SHARE, memory=_SHARE),
        ),
        status=_object(allocated=_LIST, requested=_LIST, allocatedNonPreemptible=_LIST),
    ),
    VOLCANO: _object(
        spec=_object(
            parent=_TEXT,
            weight=_COUNT,
            reclaimable={"type": "boolean"},
            capability=_LIST,
            deserved=_LIST,
            guarantee=_object(resource=_LIST),
        ),
        status=_object(
            allocated=_LIST, pending=_COUNT, running=_COUNT, inqueue=_COUNT, unknown=_COUNT
        ),
    ),
}


def install_queues(bed: KubernetesBed) -> None:
    """Serve both kinds."""
    for (group, version), schema in _SCHEMAS.items():
        served = {"name": version, "served": True, "storage": True, "subresources": {"status": {}}}
        bed.apply(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"queues.{group}"},
                "spec": {
                    "group": group,
                    "names": {"kind": "Queue", "plural": "queues", "singular": "queue"},
                    "scope": "Cluster",
                    "versions": [served | {"schema": {"openAPIV3Schema": schema}}],
                },
            }
        )


def queue(name: str, of: tuple[str, str], **spec: Any) -> dict[str, Any]:
    """Return a queue of KAI or VOLCANO."""
    group, version = of
    return {
        "apiVersion": f"{group}/{version}",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }
