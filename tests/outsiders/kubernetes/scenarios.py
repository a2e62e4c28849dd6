"""Drawn Kubernetes workloads, changes of them, and what happens meanwhile.

What a change promises is worked out here from the scenario alone, never by the code under test.
"""

import random
from dataclasses import dataclass, replace
from typing import Any

from factories import H100

from data.records.actions import Action
from data.records.plans import Configuration
from data.records.recommendations import SHARE_RESOURCE

GPU = "nvidia.com/gpu"
SHARED = f"{GPU}.shared"
PRODUCT = "nvidia.com/gpu.product"
OTHER_MODEL = "A100-SXM4-80GB"
SLICE = "3g.40gb"
NAME = "serve"
HOSTILE = "x'; rm -rf / #\n\x1b[31m<img src=x onerror=alert(1)>{{7*7}}" + "A" * 2000
VERSIONS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1beta1",
    "Pod": "v1",
    "PyTorchJob": "kubeflow.org/v1",
    "RayCluster": "ray.io/v1",
}
ROLLING = ("Deployment", "StatefulSet")
OWNERS: dict[str, dict[str, Any]] = {
    "helm": {"labels": {"app.kubernetes.io/managed-by": "Helm"}},
    "argo": {"annotations": {"argocd.argoproj.io/tracking-id": "a:apps/Deployment:x/serve"}},
    "argo-label": {"labels": {"app.kubernetes.io/instance": "shop"}},
    "flux": {"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}},
    "kueue": {"labels": {"kueue.x-k8s.io/queue-name": "research"}},
    "controller": {
        "ownerReferences": [
            {
                "apiVersion": "example.org/v1",
                "kind": "Shop",
                "name": "shop",
                "uid": "3f1f1c1e-0000-4000-8000-000000000001",
                "controller": True,
            }
        ]
    },
}
OF_REPLICAS = ("hpa", "field-manager")
"""Owners that write the number of pods alone."""


@dataclass(frozen=True)
class Scenario:
    """One workload, one change, what others do meanwhile, and the way back."""

    kind: str = "Deployment"
    replicas: int = 2
    gpus: int = 2
    resource: str = GPU
    containers: str = "one"
    requested: bool = True
    strategy: str = ""
    owner: str = ""
    paused: bool = False
    hostile: bool = False
    placed: str = ""
    spare_gpus: int = 4
    limits: str = ""
    change: str = "fewer-pods"
    between: str = ""
    moment: str = "after-approval"
    after: str = "roll-back"
    work: str = "queue"


def draw(source: random.Random) -> Scenario:
    """Return a scenario; combinations that no server takes are drawn again as plainer ones."""
    kinds = ["Deployment"] * 8 + ["StatefulSet"] * 4 + ["Job", "CronJob"] * 2
    kind = source.choice([*kinds, "Pod", "PyTorchJob", "RayCluster"])
    rarely = lambda values: source.choice(["", *values]) if source.random() < 0.35 else ""  # noqa: E731
    strategies = {
        "Deployment": ["no-surge", "percent", "recreate", "all-at-once", "one-more"],
        "StatefulSet": ["on-delete", "partition", "parallel"],
    }
    changes = ["fewer-each"] * 4 + ["fewer-pods"] * 3
    changes += ["more-pods", "model", "mixed", "slice", "stop"]
    between = ["scaled", "image", "gpus", "deleted", "replaced", "quota", "cordoned", "thief"]
    between += ["killed", "owned", "killed", "undone"]
    change = source.choice(changes)
    return Scenario(
        kind=kind,
        replicas=source.choice([1, 1, 2, 2, 3]),
        gpus=source.choice([2, 2, 4] if change == "fewer-each" else [1, 2, 2, 4]),
        resource=source.choice([GPU] * 8 + [f"nvidia.com/mig-{SLICE}", SHARED]),
        containers=source.choice(["one", "one", "second", "first", "init"]),
        requested=source.random() < 0.6,
        strategy=rarely(strategies.get(kind, [])),
        owner=rarely([*OWNERS, *OF_REPLICAS]) if source.random() < 0.6 else "",
        paused=kind == "Deployment" and source.random() < 0.05,
        hostile=source.random() < 0.15,
        placed=rarely(["affinity", "toleration"]),
        spare_gpus=source.choice([0, 0, 1, 4, 8]),
        limits=rarely(["quota", "limit-range"]) if source.random() < 0.5 else "",
        change=change,
        between=source.choice(["", *between]) if source.random() < 0.7 else "",
        moment=source.choice(["after-approval", "under-way", "under-way", "after-apply"]),
        after=source.choice(["roll-back"] * 6 + ["again", "roll-back-twice", ""]),
        work=source.choice(["queue", "queue", "completions"]),
    )


def draw_share(source: random.Random) -> Scenario:
    """Return a workload of one pod on a whole board, which takes a share of one."""
    return replace(draw(source), replicas=1, gpus=1, resource=GPU, change="share")


def container(scenario: Scenario, name: str, count: int) -> dict[str, Any]:
    """Return a container that asks for so many GPUs."""
    found: dict[str, Any] = {"name": name, "image": f"example/{name}:1"}
    if count:
        asked = {scenario.resource: str(count)}
        found["resources"] = {"limits": asked} | ({"requests": asked} if scenario.requested else {})
    return found


def pod_spec(scenario: Scenario, node: str) -> dict[str, Any]:
    """Return the spec of a pod that holds the GPUs."""
    main = container(scenario, "main", scenario.gpus)
    beside = container(scenario, "proxy", 0)
    containers = {"second": [beside, main], "first": [main, beside]}
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": 1,
        "containers": containers.get(scenario.containers, [main]),
    }
    if scenario.containers == "init":
        spec["initContainers"] = [container(scenario, "warm", scenario.gpus)]
    if scenario.placed == "affinity":
        expression = {"key": "bed/at", "operator": "In", "values": [node]}
        terms = [{"matchExpressions": [expression]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    else:
        spec["nodeSelector"] = {"bed/at": node}
    if scenario.placed == "toleration":
        spec["tolerations"] = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]
    return spec


def workload(scenario: Scenario, namespace: str) -> dict[str, Any]:
    """Return the object of a scenario."""
    meta: dict[str, Any] = {"name": NAME, "namespace": namespace}
    meta |= OWNERS.get(scenario.owner, {})
    if scenario.hostile:
        meta["annotations"] = {"note": HOSTILE} | meta.get("annotations", {})
    about = {"apiVersion": VERSIONS[scenario.kind], "kind": scenario.kind, "metadata": meta}
    return about | {"spec": _spec(scenario, pod_spec(scenario, namespace))}


def _spec(scenario: Scenario, pod: dict[str, Any]) -> dict[str, Any]:
    count, labels = scenario.replicas, {"app": NAME}
    template = {"metadata": {"labels": labels}, "spec": pod}
    once = {"metadata": {"labels": labels}, "spec": pod | {"restartPolicy": "Never"}}
    if scenario.kind == "Pod":
        return pod
    if scenario.kind == "Job":
        return _job(scenario, once)
    if scenario.kind == "CronJob":
        return {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": _job(scenario, once)}}
    if scenario.kind == "PyTorchJob":
        bounds = {"minReplicas": 1, "maxReplicas": 8}
        roles = {"Worker": {"replicas": count, "template": template}}
        return {"pytorchReplicaSpecs": roles, "runPolicy": {}, "elasticPolicy": bounds}
    if scenario.kind == "RayCluster":
        head = {"template": {"spec": {"containers": [{"name": "head", "image": "ray:2"}]}}}
        group = {"groupName": "gpus", "replicas": count, "template": template}
        bounds = {"minReplicas": 0, "maxReplicas": 8}
        return {"headGroupSpec": head, "workerGroupSpecs": [group | bounds]}
    spec = {"replicas": count, "selector": {"matchLabels": labels}, "template": template}
    return spec | _strategy(scenario)


def _job(scenario: Scenario, template: dict[str, Any]) -> dict[str, Any]:
    count = scenario.replicas
    work = {"completions": count + 2} if scenario.work == "completions" else {}
    return {"parallelism": count, "template": template} | work


def _strategy(scenario: Scenario) -> dict[str, Any]:
    if scenario.kind == "StatefulSet":
        more: dict[str, Any] = {"serviceName": NAME}
        if scenario.strategy == "on-delete":
            more["updateStrategy"] = {"type": "OnDelete"}
        if scenario.strategy == "partition":
            more["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
        if scenario.strategy == "parallel":
            more["podManagementPolicy"] = "Parallel"
        return more
    rolling = {
        "no-surge": {"maxSurge": 0, "maxUnavailable": 1},
        "percent": {"maxSurge": "50%", "maxUnavailable": "34%"},
        "all-at-once": {"maxSurge": 0, "maxUnavailable": "100%"},
        "one-more": {"maxSurge": 1, "maxUnavailable": 0},
    }
    found: dict[str, Any] = {"paused": True} if scenario.paused else {}
    if scenario.strategy == "recreate":
        found["strategy"] = {"type": "Recreate"}
    elif scenario.strategy in rolling:
        found["strategy"] = {
            "type": "RollingUpdate",
            "rollingUpdate": rolling[scenario.strategy],
        }
    return found


def advice(scenario: Scenario) -> dict[str, Any]:
    """Return what a recommendation of the change says: action, GPUs now and proposed, details."""
    total = scenario.replicas * scenario.gpus
    profile = SLICE if "mig-" in scenario.resource else ""
    action, count, model, details = Action.FEWER_GPUS, total, H100, ()
    if scenario.change == "fewer-pods":
        count = total - scenario.gpus
    elif scenario.change == "more-pods":
        action, count = Action.SCALE_OUT, total + scenario.gpus
    elif scenario.change == "fewer-each":
        each = scenario.gpus // 2
        count, details = scenario.replicas * each, (("gpus_per_pod", str(each)),)
    elif scenario.change == "model":
        action, model = Action.SMALLER_GPU, OTHER_MODEL
    elif scenario.change == "mixed":
        action, model = Action.SMALLER_GPU, OTHER_MODEL
        count = 1 if scenario.replicas > 1 else total
    elif scenario.change == "slice":
        action = Action.MIG_SLICE
    elif scenario.change == "share":
        action = Action.TAKE_SHARE
        details = ((SHARE_RESOURCE, SHARED), ("gpus_per_pod", "1"))
    elif scenario.change == "stop":
        action, count = Action.RECLAIM, 0
    wanted = SLICE if scenario.change == "slice" else profile
    if count == 0 and scenario.change == "fewer-pods":
        action = Action.RECLAIM
    return {
        "action": action,
        "now": Configuration(gpu_model=H100, gpu_count=total, mig_profile=profile),
        "proposed": Configuration(
            gpu_model=model, gpu_count=count, mig_profile="" if count == 0 else wanted
        ),
        "details": details,
    }


def promised(scenario: Scenario) -> dict[str, Any]:
    """Return the fields that the change sets, by pointer; None is a field that goes."""
    if _stops(scenario):
        return {_stop_at(scenario.kind): 0 if scenario.kind in (*ROLLING, "Job") else True}
    if scenario.change in ("fewer-pods", "more-pods"):
        more = 1 if scenario.change == "more-pods" else -1
        return {_count_at(scenario.kind): scenario.replicas + more}
    if scenario.change in ("model", "mixed"):
        return _selected(scenario)
    return _resources(scenario)


def _stop_at(kind: str) -> str:
    at = {"Job": "/spec/parallelism", "PyTorchJob": "/spec/runPolicy/suspend"}
    return at.get(kind, "/spec/replicas" if kind in ROLLING else "/spec/suspend")


def _count_at(kind: str) -> str:
    return {
        "Job": "/spec/parallelism",
        "CronJob": "/spec/jobTemplate/spec/parallelism",
        "PyTorchJob": "/spec/pytorchReplicaSpecs/Worker/replicas",
        "RayCluster": "/spec/workerGroupSpecs/0/replicas",
    }.get(kind, "/spec/replicas")


def template_at(kind: str) -> str:
    """Return the pointer of a pod template's spec."""
    above = "/spec/jobTemplate" if kind == "CronJob" else ""
    return f"{above}/spec/template/spec"


def _selected(scenario: Scenario) -> dict[str, Any]:
    label = f"NVIDIA-{OTHER_MODEL}"
    key = PRODUCT.replace("/", "~1")
    return {f"{template_at(scenario.kind)}/nodeSelector/{key}": label}


def _resources(scenario: Scenario) -> dict[str, Any]:
    index = 1 if scenario.containers == "second" else 0
    places = [f"containers/{index}"]
    if scenario.containers == "init":
        places.append("initContainers/0")
    sections = ("limits", "requests") if scenario.requested else ("limits",)
    found: dict[str, Any] = {}
    for place in places:
        for section in sections:
            at = f"{template_at(scenario.kind)}/{place}/resources/{section}/"
            if scenario.change in ("slice", "share"):
                other = SHARED if scenario.change == "share" else f"nvidia.com/mig-{SLICE}"
                found[at + scenario.resource.replace("/", "~1")] = None
                found[at + other.replace("/", "~1")] = str(scenario.gpus)
            else:
                found[at + scenario.resource.replace("/", "~1")] = str(scenario.gpus // 2)
    return found


def touches_count(scenario: Scenario) -> bool:
    """Return whether the change sets the number of pods."""
    return any(at.endswith(("/replicas", "/parallelism")) for at in promised(scenario))


def must_be_refused(scenario: Scenario) -> str:
    """Return why nothing may be sent, '' when nothing stands against it."""
    template = scenario.change in ("fewer-each", "model", "slice", "share")
    if scenario.kind == "Pod":
        return "the GPUs of a pod cannot change"
    if scenario.resource == SHARED and not _stops(scenario):
        return "shares of boards are not counted"
    if scenario.change == "mixed" and scenario.replicas > 1:
        return "pods and model at once"
    if scenario.owner in OWNERS and scenario.owner != "argo-label":
        return f"owned by {scenario.owner}"
    if scenario.owner in OF_REPLICAS and scenario.kind in ROLLING and touches_count(scenario):
        return f"{scenario.owner} writes the number of pods"
    if template and scenario.kind not in (*ROLLING, "CronJob"):
        return "no new pods of another template"
    if template and (scenario.paused or scenario.strategy in ("on-delete", "partition")):
        return f"{scenario.strategy or 'paused'} keeps the pods"
    if (
        scenario.work == "completions"
        and scenario.kind in ("Job", "CronJob")
        and (scenario.change == "fewer-pods" and not _stops(scenario))
    ):
        return "each completion holds its GPUs for as long"
    if scenario.change == "slice" and scenario.resource != GPU:
        return "slices already"
    return ""


def _stops(scenario: Scenario) -> bool:
    return scenario.change == "stop" or (scenario.change == "fewer-pods" and scenario.replicas == 1)


def must_be_applied(scenario: Scenario) -> bool:
    """Return whether a plain change of a plain workload has to succeed."""
    return (
        not must_be_refused(scenario)
        and not scenario.between
        and not scenario.limits
        and not scenario.paused
        and scenario.resource == GPU
        and scenario.change in ("fewer-pods", "fewer-each", "stop", "share")
        and scenario.kind in (*ROLLING, "Job", "CronJob")
        and scenario.owner in ("", "argo-label")
    )
