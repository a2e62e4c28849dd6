"""A workload that Argo CD keeps, its manifest in a real git server, and an applier of both."""

from pathlib import Path
from typing import Any

from beds.git_server import TOKEN, GitServer
from beds.kubernetes_apply import deployment, gpus, pod_spec, proposal
from beds.kubernetes_fake import FakeApi

from dashboard.apply.git.applier import GitApplier
from data.records.recommendations import Recommendation
from data.settings.apply import GitApplySettings, KubernetesApplySettings

MANIFEST = "apps/serve/deployment.yaml"
YAML = """\
# Kept by the search team.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: serve
  namespace: {namespace}
spec:
  replicas: 4   # two per region
  paused: false
"""
LIVE = "apis/apps/v1/namespaces/ml/deployments/serve"
ARGO = "argocd.argoproj.io/tracking-id"


def manifest(namespace: str) -> str:
    """The file as people keep it."""
    return YAML.format(namespace=namespace)


def kept_by_argo_cd(namespace: str, **spec: Any) -> dict[str, Any]:
    """The live Deployment of four pods with a GPU each, with the annotation of Argo CD."""
    found = deployment(namespace, replicas=4, pod=pod_spec(1), **spec)
    found["metadata"]["annotations"] = {ARGO: f"shop:apps/Deployment:{namespace}/serve"}
    return found


def git_settings(server: GitServer, folder: Path, **changes: Any) -> GitApplySettings:
    """Settings of an applier of the server, by the Argo CD application unless told otherwise."""
    token = folder / "git-token"
    token.write_text(f"{TOKEN}\n")
    values: dict[str, Any] = {
        "enabled": True,
        "repository": server.repository,
        "api_url": server.api_url,
        "token_file": str(token),
        "paths": "argo-cd:shop=apps",
    }
    return GitApplySettings(**(values | changes))


def git_applier(server: GitServer, folder: Path, kubeconfig: Path, **changes: Any) -> GitApplier:
    """An applier that reads the cluster of a kubeconfig."""
    return GitApplier(
        git_settings(server, folder, **changes),
        cluster=KubernetesApplySettings(kubeconfig=str(kubeconfig)),
        public_url="https://trimtab.example.org",
    )


def fewer(namespace: str = "ml", **changes: Any) -> Recommendation:
    """Two of four pods."""
    return proposal(f"{namespace}/deployment/serve", gpus(4), gpus(2), **changes)


def sync(cluster: FakeApi, replicas: int) -> None:
    """Take a number of replicas into the live object, as Argo CD does, and roll it out."""
    found: dict[str, Any] = cluster.objects[LIVE]
    found["spec"]["replicas"] = replicas
    found["metadata"]["generation"] += 1
    found["status"] = {
        "observedGeneration": found["metadata"]["generation"],
        "replicas": replicas,
        "readyReplicas": replicas,
        "updatedReplicas": replicas,
    }
