"""Clusters by the contexts of a kubeconfig: which are taken, what they are called, and asked."""

import re
from pathlib import Path

import pytest
import yaml
from beds.kubernetes_fake import fake_api
from beds.kubernetes_replay import A_TOKEN

from dashboard.cycle.diagnosis import source_findings
from data.base.clock import utc_now
from data.base.errors import SettingsError
from data.settings.all_settings import Settings
from data.settings.load import load_settings
from data.settings.multi_cluster import OWN_SECTIONS, other_contexts, settings_by_cluster
from data.settings.sources import KubernetesSettings

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


def servers(*contexts: str) -> dict[str, str]:
    """A server of its own for each context."""
    return {context: f"http://127.0.0.1:1/{number}" for number, context in enumerate(contexts)}


def settings_at(path: Path, **environ: str) -> dict[str, Settings]:
    """The settings of every cluster, with the kubeconfig of a path."""
    named = {f"TRIMTAB_{name.upper()}": value for name, value in environ.items()}
    on = {
        "TRIMTAB_KUBERNETES_ENABLED": "true",
        "TRIMTAB_KUBERNETES_KUBECONFIG": str(path),
        "TRIMTAB_KUBERNETES_CONTEXT": "oslo",
    }
    return dict(settings_by_cluster(load_settings(None, environ=on | named).settings))


def test_every_context_but_the_main_one_is_a_cluster_that_is_only_read(tmp_path: Path) -> None:
    """By the last part of its name; its Prometheus is told apart by the selector alone."""
    path = kubeconfig(tmp_path, servers("oslo", *NAMES))
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
        ("*", "oslo", ["paris", "rome-1", "rome-2"]),
        ("*", "paris", ["oslo", "rome-1", "rome-2"]),
        ("rome-?,paris", "oslo", ["paris", "rome-1", "rome-2"]),
        ("oslo", "oslo", []),
        ("", "nothing", []),
    ],
)
def test_patterns_choose_among_the_contexts(
    tmp_path: Path, pattern: str, main: str, taken: list[str]
) -> None:
    """In the order of the file; the main cluster's own context is never a second one."""
    path = kubeconfig(tmp_path, servers("oslo", "paris", "rome-1", "rome-2"))
    found = settings_at(path, clusters_contexts=pattern, kubernetes_context=main)
    assert list(found) == ["", *taken]


@pytest.mark.parametrize("name", ["paris", "fr"])
def test_a_cluster_with_a_file_keeps_it(tmp_path: Path, name: str) -> None:
    """By its name, and by the server that its context leads to, whatever it is called."""
    at = servers("oslo", "admin@paris", "view@paris") | {"oslo-dev": "http://127.0.0.1:1/0"}
    at["view@paris"] = at["admin@paris"]
    path = kubeconfig(tmp_path, at)
    (tmp_path / "own.toml").write_text(
        f'[kubernetes]\nenabled = true\nkubeconfig = "{path}"\ncontext = "view@paris"\n'
        "[apply_kubernetes]\nenabled = true\n",
        encoding="utf-8",
    )
    own = tmp_path / "trimtab.toml"
    own.write_text(
        f'[kubernetes]\nenabled = true\nkubeconfig = "{path}"\ncontext = "oslo"\n'
        '[clusters]\ncontexts = ["*"]\n'
        f'[[clusters.others]]\nname = "{name}"\nsettings = "own.toml"\n',
        encoding="utf-8",
    )
    found = settings_by_cluster(load_settings(own, environ={}).settings)
    assert list(found) == ["", name]
    assert found[name].apply_kubernetes.enabled
    assert found[name].kubernetes.context == "view@paris"


def test_one_server_is_not_watched_twice(tmp_path: Path) -> None:
    """Contexts of another namespace of the main cluster are it; two of another are refused."""
    at = servers("oslo", "a", "b")
    path = kubeconfig(tmp_path, at | {"oslo-dev": f"{at['oslo']}/", "b2": at["b"]})
    assert list(settings_at(path, clusters_contexts="*dev,a")) == ["", "a"]
    with pytest.raises(SettingsError, match="the contexts b, b2 would each watch"):
        settings_at(path, clusters_contexts="*")


@pytest.mark.parametrize("context", ["", "berlin"])
def test_the_main_cluster_is_named(tmp_path: Path, context: str) -> None:
    """Which context is the current one, tools do not agree on; in a pod it is none of them."""
    path = kubeconfig(tmp_path, servers("oslo", "paris"))
    with pytest.raises(SettingsError, match="the kubeconfig has oslo, paris"):
        settings_at(path, clusters_contexts="*", kubernetes_context=context)


@pytest.mark.parametrize(
    ("contexts", "pattern", "why"),
    [
        (("oslo", "a@paris", "b@paris"), "*", "would each be the cluster 'paris'"),
        (("oslo", "---"), "*", "gives no name of a cluster"),
        (("oslo",), "rome", "no context of the kubeconfig is rome; there are oslo"),
    ],
)
def test_contexts_that_cannot_be_told_apart_are_refused(
    tmp_path: Path, contexts: tuple[str, ...], pattern: str, why: str
) -> None:
    """The message names them and what to do."""
    path = kubeconfig(tmp_path, servers(*contexts))
    with pytest.raises(SettingsError, match=why):
        settings_at(path, clusters_contexts=pattern)


@pytest.mark.parametrize("text", ["a: [", "{", "a: b: c", 'x: "\\UFFFFFFFF"'])
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


@pytest.mark.parametrize(
    "text", ["x: 2024-13-45", "x: !!bool foo", "x: !!int foo", f"x: {'9' * 5000}", "x: !!float y"]
)
def test_what_else_a_kubeconfig_holds_is_no_matter(tmp_path: Path, text: str) -> None:
    """Dates and numbers that are none are texts."""
    path = kubeconfig(tmp_path, servers("oslo", "paris"))
    path.write_text(f"{path.read_text(encoding='utf-8')}\n{text}\n", encoding="utf-8")
    assert list(settings_at(path, clusters_contexts="*")) == ["", "paris"]


def test_without_a_file_it_is_where_kubectl_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file of KUBECONFIG."""
    (tmp_path / "more").mkdir()
    paths = (
        kubeconfig(tmp_path, {"oslo": "http://x", "paris": "http://y"}),
        kubeconfig(tmp_path / "more", {"rome": "http://z"}, current="rome"),
    )
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, paths)))
    settings = KubernetesSettings(enabled=True, context="oslo")
    assert other_contexts(settings, ("*",)) == {"paris": "paris", "rome": "rome"}
    monkeypatch.setenv("KUBECONFIG", "~nobody-of-this-name/config")
    with pytest.raises(SettingsError, match="no home folder"):
        other_contexts(settings, ("*",))


def test_each_is_asked_by_its_own_context(tmp_path: Path) -> None:
    """Two servers that answer, and one that does not: told apart by their clusters."""
    with fake_api() as main, fake_api() as other:
        at = {"oslo": main.url, "paris": other.url, "rome": "http://127.0.0.1:9"}
        path = kubeconfig(tmp_path, at)
        settings = settings_at(path, clusters_contexts="*")[""]
        found: dict[str, set[str]] = {}
        for source, (_what, state, _detail) in source_findings(settings, utc_now()):
            found.setdefault(source, set()).add(state)
    assert set(found) == {"kubernetes", "kubernetes@paris", "kubernetes@rome"}
    assert "missing" in found["kubernetes@rome"]
    assert found["kubernetes"] == found["kubernetes@paris"] != found["kubernetes@rome"]


@pytest.mark.parametrize("context", ['a"b', "a\\b", 'x"} or up{y="z'])
def test_no_name_ends_the_string_of_a_selector(tmp_path: Path, context: str) -> None:
    """The name of a cluster is all that is put into PromQL: letters, digits, dots and dashes."""
    path = kubeconfig(tmp_path, servers("oslo", context))
    found = settings_at(path, clusters_contexts="*", clusters_selector='cluster="{name}"')
    (own,) = (settings for name, settings in found.items() if name)
    assert re.fullmatch(r'cluster="[a-z0-9.-]+"', own.prometheus.selector)
