"""The bounds of autoscalers through Git: a pull request against their manifest or values."""

from pathlib import Path
from typing import Any

import pytest
from beds.autoscalers import AUTOSCALER, SCALED, SERVE, bound, scaled_object, scaler
from beds.git_server import GitServer
from beds.git_shop import HELM, OF_FLUX, OF_RELEASE, RELEASE
from beds.git_world import ARGO, LIVE, git_applier, git_settings, kept_by_argo_cd
from beds.kubernetes_fake import FakeApi, fake_api
from beds.kubernetes_replay import kubeconfig

from dashboard.apply.git.applier import GitApplier
from data.base.errors import ChangeRefusedError, StalePlanError
from data.records.changes import StepOutcome, VerificationResult
from data.records.recommendations import Recommendation
from data.settings.apply import KubernetesApplySettings

SCALERS = "apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers"
OBJECTS = "apis/keda.sh/v1alpha1/namespaces/ml/scaledobjects"
OF_ARGO = {ARGO: "shop:autoscaling/HorizontalPodAutoscaler:ml/serve"}
KEDA_OF_ARGO = {ARGO: "shop:keda.sh/ScaledObject:ml/serve"}
HPA_FILE = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: serve
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: serve}
  minReplicas: 5   # by night
  maxReplicas: 8
"""
KEDA_FILE = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: serve
  namespace: ml
spec:
  scaleTargetRef:
    name: serve
  minReplicaCount: 5
  maxReplicaCount: 8
"""


@pytest.fixture
def scaled() -> Any:
    """A service that Argo CD keeps, with the autoscaler that it keeps too."""
    with fake_api() as api:
        api.put(LIVE, kept_by_argo_cd("ml"))
        have(api, OF_ARGO)
        yield api


def have(api: FakeApi, marks: dict[str, str], **spec: Any) -> None:
    """Have the autoscaler, with labels and annotations."""
    labels = {name: text for name, text in marks.items() if name in HELM | OF_FLUX}
    notes = {name: text for name, text in marks.items() if name not in labels}
    about = {"labels": labels, "annotations": notes}
    document = scaler("ml", metadata=about, **spec) | {"apiVersion": "autoscaling/v2"}
    api.lists[SCALERS] = [api.put(f"{SCALERS}/serve", document)]


def have_keda(api: FakeApi) -> None:
    """Have a ScaledObject, and the autoscaler that KEDA made of it."""
    about = {"annotations": KEDA_OF_ARGO}
    made = scaled_object("ml", metadata=about, minReplicaCount=5, maxReplicaCount=8)
    found = api.put(f"{OBJECTS}/serve", made)
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "serve",
             "uid": found["metadata"]["uid"], "controller": True}  # fmt: skip
    of_keda = scaler("ml", "keda-hpa-serve", metadata={"ownerReferences": [owner]})
    api.objects.pop(f"{SCALERS}/serve")
    api.lists[SCALERS] = [api.put(f"{SCALERS}/keda-hpa-serve", of_keda)]


def applier_of(server: GitServer, folder: Path, api: FakeApi, **changes: Any) -> GitApplier:
    """An applier of both."""
    return git_applier(server, folder, kubeconfig(folder / "config", api.url), **changes)


def pushed(
    applier: GitApplier, server: GitServer, recommendation: Recommendation, path: str
) -> str:
    """Carry a change to its open request, and give the file of its branch."""
    assert applier.covers(recommendation)
    target = applier.look(recommendation, job=None, gpus=())
    change = applier.change_for(recommendation, target)
    assert applier.rehearse(change).refusals == ()
    for step in change.steps:
        result = applier.execute(step, change)
        assert result.outcome is StepOutcome.DONE, result.detail
    seen = applier.read_back(change, done=2)
    assert (seen.seen, "waiting to be merged" in seen.detail) == (VerificationResult.NOT_YET, True)
    (branch,) = [name for name in server.branches() if name != "main"]
    return server.text(path, branch)


@pytest.mark.parametrize(
    ("now", "wanted", "line"),
    [(5, 2, "minReplicas: 2   # by night"), (8, 11, "maxReplicas: 11")],
)
def test_a_bound_of_an_autoscaler_is_changed_in_its_manifest(
    server: GitServer, scaled: FakeApi, tmp_path: Path, now: int, wanted: int, line: str
) -> None:
    """That line alone; nothing is sent to the cluster, and the merge is read back there."""
    server.commit({"apps/serve/hpa.yaml": HPA_FILE})
    applier, wish = applier_of(server, tmp_path, scaled), bound("ml", now, wanted)
    text = pushed(applier, server, wish, "apps/serve/hpa.yaml")
    changed = set(text.splitlines()) - set(HPA_FILE.splitlines())
    assert {entry.strip() for entry in changed} == {line}
    assert scaled.sent == []


def test_a_bound_of_a_scaled_object_is_changed_and_waits_for_keda(
    server: GitServer, scaled: FakeApi, tmp_path: Path
) -> None:
    """Once it is merged and synced: as intended when KEDA has written the autoscaler."""
    have_keda(scaled)
    server.commit({"apps/serve/keda.yaml": KEDA_FILE})
    applier, wish = applier_of(server, tmp_path, scaled), bound("ml", 5, 2, SCALED)
    target = applier.look(wish, job=None, gpus=())
    change = applier.change_for(wish, target)
    for step in change.steps:
        assert applier.execute(step, change).outcome is StepOutcome.DONE
    server.merge(1)
    scaled.objects[f"{OBJECTS}/serve"]["spec"]["minReplicaCount"] = 2
    seen = applier.read_back(change, done=2)
    assert seen.seen is VerificationResult.NOT_YET
    assert "waits for KEDA" in seen.detail
    scaled.lists[SCALERS][0]["spec"]["minReplicas"] = 2
    assert applier.read_back(change, done=2).seen is VerificationResult.AS_INTENDED


VALUES = """\
replicaCount: 5
autoscaling:
  enabled: true
  minReplicas: 5
  maxReplicas: 8
"""


@pytest.mark.parametrize(
    ("files", "marks", "entry", "path"),
    [
        ({"shop/values.yaml": VALUES}, HELM | OF_RELEASE, "helm:ml/shop=shop", "shop/values.yaml"),
        ({"apps/release.yaml": RELEASE.replace(
            "replicaCount: 4   # two per region",
            "autoscaling:\n      minReplicas: 5\n      maxReplicas: 8")},
         OF_FLUX, "flux-helm:ml/shop=apps", "apps/release.yaml"),
        ({"shop/values.yaml": "keda:\n  minReplicaCount: 5\n  maxReplicaCount: 8\n"},
         HELM | OF_RELEASE, "helm:ml/shop=shop", "shop/values.yaml"),
    ],
)  # fmt: skip
def test_a_bound_in_the_values_of_a_chart(
    server: GitServer, scaled: FakeApi, tmp_path: Path,
    files: dict[str, str], marks: dict[str, str], entry: str, path: str,
) -> None:  # fmt: skip
    """By the names that charts share; the replicas beside it stay."""
    server.commit(files)
    have(scaled, marks)
    applier = applier_of(server, tmp_path, scaled, paths=entry)
    text = pushed(applier, server, bound("ml", 5, 2), path)
    differing = [
        (old.strip(), new.strip())
        for old, new in zip(files[path].splitlines(), text.splitlines(), strict=True)
        if old != new
    ]
    assert differing in ([("minReplicas: 5", "minReplicas: 2")],
                         [("minReplicaCount: 5", "minReplicaCount: 2")])  # fmt: skip


def test_what_cannot_be_changed_is_refused_with_the_reason(
    server: GitServer, scaled: FakeApi, tmp_path: Path
) -> None:
    """No entry of the autoscaler, a bound left out, another target, another number."""
    lacking = HPA_FILE.replace("  minReplicas: 5   # by night\n", "")
    server.commit({"apps/serve/hpa.yaml": lacking})
    applier = applier_of(server, tmp_path, scaled)
    with pytest.raises(ChangeRefusedError, match=f"{AUTOSCALER} is in no file"):
        applier.look(bound("ml", 5, 2), job=None, gpus=())
    other = applier_of(server, tmp_path, scaled, paths="ml/deployment/serve=apps")
    with pytest.raises(ChangeRefusedError, match=r"no apply_git\.paths entry") as caught:
        other.look(bound("ml", 5, 2), job=None, gpus=())
    assert "ml/horizontalpodautoscaler/serve" in caught.value.hint
    with pytest.raises(StalePlanError, match=r"minReplicas of .* is 5, the plan saw 4"):
        applier.look(bound("ml", 4, 2), job=None, gpus=())
    have(scaled, OF_ARGO, scaleTargetRef=SERVE | {"name": "other"})
    with pytest.raises(StalePlanError, match="scales Deployment other"):
        applier.look(bound("ml", 5, 2), job=None, gpus=())


def test_where_both_ways_are_on_git_takes_the_autoscalers_that_an_entry_names(
    server: GitServer, scaled: FakeApi, tmp_path: Path
) -> None:
    """An entry of the workload is not one of its autoscaler: another file may hold it."""
    for entry, covered in (
        ("ml/horizontalpodautoscaler/serve=apps", True),
        ("ml/*/serve=apps", True),
        ("ml/deployment/serve=apps", False),
    ):
        config = kubeconfig(tmp_path / "config", scaled.url)
        cluster = KubernetesApplySettings(kubeconfig=str(config), enabled=True)
        applier = GitApplier(git_settings(server, tmp_path, paths=entry), cluster=cluster)
        assert applier.covers(bound("ml", 5, 2)) is covered
