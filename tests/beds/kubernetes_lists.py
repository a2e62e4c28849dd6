"""A Kubernetes API that answers given lists, and the objects in them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from beds.kubernetes_replay import kubeconfig
from beds.slurm_replay import answering

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.shared.collector import Window
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.jobs import Job, SchedulerFacts
from data.settings.sources import KubernetesSettings

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WINDOW = Window(start=NOW - timedelta(hours=2), end=NOW)
STARTED = "2026-03-01T11:00:00Z"
PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
JOBS, SETS = "/apis/batch/v1/jobs", "/apis/apps/v1/statefulsets"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
TEMPLATES = "/apis/resource.k8s.io/v1/resourceclaimtemplates"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
GPU = "nvidia.com/gpu"

Lists = dict[str, list[dict[str, Any]]]


@contextmanager
def served(lists: Lists, folder: Path, *refused: str, **more: Any) -> Iterator[KubernetesSettings]:
    """Settings of an API that answers these lists by path, refuses some, and knows no others."""
    known = {NODES: [node("n1")], PODS: []} | lists

    def answer(asked: str) -> tuple[int, bytes]:
        path = asked.partition("?")[0]
        if path in refused:
            return 403, b'{"kind": "Status", "message": "forbidden", "code": 403}'
        if path not in known:
            return 404, b"404 page not found"
        return 200, json.dumps({"items": known[path], "metadata": {}}).encode()

    with answering(answer) as url:
        path = kubeconfig(folder / "kubeconfig", url)
        yield KubernetesSettings(enabled=True, kubeconfig=str(path), **more)


def told(lists: Lists, folder: Path, *refused: str, **more: Any) -> Collected:
    """What the collector tells of the two hours."""
    with served(lists, folder, *refused, **more) as settings:
        collector = KubernetesCollector(KubernetesClient(settings), load_gpu_catalogue())
        return collector.collect(WINDOW)


def only(found: Collected) -> Job:
    """The only job."""
    (job,) = found.jobs
    return job


def facts(found: Collected) -> SchedulerFacts:
    """What the scheduler says of the only job."""
    known = only(found).scheduler
    assert known is not None
    return known


def node(name: str, gpus: str = "8", memory: str = "81000") -> dict[str, Any]:
    """A ready node with H100 boards."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": memory}
    capacity = {"cpu": "64", "memory": "512Gi", GPU: gpus}
    ready = {"type": "Ready", "status": "True"}
    status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def thing(kind: str, name: str, spec: Any = None, status: Any = None, **about: Any) -> Any:
    """An object of the namespace ml."""
    meta = {"name": name, "namespace": "ml", "uid": f"{kind}-{name}", "creationTimestamp": STARTED}
    return {"metadata": meta | about, "spec": spec or {}, "status": status or {}}


def pod(name: str, owner: str = "", *, at: str = "n1", limits: Any = None, **status: Any) -> Any:
    """A running pod with two boards; `owner` is `version/kind/name`."""
    container = {"name": "main", "resources": {"limits": {GPU: "2"} if limits is None else limits}}
    about: dict[str, Any] = {}
    if owner:
        version, kind, above = owner.rsplit("/", 2)
        reference = {"apiVersion": version, "kind": kind, "name": above, "controller": True}
        about["ownerReferences"] = [reference]
    running = {"phase": "Running", "startTime": STARTED}
    spec = {"containers": [container]} | ({"nodeName": at} if at else {})
    return thing("Pod", name, spec, running | status, **about)


def over(phase: str, at: str) -> dict[str, Any]:
    """The status of a pod that ended."""
    terminated = {"finishedAt": f"2026-03-01T{at}:00Z"}
    return {"phase": phase, "containerStatuses": [{"state": {"terminated": terminated}}]}


def template(gpus: str = "4") -> dict[str, Any]:
    """A pod template."""
    return {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: gpus}}}]}}


SET = "apps/v1/StatefulSet/s"
TRAIN = "batch/v1/Job/train"
