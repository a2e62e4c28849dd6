"""Kueue's kinds on a real Kubernetes API, without its controller: a test writes the statuses.

The schemas hold the fields that Kueue publishes of these kinds, as far as quotas go: another field
is pruned by the API, as it would be by Kueue's own definitions.
"""

from typing import Any

import requests
from beds.kubernetes import KubernetesBed

GROUP = "kueue.x-k8s.io"
COHORT = {"v1beta1": "cohort", "v1beta2": "cohortName"}
"""What a version calls the cohort of a ClusterQueue."""
PARENT = {"v1beta1": "parent", "v1beta2": "parentName"}
"""What a version calls the cohort above another."""
_TEXT, _COUNT = {"type": "string"}, {"type": "integer", "format": "int32"}
_QUANTITY = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
    "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|"
    r"([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
}
_WEIGHT = {"type": "object", "properties": {"weight": _QUANTITY}}
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _list(**properties: Any) -> dict[str, Any]:
    return {"type": "array", "items": _object(**properties)}


def _usage(**more: Any) -> dict[str, Any]:
    return _list(name=_TEXT, resources=_list(name=_TEXT, total=_QUANTITY, **more))


def _status(**more: Any) -> dict[str, Any]:
    return _object(
        flavorsReservation=_usage(**more),
        flavorsUsage=_usage(**more),
        pendingWorkloads=_COUNT,
        reservingWorkloads=_COUNT,
        admittedWorkloads=_COUNT,
    )


def _schemas(version: str) -> dict[str, dict[str, Any]]:
    limits = dict.fromkeys(("nominalQuota", "borrowingLimit", "lendingLimit"), _QUANTITY)
    cluster_queue = {
        COHORT[version]: _TEXT,
        "namespaceSelector": _ANYTHING,
        "fairSharing": _WEIGHT,
        "preemption": _object(reclaimWithinCohort=_TEXT, withinClusterQueue=_TEXT),
        "resourceGroups": _list(
            coveredResources={"type": "array", "items": _TEXT},
            flavors=_list(name=_TEXT, resources=_list(name=_TEXT, **limits)),
        ),
    }
    labels = {"type": "object", "additionalProperties": _TEXT}
    above = {PARENT[version]: _TEXT}
    groups = {name: cluster_queue[name] for name in ("fairSharing", "resourceGroups")}
    return {
        "Cohort": _object(spec=_object(**above, **groups), status=_ANYTHING),
        "ClusterQueue": _object(spec=_object(**cluster_queue), status=_status(borrowed=_QUANTITY)),
        "LocalQueue": _object(
            spec=_object(clusterQueue=_TEXT, fairSharing=_WEIGHT), status=_status()
        ),
        "ResourceFlavor": _object(spec=_object(nodeLabels=labels)),
        "Workload": _object(spec=_ANYTHING, status=_ANYTHING),
    }


def install_kueue(bed: KubernetesBed, version: str) -> None:
    """Serve Kueue's kinds in this version alone; objects of another one are removed with it."""
    for kind, schema in _schemas(version).items():
        plural = f"{kind.lower()}s"
        path = f"apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{GROUP}"
        bed.answer("DELETE", path)
        bed.until(
            f"{plural} are gone",
            lambda path=path: bed.answer("GET", path).status_code == requests.codes.not_found,
        )
        scope = "Namespaced" if kind in ("LocalQueue", "Workload") else "Cluster"
        served = {"name": version, "served": True, "storage": True, "subresources": {"status": {}}}
        bed.apply(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {
                    "name": f"{plural}.{GROUP}",
                    "annotations": {"api-approved.kubernetes.io": "unapproved, only for tests"},
                },
                "spec": {
                    "group": GROUP,
                    "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                    "scope": scope,
                    "versions": [served | {"schema": {"openAPIV3Schema": schema}}],
                },
            }
        )


def cluster_queue(
    name: str, version: str, *limits: dict[str, Any], cohort: str = "", **spec: Any
) -> dict[str, Any]:
    """Return a ClusterQueue with one flavor for each limit, of GPUs and of processors."""
    flavors = [
        {"name": limit.pop("flavor"), "resources": [limit, {"name": "cpu", "nominalQuota": 64}]}
        for limit in map(dict, limits)
    ]
    covered = [limits[0]["name"], "cpu"]
    groups = [{"coveredResources": covered, "flavors": flavors}]
    named = {COHORT[version]: cohort} if cohort else {}
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": groups} | named | spec,
    }


def cohort_of(name: str, version: str, above: str, *limits: dict[str, Any]) -> dict[str, Any]:
    """Return a Cohort below another, with quotas of its own."""
    found = cluster_queue(name, version, *limits)
    groups = found["spec"]["resourceGroups"]
    spec = {"resourceGroups": groups, PARENT[version]: above}
    return found | {"kind": "Cohort", "spec": spec}


def local_queue(name: str, namespace: str, above: str, version: str) -> dict[str, Any]:
    """Return a LocalQueue that leads to a ClusterQueue."""
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": above},
    }


def flavor(name: str, product: str, version: str) -> dict[str, Any]:
    """Return a ResourceFlavor of the nodes with this GPU product."""
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": {"nvidia.com/gpu.product": product}},
    }


def usage(resource: str = "nvidia.com/gpu", **totals: str) -> list[dict[str, Any]]:
    """Return the use of a resource by flavor, as a status tells it."""
    return [
        {"name": name, "resources": [{"name": resource, "total": total}, {"name": "cpu"}]}
        for name, total in totals.items()
    ]
