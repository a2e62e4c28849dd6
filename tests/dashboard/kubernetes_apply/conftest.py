"""One cluster for all tests of the applier, and an applier with the rights of deploy/ alone."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.folder_ends import FolderEnds
from beds.kubernetes import KubernetesBed, running_kubernetes
from beds.kubernetes_apply import APPLIER_MANIFEST, account_kubeconfig, settings_of
from beds.kubernetes_fake import FakeApi, fake_api
from beds.kubernetes_replay import kubeconfig

from dashboard.apply.kubernetes.change.applier import KubernetesApplier


@pytest.fixture(scope="session")
def bed(folder_ends: FolderEnds, tmp_path_factory: pytest.TempPathFactory) -> KubernetesBed:
    """One cluster with the accounts of deploy/; each test has a namespace and a node of its own."""
    base = tmp_path_factory.getbasetemp()
    running = folder_ends.of(Path(__file__).parent).enter_context(running_kubernetes())
    running.apply(APPLIER_MANIFEST.read_text(encoding="utf-8"))
    running.claims = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "namespaces"
    return running


@pytest.fixture(scope="session")
def applier(bed: KubernetesBed) -> KubernetesApplier:
    """An applier with the rights of deploy/kubernetes-applier.yaml and no other."""
    path = account_kubeconfig(bed, "trimtab-applier")
    return KubernetesApplier(settings_of(path, pending_seconds=12))


@pytest.fixture(scope="session")
def patient(bed: KubernetesBed) -> KubernetesApplier:
    """The same applier, for rollouts that get there: on a busy machine a pod may wait for long."""
    path = account_kubeconfig(bed, "trimtab-applier")
    return KubernetesApplier(settings_of(path, pending_seconds=300))


@pytest.fixture
def fake() -> Iterator[FakeApi]:
    """A stand-in of a newer API, empty."""
    with fake_api() as server:
        yield server


@pytest.fixture
def newer(fake: FakeApi, tmp_path: Path) -> KubernetesApplier:
    """An applier of the stand-in."""
    return KubernetesApplier(settings_of(kubeconfig(tmp_path / "kubeconfig", fake.url)))
