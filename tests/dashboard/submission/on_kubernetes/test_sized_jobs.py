"""docs/examples/size_jobs.py against a real API server and a real Trimtab.

The server is 1.20.2, which knows no suspended Job: it drops the field, so that a Job is one that
runs. JobSets and TrainJobs are custom kinds; the operators' own checks are not here.
"""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
import uvicorn
from beds.api_clients import PROXY, guarded_api
from beds.kubernetes import KubernetesBed, running_kubernetes
from factories import make_collected

from dashboard.decisions.service import DecisionService
from data.base.clock import utc_now
from data.facts.fleet import Node
from data.records.commands import Person
from data.settings.all_settings import Settings
from data.store import open_store

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
EXAMPLE = Path(__file__).parents[4] / "docs/examples/size_jobs.py"
ANY: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
KINDS = {
    "Job": "batch/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
}
PRODUCT, LABEL = "nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"
COMMAND = [
    "torchrun", "--nproc-per-node", "4", "train.py", "--model_name_or_path", "Qwen/Qwen2.5-0.5B",
    "--bf16", "--per_device_train_batch_size", "1", "--max_seq_length", "2048",
]  # fmt: skip
CONSENT = {"trimtab/size": "apply"}


@pytest.fixture(scope="module")
def bed() -> Iterator[KubernetesBed]:
    """A cluster with the two custom kinds."""
    with running_kubernetes() as running:
        for kind, version in list(KINDS.items())[1:]:
            define(running, kind, version)
        yield running


def define(bed: KubernetesBed, kind: str, api_version: str) -> None:
    """Define a kind whose spec may hold anything."""
    group, _, version = api_version.partition("/")
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "properties": {"spec": ANY, "status": ANY}}
    served = {"name": version, "served": True, "storage": True}
    bed.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"{plural}.{group}",
                "annotations": {"api-approved.kubernetes.io": "unapproved, only for tests"},
            },
            "spec": {
                "group": group,
                "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                "scope": "Namespaced",
                "versions": [served | {"schema": {"openAPIV3Schema": schema}}],
            },
        }
    )


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, str]]:
    """A Trimtab that knows a node of eight H100: its address, and an owner's token."""
    access = replace(PROXY, allowed_hosts="127.0.0.1")
    settings = replace(Settings(), access=access)
    node = Node(
        name="h1", gpu_model="H100-SXM5-80GB", gpu_count=8, cpus=64, memory_mib=512_000.0,
        features=(f"{PRODUCT}={LABEL}",), seen_at=utc_now(), source="kubernetes main",
    )  # fmt: skip
    with open_store(f"duckdb:///{folder}/t.duckdb") as store, socket.socket() as door:
        store.keep(make_collected(jobs=(), nodes=(node,)))
        door.bind(("127.0.0.1", 0))
        door.listen()
        service = DecisionService(store=store, settings=lambda: settings)
        _, token = service.make_token(
            holder="search", role="owner", lasts=timedelta(days=1),
            person=Person(name="alex", via="proxy"),
        )  # fmt: skip
        app = guarded_api(store, access)
        config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{door.getsockname()[1]}", token
        finally:
            server.should_exit = True
            thread.join()


def make(bed: KubernetesBed, kind: str, name: str, annotations: Any, **spec: Any) -> None:
    """Make a job of a kind that starts four processes."""
    container = {
        "name": "train", "image": "train:1", "command": COMMAND,
        "resources": {"limits": {"nvidia.com/gpu": "4"}},
    }  # fmt: skip
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    if kind == "TrainJob":
        trainer = {"numNodes": 1, "command": COMMAND, "image": "train:1"}
        trainer |= {"resourcesPerNode": container["resources"]}
        specs: dict[str, Any] = {"runtimeRef": {"name": "torch"}, "trainer": trainer}
    elif kind == "JobSet":
        entry = {"name": "workers", "replicas": 1, "template": {"spec": {"template": template}}}
        specs = {"replicatedJobs": [entry]}
    else:
        specs = {"template": template}
    about = {"name": name, "namespace": "default", "annotations": annotations}
    document = {"apiVersion": KINDS[kind], "kind": kind, "metadata": about}
    bed.apply(document | {"spec": specs | spec})


def one_pass(bed: KubernetesBed, url: str, token: str, *, patience: int = 60) -> tuple[int, str]:
    """The status of a pass of the example, and what it says."""
    program = bed.folder / "size_jobs.py"
    text, stated = EXAMPLE.read_text(), "SECONDS = 2\n"
    assert stated in text
    program.write_text(text.replace(stated, f"SECONDS = {patience}\n"))
    variables = {"TRIMTAB_TOKEN": token, "KUBERNETES_TOKEN": bed.token("admin")}
    done = subprocess.run(
        [sys.executable, program, url, bed.url, "--certificate", bed.certificate],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert not done.stderr
    return done.returncode, done.stdout


def specs(bed: KubernetesBed) -> dict[str, Any]:
    """The spec of every job."""
    return {
        f"{kind}/{entry['metadata']['name']}": entry["spec"]
        for kind in KINDS
        for entry in bed.list(kind, namespace="default")
    }


def test_only_suspended_jobs_of_owners_who_consent_are_patched(
    bed: KubernetesBed, tmp_path: Path
) -> None:
    """Each once and in its nodes alone; it can be resumed afterwards, and is left alone then."""
    for kind in ("JobSet", "TrainJob"):
        make(bed, kind, "sized", CONSENT, suspend=True)
        make(bed, kind, "shown", {}, suspend=True)
        make(bed, kind, "runs", CONSENT, suspend=False)
        make(bed, kind, "unread", CONSENT, suspend="true")
    make(bed, "Job", "runs", CONSENT, suspend=True)
    before = specs(bed)
    assert "suspend" not in before["Job/runs"]
    with serving(tmp_path) as (url, token):
        status, said = one_pass(bed, url, token)
        assert status == 0, said
        after = specs(bed)
        changed = {name for name, spec in after.items() if spec != before[name]}
        assert changed == {"JobSet/sized", "TrainJob/sized"}
        nodes = {"nodeSelector": {PRODUCT: LABEL}}
        inner = after["JobSet/sized"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        assert inner.pop("nodeSelector") == nodes["nodeSelector"]
        overrides = after["TrainJob/sized"].pop("podTemplateOverrides")
        assert overrides == [{"targetJobs": [{"name": "node"}], "spec": nodes}]
        assert after == before
        for kind in ("JobSet", "TrainJob"):
            bed.patch(kind, "sized", {"spec": {"suspend": False}})
        resumed = specs(bed)
        assert one_pass(bed, url, token) == (0, "")
        assert specs(bed) == resumed


def test_a_job_that_is_resumed_meanwhile_is_not_patched(bed: KubernetesBed, tmp_path: Path) -> None:
    """The patch is of the object as it was read: the API server itself refuses it."""
    make(bed, "JobSet", "race", CONSENT, suspend=True)
    document = bed.get("JobSet", "race")
    with serving(tmp_path) as (url, token):
        mine = {"Authorization": f"Bearer {token}"}
        answer = requests.post(f"{url}/api/v1/size", json=document, headers=mine, timeout=120)
    patch = answer.json()["patch"]
    path = bed.path("JobSet", "default", "race")
    kind = {"Content-Type": "application/json-patch+json"}
    bed.patch("JobSet", "race", {"spec": {"suspend": False}})
    running = bed.get("JobSet", "race")
    assert not bed.answer("PATCH", path, json=patch, headers=kind).ok
    bed.patch("JobSet", "race", {"spec": {"suspend": True}})
    assert not bed.answer("PATCH", path, json=patch, headers=kind).ok  # another version
    running["spec"]["suspend"] = True
    assert bed.get("JobSet", "race")["spec"] == running["spec"]


def test_jobs_stay_as_they_are_when_trimtab_is_down_or_hangs(bed: KubernetesBed) -> None:
    """The pass says so, ends, and changes nothing."""
    make(bed, "JobSet", "alone", CONSENT, suspend=True)
    before = specs(bed)
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{door.getsockname()[1]}"
        for _attempt in ("refused", "silent"):
            status, said = one_pass(bed, url, "none", patience=2)
            assert (status, "default/jobsets/alone: stays as it is" in said) == (1, True)
            assert specs(bed) == before
            door.listen()
