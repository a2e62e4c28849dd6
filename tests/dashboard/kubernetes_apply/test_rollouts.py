"""Changes of a real Kubernetes: rolled out by its controllers, read back, rolled back."""

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
    rehearsed,
    replicated,
    rolled_out,
    room,
    settled,
    spec_of,
)
from beds.steps import send_step
from recorded.record_kubernetes import built_in

from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from data.base.errors import ChangeRefusedError, StalePlanError
from data.records.actions import Action
from data.records.changes import StepOutcome, VerificationResult

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]


def test_an_approved_shrink_rolls_out_and_is_rolled_back(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """Two pods of two GPUs get one each, and two again: the spec ends as it was, byte by byte."""
    at = room(bed, "shrink", 8)
    bed.apply(deployment("shrink", replicas=2, pod=pod_spec(2, **at)))
    rolled_out(bed, "shrink")
    before = spec_of(bed, "shrink")
    wish = (("gpus_per_pod", "1"),)
    change = planned(applier, proposal("shrink/deployment/serve", gpus(4), gpus(2), details=wish))
    assert carry_out(applier, change).seen is VerificationResult.AS_INTENDED
    changed = spec_of(bed, "shrink")
    assert changed["template"]["spec"]["containers"][1]["resources"] == {
        "limits": {"nvidia.com/gpu": "1"},
        "requests": {"nvidia.com/gpu": "1"},
    }
    back = applier.change_back(change, applier.look_again(change))
    assert carry_out(applier, back).seen is VerificationResult.AS_INTENDED
    assert spec_of(bed, "shrink") == before
    again = applier.change_back(back, applier.look_again(back))
    assert carry_out(applier, again).seen is VerificationResult.AS_INTENDED
    assert spec_of(bed, "shrink") == changed


def test_a_full_node_is_rolled_out_one_pod_at_a_time(
    bed: KubernetesBed, patient: KubernetesApplier
) -> None:
    """With a surge pod it would wait for ever; the strategy ends as it was, there and back."""
    at = room(bed, "full", 4)
    bed.apply(deployment("full", replicas=2, pod=pod_spec(2, **at)))
    rolled_out(bed, "full")
    before = spec_of(bed, "full")
    recommendation = proposal(
        "full/deployment/serve", gpus(4), gpus(2), details=(("gpus_per_pod", "1"),)
    )
    change = planned(patient, recommendation)
    assert [step.field for step in change.steps] == [
        "maxSurge; maxUnavailable; nvidia.com/gpu of container main",
        "maxSurge; maxUnavailable",
    ]
    assert any("one by one" in note for note in change.notes)
    assert carry_out(patient, change).seen is VerificationResult.AS_INTENDED
    changed = spec_of(bed, "full")
    assert changed["strategy"] == before["strategy"]
    assert changed["template"] != before["template"]
    back = patient.change_back(change, patient.look_again(change))
    assert carry_out(patient, back).seen is VerificationResult.AS_INTENDED
    assert spec_of(bed, "full") == before


def test_a_rollout_that_finds_no_gpu_is_failing_and_can_be_rolled_back(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """The room was there at the look and is gone at the change: the scheduler's words are told."""
    at = room(bed, "stuck", 6)
    bed.apply(deployment("stuck", replicas=2, pod=pod_spec(2, **at)))
    rolled_out(bed, "stuck")
    before = spec_of(bed, "stuck")
    recommendation = proposal(
        "stuck/deployment/serve", gpus(4), gpus(2), details=(("gpus_per_pod", "1"),)
    )
    change = planned(applier, recommendation)
    assert len(change.steps) == 1
    bed.apply(deployment("stuck", name="thief", replicas=1, pod=pod_spec(2, **at)))
    rolled_out(bed, "stuck", "thief")
    assert applier.look_again(change).fingerprint != change.target.fingerprint
    assert send_step(applier, change.steps[0], change).outcome is StepOutcome.DONE
    found = settled(applier, change, 1)
    assert found.seen is VerificationResult.FAILING
    assert "Insufficient nvidia.com/gpu" in found.detail
    back = applier.change_back(change, applier.look_again(change))
    assert carry_out(applier, back).seen is VerificationResult.AS_INTENDED
    assert spec_of(bed, "stuck") == before


def test_replicas_shrink_grow_and_stop(bed: KubernetesBed, applier: KubernetesApplier) -> None:
    """Fewer, more and no pods; each way back restores what was there and nothing else."""
    at = room(bed, "count", 8)
    bed.apply(deployment("count", replicas=2, pod=pod_spec(2, **at)))
    rolled_out(bed, "count")
    before = spec_of(bed, "count")
    for proposed, action, replicas in (
        (gpus(2), Action.FEWER_GPUS, 1),
        (gpus(8), Action.SCALE_OUT, 4),
        (gpus(0), Action.RECLAIM, 0),
    ):
        change = planned(
            applier, proposal("count/deployment/serve", gpus(4), proposed, action=action)
        )
        assert carry_out(applier, change).seen is VerificationResult.AS_INTENDED
        assert spec_of(bed, "count") == before | {"replicas": replicas}
        back = applier.change_back(change, applier.look_again(change))
        assert carry_out(applier, back).seen is VerificationResult.AS_INTENDED
        assert spec_of(bed, "count") == before


def test_a_way_back_of_what_somebody_paused_is_failing(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """The old template is set, and the work still has the few GPUs: the pause is named."""
    at = room(bed, "paused", 4)
    bed.apply(deployment("paused", replicas=1, pod=pod_spec(2, **at)))
    rolled_out(bed, "paused")
    change = planned(applier, proposal("paused/deployment/serve", gpus(2), gpus(1)))
    assert carry_out(applier, change).seen is VerificationResult.AS_INTENDED
    bed.patch("Deployment", "serve", {"spec": {"paused": True}}, namespace="paused")
    back = applier.change_back(change, applier.look_again(change))
    # Where the way back has several steps, the next waits for the rollout of the first.
    assert send_step(applier, back.steps[0], back).outcome is StepOutcome.DONE
    found = settled(applier, back, 1)
    assert found.seen is VerificationResult.FAILING
    assert "it is paused" in found.detail
    bed.patch("Deployment", "serve", {"spec": {"paused": False}}, namespace="paused")
    bed.until(
        "it is as before",
        lambda: settled(applier, back, 1).seen is VerificationResult.AS_INTENDED,
    )


def test_pods_that_take_long_to_end_are_told_of(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """With a finalizer an ended pod stays, and its GPUs with it: they are not free yet."""
    at = room(bed, "leaving", 4)
    bed.apply(deployment("leaving", replicas=2, pod=pod_spec(2, **at)))
    rolled_out(bed, "leaving")
    names = [
        pod["metadata"]["name"] for pod in bed.pods() if pod["metadata"]["namespace"] == "leaving"
    ]
    keep: dict[str, Any] = {"metadata": {"finalizers": ["example.com/keep"]}}
    for name in names:
        bed.patch("Pod", name, keep, namespace="leaving")
    change = planned(
        applier,
        proposal("leaving/deployment/serve", gpus(4), gpus(2), action=Action.FEWER_GPUS),
    )
    found = carry_out(applier, change)
    assert found.seen is VerificationResult.AS_INTENDED
    assert found.detail.endswith("1 pod(s) that end still hold their GPUs")
    for name in names:
        bed.patch("Pod", name, {"metadata": {"finalizers": None}}, namespace="leaving")
    bed.until("it is gone", lambda: "still hold" not in settled(applier, change, 1).detail)


def test_more_pods_than_nodes_have_room_for_are_warned_of(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """A cluster may still add a node, so it is no refusal; the pods that wait are told of."""
    at = room(bed, "crowd", 2)
    bed.apply(deployment("crowd", replicas=1, pod=pod_spec(2, **at)))
    rolled_out(bed, "crowd")
    more = proposal("crowd/deployment/serve", gpus(2), gpus(4), action=Action.SCALE_OUT)
    change = planned(applier, more)
    warning = "Nodes have room for 0 of 1 more pods now: the others would wait until GPUs are free."
    assert rehearsed(applier, change).warnings == (warning,)
    found = carry_out(applier, change)
    assert found.seen is VerificationResult.FAILING
    assert "Insufficient nvidia.com/gpu" in found.detail


def test_a_rollback_leaves_what_others_changed_since(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """Another image is theirs; another number of pods than ours is refused, not overwritten."""
    at = room(bed, "others", 8)
    bed.apply(deployment("others", replicas=2, pod=pod_spec(1, **at)))
    rolled_out(bed, "others")
    change = planned(applier, proposal("others/deployment/serve", gpus(2), gpus(1)))
    assert carry_out(applier, change).seen is VerificationResult.AS_INTENDED
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "new:2"}]
    path = "apis/apps/v1/namespaces/others/deployments/serve"
    json_patch = {"Content-Type": "application/json-patch+json"}
    bed.ask("PATCH", path, json=image, headers=json_patch)
    rolled_out(bed, "others")
    back = applier.change_back(change, applier.look_again(change))
    assert carry_out(applier, back).seen is VerificationResult.AS_INTENDED
    found = spec_of(bed, "others")
    assert found["replicas"] == 2
    assert found["template"]["spec"]["containers"][0]["image"] == "new:2"
    bed.patch("Deployment", "serve", {"spec": {"replicas": 5}}, namespace="others")
    assert applier.read_back(back, done=1).seen is VerificationResult.DIFFERENT
    with pytest.raises(StalePlanError, match="neither what was sent"):
        applier.change_back(change, applier.look_again(change))


def test_a_stateful_set_gets_smaller_pods(bed: KubernetesBed, applier: KubernetesApplier) -> None:
    """It takes a pod away before it makes the next, so a full node is no trap."""
    at = room(bed, "stateful", 4)
    bed.apply(replicated("StatefulSet", "stateful", replicas=1, pod=pod_spec(4, **at)))
    bed.until(
        "the pod is ready",
        lambda: (
            bed.get("StatefulSet", "serve", namespace="stateful")["status"].get("readyReplicas")
            == 1
        ),
    )
    before = spec_of(bed, "stateful", "StatefulSet")
    change = planned(applier, proposal("stateful/statefulset/serve", gpus(4), gpus(1)))
    assert len(change.steps) == 1
    assert carry_out(applier, change).seen is VerificationResult.AS_INTENDED
    back = applier.change_back(change, applier.look_again(change))
    assert carry_out(applier, back).seen is VerificationResult.AS_INTENDED
    assert spec_of(bed, "stateful", "StatefulSet") == before


def test_a_mig_slice_takes_the_place_of_a_board(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """The resource's name changes in limits and requests; one that no node offers is refused."""
    bind_in(bed, "slices")
    bed.add_gpu_node("node-slices", gpus=1, mig={"3g.40gb": 2})
    at = {"nodeSelector": {"kubernetes.io/hostname": "node-slices"}}
    bed.apply(deployment("slices", replicas=1, pod=pod_spec(1, **at)))
    rolled_out(bed, "slices")
    before = spec_of(bed, "slices")
    mig = {"action": Action.MIG_SLICE}
    small = proposal("slices/deployment/serve", gpus(1), gpus(1, profile="1g.10gb"), **mig)
    refusals = rehearsed(applier, planned(applier, small)).refusals
    assert refusals == (
        "no node offers nvidia.com/mig-1g.10gb: cut the boards first, or pods would wait for ever",
    )
    half = proposal("slices/deployment/serve", gpus(1), gpus(1, profile="3g.40gb"), **mig)
    change = planned(applier, half)
    assert carry_out(applier, change).seen is VerificationResult.AS_INTENDED
    resources = spec_of(bed, "slices")["template"]["spec"]["containers"][1]["resources"]
    assert resources["limits"] == resources["requests"] == {"nvidia.com/mig-3g.40gb": "1"}
    back = applier.change_back(change, applier.look_again(change))
    assert carry_out(applier, back).seen is VerificationResult.AS_INTENDED
    assert spec_of(bed, "slices") == before


def test_a_limit_range_that_rewrites_pods_is_told(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """A slice in place of a board: the namespace's default adds the board again to every pod."""
    bind_in(bed, "limited")
    bed.add_gpu_node("node-limited", gpus=4, mig={"3g.40gb": 4})
    at = {"nodeSelector": {"kubernetes.io/hostname": "node-limited"}}
    bed.apply(deployment("limited", replicas=1, pod=pod_spec(1, **at)))
    rolled_out(bed, "limited")
    default = {"type": "Container", "default": {"nvidia.com/gpu": "1"}}
    bed.api_versions["LimitRange"] = "v1"
    bed.apply(built_in("v1", "LimitRange", "gpus", {"limits": [default]}, namespace="limited"))
    recommendation = proposal(
        "limited/deployment/serve", gpus(1), gpus(1, profile="3g.40gb"), action=Action.MIG_SLICE
    )
    found = carry_out(applier, planned(applier, recommendation))
    assert found.seen is VerificationResult.DIFFERENT
    assert "asks for nvidia.com/gpu 2, nvidia.com/mig-3g.40gb 1" in found.detail


def test_pods_that_crash_or_run_out_of_memory_are_failing(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """The value is set and the work suffers: a rollback is offered."""
    at = room(bed, "crash", 4)
    bed.apply(deployment("crash", replicas=2, pod=pod_spec(1, **at)))
    rolled_out(bed, "crash")
    change = planned(applier, proposal("crash/deployment/serve", gpus(2), gpus(1)))
    assert carry_out(applier, change).seen is VerificationResult.AS_INTENDED
    (pod,) = [
        entry
        for entry in bed.list("Pod", namespace="crash")
        if "deletionTimestamp" not in entry["metadata"]
    ]
    main = next(
        containerstatuse
        for containerstatuse in pod["status"]["containerStatuses"]
        if containerstatuse["name"] == "main"
    )
    killed = {"reason": "OOMKilled", "exitCode": 137}
    broken = main | {
        "ready": False,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": killed},
    }
    bed.patch_status(
        "Pod", pod["metadata"]["name"], {"containerStatuses": [broken]}, namespace="crash"
    )
    bed.until(
        "it has crashed for longer than the patience",
        lambda: applier.read_back(change, done=1).seen is VerificationResult.FAILING,
        seconds=120,
    )
    assert "CrashLoopBackOff after OOMKilled" in applier.read_back(change, done=1).detail


@pytest.mark.parametrize(
    ("mark", "owner"),
    [
        ({"labels": {"app.kubernetes.io/managed-by": "Helm"}}, "Helm"),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "a:apps/Deployment"}}, "Argo CD"),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}, "Flux"),
        ({"labels": {"kueue.x-k8s.io/queue-name": "research"}}, "Kueue"),
    ],
)
def test_who_would_undo_the_change_is_named_with_the_difference(
    bed: KubernetesBed, applier: KubernetesApplier, mark: dict[str, Any], owner: str
) -> None:
    """Nothing is sent; the difference of the manifest is what the owner needs, and no more."""
    namespace = f"owned-{owner.lower().replace(' ', '-')}"
    at = room(bed, namespace, 4)
    secret = {"env": [{"name": "PASSWORD", "value": "hunter2"}]}
    pod = pod_spec(2, **at)
    pod["containers"][1] |= secret
    document = deployment(namespace, replicas=1, pod=pod)
    document["metadata"] |= mark
    bed.apply(document)
    recommendation = proposal(f"{namespace}/deployment/serve", gpus(2), gpus(1))
    with pytest.raises(ChangeRefusedError, match=f"{owner} would undo") as caught:
        planned(applier, recommendation)
    assert "-            nvidia.com/gpu: '2'\n+            nvidia.com/gpu: '1'" in caught.value.hint
    assert "hunter2" not in str(caught.value)


def test_an_autoscaler_and_server_side_appliers_are_owners(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """An autoscaler sets the replicas again; who applied spec fields would apply them again."""
    at = room(bed, "scaled", 4)
    bed.apply(deployment("scaled", replicas=2, pod=pod_spec(1, **at)))
    recommendation = proposal("scaled/deployment/serve", gpus(2), gpus(1))
    change = planned(applier, recommendation)
    scaler = {
        "maxReplicas": 6,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "serve"},
    }
    bed.apply(
        built_in("autoscaling/v1", "HorizontalPodAutoscaler", "serve", scaler, namespace="scaled")
    )
    for refused in (lambda: planned(applier, recommendation), lambda: applier.look_again(change)):
        with pytest.raises(ChangeRefusedError, match="HorizontalPodAutoscaler"):
            refused()
    bed.delete("HorizontalPodAutoscaler", "serve", namespace="scaled")
    path = "apis/apps/v1/namespaces/scaled/deployments/serve"
    bed.ask(
        "PATCH",
        f"{path}?fieldManager=fleet-operator&force=true",
        json={"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 2}},
        headers={"Content-Type": "application/apply-patch+yaml"},
    )
    with pytest.raises(ChangeRefusedError, match="server-side apply by fleet-operator"):
        planned(applier, recommendation)
    assert send_step(applier, change.steps[0], change).outcome is StepOutcome.REFUSED
    assert spec_of(bed, "scaled")["replicas"] == 2
