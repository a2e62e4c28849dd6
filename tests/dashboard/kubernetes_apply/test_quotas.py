"""Quotas of a real Kubernetes: foreseen where they stand, told where they come meanwhile."""

from typing import Any

import pytest
from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import (
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
from dashboard.apply.kubernetes.state.quotas import refusal
from data.records.actions import Action
from data.records.changes import Rehearsal, StepOutcome, VerificationResult

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]


def quota(bed: KubernetesBed, namespace: str, name: str, hard: str, used: str) -> None:
    """Make a quota of one resource and wait until the server counts what is in use."""
    bed.api_versions["ResourceQuota"] = "v1"
    bed.apply(built_in("v1", "ResourceQuota", "gpus", {"hard": {name: hard}}, namespace=namespace))

    def counted() -> bool:
        status = bed.get("ResourceQuota", "gpus", namespace=namespace)["status"]
        return bool(status.get("used", {}).get(name) == used)

    bed.until("the quota counts", counted)


def is_at_rest(bed: KubernetesBed, kind: str, namespace: str) -> bool:
    """Whether no further status is to come: one that did would make a dry run conflict."""
    status = bed.get(kind, "serve", namespace=namespace)["status"]
    reasons = {entry["reason"] for entry in status.get("conditions", ())}
    said = kind != "Deployment" or "NewReplicaSetAvailable" in reasons
    return bool(status.get("readyReplicas") == 1 and said)


@pytest.mark.parametrize(
    ("name", "hard", "pods", "surges"),
    [
        ("requests.nvidia.com/gpu", "2", 1, False),
        ("requests.nvidia.com/gpu", "3", 1, True),
        ("pods", "2", 2, False),
        ("count/pods", "3", 2, True),
    ],
)
def test_a_quota_without_room_for_one_more_pod_is_foreseen(
    bed: KubernetesBed,
    patient: KubernetesApplier,
    name: str,
    hard: str,
    pods: int,
    surges: bool,
) -> None:
    """Pods are then replaced one by one; with room the strategy of the owner is left alone."""
    namespace = f"surge-{hard}-{pods}-{name.partition('/')[0].partition('.')[0]}"
    at = room(bed, namespace, 8)
    bed.apply(deployment(namespace, replicas=pods, pod=pod_spec(2, **at)))
    rolled_out(bed, namespace)
    quota(bed, namespace, name, hard, str(2 * pods) if "gpu" in name else str(pods))
    before = spec_of(bed, namespace)
    change = planned(
        patient,
        proposal(f"{namespace}/deployment/serve", gpus(2 * pods), gpus(pods),
                 details=(("gpus_per_pod", "1"),)),
    )  # fmt: skip
    assert any("maxSurge" in step.field for step in change.steps) is not surges
    assert carry_out(patient, change).seen is VerificationResult.AS_INTENDED
    assert spec_of(bed, namespace)["strategy"] == before["strategy"]


@pytest.mark.parametrize(
    ("name", "hard", "refused"),
    [("requests.nvidia.com/gpu", "3", True), ("requests.nvidia.com/gpu", "4", False),
     ("pods", "1", True), ("pods", "2", False)],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_more_pods_than_a_quota_admits_are_refused_beforehand(
    bed: KubernetesBed, applier: KubernetesApplier, kind: str, name: str, hard: str, refused: bool
) -> None:
    """The rehearsal names the quota, its limit and what is in use."""
    namespace = f"more-{hard}-{name.partition('.')[0]}-{kind.lower()}"
    at = room(bed, namespace, 8)
    bed.apply(replicated(kind, namespace, replicas=1, pod=pod_spec(2, **at)))
    bed.until("its controller has said all", lambda: is_at_rest(bed, kind, namespace))
    quota(bed, namespace, name, hard, "2" if "gpu" in name else "1")
    job = f"{namespace}/{kind.lower()}/serve"
    change = planned(applier, proposal(job, gpus(2), gpus(4), action=Action.SCALE_OUT))
    said = " ".join(rehearsed(applier, change).refusals)
    assert (f"the quota gpus allows {hard} " in said) is refused
    assert bool(said) is refused


@pytest.mark.parametrize("prefix", ["requests.", "limits.", ""])
def test_of_gpus_requests_alone_are_counted(prefix: str) -> None:
    """As Kubernetes counts: `tests/collectors/test_resource_quotas.py` shows it on a server."""
    hard = {f"{prefix}nvidia.com/gpu": "1"}
    found = {"metadata": {"name": "gpus"}, "spec": {"hard": hard}}
    assert bool(refusal([found], {"nvidia.com/gpu": 2})) is (prefix == "requests.")


def test_a_quota_that_forbids_the_pods_is_failing(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """The Deployment takes any number; its pods are refused, in the words of the quota."""
    at = room(bed, "quota", 8)
    bed.apply(deployment("quota", replicas=1, pod=pod_spec(2, **at)))
    rolled_out(bed, "quota")
    change = planned(
        applier,
        proposal("quota/deployment/serve", gpus(2), gpus(4), action=Action.SCALE_OUT),
    )
    assert rehearsed(applier, change) == Rehearsal(rehearsed=True)
    quota(bed, "quota", "requests.nvidia.com/gpu", "2", "2")
    (step,) = change.steps
    assert send_step(applier, step, change).outcome is StepOutcome.DONE
    found = settled(applier, change, 1)
    assert found.seen is VerificationResult.FAILING
    assert "exceeded quota" in found.detail
    back = applier.change_back(change, applier.look_again(change))
    assert carry_out(applier, back).seen is VerificationResult.AS_INTENDED


@pytest.mark.parametrize(
    ("rule", "change", "refused"),
    [
        ({"type": "Container", "min": {"nvidia.com/gpu": "2"}}, "template", True),
        ({"type": "Container", "max": {"nvidia.com/gpu": "4"}}, "template", False),
        ({"type": "Pod", "min": {"nvidia.com/gpu": "2"}}, "template", True),
        ({"type": "Container", "max": {"nvidia.com/gpu": "1"}}, "more", True),
        ({"type": "Container", "max": {"nvidia.com/gpu": "1"}}, "fewer", False),
    ],
)
def test_a_limit_range_that_keeps_new_pods_out_is_foreseen(
    bed: KubernetesBed, applier: KubernetesApplier, rule: dict[str, Any], change: str, refused: bool
) -> None:
    """A dry run of the workload does not see it: its controller makes the pods."""
    bound = next(name for name in ("min", "max") if name in rule)
    namespace = f"limits-{rule['type']}-{bound}-{change}".lower()
    at = room(bed, namespace, 8)
    bed.apply(deployment(namespace, replicas=2, pod=pod_spec(2, **at)))
    rolled_out(bed, namespace)
    bed.api_versions["LimitRange"] = "v1"
    bed.apply(built_in("v1", "LimitRange", "gpus", {"limits": [rule]}, namespace=namespace))
    wanted = {
        "template": (gpus(2), {"details": (("gpus_per_pod", "1"),)}),
        "more": (gpus(6), {"action": Action.SCALE_OUT}),
        "fewer": (gpus(2), {}),
    }
    count, more = wanted[change]
    asked = planned(applier, proposal(f"{namespace}/deployment/serve", gpus(4), count, **more))
    refusals = rehearsed(applier, asked).refusals
    assert bool(refusals) is refused
    assert not refused or "limit range gpus" in refusals[0]
