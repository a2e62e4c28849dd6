"""From a look to a pull request, on a real git server: what is sent, followed, and refused."""

from dataclasses import replace
from pathlib import Path

import pytest
from beds.git_server import TOKEN, GitServer, running_git_server
from beds.git_world import LIVE, MANIFEST, fewer, git_applier, git_settings, manifest, sync
from beds.kubernetes_apply import gpus, proposal
from beds.kubernetes_fake import FakeApi
from beds.kubernetes_replay import kubeconfig

from dashboard.apply.contract.applier import Remains
from dashboard.apply.git import repository
from dashboard.apply.git.applier import GitApplier, request_body
from dashboard.apply.git.forges import forge_of
from dashboard.apply.git.repository import base_copy
from data.base.errors import ApplyError, ChangeRefusedError, SettingsError, StalePlanError
from data.records.changes import Change, StepOutcome, VerificationResult
from data.records.plans import Configuration
from data.records.recommendations import Recommendation

FORGES = ("gitea", "github", "gitlab")
AS_OTHERS = ("-c", "user.name=Mallory", "-c", "user.email=mallory@site.example")
each_forge = pytest.mark.parametrize("server", FORGES, indirect=True)


def planned(applier: GitApplier, one: Recommendation | None = None) -> Change:
    """The change as it is approved."""
    one = one or fewer()
    return applier.change_for(one, applier.look(one, job=None, gpus=()))


def opened(applier: GitApplier) -> Change:
    """A change whose request is open."""
    change = planned(applier)
    assert applier.rehearse(change).refusals == ()
    for step in change.steps:
        assert applier.execute(step, change).outcome is StepOutcome.DONE
    return change


def branch_of(change: Change, server: GitServer) -> str:
    """The branch that the applier made."""
    (branch,) = set(server.branches()) - {"main"}
    assert branch == f"trimtab/{change.recommendation_digest[:16]}"
    return branch


def test_the_preview_is_the_difference_that_is_committed(
    applier: GitApplier, server: GitServer
) -> None:
    """One line, on a branch named by the digest, signed off, with the base as its parent."""
    change = planned(applier)
    assert change.steps[0].text == (
        f"--- a/{MANIFEST}\n+++ b/{MANIFEST}\n@@ -8 +8 @@\n"
        "-  replicas: 4   # two per region\n+  replicas: 2   # two per region\n"
    )
    assert server.branches() == ["main"]
    base = server.head()
    assert applier.execute(change.steps[0], change).outcome is StepOutcome.DONE
    branch = branch_of(change, server)
    assert server.head() == base
    assert server.text(MANIFEST, branch) == manifest("ml").replace("4   #", "2   #")
    assert server.git("diff", "--name-only", "main", branch).split() == [MANIFEST]
    told = server.git("log", "-1", "--format=%P%n%an <%ae>%n%B", branch)
    assert told.startswith(f"{base}\nTrimtab <trimtab@example.org>\nGive ml/deployment/serve")
    assert f"Trimtab-Digest: {change.recommendation_digest}\n" in told
    assert "Signed-off-by: Trimtab <trimtab@example.org>" in told


def test_the_request_tells_evidence_interval_digest_and_page(
    applier: GitApplier, server: GitServer
) -> None:
    """What a reviewer needs, with names escaped."""
    change = opened(applier)
    (request,) = server.requests
    assert request["title"].startswith("Give ml/deployment/serve 2 ×")
    body = request["body"]
    assert change.recommendation_digest in body
    assert "- Saves over 24 h: `48 (" in body
    assert "- Signal: `sm_active`\n- Samples: `10 from " in body
    assert "Page: https://trimtab.example.org/jobs?job=ml/deployment/serve" in body
    evil = fewer(why="`x` <b> @all Closes #1 ![](http://evil.example)\n\n# head")
    told = request_body(evil, "")
    (line,) = (line for line in told.splitlines() if line.startswith("- Why: "))
    assert line.count("`") == 2
    assert line.endswith("# head`")


@pytest.mark.parametrize("kind", FORGES)
@pytest.mark.parametrize("delete", [True, False])
def test_a_request_is_followed_until_the_cluster_has_its_value(
    cluster: FakeApi, tmp_path: Path, kind: str, delete: bool
) -> None:
    """Open, merged, synced, rolled out: each is told from the others, at both forges."""
    with running_git_server(tmp_path / "forge", kind) as server:
        server.commit({MANIFEST: manifest("ml")})
        applier = git_applier(server, tmp_path, kubeconfig(tmp_path / "config", cluster.url))
        change = opened(applier)
        found = applier.read_back(change, done=2)
        assert found.seen is VerificationResult.NOT_YET
        assert "waiting to be merged: http" in found.detail
        server.merge(1, delete=delete)
        found = applier.read_back(change, done=2)
        assert found.seen is VerificationResult.UNTOUCHED
        assert "not yet synced to the cluster" in found.detail
        cluster.objects[LIVE]["spec"]["replicas"] = 2
        assert applier.read_back(change, done=2).seen is VerificationResult.NOT_YET
        sync(cluster, 2)
        assert applier.read_back(change, done=2).seen is VerificationResult.AS_INTENDED
        (kept, server.requests) = (server.requests, [])
        assert applier.read_back(change, done=2).seen is VerificationResult.AS_INTENDED
        server.requests = kept
        sync(cluster, 3)
        assert applier.read_back(change, done=2).seen is VerificationResult.DIFFERENT
        assert cluster.sent == []


@each_forge
def test_a_request_that_is_closed_is_declined_with_its_reason(
    applier: GitApplier, server: GitServer
) -> None:
    """The last comment is the reason."""
    change = opened(applier)
    server.decline(1, "We need them\nfor the launch")
    found = applier.read_back(change, done=2)
    assert found.seen is VerificationResult.DECLINED
    assert "(We need them for the launch)" in found.detail


@each_forge
def test_a_request_from_a_fork_is_not_ours(applier: GitApplier, server: GitServer) -> None:
    """Anybody may give a branch of a fork the name of ours, and merge or close that request."""
    change = opened(applier)
    server.requests[0]["head"]["repo"] = {"id": 2}
    server.requests[0] |= {"state": "closed", "merged_at": "2026-11-24T09:00:00Z"}
    found = applier.read_back(change, done=2)
    assert found.seen is VerificationResult.UNTOUCHED
    assert found.detail.startswith("no pull request for branch trimtab/")


@each_forge
def test_nothing_arrives_twice(applier: GitApplier, server: GitServer) -> None:
    """A step that is sent again, after a crash, finds what is there."""
    one = fewer()
    change = planned(applier, one)
    push, request = change.steps
    assert applier.read_back(change, done=1).seen is VerificationResult.UNTOUCHED
    for _time in range(2):
        assert applier.execute(push, change).outcome is StepOutcome.DONE
    assert applier.read_back(change, done=1).seen is VerificationResult.NOT_YET
    assert applier.read_back(change, done=2).seen is VerificationResult.UNTOUCHED
    for _time in range(2):
        assert applier.execute(request, change).outcome is StepOutcome.DONE
    assert len(server.requests) == 1
    with pytest.raises(ChangeRefusedError, match="is open already"):
        planned(applier, one)


@pytest.mark.parametrize("pushed", [False, True])
def test_what_nobody_approved_does_not_travel_under_an_approval(
    applier: GitApplier, server: GitServer, pushed: bool
) -> None:
    """A branch with the approved edit and more is neither taken for ours nor written over."""
    change = planned(applier)
    push, request = change.steps
    branch = f"trimtab/{change.recommendation_digest[:16]}"
    if pushed:
        assert applier.execute(push, change).outcome is StepOutcome.DONE
    else:
        server.git("branch", branch, "main")
        server.commit({MANIFEST: manifest("ml").replace("4   #", "2   #")}, branch=branch)
    head = server.commit({"evil.yaml": "x"}, branch=branch)
    for step in (push, request):
        result = applier.execute(step, change)
        assert result.outcome is StepOutcome.REFUSED
        assert "already exists with other content" in result.detail
    assert applier.read_back(change, done=1).seen is VerificationResult.DIFFERENT
    assert (server.head(branch), server.requests) == (head, [])


@pytest.mark.parametrize("moved", ["base_branch", "repository"])
def test_a_change_goes_to_the_place_that_was_approved_alone(
    applier: GitApplier, server: GitServer, cluster: FakeApi, tmp_path: Path, moved: str
) -> None:
    """Settings that name another base or repository by now send, close and tell nothing."""
    change = planned(applier)
    server.git("branch", "production", "main")
    place = {"base_branch": "production", "repository": f"{server.url}/team/fleet"}[moved]
    config = kubeconfig(tmp_path / "other", cluster.url)
    other = git_applier(server, tmp_path, config, **{moved: place})
    assert other.look_again(change).fingerprint != change.target.fingerprint
    for step in change.steps:
        assert other.execute(step, change).outcome is StepOutcome.REFUSED
    assert server.branches() == ["main", "production"]
    opened(applier)
    assert other.read_back(change, done=2).seen is VerificationResult.UNTOUCHED
    assert other.close(change, sent=2).left is Remains.UNKNOWN
    with pytest.raises(StalePlanError, match="apply_git names"):
        other.change_back(change, other.look_again(change))


def test_the_base_is_refused_by_the_server_and_by_the_settings(
    applier: GitApplier, server: GitServer, tmp_path: Path
) -> None:
    """No branch of Trimtab can be the base; a server that refuses a branch is a refusal."""
    with pytest.raises(SettingsError, match="base_branch"):
        git_settings(server, tmp_path, base_branch="trimtab/main")
    change = planned(applier)
    result = applier.execute(change.steps[0], change)
    assert result.outcome is StepOutcome.DONE


@pytest.mark.parametrize("lines", [0, 1, 40])
def test_a_declined_push_gives_the_answer_of_the_server(
    applier: GitApplier, server: GitServer, lines: int
) -> None:
    """However long it is: with 40 lines the end of what git says was cut, and nobody knew."""
    said = "echo branches are made by the platform team >&2\n" * lines
    (server.bare / "hooks" / "pre-receive").write_text(f"#!/bin/sh\n{said}exit 1\n")
    change = planned(applier)
    result = applier.execute(change.steps[0], change)
    assert result.outcome is StepOutcome.REFUSED
    assert result.detail.startswith("the server refuses the push (pre-receive hook declined)")
    assert ("branches are made by the platform team" in result.detail) is bool(lines)
    assert server.branches() == ["main"]


def commit_of_others(server: GitServer, branch: str, how: str) -> None:
    """Change a branch as somebody does who may push."""
    if how == "on top":
        server.commit({"apps/serve/evil.yaml": "a: 1\n"}, branch=branch)
        return
    tip = server.git("rev-parse", branch).strip()
    message = server.git("log", "-1", "--format=%B", branch)
    if how == "instead":
        server.commit({"apps/other.yaml": "b: 2\n"}, branch="x")
        tree, parent = "x^{tree}", "main"
    else:
        server.git("update-ref", "refs/heads/x", "main")
        server.commit({"apps/other.yaml": "b: 2\n"}, branch="x")
        server.commit({MANIFEST: server.git("show", f"{tip}:{MANIFEST}")}, branch="x")
        tree, parent = "x^{tree}", "x^"
    made = server.git(*AS_OTHERS, "commit-tree", tree, "-p", parent, "-m", message).strip()
    server.git("update-ref", f"refs/heads/{branch}", made)


@pytest.mark.parametrize("how", ["on top", "instead", "below"])
def test_a_commit_of_others_on_the_branch_of_a_request_is_told(
    applier: GitApplier, server: GitServer, how: str
) -> None:
    """Whoever merges would merge it too. A base that moved on is no such commit."""
    change = opened(applier)
    server.commit({"README.md": "more\n"})
    assert "nobody approved" not in applier.read_back(change, done=2).detail
    commit_of_others(server, branch_of(change, server), how)
    seen = applier.read_back(change, done=2)
    assert seen.seen is VerificationResult.NOT_YET
    assert "with a commit on its branch that nobody approved" in seen.detail


def test_what_unpacks_to_much_takes_little_memory(applier: GitApplier, server: GitServer) -> None:
    """A file of 96 MiB in some kB is written as it comes, and a commit of as much is refused."""
    server.commit({"apps/serve/bomb.txt": "0" * (96 << 20)})
    planned(applier)
    tree = server.git("rev-parse", "main^{tree}").strip()
    bomb = server.git(*AS_OTHERS, "commit-tree", tree, "-p", "main", sent="0" * (96 << 20)).strip()
    server.git("update-ref", "refs/heads/main", bomb)
    with pytest.raises(ApplyError, match="git fetch failed"):
        planned(applier)


@pytest.mark.parametrize("moved", ["file", "other file", "live"])
def test_what_moved_since_the_look_is_told(
    applier: GitApplier, server: GitServer, cluster: FakeApi, moved: str
) -> None:
    """The content of the file is part of what is approved; the rest of the base may move."""
    change = planned(applier)
    if moved == "file":
        server.commit({MANIFEST: manifest("ml") + "# more\n"})
    elif moved == "other file":
        server.commit({"README.md": "more\n"})
    else:
        cluster.objects[LIVE]["spec"]["replicas"] = 5
    same = applier.look_again(change).fingerprint == change.target.fingerprint
    assert same is (moved == "other file")
    result = applier.execute(change.steps[0], change)
    assert (result.outcome is StepOutcome.REFUSED) is (moved == "file")
    if moved == "other file":
        assert server.text("README.md", branch_of(change, server)) == "more\n"


@each_forge
def test_an_open_request_is_closed_on_the_way_back_and_a_merged_one_is_not(
    applier: GitApplier, server: GitServer
) -> None:
    """Nothing has reached the cluster before; afterwards the forge reverts."""
    change = opened(applier)
    back = applier.change_back(change, applier.look_again(change))
    assert applier.look_again(back).fingerprint == back.target.fingerprint
    assert applier.rehearse(back).refusals == ()
    (close,) = back.steps
    assert applier.read_back(back, done=1).seen is VerificationResult.UNTOUCHED
    assert applier.execute(close, back).outcome is StepOutcome.DONE
    assert applier.read_back(back, done=1).seen is VerificationResult.AS_INTENDED
    server.requests[0] |= {"state": "open"}
    server.merge(1)
    with pytest.raises(ChangeRefusedError, match="is merged"):
        applier.change_back(change, applier.look_again(change))
    assert applier.close(change, sent=2).left is Remains.AS_IT_IS


@each_forge
def test_a_change_that_is_given_up_leaves_no_open_request(
    applier: GitApplier, server: GitServer
) -> None:
    """A request that the forge refused, and one that is open: nothing can be merged later."""
    change = planned(applier)
    server.instead = lambda method, _path: (403, {"message": "no"}) if method == "POST" else None
    assert applier.execute(change.steps[0], change).outcome is StepOutcome.DONE
    assert applier.execute(change.steps[1], change).outcome is StepOutcome.REFUSED
    assert applier.close(change, sent=2).left is Remains.NOTHING
    server.instead = lambda _method, _path: None
    assert applier.execute(change.steps[1], change).outcome is StepOutcome.DONE
    assert applier.close(change, sent=2).left is Remains.NOTHING
    assert server.requests[0]["state"] == "closed"
    server.instead = lambda _method, _path: (502, None)
    assert applier.close(change, sent=2).left is Remains.UNKNOWN
    assert applier.execute(change.steps[1], change).outcome is StepOutcome.BUSY
    assert applier.read_back(change, done=2).seen is VerificationResult.UNREADABLE


@each_forge
def test_a_right_that_is_missing_is_told_before(applier: GitApplier, server: GitServer) -> None:
    """The forge says who may push."""
    assert applier.access() == (True, f"the account may push to {server.repository}")
    change = planned(applier)
    server.pushes = False
    assert "apply_git.token_file" in applier.rehearse(change).refusals[0]
    assert applier.access()[0] is False


@pytest.mark.parametrize(
    ("proposed", "why"),
    [
        (gpus(0), ""),
        (gpus(4, model="A100-SXM4-80GB"), "has no label|no node has a label"),
        (gpus(4, profile="3g.40gb"), "needs 2 steps"),
    ],
)
def test_what_is_no_number_of_the_manifest_is_refused(
    applier: GitApplier, proposed: Configuration, why: str
) -> None:
    """Another model is a label, another size another key; none at all is a number."""
    one = proposal("ml/deployment/serve", gpus(4), proposed)
    if not why:
        assert "+  replicas: 0" in planned(applier, one).steps[0].text
        return
    with pytest.raises(ChangeRefusedError, match=why):
        planned(applier, one)


def test_another_owner_still_stands_against_it(applier: GitApplier, cluster: FakeApi) -> None:
    """An autoscaler sets the number again, wherever it was changed."""
    cluster.lists["apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers"] = [
        {"metadata": {"name": "a", "namespace": "ml"},
         "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "serve"}}}
    ]  # fmt: skip
    with pytest.raises(ChangeRefusedError, match="HorizontalPodAutoscaler would undo"):
        planned(applier)


def test_links_strange_names_and_large_files_are_no_manifests(
    applier: GitApplier, server: GitServer
) -> None:
    """What leads out of the repository or hides its name is not read."""
    text = manifest("ml")
    server.commit({"apps/link.yaml": text, "apps/up.yaml": "../../x"}, mode="120000")
    server.commit({"apps/a\nb.yaml": text, "apps/big.yaml": text + "#" * 300_000})
    assert f"a/{MANIFEST}" in planned(applier).steps[0].text


def test_no_program_of_the_user_runs_and_no_word_of_the_token_comes_out(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks, settings and helpers of the machine are left alone; errors name no secret."""
    home, ran = tmp_path / "home", tmp_path / "ran"
    (home / "hooks").mkdir(parents=True)
    for name in ("pre-push", "post-commit", "reference-transaction"):
        (home / "hooks" / name).write_text(f"#!/bin/sh\necho {name} >> {ran}\n")
        (home / "hooks" / name).chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[core]\n\thooksPath = {home}/hooks\n[credential]\n\thelper = !touch {ran}\n"
        f'[url "file://{tmp_path}/nowhere"]\n\tinsteadOf = {server.url}\n'
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_TRACE", "1")
    monkeypatch.setenv("GIT_SSH_COMMAND", f"touch {ran}")
    settings = git_settings(server, tmp_path)
    with base_copy(settings) as copy:
        assert copy.commit == server.head()
        (file,) = copy.files("README.md")
        made = copy.commit_file(file, "x\n", "m\n", 0)
        assert copy.push(made, "trimtab/x").outcome is StepOutcome.DONE
    assert not ran.exists()
    with (
        pytest.raises(ApplyError) as caught,
        base_copy(replace(settings, repository=f"{server.url}/team/none.git")),
    ):
        raise AssertionError
    assert TOKEN not in str(caught.value)
    server.instead = lambda _method, _path: (403, {"message": f"{TOKEN} is no friend of ours"})
    assert forge_of(settings).may_push() == "the forge answers 403: *** is no friend of ours"
    Path(settings.token_file).write_text("canary-7f3a-wrong-token")
    with pytest.raises(ApplyError) as caught, base_copy(settings):
        raise AssertionError
    assert "canary" not in str(caught.value)
    Path(settings.token_file).write_text("two\nlines")
    with pytest.raises(ChangeRefusedError, match="holds no token"), base_copy(settings):
        raise AssertionError


def test_a_silent_server_is_given_up(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A git that waits is ended with all its children at the deadline."""
    monkeypatch.setattr(repository, "TIMEOUT_SECONDS", 0.001)
    settings = git_settings(server, tmp_path)
    with pytest.raises(ApplyError, match=r"did not finish within 0\.001 s"), base_copy(settings):
        raise AssertionError


def test_a_machine_without_room_is_told_and_a_limit_of_the_forge_is_waited_for(
    applier: GitApplier, server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is a defect or a refusal: the worker tries again."""
    change = planned(applier)
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.tempdir", "/nowhere")
        assert applier.execute(change.steps[0], change).outcome is StepOutcome.BUSY
    assert applier.execute(change.steps[0], change).outcome is StepOutcome.DONE
    said = {"message": "You have exceeded a secondary rate limit"}
    server.instead = lambda method, _path: (403, said) if method == "POST" else None
    assert applier.execute(change.steps[1], change).outcome is StepOutcome.BUSY


def test_a_deleted_object_stops_the_change(applier: GitApplier, cluster: FakeApi) -> None:
    """A request for an object that is gone is not opened."""
    change = planned(applier)
    del cluster.objects[LIVE]
    with pytest.raises(StalePlanError):
        applier.look_again(change)
