"""Layouts whose numbers are not in a manifest: Helm values, releases, applications, kustomize."""

import platform
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from beds.git_shop import (
    APPLICATION,
    COMPONENTS,
    HELM,
    OF_ARGO,
    OF_FLUX,
    OF_RELEASE,
    PRODUCTION_STACK,
    RELEASE,
    SOURCES,
    Shop,
)
from beds.git_world import LIVE, fewer
from beds.kubernetes_apply import gpus, proposal

from data.records.changes import StepOutcome, VerificationResult

GPU = "nvidia.com/gpu"


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
    "a component beside one that is switched off": values(
        "redis:\n  enabled: false\n  replicaCount: 4\nserve:\n  replicaCount: 4\n",
        ("  replicaCount: 4", "  replicaCount: 2")),
    "a container beside an init container": values(
        f"initContainer:\n  resources:\n    limits:\n      {GPU}: 4\nserve:\n  resources:\n"
        f"    limits:\n       {GPU}: 4\n", (f"       {GPU}: 4", f"       {GPU}: 2"), by_pods=False),
    "limits of one component, requests of another": values(
        f"server:\n  resources:\n    limits:\n      {GPU}: 4\nworker:\n  resources:\n"
        f"    requests:\n       {GPU}: 4\n", (f"      {GPU}: 4", f"      {GPU}: 2"), by_pods=False),
    "a GPU of a pod beside requests of another": values(
        f"server:\n  requestGPU: 4\nworker:\n  resources:\n    requests:\n      {GPU}: 4\n",
        ("  requestGPU: 4", "  requestGPU: 2"), by_pods=False),
}  # fmt: skip


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
