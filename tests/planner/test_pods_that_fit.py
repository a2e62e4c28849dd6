"""What is planned for a drawn Kubernetes cluster fits its nodes as the scheduler counts.

The oracle is NodeResourcesFit from its published semantics, over the pods that a plan leads to: on
no node do pods request more GPUs, CPU or memory than it can allocate. Sizes of nodes, DaemonSets,
sidecars and slots vary.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from beds.kubernetes_apply import GPU
from drawn_kubernetes import MODELS, PRODUCTS, Drawn, Listed, owned_by, pod_of, spec_of
from fleet_cases import gpu
from planning_cases import AS_OF, FREE_NODES, SLOT_LENGTHS, case, day_in_slots

from collectors.kubernetes.client import Inventory
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.shared.collector import Window
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.plans import JobPlan, Plan
from planner.advise import advise
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem

GIB = 1024**3
SINCE = (AS_OF - timedelta(days=3)).isoformat()
Amounts = Counter[str]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A workload of `pods` equal pods; `pod` is what one of them requests."""

    job_id: str
    kind: str
    pods: int
    pod: Amounts
    level: float


def requested(spec: Mapping[str, Any]) -> Amounts:
    """What kube-scheduler counts for a pod of the forms that are drawn here."""
    main, first = Counter[str](), Counter[str]()
    for container in spec["containers"]:
        main.update(amounts(container))
    for container in spec.get("initContainers", ()):
        if container.get("restartPolicy") == "Always":
            main.update(amounts(container))
        else:
            first |= amounts(container)
    found = main | first
    for name, value in amounts(spec).items():
        found[name] = value
    found.update(amounts({"resources": {"requests": spec.get("overhead", {})}}))
    return found


def amounts(entry: Mapping[str, Any]) -> Amounts:
    """Requests in milli-CPU, bytes and GPUs; drawn in m, Gi and whole GPUs only."""
    asked = entry.get("resources", {}).get("requests", {})
    found = Counter[str]()
    if "cpu" in asked:
        found["cpu"] = int(asked["cpu"].removesuffix("m"))
    if "memory" in asked:
        found["memory"] = int(asked["memory"].removesuffix("Gi")) * GIB
    if GPU in asked:
        found[GPU] = int(asked[GPU])
    return found


def host(cpu: int, memory: int) -> dict[str, Any]:
    """Resources of a container without GPUs: milli-CPU and GiB."""
    return {"requests": {"cpu": f"{cpu}m", "memory": f"{memory}Gi"}}


def add_node(drawn: Drawn, name: str, model: str, cpu: int, memory: int) -> None:
    """Add a node of eight boards that can allocate so many milli-CPU and GiB."""
    labels = {"nvidia.com/gpu.product": PRODUCTS[model], "kubernetes.io/hostname": name}
    node = drawn.add("Node", name, {}, labels=labels)
    del node["metadata"]["namespace"]
    node["status"] = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "capacity": {GPU: "8", "cpu": "512", "memory": "4000Gi"},
        "allocatable": {GPU: "8", "cpu": f"{cpu}m", "memory": f"{memory}Gi"},
    }


def add_pod(drawn: Drawn, name: str, spec: dict[str, Any], node: str, **about: Any) -> None:
    """Add a running pod."""
    pod = drawn.add("Pod", name, {**spec, "nodeName": node}, **about)
    pod["status"] = {"phase": "Running", "startTime": SINCE}


def pod_with_host(rng: np.random.Generator, gpus: int, model: str) -> dict[str, Any]:
    """A pod of one GPU container with CPU and memory, of some with what runs beside or before."""
    spec = pod_of(gpus, 1, PRODUCTS[model])
    asked = spec["containers"][0]["resources"]["requests"]
    each = int(rng.choice([1, 4, 8, 12, 16]))
    asked |= {"cpu": f"{each * gpus * 1000}m", "memory": f"{int(rng.choice([8, 60])) * gpus}Gi"}
    if rng.random() < 0.3:
        spec["containers"].append({"name": "logs", "resources": host(500, 1)})
    if rng.random() < 0.3:
        beside = {"name": "mesh", "restartPolicy": "Always", "resources": host(2000, 2)}
        spec["initContainers"] = [beside]
    elif rng.random() < 0.3:
        spec["initContainers"] = [{"name": "fetch", "resources": host(16_000, 4)}]
    if rng.random() < 0.15:
        spec["overhead"] = {"cpu": "250m", "memory": "1Gi"}
    return spec


def drawn_fleet(seed: int) -> tuple[Drawn, list[Workload]]:
    """Six nodes of two models, DaemonSets of any size on them, workloads that now fit."""
    rng, drawn, workloads = np.random.default_rng(seed), Drawn(), list[Workload]()
    left: dict[str, Amounts] = {}
    models = {f"node-{number}": MODELS[number % 2 * 2] for number in range(6)}
    for name, model in models.items():
        cpu = int(rng.choice([32, 64, 96, 192])) * 1000 - 110
        memory = int(rng.choice([250, 500, 1000]))
        add_node(drawn, name, model, cpu, memory)
        daemon = {"containers": [{"name": "agent", "resources": host(
            int(rng.choice([100, 2000, 12_000, 24_000])), int(rng.choice([1, 32])))}]}  # fmt: skip
        add_pod(drawn, f"agent-{name}", daemon, name)
        left[name] = Counter({GPU: 8, "cpu": cpu, "memory": memory * GIB}) - requested(daemon)
    boards = dict.fromkeys(models, 0)
    for number in range(14):
        kind = str(rng.choice(["Deployment", "StatefulSet", "PyTorchJob"]))
        count, each = int(rng.choice([1, 1, 2, 4])), int(rng.choice([1, 2, 4]))
        model = str(rng.choice(list(dict.fromkeys(models.values()))))
        spec, name = pod_with_host(rng, each, model), f"w{number}"
        pod, homes, trial = requested(spec), [], {at: Counter(has) for at, has in left.items()}
        for _ in range(count):
            node = next((at for at, has in trial.items() if models[at] == model and pod <= has), "")
            if node:
                trial[node] -= pod
                homes.append(node)
        if len(homes) < count:
            continue
        left = trial
        add_workload(drawn, (kind, name), spec, homes)
        job_id = f"ml/{kind.lower()}/{name}"
        for node in homes:
            drawn.boards += [gpu(node, boards[node] + at, model, job_id) for at in range(each)]
            boards[node] += each
        level = float(rng.choice([0.05, 0.1, 0.2, 0.4, 0.8]))
        workloads.append(Workload(job_id=job_id, kind=kind, pods=count, pod=pod, level=level))
    for name, model in models.items():
        drawn.boards += [gpu(name, at, model) for at in range(boards[name], 8)]
    return drawn, workloads


def add_workload(
    drawn: Drawn, what: tuple[str, str], spec: dict[str, Any], homes: Sequence[str]
) -> None:
    """Add a workload with a pod on each of the nodes."""
    kind, name = what
    above = top = drawn.add(kind, name, spec_of(kind, len(homes), spec, elastic=True))
    if kind == "Deployment":
        above = drawn.add(
            "ReplicaSet", f"{name}-1", {"selector": {}}, ownerReferences=owned_by(top)
        )
    for number, node in enumerate(homes):
        add_pod(drawn, f"{name}-{number}", spec, node, ownerReferences=owned_by(above))


def planned(
    drawn: Drawn, workloads: Sequence[Workload], slot_minutes: int
) -> tuple[PlanningProblem, Plan]:
    """The plan of what the collector reads."""
    collector = KubernetesCollector(Listed(Inventory(objects=drawn.objects)), load_gpu_catalogue())
    found = collector.collect(Window(start=AS_OF - timedelta(hours=1), end=AS_OF))
    assert found.report.warnings == ()
    levels = {entry.job_id: entry.level for entry in workloads}
    told = [(job, levels[job.job_id], 8_000.0, 300.0 * job.gpu_count) for job in found.jobs]
    problem = case(
        *told, gpus=drawn.boards, nodes=found.nodes, planning=day_in_slots(slot_minutes),
        rules=FREE_NODES,
    )  # fmt: skip
    return problem, build_plan(problem, budget_seconds=30, created_at=AS_OF)


def pods_on(workload: Workload, job: JobPlan, slot: int) -> Iterator[tuple[str, Amounts]]:
    """Yield (node, requests) of a workload's pods in a slot, as another number of pods or GPUs."""
    configuration = job.steps[slot]
    each = workload.pod[GPU]
    if configuration.gpu_count % each or configuration.gpu_model != job.now.gpu_model:
        each = configuration.gpu_count // workload.pods
    pod = workload.pod | Counter()
    pod[GPU] = each
    for stay in job.stays:
        if stay.start <= slot < stay.end:
            assert stay.gpus % each == 0
            for _ in range(stay.gpus // each):
                yield stay.node, pod


def over(drawn: Drawn, workloads: Sequence[Workload], plan: Plan) -> list[str]:
    """What does not fit: node, slot, resource."""
    known = {entry.job_id: entry for entry in workloads}
    has = {
        node["metadata"]["name"]: amounts(
            {"resources": {"requests": node["status"]["allocatable"]}}
        )
        for node in drawn.objects["Node"]
    }
    others = defaultdict[str, Amounts](Counter)
    for pod in drawn.objects["Pod"]:
        if "ownerReferences" not in pod["metadata"]:
            others[pod["spec"]["nodeName"]] += requested(pod["spec"])
    found = []
    edges = {stay.start for job in plan.jobs for stay in job.stays} | {0}
    for slot in sorted(edges):
        used = {name: Counter(others[name]) for name in has}
        for job in plan.jobs:
            for node, pod in pods_on(known[job.job_id], job, slot):
                used[node] += pod
        found += [
            f"slot {slot}: {name} has {has[name][what]} {what}, its pods ask for {amount}"
            for name, asked in used.items()
            for what, amount in asked.items()
            if amount > has[name][what]
        ]
    return found


@pytest.mark.parametrize(
    ("slot_minutes", "seed"), [(length, seed) for length in SLOT_LENGTHS for seed in range(4)]
)
def test_planned_pods_fit_their_nodes(slot_minutes: int, seed: int) -> None:
    """GPUs, CPU and memory, in every slot, and no job of now loses its place."""
    drawn, workloads = drawn_fleet(100 * slot_minutes + seed)
    _problem, plan = planned(drawn, workloads, slot_minutes)
    assert over(drawn, workloads, plan) == []
    assert not [job.job_id for job in plan.jobs if job.unplaced]
    assert not plan.violations


def left_on_nodes(drawn: Drawn) -> dict[str, Amounts]:
    """What every node has left now."""
    left = {
        row["metadata"]["name"]: amounts({"resources": {"requests": row["status"]["allocatable"]}})
        for row in drawn.objects["Node"]
    }
    for pod in drawn.objects["Pod"]:
        left[pod["spec"]["nodeName"]].subtract(requested(pod["spec"]))
    return left


def binds(left: Mapping[str, Amounts], nodes: Sequence[str], pods: int, pod: Amounts) -> bool:
    """Whether pods find nodes one after another, in the order of the nodes."""
    left = {name: Counter(left[name]) for name in nodes}
    for _ in range(pods):
        found = next((n for n in nodes if all(left[n][what] >= pod[what] for what in pod)), None)
        if found is None:
            return False
        left[found].subtract(pod)
    return True


@pytest.mark.parametrize(
    ("slot_minutes", "seed"), [(length, seed) for length in SLOT_LENGTHS for seed in range(4)]
)
def test_no_pods_are_recommended_onto_boards_without_cpus(slot_minutes: int, seed: int) -> None:
    """Of a change to another model: where boards are free for its pods, so is the rest."""
    drawn, workloads = drawn_fleet(100 * slot_minutes + seed)
    problem, plan = planned(drawn, workloads, slot_minutes)
    known = {entry.job_id: entry for entry in workloads}
    left = left_on_nodes(drawn)
    for advice in advise(plan, problem).recommendations:
        model = advice.proposed.gpu_model
        if not advice.job_id or model == advice.now.gpu_model:
            continue
        told = known[advice.job_id]
        pod = told.pod | Counter()
        pod[GPU] = advice.proposed.gpu_count // told.pods
        nodes = [node.name for node in problem.facts.nodes if node.gpu_model == model]
        boards_alone = binds(left, nodes, told.pods, Counter({GPU: pod[GPU]}))
        # What others give up first frees CPUs as it frees boards.
        alone = not any(advice.applied_first)
        assert not (boards_alone and alone) or binds(left, nodes, told.pods, pod), advice.summary
