"""A shop whose numbers are in values of a chart, or in a kustomization: files, marks, applier."""

from dataclasses import dataclass
from pathlib import Path

from beds.git_server import GitServer
from beds.git_world import LIVE, fewer, git_applier
from beds.kubernetes_fake import FakeApi
from beds.kubernetes_replay import kubeconfig

from dashboard.apply.git.applier import GitApplier
from data.records.changes import Target

HELM = {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "serve-1.2.3"}
OF_RELEASE = {"meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "ml"}
OF_FLUX = {"helm.toolkit.fluxcd.io/name": "shop", "helm.toolkit.fluxcd.io/namespace": "ml"}
OF_ARGO = {"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:ml/serve"}
RELEASE = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata:
  name: shop
  namespace: ml
spec:
  interval: 5m
  chart:
    spec: {chart: serve, version: 1.2.3}
  install:
    remediation:
      retries: 4
  values:
    image:
      tag: "4"
    replicaCount: 4   # two per region
"""
APPLICATION = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: shop
  namespace: argocd
spec:
  source:
    chart: serve
    helm:
      valuesObject:
        replicaCount: 4
"""
SOURCES = APPLICATION.replace("  source:\n    chart", "  sources:\n  - ref: values\n  - chart")
PRODUCTION_STACK = """\
servingEngineSpec:
  runtimeClassName: ""
  modelSpec:
  - name: "small"
    modelURL: "org/small"
    replicaCount: 4
    requestCPU: 6
    requestGPU: 1
  - name: "large"
    modelURL: "org/large"
    replicaCount: 4
    requestGPU: 8
routerSpec:
  replicaCount: 4
"""
COMPONENTS = """\
server:
  replicaCount: 4
  resources: {}
worker:
  replicaCount: 4
  autoscaling: {minReplicas: 4}
"""


@dataclass
class Shop:
    """A live object, its repository, and an applier of both."""

    server: GitServer
    cluster: FakeApi
    folder: Path

    def mark(self, marks: dict[str, str]) -> None:
        """Put labels and annotations on the live object."""
        about = self.cluster.objects[LIVE]["metadata"]
        about.pop("annotations", None)
        for name, value in marks.items():
            where = "annotations" if name in OF_RELEASE | OF_ARGO else "labels"
            about.setdefault(where, {})[name] = value

    def applier(self, entry: str) -> GitApplier:
        """The applier, with an entry of `paths`."""
        config = kubeconfig(self.folder / "config", self.cluster.url)
        return git_applier(self.server, self.folder, config, paths=entry)

    def look(self, files: dict[str, str], marks: dict[str, str], entry: str) -> Target:
        """Commit files, and look at the object."""
        self.server.commit(files)
        self.mark(marks)
        return self.applier(entry).look(fewer(), job=None, gpus=())
