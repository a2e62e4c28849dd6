"""How long pods took to be ready, from a real API's conditions to what a forecast leads by."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.kubernetes import KubernetesBed, running_kubernetes

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.kubernetes.objects import read_pod
from collectors.shared.collector import Window
from collectors.shared.json_parts import time_in
from data.catalogue.gpu_catalogue import GpuCatalogue, load_gpu_catalogue
from data.facts.collected import Collected
from data.settings.sources import KubernetesSettings
from data.store import open_store

PROBE = {"httpGet": {"path": "/health", "port": 8000}}
SERVICES = {
    "chat": PROBE,
    "no-probe": None,
    "restarted": PROBE,
    "flapped": PROBE,
    "loading": PROBE,
}
CHAT_SECONDS = (181.0, 240.0)
KEY = "sk-a-secret"


def deployment(name: str, probe: dict[str, Any] | None, replicas: int) -> dict[str, Any]:
    """Pods of one GPU and a sidecar without; the engine's container has the probe."""
    engine = {
        "name": "engine",
        "image": "example/vllm:1",
        "args": ["--model", "Qwen/Qwen2.5-7B-Instruct", "--max-model-len=8192", "--api-key", KEY],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    pod = {
        "metadata": {"labels": {"app": name}},
        "spec": {
            "containers": [
                engine | ({"readinessProbe": probe} if probe else {}),
                {"name": "proxy", "image": "example/proxy:1"},
            ]
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "search"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": pod,
        },
    }


def of(bed: KubernetesBed, name: str) -> list[dict[str, Any]]:
    """The pods of a Deployment, by name."""
    pods = [pod for pod in bed.pods() if pod["metadata"]["labels"].get("app") == name]
    return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))


def ready_after(
    bed: KubernetesBed, pod: dict[str, Any], seconds: float | None, **more: Any
) -> None:
    """Let the pod be ready so long after the scheduler bound it, None: it is not yet."""
    conditions = {entry["type"]: entry for entry in pod["status"]["conditions"]}
    bound = time_in(conditions["PodScheduled"], "lastTransitionTime")
    assert bound is not None
    at = bound + timedelta(seconds=seconds or 0)
    conditions["Ready"] = {
        "type": "Ready",
        "status": "False" if seconds is None else "True",
        "lastTransitionTime": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    status = {"conditions": list(conditions.values()), **more}
    bed.patch_status("Pod", pod["metadata"]["name"], status, namespace="search")


@pytest.fixture(scope="module")
def bed() -> Iterator[KubernetesBed]:
    """A cluster that runs the services; their pods were ready when the test says."""
    with running_kubernetes() as running:
        running.add_gpu_node("gpu-node-1", gpus=8)
        running.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "search"}})
        for name, probe in SERVICES.items():
            running.apply(deployment(name, probe, replicas=2 if name == "chat" else 1))
        running.until(
            "all pods run",
            lambda: [pod["status"]["phase"] for pod in running.pods()] == ["Running"] * 6,
        )
        for pod, seconds in zip(of(running, "chat"), CHAT_SECONDS, strict=True):
            ready_after(running, pod, seconds)
        for name, after in (("no-probe", 3.0), ("flapped", 86_400.0), ("loading", None)):
            ready_after(running, of(running, name)[0], after)
        (restarted,) = of(running, "restarted")
        statuses = [
            entry | {"restartCount": 1} for entry in restarted["status"]["containerStatuses"]
        ]
        ready_after(running, restarted, 200.0, containerStatuses=statuses)
        yield running


def read(bed: KubernetesBed, catalogue: GpuCatalogue | None = None) -> Collected:
    """What the collector gives of the last hour."""
    settings = KubernetesSettings(enabled=True, kubeconfig=str(bed.kubeconfig("reader")))
    collector = KubernetesCollector(KubernetesClient(settings), catalogue or load_gpu_catalogue())
    now = datetime.now(tz=UTC)
    return collector.collect(Window(start=now - timedelta(hours=1), end=now))


@pytest.mark.kubernetes
def test_a_pod_tells_its_start_where_ready_means_that_it_serves(bed: KubernetesBed) -> None:
    """No probe, a restart, a day, and not ready yet: unknown, never a short or a long start."""
    held = read(bed).allocations
    told = held[~held["label_id"].str.startswith("pod-uid:")]
    found = {
        str(job).rpartition("/")[2]: sorted(rows["start_seconds"].dropna())
        for job, rows in told.groupby("job_id")
    }
    assert found == {name: list(CHAT_SECONDS if name == "chat" else ()) for name in SERVICES}
    (runs,) = set(told["runs"])
    assert runs.endswith(" NVIDIA-H100-80GB-HBM3")
    assert KEY not in runs
    # A name that the catalogue learns later is no change of what a pod runs.
    assert set(read(bed, GpuCatalogue(())).allocations["runs"]) == {runs}


@pytest.mark.kubernetes
def test_the_engine_of_a_template_is_read_without_its_secrets(bed: KubernetesBed) -> None:
    """As its Deployment says it, with the entrypoint of its image."""
    found = {dict(job.scheduler.extra).get("engine_command") for job in read(bed).jobs
             if job.scheduler is not None}  # fmt: skip
    assert found == {"vllm serve --model Qwen/Qwen2.5-7B-Instruct --max-model-len 8192"}


@pytest.mark.kubernetes
def test_each_pod_counts_once_and_a_later_ready_does_not_lengthen_it(
    bed: KubernetesBed, tmp_path: Path
) -> None:
    """Read again after its readiness failed for a while: the first time stays."""
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        store.keep(read(bed))
        slow = of(bed, "chat")[0]
        ready_after(bed, slow, 3000.0)
        store.keep(read(bed))
        ready_after(bed, slow, CHAT_SECONDS[0])
        now = datetime.now(tz=UTC)
        starts = store.reader.replica_starts(start=now - timedelta(days=1), end=now)
    assert set(starts["job_id"]) == {"search/deployment/chat"}
    assert set(starts["source"]) == {"pods"}
    assert sorted(starts["seconds"]) == list(CHAT_SECONDS)


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"image": "example/vllm:2"}, True),
        ({"args": ["--model", "Qwen/Qwen2.5-7B-Instruct", "--max-num-seqs", "8"]}, True),
        ({"command": ["vllm", "serve"]}, True),
        ({"resources": {"limits": {"nvidia.com/gpu": "2"}}}, True),
        ({"readinessProbe": PROBE, "env": [{"name": "LOG", "value": "debug"}]}, False),
    ],
)
def test_what_a_pod_runs_is_its_image_command_and_gpus(
    change: dict[str, Any], *, differs: bool
) -> None:
    """Of the container with GPUs: a sidecar, a probe and a log level change no model."""
    runs = []
    for entry in ({}, change):
        spec = deployment("chat", None, 1)["spec"]["template"]["spec"]
        spec["containers"][0] |= entry
        spec["containers"][1]["image"] = f"example/proxy:{len(runs)}"
        pod = read_pod({"metadata": {"name": "a", "namespace": "b"}, "spec": spec, "status": {}})
        assert pod is not None
        runs.append(pod.runs)
    assert (runs[0] != runs[1]) is differs
    assert KEY not in runs[0]


def test_a_gpu_pod_without_conditions_tells_no_start() -> None:
    """Nor one whose clock ran backwards: both are read as any other pod."""
    times = [("PodScheduled", "2026-01-05T09:00:00Z"), ("Ready", "2026-01-05T08:59:00Z")]
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": at} for kind, at in times]
    spec = deployment("chat", PROBE, 1)["spec"]["template"]["spec"]
    for status in ({}, {"conditions": conditions}, {"conditions": "none"}):
        pod = read_pod(
            {"metadata": {"name": "a", "namespace": "b"}, "spec": spec, "status": status}
        )
        assert pod is not None
        assert pod.start_seconds is None
