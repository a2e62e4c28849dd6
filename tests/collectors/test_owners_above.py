"""Objects above Deployments and pods, on a real API: the topmost is what a person would change.

Their operators do not run here: objects and pods are made as they would make them.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from beds.autoscalers import define_scaled_objects, under_keda
from beds.kubernetes import KubernetesBed, running_kubernetes
from beds.kubernetes_apply import deployment, pod_spec

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.kubernetes.kinds import ASKED_WHERE, KINDS
from collectors.shared.collector import Window
from data.base.clock import utc_now
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.jobs import WorkloadKind
from data.records.feasible_changes import SCALES_TO_ZERO
from data.settings.sources import KubernetesSettings

ANY: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CHAINS = {
    "grove": ("PodCliqueSet", "PodCliqueScalingGroup", "PodClique"),
    "dynamo": ("DynamoGraphDeployment", "DynamoComponentDeployment"),
    "nim": ("NIMService",),
    "kserve": ("InferenceService",),
}
"""Kinds from the top down, by the namespace of each; below the last are pods of Grove's own, else a
Deployment."""

_UNDER_KEDA = 5
"""Pods of the service that KEDA scales."""


def group_of(kind: str) -> tuple[str, str, str]:
    """Return group, version and plural of a kind, as it is asked for."""
    _apis, group, version, plural = KINDS[kind][0].split("/")
    return group, version, plural


def define(bed: KubernetesBed, kind: str) -> None:
    """Serve a kind, with anything in it."""
    group, version, plural = group_of(kind)
    served = {"name": version, "served": True, "storage": True}
    schema = {"type": "object", "properties": {"spec": ANY, "status": ANY}}
    bed.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {
                "group": group,
                "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                "scope": "Namespaced",
                "versions": [served | {"schema": {"openAPIV3Schema": schema}}],
            },
        }
    )


def owned(document: dict[str, Any], owner: dict[str, Any] | None) -> dict[str, Any]:
    """Return an object as its owner would make it."""
    if owner is not None:
        document["metadata"]["ownerReferences"] = [
            {name: owner[name] for name in ("apiVersion", "kind")}
            | {name: owner["metadata"][name] for name in ("name", "uid")}
            | {"controller": True}
        ]
    return document


@pytest.fixture(scope="module")
def told() -> Iterator[Collected]:
    """What the collector gives, with the rights of deploy/ alone."""
    with running_kubernetes() as bed:
        for namespace, chain in CHAINS.items():
            about = {"name": namespace}
            bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": about})
            owner: dict[str, Any] | None = None
            for kind in chain:
                define(bed, kind)
                group, version, _plural = group_of(kind)
                api = {"apiVersion": f"{group}/{version}", "kind": kind}
                named = {"name": f"chat-{kind.lower()}", "namespace": namespace}
                bed.apply(owned(api | {"metadata": named, "spec": {"replicas": 1}}, owner))
                owner = bed.get(kind, named["name"], namespace=namespace)
            if namespace == "grove":
                pod = {"name": "chat-0", "namespace": namespace}
                made = {"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": pod_spec(2)}
                bed.apply(owned(made, owner))
            else:
                bed.apply(owned(deployment(namespace, replicas=1, pod=pod_spec(2)), owner))
        define_scaled_objects(bed)
        under_keda(bed, "keda", triggers=[{"type": "kafka", "metadata": {}}])
        bed.until("all pods are there", lambda: len(bed.pods()) == len(CHAINS) + _UNDER_KEDA)
        settings = KubernetesSettings(enabled=True, kubeconfig=str(bed.kubeconfig("reader")))
        now = utc_now()
        collector = KubernetesCollector(KubernetesClient(settings), load_gpu_catalogue())
        yield collector.collect(Window(start=now, end=now))


@pytest.mark.kubernetes
@pytest.mark.slow
@pytest.mark.parametrize("namespace", CHAINS)
def test_a_job_is_named_by_the_topmost_of_its_owners(told: Collected, namespace: str) -> None:
    """Whatever lies between it and its pods."""
    top = CHAINS[namespace][0].lower()
    (job,) = [job for job in told.jobs if job.namespace == namespace]
    assert job.job_id == f"{namespace}/{top}/chat-{top}"
    assert job.gpu_count == 2
    kinds = {"grove": WorkloadKind.UNKNOWN}
    assert job.kind == kinds.get(namespace, WorkloadKind.INFERENCE)


@pytest.mark.kubernetes
@pytest.mark.slow
def test_a_service_that_keda_stops_at_night_says_so(told: Collected) -> None:
    """By its ScaledObject, which alone tells: the autoscaler that KEDA makes keeps one."""
    (job,) = [job for job in told.jobs if job.namespace == "keda"]
    assert job.scheduler is not None
    extra = dict(job.scheduler.extra)
    assert (extra["min_replicas"], extra[SCALES_TO_ZERO]) == ("1", "yes")


@pytest.mark.kubernetes
@pytest.mark.slow
def test_nothing_is_refused_or_lost_on_the_way(told: Collected) -> None:
    """The rights of deploy/ are enough."""
    assert (told.report.warnings, dict(told.report.dropped)) == ((), {})


@pytest.mark.parametrize("kind", [kind for chain in CHAINS.values() for kind in chain])
def test_a_kind_is_asked_for_where_an_object_names_it(kind: str) -> None:
    """Hostile objects name none."""
    pod = {"metadata": {"ownerReferences": [{"kind": kind, "name": "x"}]}}
    assert ASKED_WHERE[kind]({"Pod": [pod]})
    for junk in ({}, {"metadata": 1}, {"metadata": {"ownerReferences": {kind: 1}}},
                 {"metadata": {"ownerReferences": [kind, None]}}):  # fmt: skip
        assert not ASKED_WHERE[kind]({"Pod": [junk]})
