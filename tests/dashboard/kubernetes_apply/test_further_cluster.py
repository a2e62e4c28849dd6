"""A real Kubernetes as a further cluster: the store's names outside, its own ones inside."""

import pytest
from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import (
    carry_out,
    deployment,
    gpus,
    planned,
    pod_spec,
    proposal,
    room,
    settled,
    spec_of,
)
from beds.steps import send_step

from dashboard.apply.contract.multi_cluster import in_cluster
from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from data.records.changes import StepOutcome, VerificationResult

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]


def test_a_workload_is_changed_and_changed_back(
    bed: KubernetesBed, patient: KubernetesApplier
) -> None:
    """Stopped and started again under `@paris`; the change is bound to the store's own digest."""
    here = room(bed, "far", 2)
    bed.apply(deployment("far", replicas=2, pod=pod_spec(1, **here)))
    one = proposal("far/deployment/serve@paris", gpus(2), gpus(0))
    applier = in_cluster(patient, "paris")
    assert applier.covers(one)
    assert not in_cluster(patient, "lyon").covers(one)
    change = planned(applier, one)  # type: ignore[arg-type]
    assert change.recommendation_digest == one.digest
    assert change.target.name.endswith("@paris")
    assert "@paris" not in "".join(step.payload + step.text for step in change.steps)
    found = carry_out(applier, change)  # type: ignore[arg-type]
    assert found.seen is VerificationResult.AS_INTENDED, found
    assert spec_of(bed, "far")["replicas"] == 0
    back = applier.change_back(change, applier.look_again(change))
    assert back.target.name == change.target.name
    assert {send_step(applier, step, back).outcome for step in back.steps} == {StepOutcome.DONE}
    seen = settled(applier, back, len(back.steps))  # type: ignore[arg-type]
    assert seen.seen is VerificationResult.AS_INTENDED, seen
    assert spec_of(bed, "far")["replicas"] == 2
