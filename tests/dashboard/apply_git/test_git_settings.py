"""Settings of the Git route: what they refuse, and which workloads they name."""

from dataclasses import replace
from pathlib import Path

import pytest
from beds.git_server import GitServer
from beds.git_world import LIVE, MANIFEST, fewer, git_applier, git_settings, manifest
from beds.kubernetes_fake import FakeApi
from beds.kubernetes_replay import kubeconfig

from dashboard.apply.git.applier import GitApplier
from data.base.errors import ChangeRefusedError, SettingsError
from data.facts.jobs import Platform
from data.records.actions import Action
from data.records.changes import Target
from data.settings.apply import KubernetesApplySettings


def test_both_ways_on_share_the_workloads_by_the_map(
    server: GitServer, cluster: FakeApi, tmp_path: Path
) -> None:
    """Alone, the route takes every Kubernetes workload; beside patches, those that are named."""
    config = str(kubeconfig(tmp_path / "config", cluster.url))
    settings = git_settings(server, tmp_path, paths=f"ml/deployment/*={MANIFEST}")
    alone = GitApplier(settings, cluster=KubernetesApplySettings(kubeconfig=config))
    beside = GitApplier(settings, cluster=KubernetesApplySettings(enabled=True, kubeconfig=config))
    named, other = fewer(), fewer("search")
    assert [alone.covers(named), alone.covers(other)] == [True, True]
    assert [beside.covers(named), beside.covers(other)] == [True, False]
    for changed in ({"platform": Platform.SLURM}, {"action": Action.SMALLER_GPU}):
        assert not alone.covers(replace(named, **changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("repository", "ext::sh -c evil"),
        ("repository", "file:///etc"),
        ("repository", "http://git.site.example/team/fleet"),
        ("repository", "https://u:p@git.site.example/team/fleet"),
        ("repository", "--upload-pack=evil"),
        ("repository", "https://git.site.example/fleet"),
        ("api_url", "http://git.site.example/api/v1"),
        ("repository", "https://git.site.example/team/fleet?x#y"),
        ("base_branch", "main/"),
        ("base_branch", "main."),
        ("base_branch", "-x"),
        ("base_branch", "a..b"),
        ("paths", "a=../x"),
        ("paths", "a=.git/config"),
        ("paths", ""),
        ("token_file", ""),
        ("author", "x\n<y>"),
    ],
)
def test_settings_that_could_do_something_else_are_refused(
    server: GitServer, tmp_path: Path, name: str, value: str
) -> None:
    """Protocols that run programs, plain text to others, names that are options or lead out."""
    with pytest.raises(SettingsError, match=f"apply_git.{name}"):
        git_settings(server, tmp_path, **{name: value})


def test_an_address_that_is_none_is_no_matter_while_it_is_off(
    server: GitServer, tmp_path: Path
) -> None:
    """It is looked at when the route is switched on."""
    off = git_settings(server, tmp_path, enabled=False, repository="https://[::1/a/b")
    with pytest.raises(SettingsError, match=r"apply_git\.repository"):
        replace(off, enabled=True)


def test_the_source_is_told_by_path_map_by_flux_or_not_at_all(
    server: GitServer, cluster: FakeApi, tmp_path: Path
) -> None:
    """A copied annotation of another object tells nothing."""
    config = kubeconfig(tmp_path / "config", cluster.url)

    def found(paths: str) -> Target:
        applier = git_applier(server, tmp_path, config, paths=paths)
        return applier.look(fewer(), job=None, gpus=())

    assert found(f"ml/deployment/*={MANIFEST}").state
    marks = cluster.objects[LIVE]["metadata"]
    marks["annotations"] = {"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:ml/other"}
    with pytest.raises(ChangeRefusedError, match=r"no apply_git\.paths entry matches"):
        found("argo-cd:shop=apps")
    marks["labels"] = {"kustomize.toolkit.fluxcd.io/name": "apps",
                       "kustomize.toolkit.fluxcd.io/namespace": "flux"}  # fmt: skip
    assert found("flux:flux/apps=apps").state
    with pytest.raises(ChangeRefusedError, match="is in no file of charts"):
        found("flux:flux/apps=charts")
    server.commit({"apps/b.yml": manifest("ml")})
    with pytest.raises(
        ChangeRefusedError, match=r"ambiguous or not editable: apps/b.yml; apps/serve"
    ):
        found("flux:flux/apps=apps")
