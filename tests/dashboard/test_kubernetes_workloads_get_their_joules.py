"""Real Kubernetes workloads hold boards: telemetry names pods, the joules reach the workloads."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.kubernetes import KubernetesBed, running_kubernetes

from collectors.readings.exposition_text import read_dcgm_text
from dashboard.cli import main
from data.base.clock import floor_to_slot
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.store import open_store

pytestmark = pytest.mark.kubernetes
WATTS = 400.0
MINUTES = 10


def pod_template(gpus: dict[str, int], **labels: str) -> dict[str, Any]:
    """A pod template that asks for resources."""
    limits = {f"nvidia.com/{name}": str(count) for name, count in gpus.items()}
    container = {"name": "main", "image": "busy", "resources": {"limits": limits}}
    return {"metadata": {"labels": labels}, "spec": {"containers": [container]}}


def workload(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """An object of a kind in the default namespace."""
    group = {"Job": "batch/v1"}.get(kind, "apps/v1")
    about = {"name": name, "namespace": "default"} | metadata
    return {"apiVersion": group, "kind": kind, "metadata": about, "spec": spec}


def replicated(kind: str, name: str, replicas: int, gpus: dict[str, int], **metadata: Any) -> Any:
    """A Deployment or StatefulSet."""
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": pod_template(gpus, app=name),
    }
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return workload(kind, name, spec, **metadata)


@pytest.fixture(scope="module")
def bed() -> Iterator[KubernetesBed]:
    """Two nodes and five workloads, of which one finds no room."""
    with running_kubernetes() as running:
        running.add_gpu_node("gpu-0", gpus=8)
        running.add_gpu_node("mig-0", gpus=0, mig={"3g.40gb": 2})
        helm = {"app.kubernetes.io/managed-by": "Helm", "owner": "search"}
        running.apply(
            replicated("Deployment", "ranker", 2, {"gpu": 2}, labels=helm),
            replicated("StatefulSet", "index", 1, {"gpu": 1}),
            workload("Job", "train", {"template": restartless({"gpu": 2})}),
            replicated("Deployment", "small", 1, {"mig-3g.40gb": 1}),
            workload("Job", "huge", {"template": restartless({"gpu": 16})}),
        )
        running.until("five pods run", lambda: sum(map(runs, running.pods())) == 5)
        yield running


def restartless(gpus: dict[str, int]) -> dict[str, Any]:
    """A template that a Job accepts."""
    template = pod_template(gpus)
    template["spec"]["restartPolicy"] = "Never"
    return template


def runs(pod: dict[str, Any]) -> bool:
    """Whether a pod runs."""
    return bool(pod["status"].get("phase") == "Running")


def settings_file(bed: KubernetesBed, folder: Path, user: str = "reader") -> Path:
    """A settings file that reads the cluster as that user."""
    path = folder / "trimtab.toml"
    path.write_text(f'[kubernetes]\nenabled = true\nkubeconfig = "{bed.kubeconfig(user)}"\n')
    return path


def exposition(bed: KubernetesBed) -> str:
    """What dcgm-exporter would say: every pod's boards, under the pod's name."""
    lines, board = [], 0
    for pod in bed.pods():
        if not runs(pod) or pod["spec"]["nodeName"] != "gpu-0":
            continue
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        for _gpu in range(int(limits["nvidia.com/gpu"])):
            labels = (
                f'gpu="{board}",UUID="GPU-{board}",Hostname="gpu-0",namespace="default"'
                f',modelName="NVIDIA H100 80GB HBM3",pod="{pod["metadata"]["name"]}"'
            )
            lines.append(f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} {WATTS}")
            lines.append(f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}} 0.8")
            board += 1
    return "\n".join(lines) + "\n"


def test_joules_reach_the_workloads(
    bed: KubernetesBed, store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seven boards of three workloads: energy and GPUs by what a person would change."""
    start = floor_to_slot(datetime.now(tz=UTC), 300) + timedelta(minutes=5)
    end = start + timedelta(minutes=MINUTES)
    metrics = tmp_path / "metrics.prom"
    metrics.write_text(exposition(bed))
    with open_store(store_url) as store:
        for minute in range(MINUTES + 1):
            at = start + timedelta(minutes=minute)
            store.keep(read_dcgm_text(metrics, at, load_gpu_catalogue()))
    common = ["--quiet", "--settings", str(settings_file(bed, tmp_path)), "--store", store_url]
    assert main([*common, "collect", "--now", end.isoformat(), "--format", "json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["state"], report["completeness_ratio"]) == ("ran", 1.0)
    with open_store(store_url) as store:
        energy = store.reader.energy(start=start, end=end, by="job")
        jobs = {job.job_id: job for job in store.reader.jobs()}
    found = dict(zip(energy["key"], energy["energy_kwh"], strict=True))
    hours = MINUTES / 60
    assert found == pytest.approx(
        {
            "default/deployment/ranker": 4 * WATTS * hours / 1000,
            "default/statefulset/index": WATTS * hours / 1000,
            "default/job/train": 2 * WATTS * hours / 1000,
        }
    )
    ranker = jobs["default/deployment/ranker"]
    assert (ranker.gpu_count, ranker.gpu_model) == (4, "H100-SXM5-80GB")
    assert ranker.scheduler is not None
    assert ranker.scheduler.managed_by == ("Helm",)
    huge = jobs["default/job/huge"].scheduler
    assert huge is not None
    assert str(huge.state) == "pending"
    assert "Insufficient nvidia.com/gpu" in huge.reason
    assert jobs["default/deployment/small"].mig_profile == "3g.40gb"


def test_nodes_and_findings_of_a_reader(
    bed: KubernetesBed, store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rights of deploy/kubernetes-reader.yaml are enough for everything that is read."""
    common = ["--quiet", "--settings", str(settings_file(bed, tmp_path))]
    common += ["--store", store_url]
    assert main([*common, "collect"]) == 0
    capsys.readouterr()
    assert main([*common, "nodes", "--format", "json"]) == 0
    nodes = {load["name"]: load for load in json.loads(capsys.readouterr().out)}
    assert (nodes["gpu-0"]["gpu_count"], nodes["gpu-0"]["gpu_model"]) == (8, "H100-SXM5-80GB")
    assert nodes["mig-0"]["mig_instances"] == "2 x 3g.40gb"
    assert main([*common, "doctor", "--format", "json"]) == 0
    rows = [load for load in json.loads(capsys.readouterr().out) if "kubernetes" in load["part"]]
    assert {row["state"] for row in rows} == {"ok"}


def test_a_user_without_rights_is_refused_by_name(
    bed: KubernetesBed, store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names what was refused and the role to bind."""
    common = ["--quiet", "--settings", str(settings_file(bed, tmp_path, "nobody"))]
    common += ["--store", store_url]
    assert main([*common, "collect", "--format", "json"]) == 3
    (report,) = json.loads(capsys.readouterr().out)
    assert report["state"] == "failed"
    assert "nobody" in report["reason"]
