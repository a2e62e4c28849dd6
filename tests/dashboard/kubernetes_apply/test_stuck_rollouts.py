"""Rollouts that stick on a real cluster: told in time, with the reason, and taken back whole."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import (
    deployment,
    gpus,
    planned,
    pod_spec,
    proposal,
    replicated,
    rolled_out,
    room,
    spec_of,
)
from beds.kubernetes_worker import Play
from recorded.record_kubernetes import built_in

from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from data.records.actions import Action
from data.store import Store, open_store

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

SMALLER = {
    "action": Action.FEWER_GPUS,
    "now": gpus(2),
    "proposed": gpus(1),
    "details": (("gpus_per_pod", "1"),),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store of one engine: what differs between engines is not asked here."""
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as opened:
        yield opened


def play_of(
    bed: KubernetesBed, applier: KubernetesApplier, store: Store, folder: Path, namespace: str,
    kind: str = "deployment", **advice: Any,
) -> Play:  # fmt: skip
    """The change of the workload `serve` of a namespace, recommended."""
    return Play(
        bed=bed,
        store=store,
        applier=applier,
        folder=folder,
        namespace=namespace,
        job_id=f"{namespace}/{kind}/serve",
        advice=SMALLER | advice,
    )


@pytest.mark.parametrize("strategy", ["no room", "no surge", "Recreate", "surge"])
def test_a_service_of_one_pod_that_finds_no_node_is_failing_and_comes_back(
    bed: KubernetesBed, applier: KubernetesApplier, store: Store, tmp_path: Path, strategy: str
) -> None:
    """The scheduler's reason is told in time; going back is whole, however often it was tried."""
    namespace = f"alone-{strategy.lower().replace(' ', '-')}"
    at = room(bed, namespace, 4 if strategy == "surge" else 2)
    rolling = {"maxSurge": 0, "maxUnavailable": 1}
    strategies: dict[str, Any] = {
        "Recreate": {"strategy": {"type": "Recreate"}},
        "no surge": {"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}},
    }
    more = strategies.get(strategy, {})
    bed.apply(deployment(namespace, replicas=1, pod=pod_spec(2, **at), **more))
    rolled_out(bed, namespace)
    before = spec_of(bed, namespace)
    play = play_of(bed, applier, store, tmp_path, namespace)
    node = f"node-{namespace}"
    closed = {"key": "bed/closed", "value": "yes", "effect": "NoSchedule"}
    # A taint is not counted as room: only the rollout finds it.
    bed.patch("Node", node, {"spec": {"taints": [closed]}})
    play.ask()
    assert play.settle() == "failing"
    assert "nodes are available" in play.said
    play.undo()
    assert play.settle() in (("rolled-back",) if strategy == "surge" else ("failing",))
    bed.patch("Node", node, {"spec": {"taints": None}})
    if play.state == "failing":
        play.undo()
        play.settle()
        # Its pod is older than the patience until the scheduler has tried it again.
        assert play.recover() == "rolled-back"
    assert spec_of(bed, namespace) == before
    rolled_out(bed, namespace)


def test_a_rollback_may_be_asked_while_a_pod_waits(
    bed: KubernetesBed, applier: KubernetesApplier, store: Store, tmp_path: Path
) -> None:
    """Nobody has to wait for the outcome of a change that is seen to go wrong."""
    at = room(bed, "impatient", 2)
    bed.apply(deployment("impatient", replicas=1, pod=pod_spec(2, **at)))
    rolled_out(bed, "impatient")
    before = spec_of(bed, "impatient")
    play = play_of(bed, applier, store, tmp_path, "impatient")
    play.ask()
    while not play.sent:
        play.worker.work_once()
    assert play.state == "applying"
    play.undo()
    play.settle()
    assert play.recover() == "rolled-back"
    assert spec_of(bed, "impatient") == before
    rolled_out(bed, "impatient")


def test_a_rollback_is_not_judged_by_what_the_rollout_before_it_left(
    bed: KubernetesBed, applier: KubernetesApplier, store: Store, tmp_path: Path
) -> None:
    """A quota refused the pods of the change: that is no trouble of the way back.

    A quota with a scope is not foreseen.
    """
    at = room(bed, "stale", 8)
    bed.apply(deployment("stale", replicas=2, pod=pod_spec(1, **at)))
    rolled_out(bed, "stale")
    before = spec_of(bed, "stale")
    bed.api_versions["ResourceQuota"] = "v1"
    spec = {"hard": {"pods": "2"}, "scopes": ["NotTerminating"]}
    bed.apply(built_in("v1", "ResourceQuota", "gpus", spec, namespace="stale"))

    def counted() -> bool:
        status = bed.get("ResourceQuota", "gpus", namespace="stale")["status"]
        return bool(status.get("used", {}).get("pods") == "2")

    bed.until("the quota counts", counted)
    larger = {"action": Action.SCALE_OUT, "proposed": gpus(4), "details": (("gpus_per_pod", "2"),)}
    play = play_of(bed, applier, store, tmp_path, "stale", **larger)
    play.ask()

    def refused() -> bool:
        sets = bed.list("ReplicaSet", namespace="stale")
        found = [entry for each in sets for entry in each["status"].get("conditions", ())]
        return not play.sent or any(entry["type"] == "ReplicaFailure" for entry in found)

    assert play.settle(lambda: bed.until("the quota refuses", refused)) == "failing"
    assert "exceeded quota" in play.said
    play.undo()
    assert play.settle() == "rolled-back"
    assert spec_of(bed, "stale") == before


def test_a_pod_that_a_stateful_set_never_replaces_is_named(
    bed: KubernetesBed, applier: KubernetesApplier, store: Store, tmp_path: Path
) -> None:
    """The object is as it was; its controller leaves the pod, and the command to end it is told."""
    at = room(bed, "kept", 2)
    bed.apply(replicated("StatefulSet", "kept", replicas=1, pod=pod_spec(2, **at)))
    bed.until("it runs", lambda: [pod["status"]["phase"] for pod in
                                  bed.list("Pod", namespace="kept")] == ["Running"])  # fmt: skip
    before = spec_of(bed, "kept", "StatefulSet")
    play = play_of(bed, applier, store, tmp_path, "kept", "statefulset")
    taint = {"key": "bed/closed", "value": "yes", "effect": "NoSchedule"}
    bed.patch("Node", "node-kept", {"spec": {"taints": [taint]}})
    play.ask()
    assert play.settle() == "failing"
    play.undo()
    assert play.settle() == "failing"
    assert "kubectl -n kept delete pod serve-0" in play.said
    assert spec_of(bed, "kept", "StatefulSet") == before


@pytest.mark.parametrize(
    ("kind", "replicas", "spec", "words"),
    [
        ("Deployment", 1, {}, "one pod ends before a new one"),
        ("Deployment", 2, {"strategy": {"type": "Recreate"}}, "all 2 pods end before a new one"),
        ("StatefulSet", 1, {}, "one pod ends before a new one"),
        ("StatefulSet", 2, {}, ""),
        ("Deployment", 2, {}, ""),
    ],
)
def test_that_a_service_goes_down_is_said_before_the_approval(
    bed: KubernetesBed, applier: KubernetesApplier, kind: str, replicas: int, spec: Any, words: str
) -> None:
    """On a full node the only pod goes before its successor comes."""
    namespace = f"told-{kind.lower()}-{replicas}-{len(spec)}"
    at = room(bed, namespace, 2 * replicas)
    bed.apply(replicated(kind, namespace, replicas=replicas, pod=pod_spec(2, **at), **spec))
    bed.until(
        "its pods are placed",
        lambda: (
            sum("nodeName" in pod["spec"] for pod in bed.list("Pod", namespace=namespace))
            == replicas
        ),
    )
    wish = proposal(
        f"{namespace}/{kind.lower()}/serve",
        gpus(2 * replicas),
        gpus(replicas),
        details=(("gpus_per_pod", "1"),),
    )
    notes = [note for note in planned(applier, wish).notes if "goes down" in note]
    assert len(notes) == bool(words)
    assert all(words in note for note in notes)
