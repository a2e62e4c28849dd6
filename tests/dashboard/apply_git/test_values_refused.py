"""Values and kustomizations that could mean another number, or would show more than it."""

import pytest
from beds.git_shop import (
    APPLICATION,
    COMPONENTS,
    HELM,
    OF_ARGO,
    OF_FLUX,
    OF_RELEASE,
    RELEASE,
    SOURCES,
    Shop,
)
from beds.git_world import LIVE
from beds.kubernetes_apply import gpus, proposal

from dashboard.apply.git.manifests import NumberEdit
from dashboard.apply.git.values import ValuePlace, edited_there
from dashboard.apply.kubernetes.state.object_paths import Place
from data.base.errors import ChangeRefusedError

GPU = "nvidia.com/gpu"
PLACE = Place(kind="Deployment", namespace="ml", name="serve")
REPLICAS = (NumberEdit(at=("spec", "replicas"), before="4", after="2"),)
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
    "another release's values beside values without the key": (
        {"shop/a/values.yaml": "workers: {count: 4}\n", "shop/b/values.yaml": "replicaCount: 4\n"},
        HELM | OF_RELEASE, "helm:ml/shop=shop", "one of 2 files of values"),
    "a file of values beside a HelmRelease": (
        {"shop/release.yaml": RELEASE.replace("    replicaCount: 4   # two per region\n", ""),
         "shop/values.yaml": "replicaCount: 4\n"}, FLUX, "flux-helm:ml/shop=shop",
        "is in no file of shop"),
    "a schema of values": (
        {"shop/values.schema.yaml": "examples:\n  replicas: 4\n"}, HELM | OF_RELEASE,
        "helm:ml/shop=shop", "is in no file of shop"),
    "a kustomization of another namespace": (
        {"shop/kustomization.yaml": "namespace: other\nreplicas:\n- name: serve\n  count: 4\n"},
        OF_ARGO, "argo-cd:shop=shop", "is in no file of shop"),
    "a kustomization that renames": (
        {"shop/kustomization.yaml": "namePrefix: a-\nreplicas:\n- name: serve\n  count: 4\n"},
        OF_ARGO, "argo-cd:shop=shop", "is in no file of shop"),
    "a list of replicas in some other file": (
        {"shop/notes.yaml": "replicas:\n- name: serve\n  count: 4\n"}, OF_ARGO,
        "argo-cd:shop=shop", "is in no file of shop"),
    "an Application of another namespace": (
        {"shop/app.yaml": APPLICATION.replace(
            "  source:", "  destination: {namespace: other}\n  source:")}, HELM | OF_ARGO,
        "argo-cd:shop=shop", "is in no file of shop"),
    "two sources with the key, one of them named": (
        {"shop/app.yaml": SOURCES.replace("ref: values", "name: web\n    helm:\n      valuesObject:"
                                          "\n        replicaCount: 4")},
        HELM | OF_ARGO, "argo-cd:shop=shop", "may be in 2 documents"),
    "elements without a name count too": (
        {"shop/values.yaml": "ui:\n  replicaCount: 4\nworkers:\n- pool: a\n  replicas: 4\n"},
        HELM | OF_RELEASE, "helm:ml/shop=shop", "may be any of"),
    "two elements of one name": (
        {"shop/values.yaml": "m:\n- name: large\n  replicas: 4\n- name: large\n"},
        HELM | OF_RELEASE, "helm:ml/shop=shop#m.large", "appears twice in a list"),
    "a password beside the number, called limits": (
        {"shop/values.yaml": "limits: {password: hunter2, replicas: 4}\n"}, HELM | OF_RELEASE,
        "helm:ml/shop=shop", "on one line"),
    "a control character in a key": (
        {"shop/values.yaml": 'a:\n  replicas: 4\n"b\\e[31m\\nX":\n  replicas: 4\n'},
        HELM | OF_RELEASE, "helm:ml/shop=shop", "may be any of a.replicas, b .31m X.replicas"),
    "a number beyond all characters": (
        {"shop/values.yaml": 'x: "\\UFFFFFFFF"\nreplicas: 4\n'}, HELM | OF_RELEASE,
        "helm:ml/shop=shop", "not valid YAML"),
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


def test_a_password_beside_gpus_is_not_shown(shop: Shop) -> None:
    """A line of resources in flow style may hold quantities alone."""
    shop.server.commit({"shop/values.yaml": f"resources: {{key: hunter2, limits: {{{GPU}: 4}}}}\n"})
    shop.mark(HELM | OF_RELEASE)
    spec = shop.cluster.objects[LIVE]["spec"]
    spec |= {"replicas": 1, "strategy": {"type": "Recreate"}}
    for container in spec["template"]["spec"]["containers"]:
        if "resources" in container:
            container["resources"] = {"limits": {GPU: "4"}}
    one = proposal("ml/deployment/serve", gpus(4), gpus(2))
    with pytest.raises(ChangeRefusedError, match="on one line") as caught:
        shop.applier("helm:ml/shop=shop").look(one, job=None, gpus=())
    assert "hunter2" not in str(caught.value)


_LISTS = "\n".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else '1'] * 9)}]" for n in range(12)
)
_DEEP = "\n".join(f"- &a{n} {{k: {f'*a{n - 1}' if n else '1'}}}" for n in range(3000))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (f"{_LISTS}\nx: *a11\n", ValuePlace(keys=("a11", "x"))),
        (f"{_LISTS}\nx: *a11\n", ValuePlace()),
        (f"defs:\n{_DEEP}\nlast: *a2999\n", ValuePlace()),
        ((f"big: &b {{{', '.join(f'k{n}: 1' for n in range(9000))}}}\n"
         f"l: [{', '.join(['*b'] * 9000)}]\n"), ValuePlace()),
        (f"{SOURCES}\n".replace("  sources:\n", "  sources: &a [*a]\n  more:\n"),
         ValuePlace(kind="Application", name="shop")),
    ],
)  # fmt: skip
def test_aliases_without_end_end_soon(text: str, other: ValuePlace) -> None:
    """Lists of lists, chains of thousands, one map thousands of times, a list that holds itself."""
    assert edited_there(text, PLACE, REPLICAS, other) is None


def test_the_way_to_values_is_told(shop: Shop) -> None:
    """A release that no entry names is told by the names that an entry can have."""
    with pytest.raises(ChangeRefusedError, match="flux-helm:ml/shop or helm:ml/shop"):
        shop.look({}, HELM | OF_RELEASE | OF_FLUX, "argo-cd:other=shop")
