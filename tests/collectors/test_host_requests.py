"""CPU and memory of pods and nodes, as kube-scheduler counts them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from beds.kubernetes import KubernetesBed, running_kubernetes

from collectors.kubernetes.client import Inventory, KubernetesClient
from collectors.kubernetes.host_requests import allocatable, asked_by_pods, asked_of_host
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.kubernetes.objects import HostRequest
from collectors.shared.collector import Window
from collectors.shared.json_parts import quantity
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.sources import KubernetesSettings

MIB = 1024**2
WINDOW = Window(
    start=datetime(2026, 1, 5, 11, tzinfo=UTC), end=datetime(2026, 1, 5, 12, tzinfo=UTC)
)


def requests(cpu: str = "", memory: str = "", **more: Any) -> dict[str, Any]:
    """A container that requests this."""
    asked = {"cpu": cpu, "memory": memory}
    return {"resources": {"requests": {name: text for name, text in asked.items() if text}}, **more}


def sidecar(cpu: str) -> dict[str, Any]:
    """An init container that goes on beside the others."""
    return requests(cpu, restartPolicy="Always")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2.0), ("2500m", 2.5), (".5", 0.5), ("1.", 1.0), ("100u", 1e-4), ("5n", 5e-9),
        ("1e3", 1e3), ("12E6", 12e6), ("2E", 2e18), ("527Gi", 527 * 1024.0**3), ("1k", 1e3),
        (4, 4.0), ("", None), ("-1", None), ("1Xi", None), ("nan", None), (None, None),
        ("1e999", None),
    ],
)  # fmt: skip
def test_quantities_are_read_as_kubernetes_writes_them(text: object, value: float | None) -> None:
    """Decimal, binary and with an exponent."""
    found = quantity(text)
    assert (None if found is None else float(found)) == value


@pytest.mark.parametrize(
    ("spec", "milli", "mib"),
    [
        ({"containers": [requests("1", "1Gi"), requests("500m", "24Mi")]}, 1500, 1048),
        ({"containers": [{"resources": {"limits": {"cpu": "3"}}}]}, 3000, 0),
        ({"containers": [{}]}, 0, 0),
        # The largest init container, where it needs more than the containers together.
        (
            {"containers": [requests("2")], "initContainers": [requests("5"), requests("3")]},
            5000,
            0,
        ),
        ({"containers": [requests("2")], "initContainers": [requests("1")]}, 2000, 0),
        # A sidecar runs beside the containers, and beside the init containers after it.
        ({"containers": [requests("2")], "initContainers": [sidecar("3"), requests("4")]}, 7000, 0),
        ({"containers": [requests("2")], "initContainers": [requests("4"), sidecar("3")]}, 5000, 0),
        ({"containers": [requests("1")], "initContainers": [sidecar("1"), sidecar("1")]}, 3000, 0),
        # What the pod says stands for its containers; overhead comes on top.
        (
            {"containers": [requests("2", "1Gi")], "resources": {"requests": {"cpu": "6"}}},
            6000,
            1024,
        ),
        ({"containers": [requests("2")], "resources": {"limits": {"cpu": "6"}}}, 2000, 0),
        ({"containers": [{}], "resources": {"limits": {"cpu": "6"}}}, 6000, 0),
        (
            {"containers": [requests("2")], "overhead": {"cpu": "250m", "memory": "120Mi"}},
            2250,
            120,
        ),
    ],
)
def test_pods_request_what_the_scheduler_counts(spec: Any, milli: int, mib: int) -> None:
    """By `PodRequests` of k8s.io/component-helpers."""
    assert asked_of_host(spec) == HostRequest(milli, mib * MIB)


@pytest.mark.parametrize("bad", ["lots", [], {"cpu": "lots"}])
def test_a_request_that_cannot_be_read_is_not_known(bad: object) -> None:
    """Not none, and not that of the other containers."""
    spec = {"containers": [requests("1"), {"resources": {"requests": bad}}]}
    assert asked_of_host(spec) is None


def bound(name: str, cpu: str, *, node: str = "n1", phase: str = "Running", gpus: int = 0) -> Any:
    """A pod on a node."""
    container = {"name": "c", **requests(cpu, "1Gi")}
    if gpus:
        container["resources"]["limits"] = {"nvidia.com/gpu": str(gpus)}
    return {
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": phase},
    }


def node(name: str, **allocatable: str) -> Any:
    """A node of eight boards."""
    return {
        "metadata": {"name": name},
        "status": {"allocatable": {"nvidia.com/gpu": "8", **allocatable}},
    }


class Told(KubernetesClient):
    """A client that was answered already."""

    def __init__(self, found: Inventory) -> None:
        super().__init__(KubernetesSettings(enabled=True))
        self._found = found

    def inventory(self) -> Inventory:
        """Return the objects."""
        return self._found


def collected(*pods: Any, nodes: Any = (), **more: Any) -> Any:
    """What is read of pods and nodes, by default one of 16 CPUs and 64 GiB."""
    nodes = list(nodes) or [node("n1", cpu="16", memory="64Gi")]
    inventory = Inventory(objects={"Node": nodes, "Pod": list(pods)}, **more)
    return KubernetesCollector(Told(inventory), load_gpu_catalogue()).collect(WINDOW)


def test_nodes_tell_what_all_their_pods_leave_and_jobs_what_theirs_request() -> None:
    """Pods with and without GPUs; those that are over or have no node count nowhere."""
    got = collected(
        bound("agent", "500m"),
        bound("train", "4", gpus=2),
        bound("over", "8", phase="Succeeded"),
        bound("waits", "8", node="", phase="Pending"),
    )
    (found,) = got.nodes
    assert (found.free_cpus, found.free_memory_mib) == (11.5, 62 * 1024.0)
    (job,) = got.jobs
    facts = dict(job.scheduler.extra)
    assert (facts["cpus"], facts["memory_mib"]) == ("4", "1024")
    assert got.report.warnings == ()


def test_a_node_over_its_requests_has_nothing_left() -> None:
    """Static pods of a kubelet may be more than it can allocate."""
    (found,) = collected(bound("agent", "20")).nodes
    assert found.free_cpus == 0.0


@pytest.mark.parametrize(
    ("pods", "nodes", "more", "why"),
    [
        ((bound("a", "lots"),), (), {}, "cannot be read"),
        ((), (node("n1", cpu="16"),), {}, "cannot be read"),
        ((), (node("n1", cpu="16", memory="many"),), {}, "cannot be read"),
        ((), (), {"unreadable": 1}, "cannot be read"),
        ((), (), {"namespaces": "ml"}, "kubernetes.namespaces (ml) leaves out pods"),
    ],
)
def test_what_is_left_of_a_node_is_unknown_where_something_cannot_be_read(
    pods: Any, nodes: Any, more: Any, why: str
) -> None:
    """Nothing is assumed, and the source's report says so."""
    got = collected(*pods, nodes=nodes, **more)
    (found,) = got.nodes
    assert (found.free_cpus, found.free_memory_mib) == (None, None)
    (warning,) = got.report.warnings
    assert warning.startswith("plans do not check the CPU and memory of n1: ")
    assert why in warning


def test_a_workload_without_pods_tells_what_its_template_requests() -> None:
    """As many pods as it would make."""
    template = {"spec": {"containers": [bound("p", "3", gpus=1)["spec"]["containers"][0]]}}
    deployment = {
        "metadata": {"name": "web", "namespace": "ml", "uid": "u"},
        "spec": {"replicas": 4, "template": template},
    }
    inventory = Inventory(objects={"Node": [], "Pod": [], "Deployment": [deployment]})
    (job,) = KubernetesCollector(Told(inventory), load_gpu_catalogue()).collect(WINDOW).jobs
    assert dict(job.scheduler.extra)["cpus"] == "12"


@pytest.fixture(scope="module")
def bed() -> Iterator[KubernetesBed]:
    """A cluster whose scheduler is asked."""
    with running_kubernetes() as running:
        yield running


@pytest.mark.kubernetes
@pytest.mark.slow
def test_the_scheduler_binds_what_is_counted_as_fitting(bed: KubernetesBed) -> None:
    """Drawn pods one after another on one node, until several have found no room."""
    bed.add_gpu_node("fit-node", cpus=8)
    rng, verdicts = np.random.default_rng(7), set()
    for number in range(24):
        name, cpu = f"fit-{number}", int(rng.choice([150, 700, 1900, 4000]))
        containers = [
            {"name": "a", "image": "x", **requests(f"{cpu}m", "1Gi")},
            {"name": "b", "image": "x", "resources": {"limits": {"cpu": "100m", "memory": "40M"}}},
        ]
        spec: dict[str, Any] = {"containers": containers}
        if rng.random() < 0.5:
            first = requests(f"{int(rng.choice([200, 2500]))}m", f"{int(rng.choice([1, 400]))}Gi")
            spec["initContainers"] = [{"name": "i", "image": "x", **first}]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        has = allocatable(bed.get("Node", "fit-node"))
        held = asked_by_pods(bed.list("Pod")).get("fit-node", HostRequest())
        asked = asked_of_host(spec)
        assert has is not None
        assert held is not None
        assert asked is not None
        left = has - held
        fits = asked.cpu_milli <= left.cpu_milli and asked.memory_bytes <= left.memory_bytes
        bed.apply(pod)
        bed.until("the scheduler answers", lambda name=name: bool(answer(bed, name)))
        assert answer(bed, name) == ("True" if fits else "False"), (number, asked, left)
        verdicts.add(fits)
        if not fits:
            bed.delete("Pod", name, grace_seconds=0)
    assert verdicts == {True, False}


def answer(bed: KubernetesBed, name: str) -> str:
    """What the scheduler said of a pod: True, False, '' yet."""
    told = bed.get("Pod", name)["status"].get("conditions", ())
    return next((row["status"] for row in told if row["type"] == "PodScheduled"), "")
