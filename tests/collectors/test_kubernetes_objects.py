"""What objects of newer and stranger clusters mean, from JSON written by hand."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.kubernetes.api import Document
from collectors.kubernetes.client import Inventory
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.kubernetes.nodes import read_node
from collectors.kubernetes.objects import GpuRequest, read_pod, requests_of
from collectors.kubernetes.workloads import Owners, Workload
from collectors.shared.collector import Window
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.fleet import Node
from data.facts.jobs import JobState, WorkloadKind

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
STARTED = "2026-01-05T10:00:00Z"


class Reading:
    """A cluster that was read already."""

    name = "bed"

    def __init__(self, **objects: list[Any]) -> None:
        self.found = Inventory(objects=objects)

    def inventory(self) -> Inventory:
        """Return it."""
        return self.found


def collected(**objects: list[Any]) -> Collected:
    """What the collector makes of these objects by kind."""
    collector = KubernetesCollector(Reading(**objects), load_gpu_catalogue())  # type: ignore[arg-type]
    return collector.collect(Window(start=NOW - timedelta(hours=1), end=NOW))


def container(quantity: object = "1", resource: str = "nvidia.com/gpu", **more: Any) -> Document:
    """A container that asks for a resource."""
    return {"name": "main", "resources": {"limits": {resource: quantity}}} | more


def pod(name: str = "p", *, phase: str = "Running", **spec: Any) -> Document:
    """A pod on node n1; of one GPU unless told otherwise."""
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}"},
        "spec": {"nodeName": "n1", "containers": [container()]} | spec,
        "status": {"phase": phase, "startTime": STARTED},
    }


def owned(document: Document, kind: str, name: str) -> Document:
    """The object, controlled by that owner."""
    document["metadata"]["ownerReferences"] = [{"kind": kind, "name": name, "controller": True}]
    return document


def thing(name: str, **metadata: Any) -> Document:
    """An object of any kind."""
    return {"metadata": {"name": name, "namespace": "ml"} | metadata, "spec": {}}


def node(product: str, offered: dict[str, str], **labels: str) -> Document:
    """A ready node n1."""
    marks = {f"nvidia.com/{name.replace('_', '.')}": value for name, value in labels.items()}
    return {
        "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": product} | marks},
        "spec": {},
        "status": {
            "capacity": {"cpu": "64", "memory": "512Gi"},
            "allocatable": {f"nvidia.com/{name}": count for name, count in offered.items()},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def read(document: Document) -> Node:
    """The node."""
    return read_node(document, load_gpu_catalogue(), seen_at=NOW, source="bed")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [container("2"), container(1)]}, [("", False, 3)]),
        ({"containers": [container("2")], "initContainers": [container("4")]}, [("", False, 4)]),
        ({"containers": [container("4")], "initContainers": [container("2")]}, [("", False, 4)]),
        (
            {
                "containers": [container("2")],
                "initContainers": [container("1", restartPolicy="Always")],
            },
            [("", False, 3)],
        ),
        ({"containers": [container("1", "nvidia.com/mig-3g.40gb")]}, [("3g.40gb", False, 1)]),
        ({"containers": [container("1", "nvidia.com/mig-1g.10gb.shared")]}, [("1g.10gb", True, 1)]),
        ({"containers": [container("2", "nvidia.com/gpu.shared")]}, [("", True, 2)]),
        ({"containers": [container("1", "nvidia.com/hostdev")]}, []),
        ({"containers": [container("40960", "nvidia.com/gpumem")]}, []),
        ({"containers": [container("0")]}, []),
        ({"containers": [container("0.5")]}, []),
        ({"containers": [container("9" * 5000)]}, []),
        ({"containers": [None, 3, {"resources": {"limits": ["nvidia.com/gpu"]}}]}, []),
    ],
)
def test_what_a_pod_asks_for(spec: Document, expected: list[tuple[str, bool, int]]) -> None:
    """Containers add up, an init container counts by itself, a sidecar runs along."""
    wanted = [
        GpuRequest(mig_profile=entry, shared=two, count=three) for entry, two, three in expected
    ]
    assert list(requests_of(spec)) == wanted


def test_a_shared_board_counts_once() -> None:
    """Time-slicing offers a board as often as it is cut; telemetry sees the board."""
    sliced = node("NVIDIA-H100-80GB-HBM3-SHARED", {"gpu": "32"}, gpu_count="8",
                  **{"gpu.sharing-strategy": "time-slicing"})  # fmt: skip
    renamed = node("NVIDIA-H100-80GB-HBM3-SHARED", {"gpu.shared": "16"}, gpu_count="4")
    assert (read(sliced).gpu_count, read(sliced).gpu_model) == (8, "H100-SXM5-80GB")
    assert read(renamed).gpu_count == 4


def test_instances_under_the_single_strategy_are_no_boards() -> None:
    """The plugin calls them GPUs; only the product's name tells."""
    cut = node("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", {"gpu": "14"}, mig_strategy="single")
    found = read(cut)
    assert (found.gpu_model, found.gpu_count) == ("A100-SXM4-80GB", 0)
    assert found.mig_instances == (("1g.10gb", 14),)
    got = collected(Node=[cut], Pod=[pod(containers=[container("2")])])
    assert (got.jobs[0].mig_profile, got.jobs[0].gpu_count) == ("1g.10gb", 2)
    assert got.allocations["gpu_count"].isna().all()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"spec": {"unschedulable": True}}, "cordoned"),
        ({"spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}}, "team"),
        ({"status": {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": []}}, ""),
    ],
)
def test_a_node_that_takes_no_pods(change: Document, reason: str) -> None:
    """Cordoned, tainted, or not ready."""
    found = read(node("NVIDIA-H100-80GB-HBM3", {"gpu": "8"}) | change)
    assert (found.schedulable, found.reason) == (False, reason)


def test_a_taint_of_gpu_nodes_does_not_block_gpu_pods() -> None:
    """Operators put it there to keep the others away."""
    taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    found = read(node("NVIDIA-H100-80GB-HBM3", {"gpu": "8"}) | {"spec": {"taints": [taint]}})
    assert found.schedulable


def claim(name: str, *devices: tuple[str, str], count: int = 0) -> Document:
    """A resource claim that was given (driver, device) on n1, or still asks for `count`."""
    results = [{"driver": driver, "pool": "n1", "device": entry} for driver, entry in devices]
    asked = {"exactly": {"deviceClassName": "gpu.nvidia.com", "count": count}} if count else {}
    status = {"allocation": {"devices": {"results": results}}} if devices else {}
    return thing(name) | {"spec": {"devices": {"requests": [asked]}}, "status": status}


GPU = "gpu.nvidia.com"


def claiming(name: str = "p", **more: Any) -> Document:
    """A pod that names the claim `c`, and asks for no resource."""
    return pod(name, containers=[{}], resourceClaims=[{"resourceClaimName": "c"}], **more)


def test_a_claim_names_the_boards() -> None:
    """Each board has a row of its own under both names of the pod."""
    got = collected(Pod=[claiming()], ResourceClaim=[claim("c", (GPU, "gpu-0"), (GPU, "gpu-3"))])
    assert got.jobs[0].gpu_count == 2
    rows = got.allocations[["label_id", "gpu_index", "gpu_count"]].to_numpy().tolist()
    assert sorted(rows) == [
        ["ml/p", "0", 1.0],
        ["ml/p", "3", 1.0],
        ["pod-uid:uid-p", "0", 1.0],
        ["pod-uid:uid-p", "3", 1.0],
    ]


def test_a_claim_made_from_a_template_is_named_by_the_status() -> None:
    """The spec names the template only."""
    document = pod(containers=[{}], resourceClaims=[{"resourceClaimTemplateName": "t"}])
    document["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "c"}]
    got = collected(Pod=[document], ResourceClaim=[claim("c", (GPU, "gpu-1"))])
    assert set(got.allocations["gpu_index"]) == {"1"}


def test_a_claim_that_waits_counts_what_it_asks_for() -> None:
    """So a pending job has its size."""
    got = collected(Pod=[claiming(phase="Pending")], ResourceClaim=[claim("c", count=4)])
    assert (got.jobs[0].gpu_count, got.jobs[0].scheduler.state) == (4, JobState.PENDING)  # type: ignore[union-attr]


def test_other_devices_than_gpus_make_no_job() -> None:
    """A network card may be claimed too."""
    got = collected(Pod=[claiming()], ResourceClaim=[claim("c", ("nic.example", "nic-0"))])
    assert (got.jobs, dict(got.report.dropped)) == ((), {"no-gpu-pod": 1})


def test_a_claim_that_may_not_be_read_is_counted() -> None:
    """Whether it is of GPUs is not known: nothing is guessed."""
    got = collected(Pod=[claiming()])
    assert (got.jobs, dict(got.report.dropped)) == ((), {"claim-not-visible": 1})


def finished(name: str, start: str, end: str, phase: str = "Succeeded") -> Document:
    """A pod that ran between two times of the day."""
    document = owned(pod(name, phase=phase), "Job", "j")
    document["status"]["startTime"] = f"2026-01-05T{start}:00Z"
    terminated = {"finishedAt": f"2026-01-05T{end}:00Z"}
    document["status"]["containerStatuses"] = [{"state": {"terminated": terminated}}]
    return document


def test_a_finished_job_has_the_gpus_that_it_held_at_once() -> None:
    """Its pods took turns: three in all, two at a time."""
    pods = [
        finished("a", "08:00", "09:00"),
        finished("b", "08:30", "09:30"),
        finished("c", "09:30", "10:00"),
    ]
    got = collected(Pod=pods)
    (job,) = got.jobs
    assert job.scheduler is not None
    assert (job.gpu_count, job.scheduler.state) == (2, JobState.FINISHED)
    assert job.scheduler.ended_at == job.last_seen_at == datetime(2026, 1, 5, 10, tzinfo=UTC)
    assert got.allocations["ended_at"].notna().all()


def test_an_evicted_pod_ends_with_its_last_condition() -> None:
    """It lists no container; without conditions its end is unknown, and it holds nothing."""
    told, silent = pod("told", phase="Failed"), pod("silent", phase="Failed")
    told["status"]["conditions"] = [{"type": "Ready", "lastTransitionTime": "2026-01-05T11:00:00Z"}]
    got = collected(Pod=[told, silent])
    assert set(got.allocations["label_id"]) == {"ml/told", "pod-uid:uid-told"}
    assert dict(got.report.dropped) == {"end-unknown": 1}


@pytest.mark.parametrize(
    ("chain", "kind", "work"),
    [
        ([("ReplicaSet", "r"), ("Deployment", "d")], "deployment/d", WorkloadKind.INFERENCE),
        ([("Job", "j"), ("CronJob", "c")], "cronjob/c", WorkloadKind.TRAINING),
        ([("Job", "j"), ("JobSet", "s"), ("TrainJob", "t")], "trainjob/t", WorkloadKind.TRAINING),
        ([("RayCluster", "c"), ("RayJob", "r")], "rayjob/r", WorkloadKind.TRAINING),
        ([("StatefulSet", "s"), ("LeaderWorkerSet", "l")], "leaderworkerset/l",
         WorkloadKind.INFERENCE),
        ([("DaemonSet", "d")], "daemonset/d", WorkloadKind.UNKNOWN),
        ([("Notebook", "n")], "notebook/n", WorkloadKind.UNKNOWN),
        ([("Node", "n1")], "pod/p", WorkloadKind.UNKNOWN),
        ([], "pod/p", WorkloadKind.UNKNOWN),
    ],
)  # fmt: skip
def test_the_workload_is_what_a_person_would_change(
    chain: list[tuple[str, str]], kind: str, work: WorkloadKind
) -> None:
    """The walk goes up to the last controller, known kind or not."""
    document = pod()
    objects: dict[str, list[Any]] = {"Pod": [document]}
    for owner_kind, name in chain:
        owned(document, owner_kind, name)
        document = thing(name)
        objects.setdefault(owner_kind, []).append(document)
    (job,) = collected(**objects).jobs
    assert (job.job_id, job.kind) == (f"ml/{kind}", work)


def test_an_owner_that_may_not_be_read_is_the_last_that_is_known() -> None:
    """The Deployment above it stays unknown."""
    (job,) = collected(Pod=[owned(pod(), "ReplicaSet", "r-1")]).jobs
    assert job.job_id == "ml/replicaset/r-1"


def test_owners_in_a_ring_end() -> None:
    """The API cannot forbid it."""
    ring = [owned(thing("a"), "Job", "b"), owned(thing("b"), "Job", "a")]
    assert len(collected(Pod=[owned(pod(), "Job", "a")], Job=ring).jobs) == 1


@pytest.mark.parametrize(
    ("marks", "manager"),
    [
        ({"labels": {"app.kubernetes.io/managed-by": "Helm"}}, "Helm"),
        ({"annotations": {"meta.helm.sh/release-name": "r"}}, "Helm"),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "app:apps/Deployment:ml/d"}},
         "Argo CD"),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}, "Flux"),
        ({"labels": {"helm.toolkit.fluxcd.io/name": "apps"}}, "Flux"),
        ({"labels": {"kueue.x-k8s.io/queue-name": "research"}}, "Kueue"),
        ({"labels": {"kueue.x-k8s.io/queue-name": "research"},
          "annotations": {"kueue.x-k8s.io/elastic-job": "false"}}, "Kueue"),
        ({"labels": {"kueue.x-k8s.io/queue-name": "research"},
          "annotations": {"kueue.x-k8s.io/elastic-job": "true"}}, "Kueue (elastic job)"),
    ],
)  # fmt: skip
def test_who_would_undo_a_change(marks: dict[str, Any], manager: str) -> None:
    """Labels and annotations of the workload tell; without them nobody is named."""
    workload = Workload(namespace="ml", kind="Job", name="d", chain=(thing("d", **marks),))
    plain = Workload(namespace="ml", kind="Job", name="d", chain=(thing("d"),))
    owners = Owners(Inventory())
    assert (owners.managers_of(workload), owners.managers_of(plain)) == ((manager,), ())


def test_what_waits_for_kueue_says_so() -> None:
    """The queue's own word, and the priority."""
    waiting = owned(thing("w"), "Job", "j")
    waiting["spec"] = {"priority": 7}
    waiting["status"] = {
        "conditions": [{"type": "QuotaReserved", "status": "False", "message": "no quota left"}]
    }
    got = collected(
        Pod=[owned(pod(phase="Pending"), "Job", "j")], Job=[thing("j")], Workload=[waiting]
    )
    assert got.jobs[0].scheduler is not None
    assert ("kueue", "no quota left, priority 7") in got.jobs[0].scheduler.extra


def test_a_workload_on_two_models_is_priced_as_neither() -> None:
    """Both are named, and the planner leaves alone what it cannot price."""
    first = node("NVIDIA-H100-80GB-HBM3", {"gpu": "8"})
    second = node("NVIDIA-A100-SXM4-80GB", {"gpu": "8"})
    second["metadata"]["name"] = "n2"
    pods = [owned(pod("a"), "Job", "j"), owned(pod("b", nodeName="n2"), "Job", "j")]
    got = collected(Node=[first, second], Pod=pods)
    assert [(job.gpu_model, job.gpu_memory_mib) for job in got.jobs] == [
        ("A100-SXM4-80GB,H100-SXM5-80GB", None)
    ]
    assert dict(got.report.dropped) == {}


def test_who_owns_it_is_taken_from_labels() -> None:
    """No field of Kubernetes says so."""
    owner = thing("j", labels={"owner": "ada"})
    (job,) = collected(Pod=[owned(pod(), "Job", "j")], Job=[owner]).jobs
    assert job.owner == "ada"


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:59", "yesterday", "2026-01-05", ""])
def test_a_time_that_is_none_is_unknown(text: str) -> None:
    """A pod that has no start holds nothing yet."""
    document = pod()
    document["status"]["startTime"] = text
    got = collected(Pod=[document])
    assert got.allocations.empty
    assert len(got.jobs) == 1


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(STARTED),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(*[ANYTHING] * 6)
def test_no_object_breaks_the_collection(
    metadata: Any, status: Any, conditions: Any, containers: Any, labels: Any, owners: Any
) -> None:
    """Whatever JSON stands where: it is left out, and the rest is read."""
    strange = pod("strange", containers=containers)
    strange["status"] |= {"conditions": conditions, "containerStatuses": status}
    strange["metadata"] |= {"labels": labels, "ownerReferences": owners}
    broken: Document = {"metadata": metadata, "spec": containers, "status": status}
    offering = node("NVIDIA-H100-80GB-HBM3", {"gpu": "8"})
    offering["metadata"]["labels"] = labels
    offering["status"]["conditions"] = conditions
    got = collected(
        Pod=[strange, broken, pod("good")],
        Node=[offering, broken],
        Job=[broken, strange],
        HorizontalPodAutoscaler=[broken],
        Workload=[broken, strange],
        ResourceClaim=[broken],
    )
    assert "ml/pod/good" in {job.job_id for job in got.jobs}


def test_why_a_container_waits_is_the_reason() -> None:
    """Scheduled, and still not running."""
    document = pod(phase="Pending")
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff"}}}
    document["status"]["containerStatuses"] = [waiting]
    found = read_pod(document)
    assert found is not None
    assert found.reason == "ImagePullBackOff"
