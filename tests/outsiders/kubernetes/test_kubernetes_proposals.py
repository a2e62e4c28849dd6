"""What two cycles propose for drawn workloads of a real Kubernetes API can be made."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.kubernetes import KubernetesBed, running_kubernetes
from beds.kubernetes_apply import (
    APPLIER_MANIFEST,
    account_kubeconfig,
    bind_cordon,
    bind_in,
    settings_of,
)
from outsiders.campaign import SEED, scenario_count, source_of
from outsiders.kubernetes.scenarios import GPU, NAME, PRODUCT, Scenario, draw, workload
from outsiders.proposals import CYCLES, Fleet, OlderJobs, Proposals, readings
from reliability import Measured

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.jobs import KubernetesCollector
from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.all_settings import Settings
from data.settings.sources import KubernetesSettings
from data.store import open_store

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.slow_end]
PRODUCTS = {
    "H100-SXM5-80GB": "NVIDIA-H100-80GB-HBM3",
    "A100-SXM4-80GB": "NVIDIA-A100-SXM4-80GB",
    "L40S-48GB": "NVIDIA-L40S",
}
NODES = {f"node-{number}": list(PRODUCTS)[number % 3] for number in range(5)}
BOARDS = 8
KINDS = ("Deployment", "StatefulSet", "Job", "Pod")
WORKLOADS = (3, 5, 7)
CLOSED = (0, 0, 0, 1, 3)
"""Nodes that take no further pods, so that some wait on what is left."""


@pytest.fixture(scope="module")
def bed() -> Iterator[KubernetesBed]:
    """One cluster with nodes of three models."""
    with running_kubernetes() as running:
        running.apply(APPLIER_MANIFEST.read_text(encoding="utf-8"))
        bind_cordon(running)
        running.api_versions |= {"ResourceQuota": "v1", "LimitRange": "v1"}
        for name, model in NODES.items():
            running.add_gpu_node(name, gpus=BOARDS, product=PRODUCTS[model])
            running.patch("Node", name, {"metadata": {"labels": {"bed/at": name}}})
        yield running


def drawn(source: random.Random) -> Scenario:
    """Return a workload whose pods hold whole boards."""
    while True:
        scenario = draw(source)
        if scenario.kind in KINDS and scenario.resource == GPU and not scenario.paused:
            return scenario


def document(scenario: Scenario, namespace: str, source: random.Random) -> dict[str, Any]:
    """Return the object: bound to a model, to a node, or to nothing."""
    node = source.choice(sorted(NODES))
    found = workload(scenario, namespace)
    spec = found["spec"]
    pod = spec["template"]["spec"] if "template" in spec else spec
    pod.pop("affinity", None)
    bound: list[dict[str, str]] = [{PRODUCT: PRODUCTS[NODES[node]]}] * 3
    pod["nodeSelector"] = source.choice([*bound, {"bed/at": node}, {}])
    return found


def held_boards(bed: KubernetesBed) -> dict[tuple[str, int], str]:
    """Return the pod of every board, as a device plugin would give them out."""
    free = {name: list(range(BOARDS)) for name in NODES}
    boards = {(name, index): "" for name, left in free.items() for index in left}
    for pod in bed.list("Pod"):
        meta, spec = pod["metadata"], pod["spec"]
        if pod["status"].get("phase") != "Running" or spec.get("nodeName") not in free:
            continue
        # An init container's devices are those that a later container gets.
        counts = (
            sum(int(entry.get("resources", {}).get("limits", {}).get(GPU, 0)) for entry in listed)
            for listed in (spec["containers"], spec.get("initContainers", []))
        )
        for _ in range(max(counts)):
            boards[spec["nodeName"], free[spec["nodeName"]].pop(0)] = (
                f"{meta['namespace']}/{meta['name']}"
            )
    return boards


def judge_fleet(bed: KubernetesBed, number: int, folder: Path, proposals: Proposals) -> None:
    """Fill the cluster, run two cycles, apply what each proposes, and clear."""
    source = source_of("kubernetes proposals", number)
    made = []
    nodes = source_of("kubernetes nodes", number)
    for name in nodes.sample(sorted(NODES), nodes.choice(CLOSED)):
        bed.patch("Node", name, {"spec": {"unschedulable": True}})
    for index in range(source.choice(WORKLOADS)):
        namespace = f"f{number}-{index}"
        bind_in(bed, namespace)
        scenario = drawn(source)
        one = document(scenario, namespace, source)
        bed.apply(one)
        made.append((scenario, namespace))
        if scenario.limits == "quota":
            hard = {f"requests.{GPU}": str(scenario.replicas * scenario.gpus)}
            about = {"name": NAME, "namespace": namespace}
            bed.apply(
                {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": about,
                 "spec": {"hard": hard}}
            )  # fmt: skip
    bed.until("pods run or wait", lambda: all(settled(bed, *group) for group in made), seconds=240)
    readers = KubernetesSettings(enabled=True, kubeconfig=str(bed.kubeconfig("admin")))
    with open_store(f"duckdb:///{folder}/proposals.duckdb") as store:
        fleet = Fleet(
            store=store,
            collector=OlderJobs(
                KubernetesCollector(KubernetesClient(readers), load_gpu_catalogue())
            ),
            applier=KubernetesApplier(settings_of(account_kubeconfig(bed, "trimtab-applier"))),
            settings=Settings(),
            folder=folder,
            slot_minutes=source.choice((15, 30, 60)),
        )
        for cycle in CYCLES:
            samples = readings(held_boards(bed), NODES, source, fleet.now())
            outcomes = fleet.apply(fleet.cycle(samples))
            proposals.judge(cycle, f"seed {SEED}, fleet {number}", outcomes)
    for scenario, namespace in made:
        for kind in dict.fromkeys((scenario.kind, "ReplicaSet", "Job", "Pod")):
            path = bed.path(kind, namespace)
            bed.answer("DELETE", path, params={"gracePeriodSeconds": 0})
    bed.until("no pod is left", lambda: emptied(bed), seconds=240)
    for name in NODES:  # no fleet is left with the nodes that another has emptied
        bed.patch("Node", name, {"spec": {"unschedulable": False}})


def emptied(bed: KubernetesBed) -> bool:
    """Return whether no pod is left anywhere; delete those that are, and what makes them.

    A controller may make one more ReplicaSet, Job or pod of an object that was just deleted, also
    of a fleet before.
    """
    namespaces = sorted({pod["metadata"]["namespace"] for pod in bed.list("Pod")})
    for namespace in namespaces:
        for kind in ("ReplicaSet", "Job", "Pod"):
            bed.answer("DELETE", bed.path(kind, namespace), params={"gracePeriodSeconds": 0})
    return not namespaces


def settled(bed: KubernetesBed, scenario: Scenario, namespace: str) -> bool:
    """Return whether every pod of a workload runs, or the scheduler has said why it does not."""
    pods = bed.list("Pod", namespace=namespace)
    looked = [
        pod["status"].get("phase") == "Running" or bool(pod["status"].get("conditions"))
        for pod in pods
    ]
    waits = any(pod["status"].get("phase") != "Running" for pod in pods)
    return all(looked) and (waits or len(pods) >= scenario.replicas or scenario.kind == "Pod")


def test_what_is_proposed_can_be_made(
    bed: KubernetesBed, tmp_path: Path, measured: Measured
) -> None:
    """97 % of the money of either cycle, on a real API server; what is not made is named."""
    proposals = Proposals()
    count = scenario_count(12)
    for number in range(count):
        folder = tmp_path / str(number)
        folder.mkdir()
        judge_fleet(bed, number, folder, proposals)
    line = f"kubernetes proposals: {count} fleets, {proposals}, seed {SEED}"
    print("\n".join((line, *proposals.failures)))  # noqa: T201 shown by `make test-all`
    measured(line)
    proposals.require_made(count)
