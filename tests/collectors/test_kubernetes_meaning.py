"""What a cluster's answers mean for who holds, awaits and held which boards."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from beds.kubernetes_lists import (
    GPU,
    JOBS,
    NODES,
    PODS,
    SET,
    SETS,
    TRAIN,
    WINDOW,
    facts,
    node,
    only,
    over,
    pod,
    served,
    template,
    thing,
    told,
)
from kubernetes.config import incluster_config

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.findings import kubernetes_findings
from collectors.kubernetes.jobs import KubernetesCollector
from data.base.errors import SourceNotConfiguredError, SourceUnreachableError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import JobState
from data.records.feasible_changes import (
    NO_NODE,
    configuration_refusal,
    has_named_nodes,
    required_nodes,
)
from data.records.plans import Configuration
from data.settings.sources import KubernetesSettings


@pytest.mark.parametrize(
    ("condition", "state"),
    [("Complete", JobState.FINISHED), ("Failed", JobState.FAILED), ("Other", JobState.FAILED)],
)
def test_the_word_of_a_job_counts_before_that_of_its_dead_pods(
    tmp_path: Path, condition: str, state: JobState
) -> None:
    """It was tried twice: whether that is success is the Job's to say, else the last try's."""
    own = thing("Job", "train", status={"conditions": [{"type": condition, "status": "True"}]})
    pods = [
        pod("a", TRAIN, **over("Succeeded", "11:10")),
        pod("b", TRAIN, **over("Failed", "11:30")),
    ]
    found = told({PODS: pods, JOBS: [own]}, tmp_path)
    assert facts(found).state is state
    assert facts(found).ended_at == datetime(2026, 3, 1, 11, 30, tzinfo=UTC)


SUSPENDED = {"suspend": True, "parallelism": 2, "template": template()}
ROLES = {"Master": {"template": template("1")}, "Worker": {"replicas": 3, "template": template()}}
RAY = {
    "headGroupSpec": {"template": template("0")},
    "workerGroupSpecs": [{"replicas": 2, "numOfHosts": 2, "template": template("1")}],
}
REPLICATED = [{"replicas": 3, "template": {"spec": {"parallelism": 2, "template": template("1")}}}]
NODES_OF_TRAINER = {"numNodes": 2, "resourcesPerNode": {"limits": {GPU: "8"}}}
GROUPS_OF_WORKERS = {"size": 3, "workerTemplate": template("2")}


@pytest.mark.parametrize(
    ("path", "kind", "spec", "gpus", "state"),
    [
        (JOBS, "Job", SUSPENDED, 8, JobState.SUSPENDED),
        ("/apis/apps/v1/deployments", "Deployment", {"replicas": 3, "template": template()}, 12,
         JobState.PENDING),
        ("/apis/kubeflow.org/v1/pytorchjobs", "PyTorchJob",
         {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": ROLES}, 13, JobState.SUSPENDED),
        ("/apis/ray.io/v1/rayjobs", "RayJob", {"rayClusterSpec": RAY}, 4, JobState.PENDING),
        ("/apis/ray.io/v1/rayservices", "RayService", {"rayClusterConfig": RAY}, 4,
         JobState.PENDING),
        ("/apis/jobset.x-k8s.io/v1alpha2/jobsets", "JobSet", {"replicatedJobs": REPLICATED}, 6,
         JobState.PENDING),
        ("/apis/trainer.kubeflow.org/v1alpha1/trainjobs", "TrainJob",
         {"trainer": NODES_OF_TRAINER}, 16, JobState.PENDING),
        ("/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets", "LeaderWorkerSet",
         {"replicas": 2, "leaderWorkerTemplate": GROUPS_OF_WORKERS}, 12, JobState.PENDING),
    ],
)  # fmt: skip
def test_what_waits_without_a_pod_is_told(
    tmp_path: Path, path: str, kind: str, spec: Any, gpus: int, state: JobState
) -> None:
    """What a queue suspended, and what is over a quota, wants GPUs and has no pod."""
    found = told({path: [thing(kind, "w", spec)]}, tmp_path)
    assert (only(found).job_id, only(found).gpu_count) == (f"ml/{kind.lower()}/w", gpus)
    assert facts(found).state is state
    assert found.allocations.empty


def test_why_a_deployment_has_no_pods_is_told(tmp_path: Path) -> None:
    """The words of the quota."""
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
                 "message": "exceeded quota: gpus"}  # fmt: skip
    own = thing("Deployment", "w", {"template": template()}, {"conditions": [condition]})
    found = told({"/apis/apps/v1/deployments": [own]}, tmp_path)
    assert facts(found).reason == "FailedCreate: exceeded quota: gpus"


def test_what_is_scaled_to_nothing_is_no_job(tmp_path: Path) -> None:
    """It wants no GPUs."""
    own = thing("Deployment", "w", {"replicas": 0, "template": template()})
    assert told({"/apis/apps/v1/deployments": [own]}, tmp_path).jobs == ()


def test_what_another_object_makes_is_not_counted_twice(tmp_path: Path) -> None:
    """The Job of a JobSet repeats the JobSet's template."""
    above = [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "w",
              "controller": True}]  # fmt: skip
    lists = {
        "/apis/jobset.x-k8s.io/v1alpha2/jobsets": [
            thing("JobSet", "w", {"replicatedJobs": REPLICATED})
        ],
        JOBS: [thing("Job", "w-0", {"template": template("1")}, ownerReferences=above)],
    }
    assert only(told(lists, tmp_path)).gpu_count == 6


def test_one_kind_of_two_groups_is_two_workloads(tmp_path: Path) -> None:
    """A Job of Volcano and one of Kubernetes may have the same name, and only one Helm."""
    own = thing("Job", "train", labels={"app.kubernetes.io/managed-by": "Helm"})
    pods = [pod("a", TRAIN), pod("b", "batch.volcano.sh/v1alpha1/Job/train")]
    jobs = {job.job_id: job for job in told({PODS: pods, JOBS: [own]}, tmp_path).jobs}
    managed = {name: job.scheduler and job.scheduler.managed_by for name, job in jobs.items()}
    assert managed == {"ml/job/train": ("Helm",), "ml/job.batch.volcano.sh/train": ()}
    assert {job.gpu_count for job in jobs.values()} == {2}


def test_a_pod_that_cannot_pull_its_image_holds_its_boards(tmp_path: Path) -> None:
    """Once bound, its devices are nobody else's; one without a node holds none."""
    pulling = [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]
    stuck = pod("b", SET, phase="Pending", containerStatuses=pulling)
    pods = [pod("a", SET, at="n2"), stuck, pod("c", SET, at="", phase="Pending", startTime=None)]
    found = told({PODS: pods}, tmp_path)
    assert (only(found).gpu_count, facts(found).nodes) == (4, ("n1", "n2"))
    assert facts(found).reason == "ImagePullBackOff"
    assert dict(facts(found).extra)["pending_gpus"] == "2"


def test_a_team_that_may_not_see_nodes_is_served(tmp_path: Path) -> None:
    """A Role of one namespace grants none: the models stay unknown, the workloads do not."""
    lists = {"/api/v1/namespaces/ml/pods": [pod("a")]}
    with served(lists, tmp_path, NODES, namespaces="ml") as settings:
        client = KubernetesClient(settings)
        found = KubernetesCollector(client, load_gpu_catalogue()).collect(WINDOW)
        findings = {what: (state, detail) for what, state, detail in kubernetes_findings(settings)}
    assert (only(found).gpu_count, only(found).gpu_model) == (2, "")
    assert found.report.completeness_ratio is not None
    assert found.report.completeness_ratio < 1
    assert any("api/v1/nodes" in warning for warning in found.report.warnings)
    assert 'apiGroups: [""], resources: ["nodes"]' in findings["may list Node"][1]
    assert "GPU resources" not in findings


def affinity(key: str, operator: str, value: str) -> dict[str, Any]:
    """A required node affinity of one expression, as part of a pod's specification."""
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": [value]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    ("spec", "bound"),
    [
        ({}, None),
        ({"nodeSelector": {"pool": "b"}}, "n2"),
        ({"nodeSelector": {"nvidia.com/gpu.memory": "81000"}}, None),
    ],
)
def test_pods_that_may_not_be_put_on_all_nodes_of_their_model_are_told(
    tmp_path: Path, spec: dict[str, Any], bound: str | None
) -> None:
    """No plan moves such a job, so that the node it runs on is not powered down under it."""
    nodes = [node("n1"), node("n2")]
    nodes[1]["metadata"]["labels"]["pool"] = "b"
    own = pod("a", SET, at="n2")
    own["spec"] |= spec
    found = told({NODES: nodes, PODS: [own]}, tmp_path)
    assert dict(facts(found).extra).get("bound_to") == bound
    assert has_named_nodes(only(found)) is (bound is not None)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({}, frozenset()),
        ({"nodeSelector": {"pool": "b"}}, {"n2"}),
        (affinity("pool", "In", "b"), {"n2"}),
        (affinity("pool", "DoesNotExist", ""), {"n1"}),
        (affinity("gpu", "Exists", ""), frozenset()),
        ({"nodeSelector": {"pool": "c"}}, {NO_NODE}),
    ],
)
def test_pods_without_a_node_tell_those_on_which_they_may_start(
    tmp_path: Path, spec: dict[str, Any], named: set[str]
) -> None:
    """As a waiting job of Slurm does; a node without GPUs is none of them."""
    nodes = [node("n1"), node("n2"), node("cpu")]
    nodes[1]["metadata"]["labels"]["pool"] = "b"
    for entry in nodes[:2]:
        entry["metadata"]["labels"]["gpu"] = "yes"
    for amounts in ("capacity", "allocatable"):
        nodes[2]["status"][amounts] = {"cpu": "8"}
    own = pod("a", SET, at="", phase="Pending", startTime=None)
    own["spec"] |= spec
    job = only(told({NODES: nodes, PODS: [own]}, tmp_path))
    assert required_nodes(job) == named
    assert has_named_nodes(job) is bool(named)


PRODUCT = "nvidia.com/gpu.product"


@pytest.mark.parametrize(
    ("spec", "closed"),
    [
        ({}, None),
        ({"nodeSelector": {PRODUCT: "NVIDIA-H100-80GB-HBM3"}}, None),
        ({"nodeSelector": {"pool": "a"}}, None),
        ({"nodeSelector": {"pool": "b"}}, "A100-SXM4-80GB"),
        ({"nodeSelector": {PRODUCT: "NVIDIA-H100-80GB-HBM3", "pool": "b"}}, "A100-SXM4-80GB"),
        (affinity(PRODUCT, "In", "NVIDIA-H100-80GB-HBM3"), "A100-SXM4-80GB"),
        (affinity("pool", "NotIn", "b"), None),
    ],
)
def test_models_that_other_rules_of_a_pod_keep_it_from_are_told(
    tmp_path: Path, spec: dict[str, Any], closed: str | None
) -> None:
    """Another GPU is its product label in the nodeSelector; no such change is offered then."""
    nodes = [node("n1"), node("n2")]
    for entry, product, pool in zip(
        nodes, ("NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"), "ba", strict=True
    ):
        entry["metadata"]["labels"] |= {PRODUCT: product, "pool": pool}
    if spec.get("nodeSelector", {}).get("pool") == "a" or "NotIn" in str(spec):
        nodes[0]["metadata"]["labels"]["pool"] = "a"
    own = pod("a", SET, at="n1")
    own["spec"] |= spec
    found = told({NODES: nodes, PODS: [own]}, tmp_path)
    assert dict(facts(found).extra).get("closed_models") == closed
    job = only(found)
    why = configuration_refusal(
        job, Configuration(gpu_model="A100-SXM4-80GB", gpu_count=job.gpu_count)
    )
    assert ("keeps its pods off every node of A100-SXM4-80GB" in why) is (closed is not None)


def test_memory_is_told(tmp_path: Path) -> None:
    """Of a board by the label of its node, of an instance by the catalogue."""
    assert only(told({PODS: [pod("a")]}, tmp_path)).gpu_memory_mib == 81_000
    instance = pod("a", limits={"nvidia.com/mig-3g.40gb": "1"})
    assert only(told({PODS: [instance]}, tmp_path)).gpu_memory_mib == 40_448


def test_text_of_any_length_and_kind_stays_fit_for_a_line(tmp_path: Path) -> None:
    """Annotations hold a quarter of a megabyte; a proxy may pass on half a character."""
    loud = thing("StatefulSet", "s", annotations={"owner": "\x1b[2J\ud800" + "x" * 200_000})
    owner = only(told({PODS: [pod("a", SET)], SETS: [loud]}, tmp_path)).owner
    assert len(owner) <= 300
    assert owner.isprintable()


@pytest.mark.parametrize(
    ("manager", "named"),
    [
        ("platform-operator", ("server-side apply by platform-operator",)),
        ("kustomize-controller", ("Flux",)),
        ("kubectl", ()),
    ],
)
def test_who_applied_the_spec_would_apply_it_again(
    tmp_path: Path, manager: str, named: tuple[str, ...]
) -> None:
    """The manager of its fields, where no label says it; kubectl is a person."""
    fields = {"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {"f:x": {}}}}
    own = thing("StatefulSet", "s", managedFields=[fields])
    assert facts(told({PODS: [pod("a", SET)], SETS: [own]}, tmp_path)).managed_by == named


def test_the_autoscaler_of_ray_is_named(tmp_path: Path) -> None:
    """It sets the replicas again."""
    own = thing("RayCluster", "c", {"enableInTreeAutoscaling": True})
    lists = {PODS: [pod("a", "ray.io/v1/RayCluster/c")], "/apis/ray.io/v1/rayclusters": [own]}
    assert facts(told(lists, tmp_path)).managed_by == ("Ray autoscaler",)


def test_a_deployment_is_known_without_its_replica_sets(tmp_path: Path) -> None:
    """Their name is its name and the hash that the pods carry; that it was concluded is said."""
    document = pod("ranker-5d4f8c-x", "apps/v1/ReplicaSet/ranker-5d4f8c")
    document["metadata"]["labels"] = {"pod-template-hash": "5d4f8c"}
    job = only(told({PODS: [document]}, tmp_path, "/apis/apps/v1/replicasets"))
    assert job.job_id == "ml/deployment/ranker"
    assert "ReplicaSet cannot be read" in dict(job.assumed)["workload"]


def test_of_pods_without_devices_only_what_they_take_of_a_node_is_kept(tmp_path: Path) -> None:
    """Most pods of a cluster are such, and each is twenty kilobytes."""
    web = pod("web", limits={"cpu": "4"}, message="x" * 10_000)
    sets = [thing("ReplicaSet", "r", {"template": template()})]
    with served({PODS: [web], "/apis/apps/v1/replicasets": sets}, tmp_path) as settings:
        found = KubernetesClient(settings).inventory()
    (kept,) = found.of("Pod")
    assert kept["metadata"] == {"name": "web", "namespace": "ml"}
    assert kept["spec"]["containers"] == [{"resources": {"limits": {"cpu": "4"}}}]
    assert kept["spec"].keys() == {"nodeName", "containers"}
    assert [list(entry) for entry in found.of("ReplicaSet")] == [["metadata"]]


def test_a_server_that_falls_silent_is_not_asked_for_every_kind(tmp_path: Path) -> None:
    """Each kind would wait for its whole time; what was read is told."""
    with served({PODS: [pod("a")]}, tmp_path) as settings:
        client = KubernetesClient(settings)
        known, asked = client.get, []

        def get(path: str, query: Any = None) -> Any:
            asked.append(path)
            if len(asked) > 2:
                raise SourceUnreachableError("nothing", "wait")
            return known(path, query)

        with mock.patch.object(client, "get", get):
            found = KubernetesCollector(client, load_gpu_catalogue()).collect(WINDOW)
    assert only(found).gpu_count == 2
    assert len(asked) == 4
    assert any(warning.startswith("not asked: nothing") for warning in found.report.warnings)


def test_a_token_that_cannot_be_renewed_is_said(tmp_path: Path) -> None:
    """In a pod it is read anew every minute; while it is replaced the file may be empty."""
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("t")
    authority.write_text("unused over http")
    loader = incluster_config.InClusterConfigLoader
    read = loader._read_token_file

    def soon_over(self: Any) -> None:
        read(self)
        self.token_expires_at = datetime.min  # noqa: DTZ901 - naive, as the client compares it

    with (
        mock.patch.object(incluster_config, "SERVICE_TOKEN_FILENAME", str(token)),
        mock.patch.object(incluster_config, "SERVICE_CERT_FILENAME", str(authority)),
        mock.patch.object(loader, "_read_token_file", soon_over),
        mock.patch.dict(
            "os.environ", {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "9"}
        ),
    ):
        client = KubernetesClient(KubernetesSettings(enabled=True))
        assert client.name == "127.0.0.1:9"
        token.write_text("")
        with pytest.raises(SourceNotConfiguredError, match="cannot be renewed: Token file exists"):
            client.inventory()


def scaler(name: str = "s", **about: Any) -> Any:
    """An autoscaler from 2 to 6 of the StatefulSet `s`."""
    target = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s"}
    spec = {"minReplicas": 2, "maxReplicas": 6, "scaleTargetRef": target}
    return thing("HorizontalPodAutoscaler", name, spec, **about)


def owned(version: str, kind: str) -> dict[str, Any]:
    """Metadata of what an object `o` controls."""
    owner = {"apiVersion": version, "kind": kind, "name": "o", "controller": True}
    return {"ownerReferences": [owner]}


HELM = {"labels": {"app.kubernetes.io/managed-by": "Helm"}}


@pytest.mark.parametrize(
    ("scalers", "workload", "holder", "kept_by"),
    [
        ([scaler()], {}, "horizontalpodautoscaler.autoscaling/s", None),
        ([scaler("k", **owned("keda.sh/v1alpha1", "ScaledObject"))], {},
         "scaledobject.keda.sh/o", None),
        ([scaler("k", **owned("example.com/v1", "ScaledObject"))], {}, None, "ScaledObject o"),
        ([scaler(**owned("serving.kserve.io/v1beta1", "InferenceService"))], {}, None,
         "InferenceService o"),
        ([scaler(**HELM)], {}, None, "Helm"),
        ([scaler()], HELM, None, "Helm"),
        ([scaler("b"), scaler("a")], {}, None, "several autoscalers (a, b)"),
        ([], HELM, None, None),
    ],
)  # fmt: skip
def test_who_holds_the_bounds_of_a_workload_is_told(
    tmp_path: Path, scalers: list[Any], workload: Any, holder: str | None, kept_by: str | None
) -> None:
    """One object that a change of the bounds goes to, or who keeps them, or neither."""
    lists = {PODS: [pod("a", SET)], SETS: [thing("StatefulSet", "s", **workload)],
             "/apis/autoscaling/v2/horizontalpodautoscalers": scalers}  # fmt: skip
    extra = dict(facts(told(lists, tmp_path)).extra)
    assert (extra.get("autoscaler"), extra.get("bounds_kept_by")) == (holder, kept_by)
    assert extra.get("min_replicas") == ("2" if scalers else None)
