"""Bounds that KEDA holds: moved in its ScaledObject, done once its autoscaler has them.

KEDA is a stand-in on a real API (`beds.autoscalers`).
"""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.apply_bench import fill
from beds.autoscalers import (
    HELM,
    SCALED,
    bound,
    define_scaled_objects,
    reconciled,
    scaled_object,
    scaler,
    served,
    under_keda,
)
from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import account_kubeconfig, planned, rehearsed, settings_of
from beds.steps import send_step

from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from dashboard.apply.worker.worker import Worker
from dashboard.decisions import approvals
from data.base.clock import utc_now
from data.base.errors import ApplyError, ChangeRefusedError
from data.records.changes import StepOutcome, VerificationResult
from data.settings.all_settings import Settings
from data.settings.apply import ApplySettings
from data.store import Store

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def keda(bed: KubernetesBed) -> None:
    """The kind that KEDA defines."""
    define_scaled_objects(bed)


def spec_of(bed: KubernetesBed, namespace: str) -> Any:
    """The spec of the ScaledObject, whole."""
    return bed.get("ScaledObject", "serve", namespace=namespace)["spec"]


@pytest.mark.parametrize(
    ("namespace", "bounds", "now", "wanted", "field"),
    [
        ("keda-low", {"minReplicaCount": 5, "maxReplicaCount": 8}, 5, 2, "minReplicaCount"),
        ("keda-high", {"minReplicaCount": 5}, 100, 120, "maxReplicaCount"),
        (
            "keda-zero",
            {"minReplicaCount": 0, "idleReplicaCount": 0, "maxReplicaCount": 4},
            4,
            6,
            "maxReplicaCount",
        ),
    ],
)
def test_what_keda_makes_is_changed_where_keda_reads_it(
    bed: KubernetesBed,
    patient: KubernetesApplier,
    namespace: str,
    bounds: dict[str, int],
    now: int,
    wanted: int,
    field: str,
) -> None:
    """It waits until the autoscaler has the bound; the way back takes an unset field away again."""
    under_keda(bed, namespace, **bounds)
    before = spec_of(bed, namespace)
    change = planned(patient, bound(namespace, now, wanted, SCALED))
    assert change.steps[0].target == f"{SCALED} in {namespace}"
    assert rehearsed(patient, change).refusals == ()
    assert send_step(patient, change.steps[0], change).outcome is StepOutcome.DONE
    waiting = patient.read_back(change, done=1)
    assert waiting.seen is VerificationResult.NOT_YET
    assert f"of keda-hpa-serve is {now}, not {wanted}" in waiting.detail
    assert spec_of(bed, namespace) == before | {field: wanted}
    reconciled(bed, namespace)
    assert patient.read_back(change, done=1).seen is VerificationResult.AS_INTENDED
    back = patient.change_back(change, patient.look_again(change))
    assert send_step(patient, back.steps[0], back).outcome is StepOutcome.DONE
    assert patient.read_back(back, done=1).seen is VerificationResult.NOT_YET
    reconciled(bed, namespace)
    assert patient.read_back(back, done=1).seen is VerificationResult.AS_INTENDED
    assert spec_of(bed, namespace) == before


def test_the_autoscaler_that_keda_makes_is_not_changed_itself(
    bed: KubernetesBed, patient: KubernetesApplier
) -> None:
    """KEDA would write its own bound again."""
    under_keda(bed, "keda-own", minReplicaCount=5)
    made = bound("keda-own", 5, 2, "horizontalpodautoscaler.autoscaling/keda-hpa-serve")
    with pytest.raises(ChangeRefusedError, match="ScaledObject serve would undo"):
        planned(patient, made)


@pytest.mark.parametrize(
    ("namespace", "changes", "refused"),
    [
        ("keda-idle", {"idleReplicaCount": 2}, "not above its idleReplicaCount of 2"),
        ("keda-paused", {"metadata": {"annotations": {"autoscaling.keda.sh/paused": "true"}}},
         "is paused"),
        ("keda-held", {"metadata": {"annotations": {"autoscaling.keda.sh/paused-replicas": "5",
                                                    "autoscaling.keda.sh/paused": "false"}}},
         "is paused .*paused-replicas: 5"),
        ("keda-helm", {"metadata": HELM}, "Helm would undo"),
        ("keda-turned", {"scaleTargetRef": {"name": "serve", "kind": "StatefulSet"}},
         "scales StatefulSet serve"),
    ],
)  # fmt: skip
def test_what_keda_would_not_carry_out_is_refused(
    bed: KubernetesBed, patient: KubernetesApplier, namespace: str, changes: Any, refused: str
) -> None:
    """Named with what to do about it."""
    under_keda(bed, namespace, minReplicaCount=5, **changes)
    with pytest.raises(ApplyError, match=refused):
        planned(patient, bound(namespace, 5, 2, SCALED))


def test_an_approval_is_of_the_idle_count_too(
    bed: KubernetesBed, patient: KubernetesApplier
) -> None:
    """It says how low a minimum may be."""
    under_keda(bed, "keda-seen", minReplicaCount=5)
    one = bound("keda-seen", 5, 2, SCALED)
    before = planned(patient, one).digest
    bed.apply(scaled_object("keda-seen", minReplicaCount=5, idleReplicaCount=0))
    assert planned(patient, one).digest != before


def test_why_keda_does_not_follow_is_told(bed: KubernetesBed, patient: KubernetesApplier) -> None:
    """By its own condition, and where it has made no autoscaler: that of another is not it."""
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}
    served(
        bed,
        "keda-none",
        scaled_object("keda-none", minReplicaCount=5),
        scaler("keda-none", "other", minReplicas=2, maxReplicas=100, scaleTargetRef=other),
    )
    change = planned(patient, bound("keda-none", 5, 2, SCALED))
    assert send_step(patient, change.steps[0], change).outcome is StepOutcome.DONE
    assert "it has made no autoscaler" in patient.read_back(change, done=1).detail
    broken = {"type": "Ready", "status": "False", "message": "no trigger is known"}
    bed.patch_status("ScaledObject", "serve", {"conditions": [broken]}, namespace="keda-none")
    found = patient.read_back(change, done=1)
    assert (found.seen, "no trigger is known" in found.detail) == (VerificationResult.NOT_YET, True)


class Visits:
    """A worker with an approved bound, and a clock that a test moves on."""

    def __init__(
        self, store: Store, patient: KubernetesApplier, folder: Path, namespace: str
    ) -> None:
        self.store, self.ahead = store, timedelta(hours=2)
        one = bound(namespace, 5, 2, SCALED)
        self.digest = one.digest
        fill(store, one)
        settings = replace(
            Settings(), apply=ApplySettings(enabled=True, stop_file=str(folder / "STOP"))
        )
        self.worker = Worker(
            store=store,
            settings=lambda: settings,
            appliers=lambda _settings: (patient,),
            clock=self.clock,
        )
        approvals.approve(store, one.digest, by="Robin", now=self.clock())
        approvals.ask_to_apply(store, one.digest, by="Robin", now=self.clock(), appliers=(patient,))

    def clock(self) -> datetime:
        """The time."""
        return utc_now() + self.ahead

    def visit(self, minutes: float = 2.0) -> str:
        """Let the worker visit after some minutes, and give the state."""
        self.ahead += timedelta(minutes=minutes)
        self.worker.work_once()
        return str(self.store.reader.recommendation(self.digest, now=self.clock()).state)


def test_a_worker_waits_for_keda_there_and_back(
    bed: KubernetesBed, patient: KubernetesApplier, store: Store, tmp_path: Path
) -> None:
    """From the approval to the way back: it is applied when the autoscaler has the bound."""
    under_keda(bed, "keda-work", minReplicaCount=5, maxReplicaCount=8)
    before = spec_of(bed, "keda-work")
    visits = Visits(store, patient, tmp_path, "keda-work")
    assert [visits.visit() for _visit in range(3)] == ["applying"] * 3
    assert "waits for KEDA" in store.reader.commands(visits.digest)[-1].held
    reconciled(bed, "keda-work")
    assert visits.visit() == "applied"
    approvals.ask_to_roll_back(store, visits.digest, by="Robin", now=visits.clock())
    assert [visits.visit() for _visit in range(3)] == ["rolling-back"] * 3
    assert spec_of(bed, "keda-work") == before
    reconciled(bed, "keda-work")
    assert visits.visit() == "rolled-back"
    assert store.reader.verify_audit() == ()


def test_keda_that_does_not_follow_is_no_success(
    bed: KubernetesBed, store: Store, tmp_path: Path
) -> None:
    """For longer than a pod may be pending: failing, until the autoscaler has the bound."""
    under_keda(bed, "keda-late", minReplicaCount=5)
    path = account_kubeconfig(bed, "trimtab-applier")
    visits = Visits(store, KubernetesApplier(settings_of(path, pending_seconds=0)), tmp_path,
                    "keda-late")  # fmt: skip
    assert [visits.visit() for _visit in range(3)][-1] == "failing"
    told = store.reader.journal(digest=visits.digest)[-1].detail
    assert "waits for KEDA: minReplicas of keda-hpa-serve is 5, not 2" in told
    reconciled(bed, "keda-late")
    assert [visits.visit() for _visit in range(3)][-1] == "applied"
