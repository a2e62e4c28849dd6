"""Layouts whose numbers are not in a manifest: Helm values, releases, applications, kustomize."""

import platform
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from beds.git_server import GitServer
from beds.git_world import LIVE, fewer, git_applier
from beds.kubernetes_apply import gpus, proposal
from beds.kubernetes_fake import FakeApi
from beds.kubernetes_replay import kubeconfig

from dashboard.apply.git.applier import GitApplier
from data.errors import ChangeRefusedError
from data.records.changes import StepOutcome, Target, VerificationResult

GPU = "nvidia.com/gpu"
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


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Files, the marks of the live object, the entry of `paths`, and the one line that changes."""

    files: dict[str, str]
    line: tuple[str, str]
    marks: dict[str, str] = field(default_factory=lambda: HELM | OF_RELEASE)
    entry: str = "helm:ml/shop=shop"
    by_pods: bool = True


def values(text: str, line: tuple[str, str], **more: Any) -> Layout:
    """A layout of one file of values."""
    return Layout(files={"shop/values.yaml": text}, line=line, **more)


COUNT = ("replicaCount: 4", "replicaCount: 2")
LAYOUTS = {
    "the scaffold of helm create": values(
        "# Default values for serve.\n\n# 4 is plenty\nreplicaCount: 4\nimage:\n  tag: \"4\"\n"
        "autoscaling:\n  enabled: false\n  minReplicas: 4\n", COUNT),
    "replicas by another name": values("replicas: 4 # of us\n", ("replicas: 4 # of us",
                                                                   "replicas: 2 # of us")),
    "a component by its part of the values": values(
        COMPONENTS, ("  replicaCount: 4", "  replicaCount: 2"),
        entry="helm:ml/shop=shop/values.yaml#worker"),
    "a model of vLLM's production stack": values(
        PRODUCTION_STACK, ("    replicaCount: 4", "    replicaCount: 2"),
        entry="ml/deployment/serve=shop/values.yaml#servingEngineSpec.modelSpec.large"),
    "a chart below an umbrella": values(
        "global: {registry: site.example}\nserve:\n  replicaCount: 4\nredis:\n  enabled: false\n",
        ("  replicaCount: 4", "  replicaCount: 2")),
    "app-template: controllers by name": values(
        "controllers:\n  main:\n    type: deployment\n    replicas: 4\n    containers:\n"
        "      app: {image: {tag: 1}}\n", ("    replicas: 4", "    replicas: 2")),
    "values of an environment, named by the settings": Layout(
        files={"shop/values.yaml": "replicaCount: 1\n", "shop/prod.yaml": "replicaCount: 4\n"},
        line=COUNT, entry="helm:ml/shop=shop/prod.yaml"),
    "GPUs of a pod, in limits and requests": values(
        f"resources:\n  limits:\n    {GPU}: 4\n    memory: 4Gi\n",
        (f"    {GPU}: 4", f"    {GPU}: 2"), by_pods=False),
    "GPUs of a pod, quoted and on one line": values(
        f"resources: {{limits: {{'{GPU}': '4'}}}}\n",
        (f"resources: {{limits: {{'{GPU}': '4'}}}}", f"resources: {{limits: {{'{GPU}': '2'}}}}"),
        by_pods=False),
    "GPUs of a model of vLLM's production stack": values(
        PRODUCTION_STACK.replace("requestGPU: 8", "requestGPU: 4"),
        ("    requestGPU: 4", "    requestGPU: 2"), by_pods=False,
        entry="helm:ml/shop=shop#servingEngineSpec.modelSpec.large"),
    "a HelmRelease of Flux": Layout(
        files={"shop/release.yaml": RELEASE}, marks=HELM | OF_RELEASE | OF_FLUX,
        line=("    replicaCount: 4   # two per region", "    replicaCount: 2   # two per region"),
        entry="flux-helm:ml/shop=shop"),
    "a HelmRelease beside its repository, in one file": Layout(
        files={"shop/all.yaml": "apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\n"
               f"metadata:\n  name: shop\n---\n{RELEASE}"}, marks=HELM | OF_FLUX,
        line=("    replicaCount: 4   # two per region", "    replicaCount: 2   # two per region"),
        entry="flux-helm:ml/shop=shop"),
    "a HelmRelease among others": Layout(
        files={"shop/a.yaml": RELEASE,
               "shop/b.yaml": RELEASE.replace("name: shop", "name: shop-2"),
               "shop/c.yaml": RELEASE.replace("namespace: ml", "namespace: other")},
        marks=HELM | OF_FLUX, entry="flux-helm:ml/shop=shop",
        line=("    replicaCount: 4   # two per region", "    replicaCount: 2   # two per region")),
    "an Application of Argo CD": Layout(
        files={"shop/app.yaml": APPLICATION}, marks=HELM | OF_ARGO, entry="argo-cd:shop=shop",
        line=("        replicaCount: 4", "        replicaCount: 2")),
    "an Application of several sources": Layout(
        files={"shop/app.yaml": SOURCES}, marks=HELM | OF_ARGO, entry="argo-cd:shop=shop",
        line=("        replicaCount: 4", "        replicaCount: 2")),
    "an Application, by a part of its values": Layout(
        files={"shop/app.yaml": APPLICATION.replace(
            "        replicaCount: 4", "        serve:\n          replicaCount: 4\n"
            "        other:\n          replicaCount: 4")},
        marks=HELM | OF_ARGO, entry="argo-cd:shop=shop#serve",
        line=("          replicaCount: 4", "          replicaCount: 2")),
    "the replicas of a kustomization": Layout(
        files={"shop/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\n"
               "kind: Kustomization\nresources: [../base]\nreplicas:\n- name: other\n"
               "  count: 4\n- name: serve\n  count: 4\n"},
        marks=OF_ARGO, entry="argo-cd:shop=shop", line=("  count: 4", "  count: 2")),
    "the replicas of a kustomization without a kind": Layout(
        files={"shop/kustomization.yaml": "resources: [../base]\nreplicas:\n"
               "  - count: 4\n    name: serve\n"},
        marks=OF_ARGO, entry="argo-cd:shop=shop", line=("  - count: 4", "  - count: 2")),
}  # fmt: skip


@dataclass
class Shop:
    """A live object, its repository, and an applier of both."""

    server: GitServer
    cluster: FakeApi
    folder: Path

    def mark(self, marks: dict[str, str]) -> None:
        """Give the live object labels and annotations."""
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


@pytest.fixture
def shop(server: GitServer, cluster: FakeApi, tmp_path: Path) -> Shop:
    """A shop whose repository holds no manifest of the object."""
    server.commit({"apps/serve/deployment.yaml": "{}\n"})
    return Shop(server, cluster, tmp_path)


@pytest.mark.parametrize("name", LAYOUTS)
def test_one_line_changes_wherever_the_number_is(shop: Shop, name: str) -> None:
    """From the look to the commit: the preview is the difference, and nothing else changes."""
    layout = LAYOUTS[name]
    shop.server.commit(layout.files)
    shop.mark(layout.marks)
    one = fewer()
    if not layout.by_pods:
        spec = shop.cluster.objects[LIVE]["spec"]
        spec["replicas"] = 1
        (container, *_others) = [
            container
            for container in spec["template"]["spec"]["containers"]
            if "resources" in container
        ]
        spec["strategy"] = {"type": "Recreate"}
        container["resources"] = {"limits": {GPU: "4"}, "requests": {GPU: "4"}}
        one = proposal("ml/deployment/serve", gpus(4), gpus(2))
    applier = shop.applier(layout.entry)
    change = applier.change_for(one, applier.look(one, job=None, gpus=()))
    head, old, new = change.steps[0].text.splitlines()[2:]
    assert (old, new) == (f"-{layout.line[0]}", f"+{layout.line[1]}"), head
    assert applier.look_again(change).fingerprint == change.target.fingerprint
    assert applier.execute(change.steps[0], change).outcome is StepOutcome.DONE
    (branch,) = set(shop.server.branches()) - {"main"}
    told = shop.server.git("diff", "--numstat", "main", branch).split()
    assert told[:2] == ["1", "1"]
    assert told[2] in layout.files
    assert applier.read_back(change, done=1).seen is VerificationResult.NOT_YET


FLUX = HELM | OF_FLUX
REFUSED = {
    "several components": (
        {"shop/values.yaml": COMPONENTS}, HELM | OF_RELEASE, "helm:ml/shop=shop",
        r"may be any of server.replicaCount, worker.replicaCount.*#KEY.KEY"),
    "another value": (
        {"shop/values.yaml": "replicaCount: 3\n"}, HELM | OF_RELEASE, "helm:ml/shop=shop",
        "is 3 in the file and 4 in the cluster"),
    "two files of values": (
        {"shop/values.yaml": "replicaCount: 4\n", "shop/values-prod.yaml": "replicaCount: 4\n"},
        HELM | OF_RELEASE, "helm:ml/shop=shop", "ambiguous"),
    "a folder that a pattern names": (
        {"shop/values.yaml": "replicaCount: 4\n"}, HELM | OF_RELEASE, "ml/*/*=shop",
        "is in no file of shop"),
    "an object that no chart made": (
        {"shop/values.yaml": "replicaCount: 4\n"}, OF_ARGO, "argo-cd:shop=shop",
        "is in no file of shop"),
    "no such part": (
        {"shop/values.yaml": COMPONENTS}, HELM | OF_RELEASE, "helm:ml/shop=shop#web",
        "is in no file of shop"),
    "another release": (
        {"shop/release.yaml": RELEASE.replace("name: shop", "name: shop-2")}, FLUX,
        "flux-helm:ml/shop=shop", "is in no file of shop"),
    "values of a release with an anchor above": (
        {"shop/release.yaml": RELEASE.replace("  values:", "  values: &all")
         + "  more: *all\n"}, FLUX, "flux-helm:ml/shop=shop", "shared by an anchor"),
    "a part of values that another shares": (
        {"shop/values.yaml": "x: &x\n  serve:\n    replicaCount: 4\ny: *x\n"}, HELM | OF_RELEASE,
        "helm:ml/shop=shop#x.serve", "shared by an anchor"),
    "values merged from elsewhere": (
        {"shop/values.yaml": "base: &base\n  replicaCount: 4\nserve:\n  <<: *base\n"},
        HELM | OF_RELEASE, "helm:ml/shop=shop", "shared by an anchor"),
    "values on one line, with what else stands there": (
        {"shop/values.yaml": "{password: hunter2, replicaCount: 4}\n"}, HELM | OF_RELEASE,
        "helm:ml/shop=shop", "on one line"),
    "a part of values on one line": (
        {"shop/values.yaml": "serve: {password: x, main: {replicaCount: 4}}\n"},
        HELM | OF_RELEASE, "helm:ml/shop=shop#serve.main", "on one line"),
    "values as a text": (
        {"shop/app.yaml": APPLICATION.replace("valuesObject:", "values: |")}, HELM | OF_ARGO,
        "argo-cd:shop=shop", "is in no file of shop"),
    "replicas of a kustomization on one line": (
        {"shop/kustomization.yaml": "replicas: [{name: serve, count: 4}]\n"}, OF_ARGO,
        "argo-cd:shop=shop", "on one line"),
    "a kustomization of another value": (
        {"shop/kustomization.yaml": "replicas:\n- name: serve\n  count: 3\n"}, OF_ARGO,
        "argo-cd:shop=shop", "is 3 in the file"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_be_another_number_is_refused(shop: Shop, name: str) -> None:
    """The message tells what stands against it, and quotes no line."""
    files, marks, entry, why = REFUSED[name]
    with pytest.raises(ChangeRefusedError, match=why) as caught:
        shop.look(files, marks, entry)
    assert "hunter2" not in str(caught.value)


def test_a_bomb_of_aliases_in_values_is_not_expanded(shop: Shop) -> None:
    """A billion laughs in a file of values are the few nodes that they are."""
    lines = ["a0: &a0 {x: 1, y: 1}"]
    lines += [f"a{n}: &a{n} {{{', '.join(f'k{m}: *a{n - 1}' for m in range(9))}}}"
              for n in range(1, 12)]  # fmt: skip
    text = "\n".join(lines) + "\nreplicaCount: 4\n"
    found = shop.look({"shop/values.yaml": text}, HELM | OF_RELEASE, "helm:ml/shop=shop")
    assert "+replicaCount: 2" in dict(found.state)["git difference"]


def test_the_way_to_values_is_told(shop: Shop) -> None:
    """A release that no entry names is told by the names that an entry can have."""
    with pytest.raises(ChangeRefusedError, match="flux-helm:ml/shop or helm:ml/shop"):
        shop.look({}, HELM | OF_RELEASE | OF_FLUX, "argo-cd:other=shop")


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"),
    reason="helm's own package is for x86-64 Linux alone",
)
def test_helm_renders_the_change_and_nothing_else(shop: Shop) -> None:
    """The scaffold that `helm create` writes, rendered by helm before and after."""
    helm = str(Path(sys.executable).parent / "helm")

    def run(*words: str) -> str:
        return subprocess.run(
            [helm, *words],
            cwd=shop.folder,
            check=True,
            capture_output=True,
            text=True,
            env={"HOME": str(shop.folder), "PATH": ""},
        ).stdout

    run("create", "serve")
    chart = shop.folder / "serve"
    scaffold = (chart / "values.yaml").read_text().replace("replicaCount: 1", "replicaCount: 4")
    (chart / "values.yaml").write_text(scaffold)
    before = list(yaml.safe_load_all(run("template", "serve", "serve", "--namespace", "ml")))
    (live,) = [document for document in before if document["kind"] == "Deployment"]
    target = shop.look({"shop/values.yaml": scaffold}, live["metadata"]["labels"],
                       "ml/deployment/serve=shop")  # fmt: skip
    applier = shop.applier("ml/deployment/serve=shop")
    change = applier.change_for(fewer(), target)
    assert applier.execute(change.steps[0], change).outcome is StepOutcome.DONE
    (branch,) = set(shop.server.branches()) - {"main"}
    (chart / "values.yaml").write_text(shop.server.text("shop/values.yaml", branch))
    live["spec"]["replicas"] = 2
    after = list(yaml.safe_load_all(run("template", "serve", "serve", "--namespace", "ml")))
    assert after == before
