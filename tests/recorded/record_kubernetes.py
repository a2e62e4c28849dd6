"""Records what a real Kubernetes answers into tests/recorded/kubernetes/RELEASE.

    PYTHONPATH=.:tests python tests/recorded/record_kubernetes.py

Needs the servers that tests/beds/kubernetes.py names. The same story is what
tests/collectors/test_kubernetes_source.py reads live. Read the difference before keeping it.
"""

import json
from pathlib import Path
from typing import Any

from beds.kubernetes import KubernetesBed, running_kubernetes
from beds.kubernetes_kubelet import EXIT_AFTER

from collectors.kubernetes.kinds import KINDS

HERE = Path(__file__).parent / "kubernetes"
CUSTOM = {
    "PyTorchJob": "kubeflow.org/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "RayCluster": "ray.io/v1",
    "RayService": "ray.io/v1",
    "Workload": "kueue.x-k8s.io/v1beta1",
}
"""Kind to the API version under which the story defines it, as its operator would."""

RUNNING_PODS = 11
"""Pods that have found room: the last of the story neither fits nor ends."""


def template(
    resource: str, count: int, *, node: str = "", restart: str = "Always", exit_after: str = ""
) -> dict[str, Any]:
    """A pod template of one container that asks for GPUs, of one node if it is named."""
    limits = {f"nvidia.com/{resource}": str(count)}
    container = {"name": "main", "image": "example/work:1", "resources": {"limits": limits}}
    annotations = {EXIT_AFTER: exit_after} if exit_after else {}
    selector = {"kubernetes.io/hostname": node} if node else {}
    return {
        "metadata": {"labels": {}, "annotations": annotations},
        "spec": {"containers": [container], "restartPolicy": restart, "nodeSelector": selector},
    }


def built_in(version: str, kind: str, name: str, spec: Any, **metadata: Any) -> dict[str, Any]:
    """An object in the namespace `ml`."""
    about = {"name": name, "namespace": "ml"} | metadata
    return {"apiVersion": version, "kind": kind, "metadata": about, "spec": spec}


def replicated(kind: str, name: str, replicas: int, pod: dict[str, Any], **metadata: Any) -> Any:
    """A Deployment or StatefulSet."""
    pod["metadata"]["labels"]["app"] = name
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pod}
    more = {"serviceName": name} if kind == "StatefulSet" else {}
    return built_in("apps/v1", kind, name, spec | more, **metadata)


def definition(kind: str) -> dict[str, Any]:
    """A definition of custom resources that takes any field."""
    group, version = CUSTOM[kind].split("/")
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    annotations = {"api-approved.kubernetes.io": "unapproved, only for tests"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": annotations},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [served],
        },
    }


def owned_by(bed: KubernetesBed, kind: str, name: str) -> list[dict[str, Any]]:
    """The reference that an operator would write into what it makes."""
    owner = bed.get(kind, name, namespace="ml")
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": kind,
            "name": name,
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
    ]


def pod_of(bed: KubernetesBed, kind: str, name: str, *, gpus: int) -> dict[str, Any]:
    """A pod as the operator of a custom kind would make it."""
    found = template("gpu", gpus, node="gpu-0")
    owners = owned_by(bed, kind, name)
    return built_in("v1", "Pod", f"{name}-worker-0", found["spec"], ownerReferences=owners)


def tell_story(bed: KubernetesBed) -> None:
    """Make one workload of every kind that reads differently, and wait until they have settled.

    Each pod names its node: a scheduler that is free to choose fills gpu-1 now and then before
    `train` comes, which then never runs.
    """
    bed.add_gpu_node("gpu-0", gpus=8)
    bed.add_gpu_node("gpu-1", gpus=8, product="NVIDIA-A100-SXM4-80GB", memory_mib=81920)
    bed.add_gpu_node("mig-0", gpus=0, mig={"3g.40gb": 2})
    bed.add_gpu_node("drained", gpus=4, unschedulable=True)
    bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
    bed.apply(*map(definition, CUSTOM))
    helm = {"app.kubernetes.io/managed-by": "Helm", "owner": "search"}
    bed.apply(
        replicated("Deployment", "ranker", 2, template("gpu", 2, node="gpu-0"), labels=helm),
        replicated("Deployment", "small", 1, template("mig-3g.40gb", 1)),
        replicated("StatefulSet", "index", 1, template("gpu", 1, node="gpu-1")),
        built_in(
            "batch/v1",
            "Job",
            "train",
            {"template": template("gpu", 2, node="gpu-1", restart="Never")},
        ),
        built_in(
            "batch/v1",
            "Job",
            "short",
            {"template": template("gpu", 1, node="gpu-1", restart="Never", exit_after="1")},
        ),
        built_in(
            "batch/v1beta1",
            "CronJob",
            "nightly",
            {
                "schedule": "0 3 29 2 *",
                "jobTemplate": {"spec": {"template": template("gpu", 1, restart="Never")}},
            },
        ),
        built_in(
            "autoscaling/v1",
            "HorizontalPodAutoscaler",
            "ranker",
            {
                "minReplicas": 1,
                "maxReplicas": 6,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "ranker"},
            },
        ),
        built_in(
            CUSTOM["PyTorchJob"],
            "PyTorchJob",
            "llm",
            {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}},
            labels={"kueue.x-k8s.io/queue-name": "research"},
        ),
        built_in(CUSTOM["JobSet"], "JobSet", "sweep", {}),
        built_in(CUSTOM["RayService"], "RayService", "chat", {}),
        built_in("v1", "Pod", "notebook", template("gpu", 1, node="gpu-1")["spec"]),
        built_in("v1", "Pod", "web", {"containers": [{"name": "main", "image": "example/web:1"}]}),
    )
    nightly, sweep = (
        {"template": template("gpu", 1, node="gpu-1", restart="Never")} for _ in range(2)
    )
    bed.apply(
        built_in(CUSTOM["RayCluster"], "RayCluster", "chat-1",
                 {}, ownerReferences=owned_by(bed, "RayService", "chat")),
        built_in("batch/v1", "Job", "nightly-1", nightly,
                 ownerReferences=owned_by(bed, "CronJob", "nightly")),
        built_in("batch/v1", "Job", "sweep-workers-0", sweep,
                 ownerReferences=owned_by(bed, "JobSet", "sweep")),
        built_in(CUSTOM["Workload"], "Workload", "pytorchjob-llm", {"priority": 100},
                 ownerReferences=owned_by(bed, "PyTorchJob", "llm")),
    )  # fmt: skip
    bed.patch(
        "Workload",
        "pytorchjob-llm",
        {"status": {"conditions": [{"type": "Admitted", "status": "True"}]}},
        namespace="ml",
    )
    bed.apply(
        pod_of(bed, "PyTorchJob", "llm", gpus=2),
        pod_of(bed, "RayCluster", "chat-1", gpus=1),
        replicated("Deployment", "huge", 1, template("gpu", 16)),
    )
    bed.until("the story has settled", lambda: _phases(bed) == ["Pending"] + ["Running"] * (
        RUNNING_PODS) + ["Succeeded"] and _refused(bed))  # fmt: skip


def _phases(bed: KubernetesBed) -> list[str]:
    return sorted(entry["status"]["phase"] for entry in bed.list("Pod", namespace="ml"))


def _refused(bed: KubernetesBed) -> bool:
    """Whether the scheduler has said why the pod waits that finds no room."""
    waiting = [entry for entry in bed.list("Pod", namespace="ml")
               if entry["status"]["phase"] == "Pending"]  # fmt: skip
    return all(entry["status"].get("conditions") for entry in waiting)


def record() -> None:
    """Record."""
    with running_kubernetes() as bed:
        tell_story(bed)
        version = bed.ask("GET", "version")
        folder = HERE / f"{version['major']}.{version['minor'].rstrip('+')}"
        folder.mkdir(parents=True, exist_ok=True)
        for kind, paths in KINDS.items():
            for path in paths:
                answer = bed.answer("GET", path, user="reader")
                if answer.ok:
                    document = answer.json()
                    for item in document["items"]:
                        item["metadata"].pop("managedFields", None)
                    text = json.dumps(document, indent=1, sort_keys=True)
                    (folder / f"{kind}.json").write_text(f"{text}\n", encoding="utf-8")
                    break


if __name__ == "__main__":
    record()
