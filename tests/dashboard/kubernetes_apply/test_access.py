"""What `trimtab doctor` says of Kubernetes as a target of changes."""

from pathlib import Path

import pytest
import yaml
from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import account_kubeconfig, settings_of

from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from data.base.errors import SourceNotConfiguredError

pytestmark = pytest.mark.kubernetes


def test_the_rights_of_the_account_are_asked_for(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """Nothing is changed: the API server answers what it would allow."""
    usable, found = applier.access()
    assert usable
    assert "only bound ones" in found
    owner = KubernetesApplier(settings_of(bed.kubeconfig("admin")))
    assert owner.access() == (True, "the account may change Deployments in all namespaces")


def test_an_account_that_the_server_does_not_know_is_named(
    bed: KubernetesBed, tmp_path: Path
) -> None:
    """A token that is none, and a kubeconfig that is not there."""
    document = yaml.safe_load(account_kubeconfig(bed, "trimtab-applier").read_text())
    document["users"][0]["user"] = {"token": "none"}
    broken = tmp_path / "kubeconfig"
    broken.write_text(yaml.safe_dump(document))
    usable, found = KubernetesApplier(settings_of(broken)).access()
    assert not usable
    assert "401" in found
    with pytest.raises(SourceNotConfiguredError, match=r"apply_kubernetes\.kubeconfig"):
        KubernetesApplier(settings_of(tmp_path / "missing")).access()
