"""Commands that name a number of GPUs: fewer would make their pods crash."""

from typing import Any
from uuid import uuid4

import pytest
from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import (
    bind_in,
    deployment,
    gpus,
    planned,
    pod_spec,
    proposal,
    rehearsed,
    replicated,
    room,
)
from factories import H100, make_job

from collectors.kubernetes.pod_templates import gpus_named_by, unit_facts
from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from data.facts.jobs import Platform, SchedulerFacts
from data.records.feasible_changes import configuration_refusal

pytestmark = pytest.mark.kubernetes


def naming(namespace: str, count: int, **container: Any) -> dict[str, Any]:
    """Return a Deployment of one pod whose container says more."""
    pod = pod_spec(count)
    pod["containers"][1] |= container
    return deployment(namespace, replicas=1, pod=pod)


@pytest.mark.parametrize(
    ("container", "said"),
    [
        ({"args": ["--tensor-parallel-size", "4"]}, "--tensor-parallel-size 4"),
        (
            {"command": ["sh", "-c", "cd /a\ntorchrun --nproc_per_node=4 t.py"]},
            "--nproc_per_node=4",
        ),
        ({"env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,2,3"}]}, "0,1,2,3"),
        ({"args": ["--tensor-parallel-size=$(GPUS)"]}, ""),
        (
            {
                "args": ["--tensor-parallel-size=$(GPUS)"],
                "env": [{"name": "GPUS", "value": "4"}],
            },
            "--tensor-parallel-size=4",
        ),
        (
            {
                "command": ["sh", "-c", "exec torchrun --nproc-per-node=${WORLD} train.py"],
                "env": [{"name": "WORLD", "value": "4"}, {"name": "A"}],
            },
            "--nproc-per-node=4",
        ),
        ({"args": ["--tensor-parallel-size=2"]}, ""),
        ({"args": ["--num-gpus=8"]}, ""),
        ({"command": ["mpirun", "-np", "4", "./a"]}, "mpirun -np 4"),
        ({"env": [{"name": "WORLD_SIZE", "value": "4"}]}, "WORLD_SIZE=4"),
    ],
)
def test_fewer_gpus_than_the_command_names_are_refused(
    bed: KubernetesBed, applier: KubernetesApplier, container: dict[str, Any], said: str
) -> None:
    """The container is quoted. More GPUs than it has now are no number of them."""
    namespace = "named"
    room(bed, namespace, 8)
    bed.apply(naming(namespace, 4, **container))
    job = f"{namespace}/deployment/serve"
    try:
        change = planned(applier, proposal(job, gpus(4), gpus(2), details=(("gpus_per_pod", "2"),)))
        refusals = rehearsed(applier, change).refusals
        assert [said in text for text in refusals] == [True] * bool(said)
    finally:
        bed.ask("DELETE", f"apis/apps/v1/namespaces/{namespace}/deployments/serve")


def test_the_collector_tells_what_a_command_names() -> None:
    """The largest number; nothing where none is named or several kinds of pods hold GPUs."""
    found = naming("n", 4, args=["--num-gpus=2", "--tensor-parallel-size=4"])
    assert dict(unit_facts("Deployment", found))["named_gpus"] == "4"
    crowd = naming("n", 4, command=["sh", "-c", "mpirun -np 64 ./a; torchrun --nproc_per_node=4 b"])
    assert dict(unit_facts("Deployment", crowd))["named_gpus"] == "4"
    assert "named_gpus" not in dict(unit_facts("Deployment", naming("n", 4, args=["--port", "80"])))
    assert gpus_named_by({"command": None, "args": [4], "env": [{"name": "A"}]}) == []


@pytest.mark.parametrize(
    ("container", "said"),
    [
        ({"command": ["torchrun", "--nnodes=4", "--nproc_per_node=2", "t.py"]}, "--nnodes=4"),
        ({"command": ["torchrun", "--nnodes", "1:4", "t.py"]}, ""),
        ({"env": [{"name": "WORLD_SIZE", "value": "8"}]}, "WORLD_SIZE=8"),
        ({"args": ["--num_processes=7"]}, "--num_processes=7"),
        ({"args": ["--num_processes=2"]}, ""),
        ({"args": ["--nnodes=64"]}, ""),
    ],
)
@pytest.mark.parametrize("kind", ["StatefulSet", "Job"])
def test_fewer_pods_than_a_launcher_waits_for_are_refused(
    bed: KubernetesBed, applier: KubernetesApplier, kind: str, container: dict[str, Any], said: str
) -> None:
    """Four pods of two GPUs: the planner is told of it, and half of the pods are not offered."""
    namespace = f"ranks-{uuid4().hex[:8]}"
    bind_in(bed, namespace)
    pod = pod_spec(2)
    pod["containers"][1] |= container
    found = replicated("StatefulSet", namespace, replicas=4, pod=pod)
    if kind == "Job":
        once = {"spec": pod | {"restartPolicy": "Never"}}
        found |= {"apiVersion": "batch/v1", "kind": kind}
        found["spec"] = {"parallelism": 4, "template": once}
    bed.apply(found)
    facts = tuple(unit_facts(kind, bed.get(kind, "serve", namespace=namespace)))
    job = make_job(
        f"{namespace}/{kind.lower()}/serve",
        gpu_count=8,
        gpu_model=H100,
        platform=Platform.KUBERNETES,
        scheduler=SchedulerFacts(extra=facts),
    )
    try:
        change = planned(applier, proposal(job.job_id, gpus(8), gpus(4)))
        refusals = rehearsed(applier, change).refusals
        assert [said in text for text in refusals] == [True] * bool(said)
        assert bool(configuration_refusal(job, gpus(4))) == bool(said)
        assert (
            rehearsed(applier, planned(applier, proposal(job.job_id, gpus(8), gpus(0)))).refusals
            == ()
        )
    finally:
        bed.ask("DELETE", bed.path(kind, namespace, "serve"))
