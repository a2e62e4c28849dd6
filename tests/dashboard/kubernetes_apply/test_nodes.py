"""Nodes are cordoned as the plan saw them, and taken back."""

from datetime import timedelta

import pytest
from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import (
    bind_cordon,
    carry_out,
    deployment,
    gpus,
    planned,
    pod_spec,
    proposal,
    rolled_out,
    room,
)

from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from data.base.clock import utc_now
from data.base.errors import ChangeRefusedError, StalePlanError
from data.records.actions import Action
from data.records.changes import VerificationResult

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]


def test_a_node_is_cordoned_and_its_pods_are_listed(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """Cordoning is the step, draining is advice with the pods; the role for it is bound apart."""
    at = room(bed, "cordon", 4)
    bed.apply(deployment("cordon", replicas=1, pod=pod_spec(2, **at)))
    rolled_out(bed, "cordon")
    (pod,) = bed.list("Pod", namespace="cordon")
    before = bed.get("Node", "node-cordon")["spec"]
    recommendation = proposal(
        "", gpus(4), gpus(4), action=Action.CONSOLIDATE, details=(("node", "node-cordon"),)
    )
    with pytest.raises(ChangeRefusedError, match=r'resources: \["nodes"\], verbs: \["get"\]'):
        planned(applier, recommendation)
    bind_cordon(bed)
    change = planned(applier, recommendation)
    assert f"Pods with GPUs on it: cordon/{pod['metadata']['name']} (2)." in change.notes
    assert any("kubectl drain node-cordon" in note for note in change.notes)
    found = carry_out(applier, change)
    assert found.seen is VerificationResult.AS_INTENDED
    assert found.detail.endswith(f"once these have left it: cordon/{pod['metadata']['name']} (2)")
    assert bed.get("Node", "node-cordon")["spec"]["unschedulable"] is True
    with pytest.raises(ChangeRefusedError, match="cordoned already"):
        planned(applier, recommendation)
    assert applier.note(change, actor="ada", outcome="applied") == ""
    back = applier.change_back(change, applier.look_again(change))
    assert carry_out(applier, back).seen is VerificationResult.AS_INTENDED
    assert bed.get("Node", "node-cordon")["spec"] == before


def test_a_node_that_got_pods_since_the_plan_is_not_cordoned(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """Pods that were there when the plan was made are no reason."""
    at = room(bed, "landed", 4)
    bind_cordon(bed)
    planned_at = utc_now()
    emptied = {"action": Action.CONSOLIDATE, "details": (("node", "node-landed"),)}
    early = proposal("", gpus(4), gpus(4), **emptied, created_at=planned_at)
    # The API server counts in whole seconds.
    bed.until("a second has passed", lambda: utc_now() > planned_at + timedelta(seconds=1))
    bed.apply(deployment("landed", replicas=1, pod=pod_spec(2, **at)))
    rolled_out(bed, "landed")
    (pod,) = bed.list("Pod", namespace="landed")
    with pytest.raises(StalePlanError, match=f"after the plan .*{pod['metadata']['name']}"):
        planned(applier, early)
    assert planned(applier, proposal("", gpus(4), gpus(4), **emptied)).steps
