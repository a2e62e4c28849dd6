"""The Kubernetes test bed: real API, controllers and scheduler; only the kubelets are fake."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from beds.kubernetes import KubernetesBed, running_kubernetes
from beds.kubernetes_kubelet import EXIT_AFTER
from beds.kubernetes_servers import program_folder

from collectors.kubernetes.kinds import KINDS

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]


@pytest.fixture(scope="module")
def bed() -> Iterator[KubernetesBed]:
    """One cluster with a node of eight GPUs, for all tests: each has a namespace of its own."""
    with running_kubernetes() as running:
        running.add_gpu_node("gpu-node-1", gpus=8)
        yield running


def pod_spec(gpus: int, *, resource: str = "nvidia.com/gpu") -> dict[str, Any]:
    """A pod of one container that asks for GPUs."""
    quantity = {resource: str(gpus)}
    return {
        "containers": [
            {
                "name": "main",
                "image": "example/train:1",
                "resources": {"limits": quantity, "requests": quantity},
            }
        ]
    }


def pod(name: str, gpus: int, **annotations: str) -> dict[str, Any]:
    """A pod that never starts anew, in the default namespace."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"restartPolicy": "Never", **pod_spec(gpus)},
    }


def phases(bed: KubernetesBed, namespace: str) -> list[str]:
    """The phases of a namespace's pods."""
    return sorted(entry["status"]["phase"] for entry in bed.list("Pod", namespace=namespace))


def make_deployment(bed: KubernetesBed, namespace: str, *, replicas: int) -> None:
    """A Deployment named serve, one GPU each, in a namespace that is made."""
    labels = {"app": namespace}
    bed.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "serve", "namespace": namespace},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod_spec(1)},
            },
        },
    )


def test_a_deployment_becomes_running_pods_on_the_gpu_node(bed: KubernetesBed) -> None:
    """The controllers make the pods, the scheduler places them, and they count as ready."""
    make_deployment(bed, "team-a", replicas=2)
    bed.until("two pods run", lambda: phases(bed, "team-a") == ["Running", "Running"])
    for entry in bed.list("Pod", namespace="team-a"):
        assert entry["spec"]["nodeName"] == "gpu-node-1"
        assert entry["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"
        assert entry["status"]["startTime"]
        assert entry["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    bed.until(
        "the Deployment is ready",
        lambda: (
            bed.get("Deployment", "serve", namespace="team-a")["status"].get("readyReplicas") == 2
        ),
    )


def test_a_smaller_deployment_gives_its_pods_back(bed: KubernetesBed) -> None:
    """A pod that is deleted goes, although no kubelet runs that would confirm it."""
    make_deployment(bed, "team-b", replicas=2)
    bed.until("two pods run", lambda: phases(bed, "team-b") == ["Running", "Running"])
    bed.patch("Deployment", "serve", {"spec": {"replicas": 0}}, namespace="team-b")
    bed.until("no pod is left", lambda: phases(bed, "team-b") == [])


def test_a_pod_that_asks_too_much_stays_pending_with_the_reason(bed: KubernetesBed) -> None:
    """The words are the scheduler's own."""
    bed.apply(pod("too-big", 9))

    def unscheduled() -> list[dict[str, Any]]:
        conditions = bed.get("Pod", "too-big")["status"].get("conditions", [])
        return [entry for entry in conditions if entry["type"] == "PodScheduled"]

    bed.until("the scheduler has said why", lambda: unscheduled() != [])
    (condition,) = unscheduled()
    assert condition["reason"] == "Unschedulable"
    assert "Insufficient nvidia.com/gpu" in condition["message"]
    assert bed.get("Pod", "too-big")["status"]["phase"] == "Pending"


def test_a_job_completes_when_its_pod_exits(bed: KubernetesBed) -> None:
    """The Job's controller believes the pods' end."""
    template = {
        "metadata": {"annotations": {EXIT_AFTER: "0.5"}},
        "spec": {"restartPolicy": "Never", **pod_spec(1)},
    }
    bed.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "train"},
            "spec": {"template": template},
        }
    )
    bed.until("it completes", lambda: bed.get("Job", "train")["status"].get("succeeded") == 1)
    assert bed.get("Job", "train")["status"]["completionTime"]


def test_mig_slices_are_scheduled_and_an_unschedulable_node_is_left_out(
    bed: KubernetesBed,
) -> None:
    """A slice goes to the node that has one, and not to the cordoned node that has one too."""
    bed.add_gpu_node("mig-closed", gpus=0, mig={"3g.40gb": 4}, unschedulable=True)
    bed.add_gpu_node("mig-open", gpus=0, mig={"3g.40gb": 1}, product="NVIDIA-A100-MIG-3g.40gb")
    slice_pod = pod("slice", 1)
    slice_pod["spec"] |= pod_spec(1, resource="nvidia.com/mig-3g.40gb")
    bed.apply(slice_pod)
    bed.until("it runs", lambda: bed.get("Pod", "slice")["status"]["phase"] == "Running")
    assert bed.get("Pod", "slice")["spec"]["nodeName"] == "mig-open"
    assert bed.get("Node", "mig-open")["status"]["allocatable"]["nvidia.com/mig-3g.40gb"] == "1"


def test_custom_resources_are_served_and_patched(bed: KubernetesBed) -> None:
    """A definition is waited for; objects of it can be made at once, twice, and read back."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {"kind": "PyTorchJob", "plural": "pytorchjobs", "singular": "pytorchjob"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "pytorchjobs.kubeflow.org"},
        "spec": {
            "group": "kubeflow.org",
            "names": names,
            "scope": "Namespaced",
            "versions": [version],
        },
    }
    job = (
        "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: llm}, spec: {workers: 4}}"
    )
    bed.apply(definition)
    bed.apply(job)
    bed.apply(job.replace("4", "2"))
    bed.patch_status("PyTorchJob", "llm", {"phase": "Running"})
    (read,) = bed.ask("GET", bed.path("PyTorchJob"), user="reader")["items"]
    assert read["spec"] == {"workers": 2}
    assert read["status"] == {"phase": "Running"}


def test_the_reader_may_list_all_that_the_collector_reads(bed: KubernetesBed) -> None:
    """The role of deploy/kubernetes-reader.yaml suffices; a user without it gets nothing.

    Rights are asked before a path is looked up: a kind that this API lacks answers 404, not 403.
    """
    told = (requests.codes.ok, requests.codes.not_found)
    for path in (path for paths in KINDS.values() for path in paths):
        assert bed.answer("GET", path, user="reader").status_code in told, path
        assert bed.answer("GET", path, user="nobody").status_code == requests.codes.forbidden, path


@pytest.mark.parametrize("path", ["api/v1/secrets", "api/v1/configmaps", "api/v1/events"])
def test_the_reader_sees_nothing_else(bed: KubernetesBed, path: str) -> None:
    """Least privilege: no secrets, and nothing that a GPU observer does not read."""
    assert bed.answer("GET", path, user="reader").status_code == requests.codes.forbidden


def test_the_reader_may_not_change_anything(bed: KubernetesBed) -> None:
    """The same request changes the node when the admin makes it."""
    request = {
        "json": {"metadata": {"labels": {"touched": "yes"}}},
        "headers": {"Content-Type": "application/merge-patch+json"},
    }
    refused = bed.answer("PATCH", "api/v1/nodes/gpu-node-1", user="reader", **request)
    assert refused.status_code == requests.codes.forbidden
    assert "touched" not in bed.get("Node", "gpu-node-1")["metadata"]["labels"]
    assert bed.answer("PATCH", "api/v1/nodes/gpu-node-1", user="admin", **request).ok
    watched = bed.answer("GET", "api/v1/pods?watch=true&timeoutSeconds=1", user="reader")
    assert watched.status_code == requests.codes.forbidden


def test_a_kubeconfig_signs_its_user_in(bed: KubernetesBed) -> None:
    """Server, certificate and token of the file are enough to be somebody."""
    document = yaml.safe_load(bed.kubeconfig("reader").read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    answer = requests.get(
        f"{cluster['server']}/api/v1/nodes",
        headers={"Authorization": f"Bearer {user['token']}"},
        verify=cluster["certificate-authority"],
        timeout=30,
    )
    assert "gpu-node-1" in [item["metadata"]["name"] for item in answer.json()["items"]]


def test_a_wait_that_fails_shows_what_the_servers_wrote(bed: KubernetesBed) -> None:
    """Who reads the failure needs no second run."""
    with pytest.raises(AssertionError, match=r"not in 0\.1 s: pigs fly") as caught:
        bed.until("pigs fly", lambda: False, 0.1)
    assert "--- kube-scheduler ---" in str(caught.value)


def test_the_servers_end_with_a_test_process_that_is_killed(tmp_path: Path) -> None:
    """A killed run leaves nothing behind that holds memory and ports."""
    lines = (
        "import pathlib, time",
        "from beds.kubernetes_servers import Servers, program_folder, start_api",
        f"servers = Servers(folder=pathlib.Path({str(tmp_path)!r}), programs=program_folder())",
        "start_api(servers)",
        # What has written is past the moment at which it bound itself to its parent.
        "logs = [servers.folder / f'{name}.log' for name in servers.running]",
        "servers.until('both write', lambda: all(log.stat().st_size for log in logs))",
        "print(*(one.pid for one in servers.running.values()), flush=True)",
        "time.sleep(600)",
    )
    with subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    ) as parent:
        assert parent.stdout is not None
        servers = [Path("/proc", pid) for pid in parent.stdout.readline().split()]
        assert len([server for server in servers if server.exists()]) == 2
        parent.kill()
    ends = time.monotonic() + 60
    while any(map(runs, servers)):
        assert time.monotonic() < ends, "a server outlived its test process"
        time.sleep(0.05)


def runs(process: Path) -> bool:
    """Whether a folder of /proc is of a process that has not ended, collected or not."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_missing_servers_fail_and_say_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A test that cannot find its server is no passed test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("KUBE_BIN_DIR", str(tmp_path / "elsewhere"))
    with pytest.raises(AssertionError, match=r"elsewhere.*\.ci/kubernetes"):
        program_folder()
