"""Every answer to a patch is one stated outcome, and no patch is sent twice."""

import json
from pathlib import Path
from typing import Any

import pytest
from beds.faulty_server import Behaviour, faulty_server, hangs, resets, truncates
from beds.kubernetes_apply import deployment, gpus, planned, pod_spec, proposal, settings_of
from beds.kubernetes_fake import FakeApi
from beds.kubernetes_replay import kubeconfig

from collectors.kubernetes import api as api_module
from collectors.kubernetes.api import CutError, KubernetesApi
from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from dashboard.common.kubernetes_writer import applying_account
from data.base.errors import (
    ApplyError,
    CollectorError,
    SourceNotConfiguredError,
    SourceUnreachableError,
)
from data.facts.jobs import Platform
from data.records.actions import Action
from data.records.changes import Change, StepOutcome, VerificationResult

RECORDED = json.loads(
    (Path(__file__).parents[2] / "recorded" / "kubernetes-apply" / "refusals.json").read_text()
)
PATH = "apis/apps/v1/namespaces/ml/deployments/serve"
BUSY, REFUSED, UNKNOWN = StepOutcome.BUSY, StepOutcome.REFUSED, StepOutcome.UNKNOWN


@pytest.fixture
def change(fake: FakeApi, newer: KubernetesApplier) -> Change:
    """Two pods of one GPU become one."""
    fake.put(PATH, deployment("ml", replicas=2, pod=pod_spec(1)))
    return planned(newer, proposal("ml/deployment/serve", gpus(2), gpus(1)))


@pytest.mark.parametrize(
    ("name", "outcome", "words"),
    [
        ("stale", BUSY, "moved between the look and the patch"),
        ("untrue", REFUSED, "not as it was"),
        ("unequal", REFUSED, "must be equal to nvidia.com/gpu limit"),
        ("fraction", REFUSED, "must be an integer"),
        ("forbidden", REFUSED, 'apiGroups: ["apps"], resources: ["deployments"], verbs: ["patch"]'),
        ("gone", REFUSED, "the object is gone"),
        ("media", REFUSED, "no JSON patch"),
        ("unauthorized", REFUSED, "renew its token"),
    ],
)
def test_each_recorded_refusal_has_its_outcome(
    fake: FakeApi,
    newer: KubernetesApplier,
    change: Change,
    name: str,
    outcome: StepOutcome,
    words: str,
) -> None:
    """What a real server answered, and what it means here."""
    status, body = RECORDED[name]
    fake.instead = lambda _query: (status, json.dumps(body).encode(), {})
    result = newer.execute(change.steps[0], change)
    assert result.outcome is outcome
    assert words in result.detail
    assert len(fake.sent) == 1


STATUS = b'{"kind": "Status", "message": "wait"}'


@pytest.mark.parametrize(
    ("status", "body", "headers", "outcome", "wait"),
    [
        (429, STATUS, {"Retry-After": "7"}, BUSY, 7.0),
        (429, b"", {}, BUSY, None),
        (429, STATUS, {"Retry-After": "-1"}, BUSY, None),
        (429, STATUS, {"Retry-After": "99999"}, BUSY, 3600.0),
        (429, STATUS, {"Retry-After": "Sat, 21 Nov 2026 12:00:00 GMT"}, BUSY, None),
        (503, STATUS, {"Retry-After": "2"}, BUSY, 2.0),
        (503, b"<html>no upstream</html>", {}, UNKNOWN, None),
        (500, STATUS, {}, UNKNOWN, None),
        (502, b"", {}, UNKNOWN, None),
        (504, STATUS, {}, UNKNOWN, None),
        (200, b"<html>sign in</html>", {}, UNKNOWN, None),
        (200, b"{", {}, UNKNOWN, None),
        (200, STATUS, {}, UNKNOWN, None),
        (204, b"", {}, UNKNOWN, None),
        (302, b"", {"Location": "http://127.0.0.1:9/"}, REFUSED, None),
        (400, STATUS, {}, REFUSED, None),
        (418, b"\xff\xfe", {}, REFUSED, None),
    ],
)
def test_other_answers_are_busy_refused_or_unknown(
    fake: FakeApi,
    newer: KubernetesApplier,
    change: Change,
    status: int,
    body: bytes,
    headers: dict[str, str],
    outcome: StepOutcome,
    wait: float | None,
) -> None:
    """Busy only where nothing happened for sure; a wish to wait is handed on, within an hour."""
    fake.instead = lambda _query: (status, body, headers)
    result = newer.execute(change.steps[0], change)
    assert (result.outcome, result.retry_after_seconds) == (outcome, wait)
    assert len(fake.sent) == 1


def test_an_answer_that_differs_from_what_was_sent_is_told(
    fake: FakeApi, newer: KubernetesApplier, change: Change
) -> None:
    """An admission webhook stored three pods instead of one."""
    stored = json.loads(json.dumps(fake.objects[PATH]))
    stored["spec"]["replicas"] = 3
    stored["metadata"]["resourceVersion"] = "9"
    fake.instead = lambda _query: (200, json.dumps(stored).encode(), {})
    assert newer.rehearse(change).differences == (("/spec/replicas", "1", "3"),)
    result = newer.execute(change.steps[0], change)
    assert result.outcome is StepOutcome.DONE
    assert "/spec/replicas is 3, not 1" in result.detail
    fake.objects[PATH] = stored
    found = newer.read_back(change, done=1)
    assert (found.seen, found.observed) == (
        VerificationResult.DIFFERENT,
        (("/spec/replicas", "3"),),
    )


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_a_rehearsal_that_is_not_answered_is_an_error_and_no_refusal(
    fake: FakeApi, newer: KubernetesApplier, change: Change, status: int
) -> None:
    """Nobody said no: it is to be asked again."""
    fake.instead = lambda _query: (status, STATUS, {})
    with pytest.raises(ApplyError, match="dry run"):
        newer.rehearse(change)


def asked_at(path: Path) -> KubernetesApi:
    """The applying account of a kubeconfig."""
    return applying_account(KubernetesApi, settings_of(path))


@pytest.mark.parametrize("behaviour", [hangs, resets, truncates])
def test_an_answer_that_does_not_come_whole_leaves_the_outcome_open(
    behaviour: Behaviour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request was sent, and its time is over."""
    monkeypatch.setattr(api_module, "TIMEOUT_SECONDS", 0.5)
    with faulty_server(behaviour, names=()) as server:
        path = kubeconfig(tmp_path / "kubeconfig", server.url)
        api = applying_account(KubernetesApi, settings_of(path))
        with pytest.raises(CutError, match="was sent and not answered"):
            api.get("version")


@pytest.mark.parametrize(
    "server", ["http://127.0.0.1:9", "https://no-such-host.invalid", "http://"]
)
def test_a_request_that_finds_no_server_was_not_sent(server: str, tmp_path: Path) -> None:
    """Refused, an unknown name, no address."""
    api = asked_at(kubeconfig(tmp_path / "kubeconfig", server))
    with pytest.raises(SourceUnreachableError, match="was not sent") as caught:
        api.get("version")
    assert not isinstance(caught.value, CutError)


def test_a_refused_connection_is_told_whatever_was_asked(tmp_path: Path) -> None:
    """A long path once left no room for the reason."""
    api = asked_at(kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9"))
    with pytest.raises(SourceUnreachableError, match=r"Connection refused\)"):
        api.get("apis/keda.sh/v1alpha1/namespaces/assist/scaledobjects/" + "a" * 60)


def test_a_token_never_stands_in_an_error(tmp_path: Path) -> None:
    """Neither one that cannot be sent, nor one of a server that does not answer."""
    for token in ("canary-7f3a\nmore", "canary-7f3a"):
        path = kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9", token)
        with pytest.raises(CollectorError, match="was not sent") as caught:
            asked_at(path).get("version")
        assert "canary" not in str(caught.value)


def test_a_certificate_that_is_missing_is_not_sent(tmp_path: Path) -> None:
    """The kubeconfig names an authority that is no file."""
    path = kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:9")
    text = path.read_text().replace("server:", "certificate-authority: /no/such/ca\n    server:")
    path.write_text(text)
    with pytest.raises(SourceNotConfiguredError, match="/no/such/ca"):
        asked_at(path).get("version")


def test_an_applier_covers_what_has_a_field(newer: KubernetesApplier) -> None:
    """Objects have no time at which they begin, and power caps are the agents'."""
    job = "ml/deployment/serve"
    covered = {
        action for action in Action if newer.covers(proposal(job, gpus(2), gpus(1), action=action))
    }
    assert covered == {
        Action.FEWER_GPUS,
        Action.SMALLER_GPU,
        Action.MIG_SLICE,
        Action.RECLAIM,
        Action.SCALE_OUT,
        Action.LARGER_GPU,
        Action.SPREAD,
        Action.CONSOLIDATE,
        Action.TAKE_SHARE,
    }
    assert not newer.covers(proposal(job, gpus(2), gpus(1), platform=Platform.SLURM))


def test_a_step_of_another_change_is_not_sent(
    fake: FakeApi, newer: KubernetesApplier, change: Change
) -> None:
    """A step names its object itself: it is sent to that of its change or not at all."""
    other = "apis/apps/v1/namespaces/ml/deployments/other"
    fake.put(other, deployment("ml", name="other", replicas=2, pod=pod_spec(1)))
    foreign = planned(newer, proposal("ml/deployment/other", gpus(2), gpus(1)))
    assert newer.execute(foreign.steps[0], change).outcome is StepOutcome.REFUSED
    assert fake.sent == []


@pytest.mark.parametrize(
    "more",
    [
        {"paused": True},
        {"updateStrategy": {"type": "OnDelete"}},
        {"updateStrategy": {"rollingUpdate": {"partition": 1}}},
    ],
)
def test_a_change_of_number_alone_waits_for_its_pods(
    fake: FakeApi, newer: KubernetesApplier, change: Change, more: dict[str, Any]
) -> None:
    """What keeps pods from being made anew keeps none from ending."""
    stored = json.loads(json.dumps(fake.objects[PATH]))
    stored["spec"] |= {"replicas": 1} | more
    stored["metadata"]["generation"] = 9
    fake.objects[PATH] = stored
    found = newer.read_back(change, done=1)
    assert found.seen is VerificationResult.NOT_YET, found.detail
