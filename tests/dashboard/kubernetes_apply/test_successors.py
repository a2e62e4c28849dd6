"""Rollouts that end a pod first: refused where no node would take the one that follows it."""

import random
from datetime import timedelta
from typing import Any

import pytest
from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import (
    carry_out,
    gpus,
    planned,
    pod_spec,
    proposal,
    rehearsed,
    replicated,
    room,
)

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.kubernetes.placement_rules import admits, rules_of
from collectors.shared.collector import Window
from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from data.base.clock import utc_now
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import Job
from data.records.changes import VerificationResult
from data.records.feasible_changes import configuration_refusal
from data.settings.sources import KubernetesSettings

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_no_pod_ends_for_one_that_no_node_takes(
    bed: KubernetesBed, patient: KubernetesApplier, kind: str
) -> None:
    """The only node that its nodeSelector allows is cordoned after the plan, and opened again."""
    namespace = f"successor-{kind.lower()}"
    at = room(bed, namespace, 4)
    bed.apply(replicated(kind, namespace, replicas=1, pod=pod_spec(4, **at)))
    bed.until(
        "it runs",
        lambda: bed.get(kind, "serve", namespace=namespace)["status"].get("readyReplicas") == 1,
    )
    wish = (("gpus_per_pod", "2"),)
    wanted = proposal(f"{namespace}/{kind.lower()}/serve", gpus(4), gpus(2), details=wish)
    bed.patch("Node", f"node-{namespace}", {"spec": {"unschedulable": True}})
    refusals = rehearsed(patient, planned(patient, wanted)).refusals
    assert [f"node-{namespace} cordoned" in text for text in refusals] == [True]
    bed.patch("Node", f"node-{namespace}", {"spec": {"unschedulable": None}})
    change = planned(patient, wanted)
    assert rehearsed(patient, change).refusals == ()
    assert carry_out(patient, change).seen is VerificationResult.AS_INTENDED


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_no_pod_ends_whose_gpus_others_would_take_first(
    bed: KubernetesBed, patient: KubernetesApplier, kind: str
) -> None:
    """A pod of others has waited longer than the successor: that one would stay down instead."""
    namespace = f"taker-{kind.lower()}"
    at = room(bed, namespace, 4)
    bed.apply(replicated(kind, namespace, replicas=1, pod=pod_spec(4, **at)))
    bed.until(
        "it runs",
        lambda: bed.get(kind, "serve", namespace=namespace)["status"].get("readyReplicas") == 1,
    )
    about = {"name": "next", "namespace": namespace}
    waiting = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": pod_spec(3, **at)}
    bed.apply(waiting)
    job_id = f"{namespace}/{kind.lower()}/serve"
    wanted = proposal(job_id, gpus(4), gpus(2), details=(("gpus_per_pod", "2"),))
    refusals = rehearsed(patient, planned(patient, wanted)).refusals
    assert [f"{namespace}/next" in text for text in refusals] == [True]
    assert f"{namespace}/next" in configuration_refusal(told(bed, job_id), gpus(2))
    assert configuration_refusal(told(bed, job_id), gpus(0)) == ""
    bed.delete("Pod", "next", namespace=namespace)
    bed.apply(waiting | {"spec": pod_spec(2, **at)})  # both have room on what is freed
    assert rehearsed(patient, planned(patient, wanted)).refusals == ()


def told(bed: KubernetesBed, job_id: str) -> Job:
    """The workload as the collector tells of it."""
    client = KubernetesClient(
        KubernetesSettings(enabled=True, kubeconfig=str(bed.kubeconfig("admin")))
    )
    now = utc_now()
    found = KubernetesCollector(client, load_gpu_catalogue()).collect(
        Window(start=now - timedelta(hours=1), end=now)
    )
    return next(job for job in found.jobs if job.job_id == job_id)


def _expression(source: random.Random) -> dict[str, Any]:
    operator = source.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
    key = source.choice(["bed/pool", "bed/size", "bed/other"])
    if operator in ("Gt", "Lt"):
        return {"key": key, "operator": operator, "values": [source.choice(["3", "5", "9"])]}
    if operator in ("Exists", "DoesNotExist"):
        return {"key": key, "operator": operator}
    values = source.sample(["a", "b", "4", "8"], source.choice([1, 2]))
    return {"key": key, "operator": operator, "values": values}


def _drawn(source: random.Random, node: str) -> dict[str, Any]:
    """Return what binds a pod to nodes: a selector, terms of one or two expressions, or both."""
    found: dict[str, Any] = {"nodeSelector": {"bed/here": node}}
    if source.random() < 0.3:
        found["nodeSelector"] |= {"bed/pool": source.choice(["a", "b"])}
    terms: list[dict[str, Any]] = []
    for _term in range(source.choice([0, 1, 1, 2])):
        term = {"matchExpressions": [_expression(source) for _ in range(source.choice([1, 2]))]}
        if source.random() < 0.2:
            named = source.choice([node, "elsewhere"])
            field = {"key": "metadata.name", "operator": "In", "values": [named]}
            term["matchFields"] = [field]
        terms.append(term)
    if terms:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        found["affinity"] = {"nodeAffinity": required}
    return found


def test_which_nodes_a_pod_is_put_on_is_what_the_scheduler_says(bed: KubernetesBed) -> None:
    """Drawn selectors and affinities, each put to the real scheduler on a node that has room."""
    namespace, name = "placing", "node-placing"
    room(bed, namespace, 4)
    labels = {"bed/here": name, "bed/pool": "a", "bed/size": "4"}
    bed.patch("Node", name, {"metadata": {"labels": labels}})
    node = bed.ask("GET", f"api/v1/nodes/{name}")
    source = random.Random(20261125)  # noqa: S311
    drawn = [_drawn(source, name) for _pod in range(40)]
    for number, rules in enumerate(drawn):
        containers = [{"name": "main", "image": "example/main:1"}]
        bed.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"p{number}", "namespace": namespace},
                "spec": {"containers": containers, **rules},
            }
        )

    def decided() -> dict[str, bool]:
        pods = bed.ask("GET", f"api/v1/namespaces/{namespace}/pods")["items"]
        said = {
            pod["metadata"]["name"]: told[0]["status"] == "True"
            for pod in pods
            if (
                told := [
                    entry
                    for entry in pod.get("status", {}).get("conditions", [])
                    if entry["type"] == "PodScheduled"
                ]
            )
        }
        return said if len(said) == len(drawn) else {}

    bed.until("the scheduler has judged every pod", lambda: bool(decided()))
    found = {f"p{number}": admits(rules_of(rules), node) for number, rules in enumerate(drawn)}
    assert found == decided()
    assert set(found.values()) == {True, False}
