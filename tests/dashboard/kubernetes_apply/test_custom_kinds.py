"""Workers of custom kinds on a real API: definitions and pods are made as their operators would."""

from typing import Any

import pytest
from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import (
    bind_in,
    carry_out,
    gpus,
    planned,
    pod_spec,
    proposal,
    rehearsed,
    settled,
)
from beds.steps import send_step

from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from data.base.errors import ChangeRefusedError
from data.records.changes import StepOutcome, VerificationResult

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

AT = {"nodeSelector": {"kubernetes.io/hostname": "node-custom"}}
ANY: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
VERSIONS = {
    "PyTorchJob": "kubeflow.org/v1",
    "MPIJob": "kubeflow.org/v2beta1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "RayCluster": "ray.io/v1",
}


@pytest.fixture(scope="module", autouse=True)
def node(bed: KubernetesBed) -> None:
    """A node for the pods that a test makes in its operator's place."""
    bed.add_gpu_node("node-custom", gpus=64)


def define(bed: KubernetesBed, kind: str, spec: dict[str, Any] | None = None) -> None:
    """Define a kind; `spec` is the schema of its spec, anything unless told."""
    group, _, version = VERSIONS[kind].partition("/")
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "properties": {"spec": spec or ANY, "status": ANY}}
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


def make(bed: KubernetesBed, kind: str, namespace: str, spec: dict[str, Any]) -> None:
    """Make the object `work` of a kind."""
    bind_in(bed, namespace)
    about = {"name": "work", "namespace": namespace}
    bed.apply({"apiVersion": VERSIONS[kind], "kind": kind, "metadata": about, "spec": spec})


def pods(bed: KubernetesBed, namespace: str, label: str, count: int) -> None:
    """Have so many pods with two GPUs, as an operator would."""
    for index in range(8):
        name = f"work-{index}"
        if index < count:
            about = {"name": name, "namespace": namespace, "labels": {label: "work"}}
            bed.apply({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": pod_spec(2)})
        else:
            bed.answer("DELETE", f"api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")


def template() -> dict[str, Any]:
    """A pod template with two GPUs in its second container."""
    return {"spec": pod_spec(2)}


def spec_of(bed: KubernetesBed, kind: str, namespace: str) -> Any:
    """The spec of the object `work`."""
    return bed.get(kind, "work", namespace=namespace)["spec"]


def pytorch(workers: int, **more: Any) -> dict[str, Any]:
    """The spec of a PyTorchJob with a master and workers of two GPUs."""
    role = {"Master": {"replicas": 1, "template": template()}}
    role |= {"Worker": {"replicas": workers, "template": template()}}
    return {"pytorchReplicaSpecs": role, "runPolicy": {"cleanPodPolicy": "None"}, **more}


def test_an_elastic_pytorch_job_gets_fewer_workers(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """Within its bounds; its pods are counted; the way back restores the number alone."""
    define(bed, "PyTorchJob")
    bounds = {"minReplicas": 1, "maxReplicas": 4}
    make(bed, "PyTorchJob", "torch", pytorch(3, elasticPolicy=bounds))
    label = "training.kubeflow.org/job-name"
    pods(bed, "torch", label, 4)
    before = spec_of(bed, "PyTorchJob", "torch")
    change = planned(applier, proposal("torch/pytorchjob/work", gpus(8), gpus(4)))
    assert rehearsed(applier, change).refusals == ()
    assert send_step(applier, change.steps[0], change).outcome is StepOutcome.DONE
    assert applier.read_back(change, done=1).seen is VerificationResult.NOT_YET
    pods(bed, "torch", label, 2)
    assert settled(applier, change, 1).seen is VerificationResult.AS_INTENDED
    assert spec_of(bed, "PyTorchJob", "torch")["pytorchReplicaSpecs"]["Worker"]["replicas"] == 1
    back = applier.change_back(change, applier.look_again(change))
    assert send_step(applier, back.steps[0], back).outcome is StepOutcome.DONE
    assert spec_of(bed, "PyTorchJob", "torch") == before


def test_an_elastic_pytorch_job_grows_and_gives_its_boards_back(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """Within its bounds, and the manifest is as it was before."""
    define(bed, "PyTorchJob")
    bounds = {"minReplicas": 1, "maxReplicas": 4}
    make(bed, "PyTorchJob", "torch-grows", pytorch(1, elasticPolicy=bounds))
    label = "training.kubeflow.org/job-name"
    pods(bed, "torch-grows", label, 2)
    before = spec_of(bed, "PyTorchJob", "torch-grows")
    job_id = "torch-grows/pytorchjob/work"
    for now, then, workers in ((4, 8, 3), (8, 4, 1)):
        change = planned(applier, proposal(job_id, gpus(now), gpus(then)))
        assert rehearsed(applier, change).refusals == ()
        assert send_step(applier, change.steps[0], change).outcome is StepOutcome.DONE
        assert applier.read_back(change, done=1).seen is VerificationResult.NOT_YET
        pods(bed, "torch-grows", label, workers + 1)
        assert settled(applier, change, 1).seen is VerificationResult.AS_INTENDED
        spec = spec_of(bed, "PyTorchJob", "torch-grows")
        assert spec["pytorchReplicaSpecs"]["Worker"]["replicas"] == workers
    assert spec_of(bed, "PyTorchJob", "torch-grows") == before


def test_a_pytorch_job_is_suspended_and_resumed(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """Reclaimed it keeps its object; resumed its spec is as it was."""
    define(bed, "PyTorchJob")
    make(bed, "PyTorchJob", "idle", pytorch(1))
    before = spec_of(bed, "PyTorchJob", "idle")
    change = planned(applier, proposal("idle/pytorchjob/work", gpus(4), gpus(0)))
    assert carry_out(applier, change).seen is VerificationResult.AS_INTENDED
    assert spec_of(bed, "PyTorchJob", "idle")["runPolicy"] == {
        "cleanPodPolicy": "None",
        "suspend": True,
    }
    back = applier.change_back(change, applier.look_again(change))
    assert send_step(applier, back.steps[0], back).outcome is StepOutcome.DONE
    assert spec_of(bed, "PyTorchJob", "idle") == before


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, "breaks WORLD_SIZE"),
        ({"elasticPolicy": {"minReplicas": 2, "maxReplicas": 4}}, "allows 2 to 4 workers, not 1"),
    ],
)
def test_a_pytorch_job_that_is_not_elastic_needs_recreating(
    bed: KubernetesBed, applier: KubernetesApplier, more: dict[str, Any], why: str
) -> None:
    """Another number of workers would break it: the difference of the manifest is the answer."""
    define(bed, "PyTorchJob")
    namespace = f"rigid-{len(more)}"
    make(bed, "PyTorchJob", namespace, pytorch(3, **more))
    with pytest.raises(ChangeRefusedError, match=why) as caught:
        planned(applier, proposal(f"{namespace}/pytorchjob/work", gpus(8), gpus(4)))
    assert "-      replicas: 3\n+      replicas: 1" in caught.value.hint


def test_a_ray_cluster_gets_fewer_workers_within_its_bounds(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """The bounds move along where they have to, and back; a group that moved is refused."""
    define(bed, "RayCluster")
    group = {"groupName": "gpu", "replicas": 3, "minReplicas": 2, "maxReplicas": 4}
    groups = [{"groupName": "cpu", "replicas": 1, "template": {"spec": {"containers": []}}}]
    spec = {
        "headGroupSpec": {"template": {"spec": {"containers": [{"name": "head"}]}}},
        "workerGroupSpecs": [*groups, group | {"template": template()}],
    }
    make(bed, "RayCluster", "ray", spec)
    pods(bed, "ray", "ray.io/cluster", 3)
    before = spec_of(bed, "RayCluster", "ray")
    change = planned(applier, proposal("ray/raycluster/work", gpus(6), gpus(2)))
    assert send_step(applier, change.steps[0], change).outcome is StepOutcome.DONE
    found = spec_of(bed, "RayCluster", "ray")["workerGroupSpecs"][1]
    assert (found["replicas"], found["minReplicas"], found["maxReplicas"]) == (1, 1, 4)
    pods(bed, "ray", "ray.io/cluster", 1)
    assert settled(applier, change, 1).seen is VerificationResult.AS_INTENDED
    back = applier.change_back(change, applier.look_again(change))
    swapped = {"workerGroupSpecs": list(reversed(spec_of(bed, "RayCluster", "ray")
                                                 ["workerGroupSpecs"]))}  # fmt: skip
    bed.patch("RayCluster", "work", {"spec": swapped}, namespace="ray")
    refused = send_step(applier, back.steps[0], back)
    assert refused.outcome is StepOutcome.REFUSED
    assert 'groupName is "cpu", not "gpu"' in refused.detail
    swapped["workerGroupSpecs"].reverse()
    bed.patch("RayCluster", "work", {"spec": swapped}, namespace="ray")
    assert send_step(applier, back.steps[0], back).outcome is StepOutcome.DONE
    assert spec_of(bed, "RayCluster", "ray") == before


def test_a_ray_cluster_that_scales_itself_is_refused(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """Its autoscaler would set the number again."""
    define(bed, "RayCluster")
    group = {"groupName": "gpu", "replicas": 2, "template": template()}
    make(
        bed,
        "RayCluster",
        "ray-auto",
        {"enableInTreeAutoscaling": True, "headGroupSpec": {}, "workerGroupSpecs": [group]},
    )
    with pytest.raises(ChangeRefusedError, match="Ray autoscaler"):
        planned(applier, proposal("ray-auto/raycluster/work", gpus(4), gpus(2)))


def test_an_mpi_job_changes_its_workers_only_under_elastic_horovod(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """Plain MPI cannot change its ranks; what starts it tells which it is."""
    define(bed, "MPIJob")
    for namespace, words in (
        ("mpi-plain", ["mpirun", "-np", "4", "python", "train.py"]),
        ("mpi-elastic", ["horovodrun", "--min-np", "1", "--host-discovery-script", "/d.sh"]),
    ):
        launcher = {"spec": {"containers": [{"name": "launch", "command": words}]}}
        roles = {
            "Launcher": {"replicas": 1, "template": launcher},
            "Worker": {"replicas": 2, "template": template()},
        }
        make(bed, "MPIJob", namespace, {"mpiReplicaSpecs": roles})
    with pytest.raises(ChangeRefusedError, match="plain MPI cannot change its ranks"):
        planned(applier, proposal("mpi-plain/mpijob/work", gpus(4), gpus(2)))
    pods(bed, "mpi-elastic", "training.kubeflow.org/job-name", 1)
    before = spec_of(bed, "MPIJob", "mpi-elastic")
    change = planned(applier, proposal("mpi-elastic/mpijob/work", gpus(4), gpus(2)))
    assert carry_out(applier, change).seen is VerificationResult.AS_INTENDED
    back = applier.change_back(change, applier.look_again(change))
    assert send_step(applier, back.steps[0], back).outcome is StepOutcome.DONE
    assert spec_of(bed, "MPIJob", "mpi-elastic") == before


def job_set(jobs: int, parallelism: int) -> dict[str, Any]:
    """The spec of a JobSet whose workers have two GPUs a pod."""
    inside = {"parallelism": parallelism, "completions": parallelism, "template": template()}
    inside["completionMode"] = "Indexed"
    return {"replicatedJobs": [{"name": "workers", "replicas": jobs, "template": {"spec": inside}}]}


@pytest.mark.parametrize(("jobs", "parallelism", "after"), [(1, 4, (1, 2, 2)), (4, 1, (2, 1, 1))])
def test_a_job_set_gets_fewer_pods_or_jobs_where_its_server_lets_it(
    bed: KubernetesBed, applier: KubernetesApplier, jobs: int, parallelism: int, after: Any
) -> None:
    """Completions of an indexed Job follow its parallelism where its owner marked it."""
    define(bed, "JobSet")
    namespace = f"set-{jobs}"
    make(bed, "JobSet", namespace, job_set(jobs, parallelism))
    with pytest.raises(ChangeRefusedError, match="a share of the work"):
        planned(applier, proposal(f"{namespace}/jobset/work", gpus(8), gpus(4)))
    marked = {"metadata": {"annotations": {"trimtab/elastic": "true"}}}
    bed.patch("JobSet", "work", marked, namespace=namespace)
    pods(bed, namespace, "jobset.sigs.k8s.io/jobset-name", 2)
    before = spec_of(bed, "JobSet", namespace)
    change = planned(applier, proposal(f"{namespace}/jobset/work", gpus(8), gpus(4)))
    assert carry_out(applier, change).seen is VerificationResult.AS_INTENDED
    one = spec_of(bed, "JobSet", namespace)["replicatedJobs"][0]
    inside = one["template"]["spec"]
    assert (one["replicas"], inside["parallelism"], inside["completions"]) == after
    back = applier.change_back(change, applier.look_again(change))
    assert send_step(applier, back.steps[0], back).outcome is StepOutcome.DONE
    assert spec_of(bed, "JobSet", namespace) == before


def test_what_a_server_finds_invalid_needs_recreating(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """A schema that lets no master go without workers answers 422, in the dry run and after it."""
    replicas = {"type": "integer", "minimum": 2}
    worker = {"type": "object", "properties": {"replicas": replicas, "template": ANY}}
    roles = {"type": "object", "properties": {"Worker": worker, "Master": ANY}}
    policy = ANY
    schema = {
        "type": "object",
        "properties": {"pytorchReplicaSpecs": roles, "elasticPolicy": policy},
    }
    define(bed, "PyTorchJob", schema)
    try:
        make(bed, "PyTorchJob", "invalid", pytorch(3, elasticPolicy={"minReplicas": 1}))
        change = planned(applier, proposal("invalid/pytorchjob/work", gpus(8), gpus(4)))
        said, recreate = rehearsed(applier, change).refusals
        assert "422" in said
        assert "-      replicas: 3\n+      replicas: 1" in recreate
        result = send_step(applier, change.steps[0], change)
        assert result.outcome is StepOutcome.REFUSED
        assert "422" in result.detail
        # This definition knows no runPolicy: the server takes the patch, and drops it.
        stop = planned(applier, proposal("invalid/pytorchjob/work", gpus(8), gpus(0)))
        rehearsal = rehearsed(applier, stop)
        assert "this server drops /spec/runPolicy/suspend" in rehearsal.refusals[0]
        assert rehearsal.differences == (("/spec/runPolicy/suspend", "true", "absent"),)
        result = send_step(applier, stop.steps[0], stop)
        assert result.outcome is StepOutcome.REFUSED
        assert "dropped the change" in result.detail
    finally:
        define(bed, "PyTorchJob")
