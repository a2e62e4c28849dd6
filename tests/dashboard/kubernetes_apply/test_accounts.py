"""Rights on a real Kubernetes API: the applying account does what it must and nothing else."""

from pathlib import Path

import pytest
import yaml
from beds.kubernetes import READER_MANIFEST, KubernetesBed
from beds.kubernetes_apply import (
    APPLIER_MANIFEST,
    bind_in,
    deployment,
    gpus,
    planned,
    pod_spec,
    proposal,
    rehearsed,
    settings_of,
    shrink,
    spec_of,
)
from beds.kubernetes_replay import kubeconfig
from beds.steps import send_step

from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from data.base.errors import ApplyError, ChangeRefusedError
from data.records.changes import StepOutcome
from data.settings.apply import KubernetesApplySettings

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]


def test_a_namespace_without_the_binding_is_refused_with_the_missing_right(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """403 at the look, and at the change when the right went meanwhile: it is named."""
    bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "closed"}})
    bed.apply(deployment("closed", replicas=2, pod=pod_spec(1)))
    recommendation = proposal("closed/deployment/serve", gpus(2), gpus(1))
    with pytest.raises(ChangeRefusedError, match=r'resources: \["deployments"\], verbs: \["get"\]'):
        planned(applier, recommendation)
    bind_in(bed, "closed")
    change = planned(applier, recommendation)
    bed.api_versions["RoleBinding"] = "rbac.authorization.k8s.io/v1"
    bed.delete("RoleBinding", "trimtab-applier", namespace="closed")
    reading = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}
    rbac = "rbac.authorization.k8s.io"
    bed.apply(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": {"name": "look", "namespace": "closed"},
            "rules": [reading],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "look", "namespace": "closed"},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "look"},
            "subjects": [
                {"kind": "ServiceAccount", "name": "trimtab-applier", "namespace": "default"}
            ],
        },
    )
    result = send_step(applier, change.steps[0], change)
    assert result.outcome is StepOutcome.REFUSED
    assert 'verbs: ["patch"]' in result.detail
    (refusal,) = rehearsed(applier, change).refusals
    assert 'verbs: ["patch"]' in refusal
    with pytest.raises(ChangeRefusedError, match="autoscaler"):
        applier.look_again(change)
    assert spec_of(bed, "closed")["replicas"] == 2


def test_the_applying_account_may_do_what_it_does_and_nothing_else(bed: KubernetesBed) -> None:
    """Asked of the real authoriser, verb by verb, in a bound and in another namespace."""
    bind_in(bed, "bound")
    account = "system:serviceaccount:default:trimtab-applier"
    documents = yaml.safe_load_all(APPLIER_MANIFEST.read_text(encoding="utf-8"))
    roles = {
        document["metadata"]["name"]: document
        for document in documents
        if document["kind"] == "ClusterRole"
    }
    granted = {
        (group, resource, verb)
        for rule in roles["trimtab-applier"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    verbs = ("get", "list", "watch", "create", "update", "patch", "delete")
    resources = {(group, resource) for group, resource, _verb in granted} | {
        ("", "secrets"),
        ("", "configmaps"),
        ("", "serviceaccounts"),
        ("", "namespaces"),
        ("", "pods/exec"),
        ("", "pods/eviction"),
        ("apps", "deployments/status"),
        ("apps", "daemonsets"),
        ("rbac.authorization.k8s.io", "roles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
    }
    for group, resource in sorted(resources):
        for verb in verbs:
            wanted = (group, resource, verb) in granted
            assert may(bed, account, group, resource, verb, "bound") is wanted, (resource, verb)
    for group, resource, verb in sorted(granted):
        everywhere = (group, resource, verb) == ("", "pods", "list")
        assert may(bed, account, group, resource, verb, "kube-system") is everywhere
    assert may(bed, account, "", "nodes", "list", "")
    assert not may(bed, account, "", "nodes", "delete", "")


def test_the_reading_account_changes_nothing(bed: KubernetesBed) -> None:
    """The reader's role holds get and list alone, also for what the applier patches."""
    bed.apply(READER_MANIFEST.read_text(encoding="utf-8"))
    account = "system:serviceaccount:default:trimtab-reader"
    for group, resource in (("apps", "deployments"), ("batch", "jobs"), ("", "nodes")):
        for verb in ("get", "list", "patch", "update", "create", "delete"):
            wanted = verb in ("get", "list")
            assert may(bed, account, group, resource, verb, "bound") is wanted


def may(
    bed: KubernetesBed, account: str, group: str, resource: str, verb: str, namespace: str
) -> bool:
    """Whether the API's authoriser lets an account do something."""
    name, _, subresource = resource.partition("/")
    spec = {
        "user": account,
        "groups": ["system:serviceaccounts", "system:authenticated"],
        "resourceAttributes": {
            "group": group,
            "resource": name,
            "subresource": subresource,
            "verb": verb,
            "namespace": namespace,
        },
    }
    review = bed.ask(
        "POST",
        "apis/authorization.k8s.io/v1/subjectaccessreviews",
        json={
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        },
    )
    return bool(review["status"]["allowed"])


def test_a_token_that_is_not_known_is_refused(bed: KubernetesBed, tmp_path: Path) -> None:
    """401: the applying account has to sign in again; no other account takes its place."""
    document = yaml.safe_load(bed.kubeconfig("reader").read_text())
    document["users"][0]["user"]["token"] = "no-such-token"  # noqa: S105 # of nobody
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ChangeRefusedError, match="401") as caught:
        shrink(KubernetesApplier(settings_of(path)))
    assert "no-such-token" not in str(caught.value)


def test_a_server_that_nobody_vouches_for_gets_no_request(
    bed: KubernetesBed, tmp_path: Path
) -> None:
    """Its certificate is of no known authority: the token is not shown to it."""
    stranger = KubernetesApplier(settings_of(kubeconfig(tmp_path / "kubeconfig", bed.url)))
    with pytest.raises(ApplyError, match="was not sent"):
        shrink(stranger)


def test_without_a_kubeconfig_the_account_of_this_user_is_not_taken(
    bed: KubernetesBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator's ~/.kube/config must never be what changes are made with."""
    monkeypatch.setenv("KUBECONFIG", str(bed.kubeconfig("admin")))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ApplyError, match="no Kubernetes to sign in to"):
        shrink(KubernetesApplier(KubernetesApplySettings(enabled=True)))
