"""The worker and the Git route: from an approved proposal to a merged and verified change."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml
from beds.apply_bench import fill
from beds.git_server import GitServer, running_git_server
from beds.git_world import LIVE, MANIFEST, fewer, git_applier, kept_by_argo_cd, manifest, sync
from beds.kubernetes import KubernetesBed, running_kubernetes
from beds.kubernetes_apply import account_kubeconfig, room, settings_of
from beds.kubernetes_fake import FakeApi
from beds.kubernetes_replay import kubeconfig

from dashboard.apply.contract.applier import Applier
from dashboard.apply.git.applier import GitApplier
from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from dashboard.apply.worker.prepare import change_of
from dashboard.apply.worker.worker import Worker
from dashboard.decisions import approvals
from data.base.clock import utc_now
from data.base.errors import ChangeRefusedError, StalePlanError
from data.settings.all_settings import Settings
from data.settings.apply import ApplySettings, KubernetesApplySettings
from data.store import Store

READER = Path(__file__).parents[3] / "deploy" / "kubernetes-reader.yaml"


class GitStory:
    """An approved recommendation, and a worker that carries it through the Git route."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        applier: Applier,
        namespace: str = "ml",
        watch_minutes: float = 0,
    ) -> None:
        self.store, self.applier = store, applier
        self.ahead = timedelta(hours=2)
        self.one = fewer(namespace)
        fill(store, self.one)
        settings = replace(
            Settings(),
            apply=ApplySettings(
                enabled=True, stop_file=str(folder / "STOP"), watch_minutes=watch_minutes
            ),
        )
        self.appliers: tuple[Applier, ...] = (applier,)
        self.worker = Worker(
            store=store,
            settings=lambda: settings,
            appliers=lambda _settings: self.appliers,
            clock=self.clock,
        )
        self.change = change_of(applier, self.one, store.reader)

    def clock(self) -> datetime:
        """The time, which a test moves on."""
        return utc_now() + self.ahead

    def approve(self) -> None:
        """Approve exactly what was previewed, and ask for it."""
        approvals.approve(
            self.store,
            self.one.digest,
            by="Robin",
            now=self.clock(),
            change_digest=self.change.digest,
        )
        approvals.ask_to_apply(
            self.store, self.one.digest, by="Robin", now=self.clock(), appliers=(self.applier,)
        )

    def visit(self, minutes: float = 2.0) -> str:
        """Let the worker visit after some minutes, and give the state."""
        self.ahead += timedelta(minutes=minutes)
        self.worker.work_once()
        return self.state

    @property
    def state(self) -> str:
        """What became of it."""
        return self.store.reader.recommendation(self.one.digest, now=self.clock()).state

    @property
    def held(self) -> str:
        """Why the command waits."""
        return self.store.reader.commands(self.one.digest)[-1].held

    @property
    def last(self) -> str:
        """The last words of the journal."""
        return self.store.reader.journal(digest=self.one.digest)[-1].detail


@pytest.fixture
def story(store: Store, tmp_path: Path, applier: GitApplier) -> GitStory:
    """A story on the stand-in of the API."""
    return GitStory(store, tmp_path, applier)


def test_an_open_request_is_never_taken_for_applied(
    story: GitStory, server: GitServer, cluster: FakeApi
) -> None:
    """For weeks it waits; merged it waits for the cluster; applied, its drift is seen."""
    assert server.requests == []
    story.approve()
    assert story.visit() == "applying"
    assert "waiting to be merged" in story.held
    assert [story.visit(60 * 24 * 7) for _week in range(3)] == ["applying"] * 3
    assert len(server.requests) == 1
    server.merge(1)
    assert story.visit(60 * 24) == "applying"
    assert "not yet synced to the cluster" in story.held
    sync(cluster, 2)
    assert story.visit() == "applied"
    sync(cluster, 4)
    states = [story.visit(120) for _visit in range(3)]
    assert states[-1] == "undone-outside"


def test_a_declined_request_is_a_refusal_with_its_reason(
    story: GitStory, server: GitServer
) -> None:
    """At once, and with the words of who closed it."""
    story.approve()
    assert story.visit() == "applying"
    server.decline(1, "needed for the launch")
    assert story.visit() == "refused"
    assert "closed without merging (needed for the launch)" in story.last


def test_what_is_not_exactly_what_was_approved_is_not_sent(
    story: GitStory, server: GitServer
) -> None:
    """A manifest that changed between preview and apply is looked at anew by a person."""
    server.commit({MANIFEST: manifest("ml").replace("two", "three")})
    story.approve()
    assert story.visit() == "refused"
    assert "no longer the one that was previewed" in story.last
    assert (server.branches(), server.requests) == (["main"], [])


def test_a_rollback_before_the_merge_closes_the_request(story: GitStory, server: GitServer) -> None:
    """Nothing had reached the cluster."""
    story.approve()
    assert story.visit() == "applying"
    roll_back(story)
    states = [story.visit() for _visit in range(3)]
    assert states[-1] == "rolled-back", story.last
    assert server.requests[0]["state"] == "closed"


def test_a_closed_request_is_not_brought_back(story: GitStory, server: GitServer) -> None:
    """Undoing the rollback is refused: nothing is open, and nothing was merged."""
    story.approve()
    assert story.visit() == "applying"
    roll_back(story)
    assert [story.visit() for _visit in range(3)][-1] == "rolled-back", story.last
    roll_back(story, again=True)
    assert [story.visit() for _visit in range(2)][-1] == "rollback-refused", story.last
    assert "a closed pull request is not reopened" in story.last
    assert server.requests[0]["state"] == "closed"


def test_a_rollback_that_finds_the_request_closed_is_watched_and_not_undone(
    store: Store, tmp_path: Path, applier: GitApplier, server: GitServer
) -> None:
    """It has no step: the watch reads that back, and nothing is there to undo."""
    story = GitStory(store, tmp_path, applier, watch_minutes=30)
    story.approve()
    assert story.visit() == "applying"
    server.decline(1, "no")
    roll_back(story)
    assert [story.visit() for _visit in range(3)][-1] == "rolled-back", story.last
    assert "defect" not in story.held
    with pytest.raises(StalePlanError, match="0 attempts that sent something"):
        roll_back(story, again=True)


def roll_back(story: GitStory, *, again: bool = False) -> None:
    """Ask for a rollback, or to undo one."""
    approvals.ask_to_roll_back(
        story.store, story.one.digest, by="Robin", now=story.clock(), again=again
    )


def test_a_change_stays_with_the_way_that_made_it(
    story: GitStory, server: GitServer, cluster: FakeApi, tmp_path: Path
) -> None:
    """A patching applier that is switched on, or on alone, reads no steps of a request."""
    story.approve()
    assert story.visit() == "applying"
    config = kubeconfig(tmp_path / "patches", cluster.url)
    patches = KubernetesApplier(KubernetesApplySettings(enabled=True, kubeconfig=str(config)))
    story.appliers = (patches, story.applier)
    assert story.visit() == "applying"
    assert "merged: http" in story.held
    story.appliers = (patches,)
    assert story.visit() == "applying"
    assert "made with git (apply_git.enabled)" in story.held
    story.appliers = (patches, story.applier)
    roll_back(story)
    assert [story.visit() for _visit in range(3)][-1] == "rolled-back", story.last
    assert (server.requests[0]["state"], cluster.sent) == ("closed", [])


def test_a_patch_that_stands_is_not_read_by_the_git_route(
    store: Store, tmp_path: Path, applier: GitApplier, cluster: FakeApi
) -> None:
    """Switched on later, before the other, it leaves what was patched to who patched it."""
    cluster.objects[LIVE]["metadata"].pop("annotations")
    config = kubeconfig(tmp_path / "patches", cluster.url)
    patches = KubernetesApplier(KubernetesApplySettings(enabled=True, kubeconfig=str(config)))
    story = GitStory(store, tmp_path, patches)
    story.approve()
    story.visit()
    assert len(cluster.sent) == 2, story.last  # a dry run before it
    story.appliers = (applier, patches)
    story.visit()
    assert "defect" not in story.held
    story.appliers = (applier,)
    story.visit()
    assert "made without git" in story.held


def test_a_refusal_of_the_forge_leaves_nothing_behind(story: GitStory, server: GitServer) -> None:
    """No state that would be measured as a change: the cluster is as it was."""
    server.instead = lambda method, _path: (403, {"message": "no"}) if method == "POST" else None
    story.approve()
    assert story.visit() == "refused", story.last
    assert "the forge answers 403: no" in story.last


def test_a_worker_that_dies_after_the_push_goes_on(
    story: GitStory, server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of the push is lost: the next worker finds the branch and opens one request."""
    story.approve()
    really = GitApplier.execute

    def dying(self: GitApplier, step: object, change: object) -> object:
        really(self, step, change)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(GitApplier, "execute", dying)
    with pytest.raises(KeyboardInterrupt):
        story.visit()
    assert (len(server.branches()), server.requests) == (2, [])
    monkeypatch.setattr(GitApplier, "execute", really)
    assert story.visit(10) == "applying"
    assert len(server.requests) == 1
    assert "waiting to be merged" in story.held


@pytest.fixture(scope="module")
def bed() -> Iterator[KubernetesBed]:
    """A real API server with the reading account of deploy/."""
    with running_kubernetes() as running:
        running.apply(READER.read_text(encoding="utf-8"))
        yield running


@pytest.mark.kubernetes
@pytest.mark.slow
def test_the_story_on_a_real_api_server(bed: KubernetesBed, store: Store, tmp_path: Path) -> None:
    """Refused as a patch; proposed, approved, merged, synced as Argo CD does, rolled out, verified.

    By the reading account alone: this way no right to write to the cluster is needed.
    """
    at = room(bed, "kept", 8)
    live = kept_by_argo_cd("kept")
    live["spec"]["template"]["spec"] |= at
    live["spec"]["template"]["spec"].pop("schedulerName")
    bed.apply(live)
    config = account_kubeconfig(bed, "trimtab-reader")
    with pytest.raises(ChangeRefusedError, match="Argo CD would undo the change"):
        KubernetesApplier(settings_of(config)).look(fewer("kept"), job=None, gpus=())
    with running_git_server(tmp_path / "git") as server:
        server.commit({MANIFEST: manifest("kept")})
        applier = git_applier(server, tmp_path, config)
        story = GitStory(store, tmp_path, applier, "kept")
        assert "+  replicas: 2   # two per region" in story.change.steps[0].text
        story.approve()
        assert story.visit() == "applying"
        server.merge(1)
        assert story.visit() == "applying"
        assert "not yet synced to the cluster" in story.held
        merged = yaml.safe_load(server.text(MANIFEST))
        bed.ask(
            "PATCH",
            "apis/apps/v1/namespaces/kept/deployments/serve?fieldManager=argocd-controller&force=true",
            json={name: merged[name] for name in ("apiVersion", "kind", "metadata")}
            | {"spec": {"replicas": merged["spec"]["replicas"]}},
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
        bed.until("it is applied", lambda: story.visit() == "applied", seconds=240.0)
        assert bed.get("Deployment", "serve", namespace="kept")["spec"]["replicas"] == 2
