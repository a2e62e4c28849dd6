"""Drawn Kubernetes clusters: what is collected and planned of them, and shown to the applier."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
from beds.kubernetes_apply import GPU
from beds.kubernetes_fake import FakeApi
from fleet_cases import gpu
from planning_cases import A100, AS_OF, FREE_NODES, H100, L40S, case

from collectors.kubernetes.client import Inventory, KubernetesClient
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.kubernetes.kinds import KINDS
from collectors.shared.collector import Window
from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from data.base.errors import ApplyError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.fleet import Gpu
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings
from data.settings.sources import KubernetesSettings
from planner.advise import advise
from planner.plan import build_plan

MODELS = (H100, A100, L40S)
PRODUCTS = {H100: "NVIDIA-H100-80GB-HBM3", A100: "NVIDIA-A100-SXM4-80GB", L40S: "NVIDIA-L40S"}
SINCE = (AS_OF - timedelta(days=3)).isoformat()
KINDS_DRAWN = (
    ("Deployment", 0.35), ("StatefulSet", 0.15), ("Job", 0.1), ("PyTorchJob", 0.1),
    ("LeaderWorkerSet", 0.1), ("RayCluster", 0.1), ("JobSet", 0.05), ("Pod", 0.05),
)  # fmt: skip


class Listed(KubernetesClient):
    """A client that was answered already."""

    def __init__(self, found: Inventory) -> None:
        super().__init__(KubernetesSettings(enabled=True))
        self._found = found

    @property
    def name(self) -> str:
        """Its name in reports."""
        return "drawn"

    def inventory(self) -> Inventory:
        """Return the objects."""
        return self._found


@dataclass
class Drawn:
    """Objects by kind, and the boards as telemetry sees them."""

    objects: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    free: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    boards: list[Gpu] = field(default_factory=list)

    def add(self, kind: str, name: str, spec: Any, **about: Any) -> dict[str, Any]:
        """Add an object of the namespace ml."""
        version = KINDS[kind][0].rpartition("/")[0].partition("/")[2]
        document = {
            "apiVersion": version,
            "kind": kind,
            "metadata": {
                "name": name, "namespace": "ml", "uid": f"uid-{kind}-{name}",
                "creationTimestamp": SINCE, "resourceVersion": "1", "generation": 1, **about,
            },
            "spec": spec,
        }  # fmt: skip
        self.objects.setdefault(kind, []).append(document)
        return document


def owned_by(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The references of what an object controls."""
    about = document["metadata"]
    return [
        {
            "apiVersion": document["apiVersion"], "kind": document["kind"],
            "name": about["name"], "uid": about["uid"], "controller": True,
        }
    ]  # fmt: skip


def pod_of(gpus: int, containers: int, product: str) -> dict[str, Any]:
    """A pod spec of so many containers with GPUs each, bound to a product."""
    resources = {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}}
    return {
        "nodeSelector": {"nvidia.com/gpu.product": product},
        "containers": [
            {"name": f"c{number}", "image": "example/serve:1", "resources": resources}
            for number in range(containers)
        ],
    }


def spec_of(kind: str, count: int, pod: dict[str, Any], *, elastic: bool) -> Any:
    """The spec of a workload with so many pods."""
    template = {"spec": pod}
    if kind in ("Deployment", "StatefulSet"):
        labels = {"app": "drawn"}
        return {
            "replicas": count,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        }
    if kind == "Job":
        work = {"completions": count} if elastic else {}
        return {"parallelism": count, "template": template, **work}
    if kind == "PyTorchJob":
        roles: dict[str, Any] = {"Worker": {"replicas": max(1, count - 1), "template": template}}
        if count > 1:
            roles = {"Master": {"replicas": 1, "template": template}} | roles
        policy = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 8}} if elastic else {}
        return {"pytorchReplicaSpecs": roles, **policy}
    if kind == "LeaderWorkerSet":
        return {"replicas": count, "leaderWorkerTemplate": {"size": 1, "workerTemplate": template}}
    if kind == "RayCluster":
        head = {"template": {"spec": {"containers": [{"name": "head"}]}}}
        group = {"groupName": "w", "replicas": count, "template": template}
        return {"headGroupSpec": head, "workerGroupSpecs": [group]}
    jobs = [{"name": "w", "replicas": 1, "template": {"spec": {"parallelism": count,
                                                             "template": template}}}]  # fmt: skip
    return {"replicatedJobs": jobs} if kind == "JobSet" else pod


def add_node(drawn: Drawn, number: int, product: str, slices: dict[str, str]) -> None:
    """Add a node of eight boards with its product label."""
    labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.count": "8"}
    node = drawn.add("Node", f"node-{number}", {}, labels=labels)
    del node["metadata"]["namespace"]
    node["status"] = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "capacity": {GPU: "8", "cpu": "96", "memory": "900Gi", **slices},
        "allocatable": {GPU: "8", **slices},
    }


def draw(seed: int, *, managed: bool = False) -> Drawn:
    """Three models on six nodes, and workloads of all kinds until boards run out."""
    rng, drawn = np.random.default_rng(seed), Drawn()
    for number in range(6):
        model = MODELS[number % 3]
        slices = {"nvidia.com/mig-1g.10gb": "7"} if model == A100 and seed % 3 == 0 else {}
        # Of some clusters one model has no product label: nobody can ask for it.
        named = PRODUCTS[model] if model != L40S or seed % 4 else ""
        add_node(drawn, number, named, slices)
        drawn.free.setdefault(model, []).append((f"node-{number}", 8))
    for number in range(10):
        names, shares = zip(*KINDS_DRAWN, strict=True)
        kind = str(rng.choice(names, p=shares))
        count = 1 if kind == "Pod" else int(rng.choice([1, 2, 3, 4]))
        each, containers = int(rng.choice([1, 1, 2, 4])), int(rng.choice([1, 1, 1, 2]))
        _place(drawn, rng, (kind, f"w{number}"), (count, each, containers), managed=managed)
    for model, left in drawn.free.items():
        drawn.boards += [gpu(name, 8 - index - 1, model) for name, n in left for index in range(n)]
    return drawn


def _place(
    drawn: Drawn,
    rng: np.random.Generator,
    what: tuple[str, str],
    size: tuple[int, int, int],
    *,
    managed: bool,
) -> None:
    """Add a workload with its pods where they all find boards, else nothing."""
    (kind, name), (count, each, containers) = what, size
    model = str(rng.choice(MODELS))
    asked, left = each * containers, dict(drawn.free[model])
    homes = []
    for _ in range(count):
        node = next((node for node, free in left.items() if free >= asked), "")
        if not node:
            return
        homes.append((node, 8 - left[node]))
        left[node] -= asked
    drawn.free[model] = list(left.items())
    pod = pod_of(each, containers, PRODUCTS[model])
    about: dict[str, Any] = {"labels": {"app.kubernetes.io/managed-by": "Helm"}} if managed else {}
    elastic = bool(rng.random() < 0.5)
    top = drawn.add(kind, name, spec_of(kind, count, pod, elastic=elastic), **about)
    above = top
    if kind == "Deployment":
        above = drawn.add(
            "ReplicaSet", f"{name}-1", {"selector": {}}, ownerReferences=owned_by(top)
        )
    for number, (node, first) in enumerate(homes):
        one = top
        if kind != "Pod":
            one = drawn.add("Pod", f"{name}-{number}", dict(pod), ownerReferences=owned_by(above))
        one["spec"] = {**one["spec"], "nodeName": node}
        one["status"] = {"phase": "Running", "startTime": SINCE}
        job_id = f"ml/{kind.lower()}/{name}"
        drawn.boards += [gpu(node, first + board, model, job_id) for board in range(asked)]


def recommended(
    drawn: Drawn,
    seed: int,
    slot_minutes: int,
    *,
    levels: Mapping[str, float] | None = None,
) -> Sequence[Recommendation]:
    """What a plan of the collected objects leads to; `levels` of use by name, else drawn."""
    rng = np.random.default_rng([seed, 1])
    collector = KubernetesCollector(Listed(Inventory(objects=drawn.objects)), load_gpu_catalogue())
    found = collector.collect(Window(start=AS_OF - timedelta(hours=1), end=AS_OF))
    planning = PlanningSettings(
        slot_minutes=slot_minutes,
        horizon_slots=24 * 60 // slot_minutes,
    )
    cases = [
        (
            job,
            (levels or {}).get(job.name, float(rng.choice([0.0, 0.05, 0.2, 0.4, 0.8]))),
            float(rng.choice([2_000.0, 8_000.0, 20_000.0])),
            200.0 * job.gpu_count,
        )
        for job in found.jobs
    ]
    problem = case(
        *cases,
        gpus=drawn.boards,
        nodes=found.nodes,
        planning=planning,
        rules=FREE_NODES,
    )
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    return advise(plan, problem).recommendations


def serve(fake: FakeApi, drawn: Drawn) -> None:
    """Have the objects where the applier looks for them."""
    for kind, documents in drawn.objects.items():
        for listed in KINDS[kind][:1]:
            above, _, plural = listed.rpartition("/")
            for document in documents:
                inside = "/namespaces/ml" if "namespace" in document["metadata"] else ""
                fake.put(f"{above}{inside}/{plural}/{document['metadata']['name']}", document)
    fake.lists["api/v1/nodes"] = drawn.objects["Node"]
    fake.lists["api/v1/pods"] = drawn.objects.get("Pod", [])


def refusal_of(applier: KubernetesApplier, one: Recommendation) -> str:
    """Why the applier does not take a recommendation, '' when it does."""
    try:
        change = applier.change_for(one, applier.look(one, job=None, gpus=()))
        rehearsal = applier.rehearse(change)
    except ApplyError as refusal:
        return str(refusal)
    return "; ".join((*rehearsal.refusals, *(str(each) for each in rehearsal.differences)))


def workload(
    drawn: Drawn,
    what: tuple[str, str],
    size: tuple[int, int],
    node: int,
    at: int = 0,
    *,
    elastic: bool = False,
    **about: Any,
) -> None:
    """Add a workload of (pods, GPUs each) on the boards of a node from `at` on."""
    (kind, name), (count, each), model = what, size, MODELS[node % 3]
    pod = pod_of(each, 1, PRODUCTS[model])
    above = top = drawn.add(kind, name, spec_of(kind, count, pod, elastic=elastic), **about)
    if kind == "Deployment":
        above = drawn.add(
            "ReplicaSet", f"{name}-1", {"selector": {}}, ownerReferences=owned_by(top)
        )
    for number in range(count):
        one = drawn.add("Pod", f"{name}-{number}", dict(pod), ownerReferences=owned_by(above))
        one["spec"] = {**one["spec"], "nodeName": f"node-{node}"}
        one["status"] = {"phase": "Running", "startTime": SINCE}
    job_id = f"ml/{kind.lower()}/{name}"
    drawn.boards += [
        gpu(f"node-{node}", at + board, model, job_id) for board in range(count * each)
    ]


def cluster_of_three_models() -> Drawn:
    """Two nodes each of H100, A100 and L40S without workloads or MIG."""
    drawn = Drawn()
    for number in range(6):
        add_node(drawn, number, PRODUCTS[MODELS[number % 3]], {})
    return drawn
