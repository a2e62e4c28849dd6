"""The bounds of an autoscaler on a real API: moved, refused, read back, and put back."""

from dataclasses import replace
from typing import Any

import pytest
import yaml
from beds.autoscalers import AUTOSCALER, HELM, SERVE, bound, scaler, served
from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import (
    APPLIER_MANIFEST,
    carry_out,
    deployment,
    gpus,
    planned,
    pod_spec,
    proposal,
    rehearsed,
)
from beds.steps import send_step

from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from dashboard.apply.worker.change_file import change_for as file_of
from data.base.errors import ChangeRefusedError, StalePlanError
from data.records.actions import Action
from data.records.changes import StepOutcome, VerificationResult

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]


def spec_of(bed: KubernetesBed, namespace: str) -> Any:
    """The spec of the autoscaler, whole."""
    return bed.get("HorizontalPodAutoscaler", "serve", namespace=namespace)["spec"]


@pytest.mark.parametrize(
    ("namespace", "field", "now", "wanted"),
    [("lowered", "minReplicas", 5, 2), ("raised", "maxReplicas", 8, 11)],
)
def test_a_bound_is_moved_and_put_back(
    bed: KubernetesBed,
    applier: KubernetesApplier,
    namespace: str,
    field: str,
    now: int,
    wanted: int,
) -> None:
    """By the rights of deploy/ alone: that field and no other, of the autoscaler itself."""
    served(bed, namespace, scaler(namespace))
    before, workload = spec_of(bed, namespace), bed.get("Deployment", "serve", namespace=namespace)
    change = planned(applier, bound(namespace, now, wanted))
    (step,) = change.steps
    assert (step.target, step.field) == (f"{AUTOSCALER} in {namespace}", field)
    assert (step.before, step.after) == (str(now), str(wanted))
    assert any("only when its own metric asks" in note for note in change.notes)
    found = carry_out(applier, change)
    assert found.seen is VerificationResult.AS_INTENDED
    assert found.observed == ((f"/spec/{field}", str(wanted)),)
    assert spec_of(bed, namespace) == before | {field: wanted}
    assert bed.get("Deployment", "serve", namespace=namespace)["spec"] == workload["spec"]
    back = applier.change_back(change, applier.look_again(change))
    assert any("at once" in note for note in back.notes)
    assert carry_out(applier, back).seen is VerificationResult.AS_INTENDED
    assert spec_of(bed, namespace) == before


@pytest.mark.parametrize("now", [4, 6])
def test_a_bound_that_has_moved_is_stale_before_and_after_the_approval(
    bed: KubernetesBed, applier: KubernetesApplier, now: int
) -> None:
    """At the look with both numbers; at the send because the patch tests the value."""
    served(bed, "moved-bound", scaler("moved-bound"))
    change = planned(applier, bound("moved-bound", 5, 2))
    bed.apply(scaler("moved-bound", minReplicas=now))
    with pytest.raises(StalePlanError, match=rf"minReplicas of .* is {now}, the plan saw 5"):
        planned(applier, bound("moved-bound", 5, 2))
    result = send_step(applier, change.steps[0], change)
    assert result.outcome is StepOutcome.REFUSED
    assert f"/spec/minReplicas is {now}, not 5 as approved" in result.detail
    assert spec_of(bed, "moved-bound")["minReplicas"] == now


def test_an_approval_is_of_both_bounds(bed: KubernetesBed, applier: KubernetesApplier) -> None:
    """Where the other one moves, it is another change, to be looked at anew."""
    served(bed, "both", scaler("both"))
    one = bound("both", 5, 2)
    before = planned(applier, one).digest
    assert planned(applier, one).digest == before
    bed.apply(scaler("both", maxReplicas=7))
    assert planned(applier, one).digest != before


def test_an_autoscaler_that_scales_another_workload_is_refused(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """Before the approval, after it, and on the way back."""
    served(bed, "turned", scaler("turned"))
    change = planned(applier, bound("turned", 5, 2))
    bed.apply(scaler("turned", scaleTargetRef=SERVE | {"name": "other"}))
    with pytest.raises(
        StalePlanError, match="scales Deployment other of apps, not turned/deployment"
    ):
        planned(applier, bound("turned", 5, 2))
    with pytest.raises(StalePlanError, match="scales Deployment other"):
        applier.look_again(change)
    bed.apply(scaler("turned", scaleTargetRef=SERVE | {"apiVersion": "example.com/v1"}))
    with pytest.raises(StalePlanError, match=r"scales Deployment serve of example\.com, not"):
        planned(applier, bound("turned", 5, 2))
    result = send_step(applier, change.steps[0], change)
    assert (result.outcome, spec_of(bed, "turned")["minReplicas"]) == (StepOutcome.REFUSED, 5)
    assert "/spec/scaleTargetRef" in result.detail


ARGO = {"annotations": {"argocd.argoproj.io/tracking-id": "shop"}}


@pytest.mark.parametrize(
    ("namespace", "metadata", "named"),
    [
        ("by-helm", HELM, "Helm would undo"),
        ("by-argo", ARGO, "Argo CD would undo"),
        (
            "by-other",
            {"ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Fleet", "name": "all",
                                  "uid": "1", "controller": True}]},
            "Fleet all would undo",
        ),
    ],
)  # fmt: skip
def test_who_keeps_the_autoscaler_is_named_with_the_difference(
    bed: KubernetesBed, applier: KubernetesApplier, namespace: str, metadata: Any, named: str
) -> None:
    """They would set the bound again."""
    served(bed, namespace, scaler(namespace, metadata=metadata))
    with pytest.raises(ChangeRefusedError, match=named) as caught:
        planned(applier, bound(namespace, 5, 2))
    assert "-  minReplicas: 5\n+  minReplicas: 2" in caught.value.hint


def test_who_keeps_the_workload_stands_against_its_bounds_too(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """A chart that has the service has its autoscaler, as a rule."""
    served(bed, "chart", scaler("chart"))
    document = deployment("chart", replicas=5, pod=pod_spec(2))
    document["metadata"] |= HELM
    bed.apply(document)
    with pytest.raises(ChangeRefusedError, match=r"Helm \(of deployment/serve\) would undo"):
        planned(applier, bound("chart", 5, 2))


def test_a_server_side_applier_stands_against_the_bound_that_it_owns(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """And not against the other one."""
    served(bed, "sided", scaler("sided"))
    path = "apis/autoscaling/v1/namespaces/sided/horizontalpodautoscalers/serve"
    applied = {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler"}
    bed.ask(
        "PATCH",
        f"{path}?fieldManager=fleet&force=true",
        json=applied | {"spec": {"minReplicas": 5}},
        headers={"Content-Type": "application/apply-patch+yaml"},
    )
    with pytest.raises(ChangeRefusedError, match="server-side apply by fleet would undo"):
        planned(applier, bound("sided", 5, 2))
    assert planned(applier, bound("sided", 8, 9)).steps


def test_bounds_that_exclude_each_other_and_what_the_server_refuses(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """A minimum above the maximum before it is sent; of 0 the server's own dry run tells."""
    served(bed, "crossed", scaler("crossed"))
    lowered = replace(bound("crossed", 8, 4), action=Action.RAISE_MAXIMUM)
    with pytest.raises(ChangeRefusedError, match="minimum of 5, above its maximum of 4"):
        planned(applier, lowered)
    (refusal,) = rehearsed(applier, planned(applier, bound("crossed", 5, 0))).refusals
    assert "422" in refusal
    assert "minReplicas" in refusal


def test_a_workload_of_two_autoscalers_and_one_that_ends_are_refused(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """Which of two decides cannot be told; what ends has no bounds to move."""
    served(bed, "two", scaler("two"), scaler("two", name="further"))
    with pytest.raises(ChangeRefusedError, match="and by further: which of them decides"):
        planned(applier, bound("two", 5, 2))
    served(bed, "ending", scaler("ending", metadata={"finalizers": ["example.com/wait"]}))
    change = planned(applier, bound("ending", 5, 2))
    bed.delete("HorizontalPodAutoscaler", "serve", namespace="ending")
    with pytest.raises(StalePlanError, match="is being deleted"):
        planned(applier, bound("ending", 5, 2))
    assert "is being deleted" in send_step(applier, change.steps[0], change).detail
    bed.patch("HorizontalPodAutoscaler", "serve", {"metadata": {"finalizers": None}},
              namespace="ending")  # fmt: skip
    with pytest.raises(StalePlanError, match="cannot be read"):
        planned(applier, bound("ending", 5, 2))


def test_a_workload_that_ends_has_no_bounds_to_move(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """Nor has one that is gone."""
    served(bed, "gone", scaler("gone"))
    bed.patch(
        "Deployment", "serve", {"metadata": {"finalizers": ["example.com/wait"]}}, namespace="gone"
    )
    bed.delete("Deployment", "serve", namespace="gone")
    with pytest.raises(StalePlanError, match="deployment/serve in gone is being deleted"):
        planned(applier, bound("gone", 5, 2))
    bed.patch("Deployment", "serve", {"metadata": {"finalizers": None}}, namespace="gone")
    with pytest.raises(StalePlanError, match="deployment/serve in gone cannot be read"):
        planned(applier, bound("gone", 5, 2))


@pytest.mark.parametrize(
    "holder",
    [
        "horizontalpodautoscaler.autoscaling/../../nodes/a",
        "horizontalpodautoscaler.autoscaling/a b",
        "horizontalpodautoscaler.autoscaling/",
        "horizontalpodautoscaler.autoscaling/serve/status",
        "horizontalpodautoscaler.autoscaling/serve?fieldManager=x",
        "secret/serve",
        "scaledobject.example.com/serve",
        "serve",
    ],
)
def test_no_other_name_reaches_the_api(applier: KubernetesApplier, holder: str) -> None:
    """Nor a file that a person runs."""
    hostile = bound("lowered", 5, 2, holder)
    for made in (lambda: planned(applier, hostile), lambda: file_of(hostile, ())):
        with pytest.raises(ChangeRefusedError, match="not an autoscaler whose bounds"):
            made()


def test_bounds_that_are_no_numbers_are_refused(applier: KubernetesApplier) -> None:
    """The details of a recommendation are text."""
    odd = proposal("lowered/deployment/serve", gpus(1), gpus(1), action=Action.LOWER_MINIMUM,
                   details=(("autoscaler", AUTOSCALER), ("bound_now", "5")))  # fmt: skip
    with pytest.raises(ChangeRefusedError, match="no whole numbers"):
        file_of(odd, ())


def test_an_older_role_is_told_the_right_that_is_missing(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """First that to look, then that to change."""
    bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "older"}})
    bed.apply(deployment("older", replicas=5, pod=pod_spec(2)), scaler("older"))
    rules = next(
        entry["rules"]
        for entry in yaml.safe_load_all(APPLIER_MANIFEST.read_text(encoding="utf-8"))
        if entry["kind"] == "ClusterRole"
    )
    rbac = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{rbac}/v1", "kind": "Role",
            "metadata": {"name": "older", "namespace": "older"}}  # fmt: skip
    account = {"kind": "ServiceAccount", "name": "trimtab-applier", "namespace": "default"}
    bed.apply(
        role | {"kind": "RoleBinding", "subjects": [account],
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "older"}}
    )  # fmt: skip
    for allowed, missing in ((["list"], "get"), (["list", "get"], "patch")):
        bed.apply(
            role
            | {
                "rules": [
                    rule | ({"verbs": allowed} if rule["apiGroups"] == ["autoscaling"] else {})
                    for rule in rules
                ]
            }
        )
        wanted = rf'resources: \["horizontalpodautoscalers"\], verbs: \["{missing}"\]'

        def refused() -> None:
            told = rehearsed(applier, planned(applier, bound("older", 5, 2)))
            raise ChangeRefusedError("; ".join(told.refusals), "")

        with pytest.raises(ChangeRefusedError, match=wanted):
            refused()


def test_the_change_file_is_a_patch_that_the_server_takes(bed: KubernetesBed) -> None:
    """Made of the recommendation alone; it tests what the plan saw."""
    served(bed, "by-hand", scaler("by-hand"))
    text = file_of(bound("by-hand", 5, 2), ()).text
    assert f"kubectl -n by-hand patch {AUTOSCALER} --type json --patch-file THIS_FILE" in text
    path = "apis/autoscaling/v1/namespaces/by-hand/horizontalpodautoscalers/serve"
    patch = {
        "json": yaml.safe_load(text),
        "headers": {"Content-Type": "application/json-patch+json"},
    }
    assert bed.ask("PATCH", path, **patch)["spec"]["minReplicas"] == 2
    assert bed.answer("PATCH", path, **patch).status_code == 422
