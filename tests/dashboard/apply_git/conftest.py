"""A git server with a forge, a stand-in of the Kubernetes API, and an applier of both."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.git_server import GitServer, running_git_server
from beds.git_shop import Shop
from beds.git_world import LIVE, MANIFEST, git_applier, kept_by_argo_cd, manifest
from beds.kubernetes_fake import FakeApi, fake_api
from beds.kubernetes_replay import kubeconfig

from dashboard.apply.git.applier import GitApplier


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GitServer]:
    """A server that speaks Gitea unless told otherwise, with the manifest on `main`."""
    kind = getattr(request, "param", "gitea")
    with running_git_server(tmp_path / "git", kind) as running:
        running.commit({MANIFEST: manifest("ml"), "README.md": "fleet\n"})
        yield running


@pytest.fixture
def cluster() -> Iterator[FakeApi]:
    """A stand-in of the API that holds the live object."""
    with fake_api() as api:
        api.put(LIVE, kept_by_argo_cd("ml"))
        yield api


@pytest.fixture
def applier(server: GitServer, cluster: FakeApi, tmp_path: Path) -> GitApplier:
    """An applier of both."""
    return git_applier(server, tmp_path, kubeconfig(tmp_path / "kubeconfig", cluster.url))


@pytest.fixture
def shop(server: GitServer, cluster: FakeApi, tmp_path: Path) -> Shop:
    """A shop whose repository holds no manifest of the object."""
    server.commit({"apps/serve/deployment.yaml": "{}\n"})
    return Shop(server, cluster, tmp_path)
