"""Who would undo a change: named before the approval, and only for fields that they write."""

from typing import Any

import pytest
from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import (
    bind_in,
    carry_out,
    deployment,
    gpus,
    planned,
    pod_spec,
    proposal,
    room,
    spec_of,
)
from factories import make_job
from recorded.record_kubernetes import built_in

from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from dashboard.apply.kubernetes.change.change_text import kubernetes_change
from data.base.errors import ChangeRefusedError
from data.facts.jobs import Job, SchedulerFacts
from data.records.actions import Action
from data.records.changes import VerificationResult
from data.records.recommendations import Recommendation

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

EACH = (("gpus_per_pod", "1"),)


def told(job_id: str, *managers: str, pods: int = 2, **extra: str) -> Job:
    """A job of pods with two GPUs, as the collector tells of it."""
    facts = {"pods": str(pods), "gpus_per_pod": "2", **extra}
    scheduler = SchedulerFacts(managed_by=managers, extra=tuple(facts.items()))
    return make_job(job_id, gpu_count=2 * pods, scheduler=scheduler)


@pytest.mark.parametrize("manager", ["Helm", "Argo CD", "Flux", "Kueue", "HorizontalPodAutoscaler"])
def test_the_text_before_the_approval_names_who_would_undo_it(manager: str) -> None:
    """No patch is printed as if it were ready: the manifest's difference is."""
    fewer = proposal("ml/deployment/serve", gpus(4), gpus(2))
    with pytest.raises(ChangeRefusedError, match=f"{manager} would undo the change") as caught:
        kubernetes_change(fewer, told(fewer.job_id, manager))
    assert "-  replicas: 2\n+  replicas: 1" in caught.value.hint


def test_an_autoscaler_stands_against_no_other_field() -> None:
    """It writes the number of pods, and neither their GPUs nor their nodes."""
    smaller = proposal("ml/deployment/serve", gpus(4), gpus(4, model="A100"))
    job = told(smaller.job_id, "HorizontalPodAutoscaler")
    assert "nodeSelector" in kubernetes_change(smaller, job).text


def test_an_elastic_job_of_kueue_takes_another_number_of_pods_and_nothing_else(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """Kueue admits further pods by themselves; what it makes of a job without any is not known."""
    at = room(bed, "elastic", 8)
    spec = {"parallelism": 2, "template": {"spec": pod_spec(2, restartPolicy="Never", **at)}}
    document = built_in("batch/v1", "Job", "serve", spec, namespace="elastic")
    document["metadata"] |= {
        "labels": {"kueue.x-k8s.io/queue-name": "research"},
        "annotations": {"kueue.x-k8s.io/elastic-job": "true"},
    }
    bed.apply(document)
    change = planned(applier, proposal("elastic/job/serve", gpus(4), gpus(2)))
    assert carry_out(applier, change).seen is VerificationResult.AS_INTENDED
    assert spec_of(bed, "elastic", "Job")["parallelism"] == 1
    for now, then, count in ((2, 4, 2), (4, 2, 1)):
        row = proposal("elastic/job/serve", gpus(now), gpus(then))
        assert carry_out(applier, planned(applier, row)).seen is VerificationResult.AS_INTENDED
        assert spec_of(bed, "elastic", "Job")["parallelism"] == count
    with pytest.raises(ChangeRefusedError, match=r"Kueue \(elastic job\) would undo"):
        planned(applier, proposal("elastic/job/serve", gpus(2), gpus(0)))


def test_a_label_that_argo_cd_may_track_by_is_a_note_and_so_is_the_outage_of_one_pod() -> None:
    """Both stand in the text that a person reads before the approval."""
    one = proposal("ml/deployment/serve", gpus(2), gpus(1))
    text = kubernetes_change(one, told(one.job_id, pods=1, instance_label="shop")).text
    assert "# Its label app.kubernetes.io/instance is shop: if Argo CD tracks it" in text
    assert "# It has one pod: without room for a second one the service goes down" in text
    assert (
        "goes down"
        not in kubernetes_change(
            proposal("ml/deployment/serve", gpus(4), gpus(2)), told(one.job_id)
        ).text
    )


def test_an_autoscaler_does_not_undo_a_change_of_the_gpus_of_each_pod(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """Replicas are refused, GPUs and model are not; the label of an instance is a note."""
    at = room(bed, "sized", 8)
    document = deployment("sized", replicas=2, pod=pod_spec(2, **at))
    document["metadata"]["labels"] = {"app.kubernetes.io/instance": "shop"}
    bed.apply(document)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "serve"}
    scaler = {"maxReplicas": 6, "minReplicas": 2, "scaleTargetRef": target}
    bed.apply(
        built_in("autoscaling/v1", "HorizontalPodAutoscaler", "serve", scaler, namespace="sized")
    )
    before = spec_of(bed, "sized")
    with pytest.raises(ChangeRefusedError, match="HorizontalPodAutoscaler would undo"):
        planned(applier, proposal("sized/deployment/serve", gpus(4), gpus(2)))
    change = planned(applier, proposal("sized/deployment/serve", gpus(4), gpus(2), details=EACH))
    assert any("if Argo CD tracks it" in note for note in change.notes)
    assert carry_out(applier, change).seen is VerificationResult.AS_INTENDED
    back = applier.change_back(change, applier.look_again(change))
    assert carry_out(applier, back).seen is VerificationResult.AS_INTENDED
    assert spec_of(bed, "sized") == before


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"replicas": 2}, ("replicas",)),
        ({"template": {"spec": {"containers": [{"name": "main", "image": "example/serve:1",
          "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}}, ("each",)),
        ({"template": {"spec": {"containers": [{"name": "proxy", "image": "example/proxy:1"}]}}},
         ()),
        ({"minReadySeconds": 1}, ()),
    ],
)  # fmt: skip
def test_a_server_side_applier_stands_against_its_own_fields_alone(
    bed: KubernetesBed, applier: KubernetesApplier, fields: dict[str, Any], refused: tuple[str, ...]
) -> None:
    """The server keeps which fields it applied, element by element."""
    namespace = f"applied-{len(str(fields))}"
    bind_in(bed, namespace)
    bed.apply(deployment(namespace, replicas=2, pod=pod_spec(2)))
    bed.ask(
        "PATCH",
        f"apis/apps/v1/namespaces/{namespace}/deployments/serve?fieldManager=fleet&force=true",
        json={"apiVersion": "apps/v1", "kind": "Deployment", "spec": fields},
        headers={"Content-Type": "application/apply-patch+yaml"},
    )
    job_id = f"{namespace}/deployment/serve"
    changes = {
        "replicas": proposal(job_id, gpus(4), gpus(2)),
        "each": proposal(job_id, gpus(4), gpus(2), details=EACH),
    }
    for name, change in changes.items():
        if name in refused:
            with pytest.raises(ChangeRefusedError, match="server-side apply by fleet would undo"):
                planned(applier, change)
        else:
            assert planned(applier, change).steps


CRON = {
    "schedule": "0 0 1 1 *",
    "jobTemplate": {
        "spec": {"parallelism": 2, "template": {"spec": pod_spec(2) | {"restartPolicy": "Never"}}}
    },
}


@pytest.mark.parametrize(
    ("proposed", "more", "field", "value"),
    [
        (gpus(2), {}, "parallelism", 1),
        (gpus(2), {"details": EACH}, "gpus", "1"),
        (gpus(0), {}, "suspend", True),
        (gpus(4, profile="3g.40gb"), {"action": Action.MIG_SLICE}, "gpus", None),
    ],
)
def test_a_cron_job_is_changed_from_its_next_run_on(
    bed: KubernetesBed, applier: KubernetesApplier, proposed: Any, more: Any, field: str, value: Any
) -> None:
    """By the rights of deploy/ alone; said before, read back, and whole after the way back."""
    namespace = f"cron-{field}-{proposed.gpu_count}{proposed.mig_profile[:1]}"
    bind_in(bed, namespace)
    bed.add_gpu_node("node-cron", gpus=0, mig={"3g.40gb": 1})
    bed.apply(built_in("batch/v1beta1", "CronJob", "serve", CRON, namespace=namespace))
    before = spec_of(bed, namespace, "CronJob")
    recommendation = proposal(f"{namespace}/cronjob/serve", gpus(4), proposed, **more)
    change = planned(applier, recommendation)
    assert "It holds from the next run on: a run under way keeps what it has." in change.notes
    found = carry_out(applier, change)
    assert (found.seen, found.detail.partition(";")[0]) == (
        VerificationResult.AS_INTENDED,
        "its next run takes it",
    )
    after = spec_of(bed, namespace, "CronJob")
    job = after["jobTemplate"]["spec"]
    limits = job["template"]["spec"]["containers"][1]["resources"]["limits"]
    seen = {"parallelism": job["parallelism"], "gpus": limits.get("nvidia.com/gpu"),
            "suspend": after["suspend"]}  # fmt: skip
    assert seen[field] == value
    back = applier.change_back(change, applier.look_again(change))
    assert carry_out(applier, back).seen is VerificationResult.AS_INTENDED
    assert spec_of(bed, namespace, "CronJob") == before


@pytest.mark.parametrize("proposed", [gpus(2), gpus(0)])
def test_the_text_of_a_cron_job_is_a_patch_that_the_server_takes(
    bed: KubernetesBed, proposed: Any
) -> None:
    """Made of what the collector told alone."""
    recommendation: Recommendation = proposal("ml/cronjob/serve", gpus(4), proposed)
    text = kubernetes_change(recommendation, told(recommendation.job_id)).text
    assert "from the next run on" in text
    assert ("/spec/jobTemplate/spec/parallelism" in text) == bool(proposed.gpu_count)
    assert ("/spec/suspend" in text) != bool(proposed.gpu_count)
