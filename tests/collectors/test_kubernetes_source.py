"""The same story, live from a real Kubernetes and from its recorded lists."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from beds.kubernetes import KubernetesBed, running_kubernetes
from beds.kubernetes_replay import RECORDED, recorded_collector
from recorded.record_kubernetes import tell_story

from collectors.kubernetes import api
from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.findings import kubernetes_findings
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.shared.collector import Window
from data.base.errors import SourceRefusedError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.jobs import Job, JobState, WorkloadKind
from data.settings.sources import KubernetesSettings

LIVE = pytest.param("live", marks=[pytest.mark.kubernetes, pytest.mark.slow])


@pytest.fixture(scope="module")
def bed() -> Iterator[KubernetesBed]:
    """One cluster in which the story was told."""
    with running_kubernetes() as running:
        tell_story(running)
        yield running


@pytest.fixture(autouse=True, scope="module")
def _small_pages() -> Iterator[None]:
    """Two objects at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "PAGE_SIZE", 2)
        yield


def settings_of(bed: KubernetesBed, user: str = "reader", **more: Any) -> KubernetesSettings:
    """Settings that sign in as that user."""
    return KubernetesSettings(enabled=True, kubeconfig=str(bed.kubeconfig(user)), **more)


def read_live(settings: KubernetesSettings) -> Collected:
    """What the collector gives of the last hour."""
    collector = KubernetesCollector(KubernetesClient(settings), load_gpu_catalogue())
    now = datetime.now(tz=UTC)
    return collector.collect(Window(start=now - timedelta(hours=1), end=now))


@pytest.fixture(
    scope="module",
    params=[LIVE, *sorted(path.name for path in RECORDED.iterdir() if path.is_dir())],
)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Collected:
    """The story as read from the running cluster, or from what was recorded of a release."""
    if request.param == "live":
        return read_live(settings_of(request.getfixturevalue("bed")))
    with recorded_collector(RECORDED / request.param, tmp_path_factory.mktemp("k8s")) as collector:
        end = datetime(2026, 11, 21, 12, tzinfo=UTC)
        return collector.collect(Window(start=end - timedelta(days=1), end=end))


def job_of(told: Collected, job_id: str) -> Job:
    """The job of that id, in the namespace of the story."""
    (found,) = [job for job in told.jobs if job.job_id == f"ml/{job_id}"]
    return found


def extra_of(job: Job) -> dict[str, str]:
    """Further facts of a job."""
    assert job.scheduler is not None
    return dict(job.scheduler.extra)


def test_every_workload_is_what_a_person_would_change(told: Collected) -> None:
    """Kinds, sizes and states of all of them, and none for a pod without GPUs."""
    found = {
        job.job_id.removeprefix("ml/"): (job.kind, job.gpu_count, job.scheduler.state)
        for job in told.jobs
        if job.scheduler is not None
    }
    inference, training = WorkloadKind.INFERENCE, WorkloadKind.TRAINING
    running = JobState.RUNNING
    assert found == {
        "cronjob/nightly": (training, 1, running),
        "deployment/huge": (inference, 16, JobState.PENDING),
        "deployment/ranker": (inference, 4, running),
        "deployment/small": (inference, 1, running),
        "job/short": (training, 1, JobState.FINISHED),
        "job/train": (training, 2, running),
        "jobset/sweep": (training, 1, running),
        "pod/notebook": (WorkloadKind.UNKNOWN, 1, running),
        "pytorchjob/llm": (training, 2, running),
        "rayservice/chat": (inference, 1, running),
        "statefulset/index": (inference, 1, running),
    }
    assert dict(told.report.dropped) == {"no-gpu-pod": 1}


def test_a_deployment_tells_who_else_moves_it(told: Collected) -> None:
    """Helm would undo a change, the autoscaler moves the replicas between its bounds."""
    ranker = job_of(told, "deployment/ranker")
    assert ranker.scheduler is not None
    assert ranker.scheduler.managed_by == ("Helm", "HorizontalPodAutoscaler")
    assert ranker.scheduler.workload == "deployment/ranker"
    assert (ranker.owner, ranker.gpu_model) == ("search", "H100-SXM5-80GB")
    facts = extra_of(ranker)
    assert (facts["pods"], facts["gpus_per_pod"]) == ("2", "2")
    assert (facts["min_replicas"], facts["max_replicas"]) == ("1", "6")


def test_a_queued_training_job_tells_its_queue_and_bounds(told: Collected) -> None:
    """Kueue admitted it; its elastic policy says how small it may be."""
    llm = job_of(told, "pytorchjob/llm")
    assert llm.scheduler is not None
    assert llm.scheduler.managed_by == ("Kueue",)
    facts = extra_of(llm)
    assert (facts["queue"], facts["kueue"]) == ("research", "admitted, priority 100")
    assert (facts["min_replicas"], facts["max_replicas"]) == ("1", "4")


def test_what_finds_no_room_says_why(told: Collected) -> None:
    """In the scheduler's words."""
    huge = job_of(told, "deployment/huge")
    assert huge.scheduler is not None
    assert "Insufficient nvidia.com/gpu" in huge.scheduler.reason
    assert (huge.scheduler.nodes, huge.scheduler.started_at) == ((), None)
    assert extra_of(huge)["pending_pods"] == "1"


def test_nodes_offer_boards_and_instances(told: Collected) -> None:
    """As the catalogue calls them, and whether they take pods."""
    found = {
        node.name: (node.gpu_model, node.gpu_count, node.mig_instances, node.schedulable)
        for node in told.nodes
    }
    assert found == {
        "drained": ("H100-SXM5-80GB", 4, (), False),
        "gpu-0": ("H100-SXM5-80GB", 8, (), True),
        "gpu-1": ("A100-SXM4-80GB", 8, (), True),
        "mig-0": ("H100-SXM5-80GB", 0, (("3g.40gb", 2),), True),
    }


def test_a_slice_is_held_as_a_slice(told: Collected) -> None:
    """Its row has no count: it is no board."""
    small = job_of(told, "deployment/small")
    assert (small.mig_profile, small.gpu_model) == ("3g.40gb", "H100-SXM5-80GB")
    rows = told.allocations[told.allocations["job_id"] == small.job_id]
    assert set(rows["node"]) == {"mig-0"}
    assert rows["gpu_count"].isna().all()


def test_every_running_pod_is_found_under_both_its_names(told: Collected) -> None:
    """Exporters name a pod by namespace and name, a process by the pod's uid."""
    rows = told.allocations
    by_name = rows[~rows["label_id"].str.startswith("pod-uid:")]
    by_uid = rows[rows["label_id"].str.startswith("pod-uid:")]
    facts = ["job_id", "node", "gpu_count", "started_at", "ended_at"]
    assert len(by_name) == len(by_uid) == 11
    assert by_name["label_id"].is_unique
    assert by_name["label_id"].str.startswith("ml/").all()
    assert sorted(map(str, by_name[facts].to_numpy().tolist())) == sorted(
        map(str, by_uid[facts].to_numpy().tolist())
    )
    held = by_name[by_name["ended_at"].isna() & by_name["gpu_count"].notna()]
    boards = held.groupby("node")["gpu_count"].sum()
    assert (boards <= 8).all()
    assert boards.sum() == 13
    (short,) = by_name[by_name["job_id"] == "ml/job/short"].to_dict("records")
    assert timedelta(0) < short["ended_at"] - short["started_at"] < timedelta(minutes=1)


def test_all_was_read(told: Collected) -> None:
    """Nothing is missing, with the rights of deploy/kubernetes-reader.yaml."""
    assert (told.report.completeness_ratio, told.report.warnings) == (1.0, ())


@pytest.mark.kubernetes
@pytest.mark.slow
def test_the_same_window_again_is_the_same_batch(
    bed: KubernetesBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large the pages are."""
    now = datetime.now(tz=UTC)
    window = Window(start=now - timedelta(hours=1), end=now)
    collector = KubernetesCollector(KubernetesClient(settings_of(bed)), load_gpu_catalogue())
    batches = set()
    for size in (1, 3, 500):
        monkeypatch.setattr(api, "PAGE_SIZE", size)
        batches.add(collector.collect(window).batch_id)
    assert len(batches) == 1


@pytest.mark.kubernetes
@pytest.mark.slow
def test_nobody_is_refused_by_name(bed: KubernetesBed) -> None:
    """The server says who may not list what; the hint names the role."""
    with pytest.raises(SourceRefusedError, match=r'User "nobody" cannot list.*"nodes"') as caught:
        read_live(settings_of(bed, "nobody"))
    assert "kubernetes-reader.yaml" in caught.value.hint
    (finding,) = kubernetes_findings(settings_of(bed, "nobody"))
    assert finding[:2] == ("reachable and authorised", "missing")


@pytest.mark.kubernetes
@pytest.mark.slow
def test_findings_of_a_whole_cluster(bed: KubernetesBed) -> None:
    """Everything is there."""
    found = {what: (state, detail) for what, state, detail in kubernetes_findings(settings_of(bed))}
    assert {state for state, _detail in found.values()} == {"ok"}
    assert found["GPU resources"][1] == "20 GPUs and 2 MIG instances on 4 nodes"
    assert found["MIG strategy"][1].startswith("mixed")
    assert "not served" in found["GPUs by resource claim (DRA)"][1]


@pytest.mark.kubernetes
@pytest.mark.slow
def test_a_namespace_alone_can_be_read(bed: KubernetesBed) -> None:
    """Another namespace is not asked for."""
    assert read_live(settings_of(bed, namespaces="default")).jobs == ()
    assert len(read_live(settings_of(bed, namespaces="ml,default")).jobs) == 11


@pytest.mark.kubernetes
@pytest.mark.slow
def test_a_kind_that_may_not_be_listed_is_told_with_the_rule(bed: KubernetesBed) -> None:
    """What can be read is read: the Deployment keeps its name. The last test: rights change."""
    role = bed.get("ClusterRole", "trimtab-reader")
    for rule in role["rules"]:
        rule["resources"] = [
            resource for resource in rule["resources"] if resource != "deployments"
        ]
    bed.patch("ClusterRole", "trimtab-reader", {"rules": role["rules"]})
    bed.until(
        "Deployments are refused",
        lambda: bed.answer("GET", "apis/apps/v1/deployments", user="reader").status_code == 403,
    )
    got = read_live(settings_of(bed))
    ranker = job_of(got, "deployment/ranker")
    assert ranker.scheduler is not None
    assert (ranker.owner, ranker.scheduler.managed_by) == ("", ("HorizontalPodAutoscaler",))
    assert got.report.completeness_ratio is not None
    assert got.report.completeness_ratio < 1
    (warning,) = got.report.warnings
    assert 'User "reader" cannot list' in warning
    found = {what: detail for what, state, detail in kubernetes_findings(settings_of(bed))
             if state == "missing"}  # fmt: skip
    rule = 'apiGroups: ["apps"], resources: ["deployments"], verbs: ["get", "list"]'
    assert rule in found["may list Deployment"]
