"""Clusters by the contexts of a kubeconfig: which are taken, what they are called, and asked."""

from pathlib import Path

import pytest
import yaml
from beds.kubernetes_fake import fake_api
from beds.kubernetes_replay import A_TOKEN

from dashboard.diagnosis import source_findings
from data.clock import utc_now
from data.errors import SettingsError
from data.kube_contexts import other_contexts
from data.load_settings import load_settings
from data.other_clusters import OWN_SECTIONS, settings_by_cluster
from data.settings import Settings
from data.source_settings import KubernetesSettings

EKS = "arn:aws:eks:eu-west-1:123456789012:cluster/ML_1"
NAMES = {EKS: "ml-1", "gke_lab_europe-west4-a_gpu": "gke-lab-europe-west4-a-gpu",
         "admin@paris": "paris", "x" * 90 + ".rome": "x" * 35 + ".rome"}  # fmt: skip


def kubeconfig(folder: Path, servers: dict[str, str], current: str = "oslo") -> Path:
    """A kubeconfig of contexts and the servers that they lead to."""
    path = folder / "fleet.kubeconfig"
    document = {
        "current-context": current,
        "clusters": [{"name": name, "cluster": {"server": at}} for name, at in servers.items()],
        "users": [{"name": "robin", "user": {"token": A_TOKEN}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": "robin"}} for name in servers
        ],
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def settings_at(path: Path, **environ: str) -> dict[str, Settings]:
    """The settings of every cluster, with the kubeconfig of a path."""
    named = {f"TRIMTAB_{name.upper()}": value for name, value in environ.items()}
    on = {"TRIMTAB_KUBERNETES_ENABLED": "true", "TRIMTAB_KUBERNETES_KUBECONFIG": str(path)}
    return dict(settings_by_cluster(load_settings(None, environ=on | named).settings))


def test_every_context_but_the_main_one_is_a_cluster_that_is_only_read(tmp_path: Path) -> None:
    """By the last part of its name; its Prometheus is told apart by the selector alone."""
    path = kubeconfig(tmp_path, dict.fromkeys(("oslo", *NAMES), "http://127.0.0.1:1"))
    found = settings_at(
        path,
        clusters_contexts="*",
        clusters_selector='cluster="{name}"',
        prometheus_url="http://127.0.0.1:2",
        apply_kubernetes_enabled="true",
    )
    assert list(found) == ["", *NAMES.values()]
    for context, name in NAMES.items():
        own = found[name]
        assert own.kubernetes.context == context
        assert own.prometheus.selector == f'cluster="{name}"'
        assert own.prometheus.url == "http://127.0.0.1:2"
        assert not any(getattr(own, part).enabled for part in OWN_SECTIONS if "apply" in part)
    without = settings_at(path, clusters_contexts="*", prometheus_url="http://127.0.0.1:2")
    assert {own.prometheus.url for name, own in without.items() if name} == {""}


@pytest.mark.parametrize(
    ("pattern", "main", "taken"),
    [
        ("*", "", ["paris", "rome-1", "rome-2"]),
        ("*", "paris", ["oslo", "rome-1", "rome-2"]),
        ("rome-?,paris", "", ["paris", "rome-1", "rome-2"]),
        ("oslo", "", []),
        ("", "", []),
    ],
)
def test_patterns_choose_among_the_contexts(
    tmp_path: Path, pattern: str, main: str, taken: list[str]
) -> None:
    """In the order of the file; the main cluster's own context is never a second one."""
    path = kubeconfig(tmp_path, dict.fromkeys(("oslo", "paris", "rome-1", "rome-2"), "http://x"))
    found = settings_at(path, clusters_contexts=pattern, kubernetes_context=main)
    assert list(found) == ["", *taken]


def test_a_cluster_with_a_file_keeps_it(tmp_path: Path) -> None:
    """Its targets stand there: the context of the same name adds nothing."""
    path = kubeconfig(tmp_path, dict.fromkeys(("oslo", "paris"), "http://127.0.0.1:1"))
    (tmp_path / "paris.toml").write_text("[apply_kubernetes]\nenabled = true\n", encoding="utf-8")
    own = tmp_path / "trimtab.toml"
    own.write_text(
        f'[kubernetes]\nenabled = true\nkubeconfig = "{path}"\n[clusters]\ncontexts = ["*"]\n'
        '[[clusters.others]]\nname = "paris"\nsettings = "paris.toml"\n',
        encoding="utf-8",
    )
    found = settings_by_cluster(load_settings(own, environ={}).settings)
    assert list(found) == ["", "paris"]
    assert found["paris"].apply_kubernetes.enabled
    assert not found["paris"].kubernetes.enabled


@pytest.mark.parametrize(
    ("contexts", "pattern", "why"),
    [
        (("oslo", "a@paris", "b@paris"), "*", "would both be the cluster 'paris'"),
        (("oslo", "---"), "*", "gives no name of a cluster"),
        (("oslo",), "rome", "no context of the kubeconfig is rome; there are oslo"),
    ],
)
def test_contexts_that_cannot_be_told_apart_are_refused(
    tmp_path: Path, contexts: tuple[str, ...], pattern: str, why: str
) -> None:
    """The message names them and what to do."""
    path = kubeconfig(tmp_path, dict.fromkeys(contexts, "http://127.0.0.1:1"))
    with pytest.raises(SettingsError, match=why):
        settings_at(path, clusters_contexts=pattern)


@pytest.mark.parametrize("text", ["a: [", "{", "a: b: c"])
def test_a_kubeconfig_that_cannot_be_read_is_told(tmp_path: Path, text: str) -> None:
    """Its words are not repeated: they may hold a token."""
    path = tmp_path / "config"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=r"cannot read the kubeconfig .*: it is not valid YAML"):
        settings_at(path, clusters_contexts="*")
    path.unlink()
    (tmp_path / "other").mkdir()
    with pytest.raises(SettingsError, match="No such file"):
        settings_at(tmp_path / "other" / "config", clusters_contexts="*")


def test_without_a_file_it_is_where_kubectl_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file of KUBECONFIG; the first one's current context is the main cluster's."""
    (tmp_path / "more").mkdir()
    paths = (
        kubeconfig(tmp_path, {"oslo": "http://x", "paris": "http://x"}),
        kubeconfig(tmp_path / "more", {"rome": "http://x"}, current="rome"),
    )
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, paths)))
    found = other_contexts(KubernetesSettings(enabled=True), ("*",))
    assert found == {"paris": "paris", "rome": "rome"}


def test_each_is_asked_by_its_own_context(tmp_path: Path) -> None:
    """Two servers that answer, and one that does not: told apart by their clusters."""
    with fake_api() as main, fake_api() as other:
        servers = {"oslo": main.url, "paris": other.url, "rome": "http://127.0.0.1:9"}
        path = kubeconfig(tmp_path, servers)
        settings = settings_at(path, clusters_contexts="*")[""]
        found: dict[str, set[str]] = {}
        for source, (_what, state, _detail) in source_findings(settings, utc_now()):
            found.setdefault(source, set()).add(state)
    assert set(found) == {"kubernetes", "kubernetes@paris", "kubernetes@rome"}
    assert "missing" in found["kubernetes@rome"]
    assert found["kubernetes"] == found["kubernetes@paris"] != found["kubernetes@rome"]
