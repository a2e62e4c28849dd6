"""Autoscalers that stop the last replica, and what starts one again."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from collectors.kubernetes.client import Inventory
from collectors.kubernetes.workloads import Owners, Workload
from data.records.feasible_changes import SCALES_TO_ZERO

ABOUT = {"name": "s", "namespace": "ml"}
API = "http://trimtab.trimtab.svc:8501/api/v1/serving?limit=1000"
ASKS: dict[str, Any] = {"type": "metrics-api", "metadata": {"url": API}}
"""Trimtab, as the example of `deploy/keda` does."""
OTHER: dict[str, Any] = {"type": "prometheus", "metadata": {"query": "sum(gateway_requests)"}}
ENGINE = {"type": "prometheus", "metadata": {"query": "sum(vllm:num_requests_running{pod='a'})"}}
EXTERNAL = {"type": "External", "external": {"metric": {"name": "gateway_requests"}}}
OBJECT = {"type": "Object", "object": {"metric": {"name": "requests"}}}
OURS = {"type": "External", "external": {"metric": {"name": "trimtab_required_replicas"}}}
CPU = {"type": "Resource", "resource": {"name": "cpu"}}
EXAMPLES = Path(__file__).parents[2] / "deploy" / "keda"


def told(*, scaled: dict[str, Any] | None = None, **spec: Any) -> bool:
    """Whether a Deployment under an autoscaler of this spec, by KEDA with `scaled`, may be at 0."""
    about: dict[str, Any] = dict(ABOUT)
    if scaled is not None:
        owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "s"}
        about["ownerReferences"] = [owner | {"controller": True}]
    target = {"kind": "Deployment", "name": "d"}
    scaler = {"metadata": about, "spec": {"scaleTargetRef": target, **spec}}
    objects = {"HorizontalPodAutoscaler": [scaler]}
    if scaled:
        objects["ScaledObject"] = [{"metadata": ABOUT, "spec": scaled}]
    workload = Workload(namespace="ml", kind="Deployment", name="d")
    found = dict(Owners(Inventory(objects=objects)).bounds_of(workload))
    assert found.get(SCALES_TO_ZERO) in (None, "yes")
    return SCALES_TO_ZERO in found


@pytest.mark.parametrize(
    ("spec", "may"),
    [
        ({"triggers": [ASKS, OTHER]}, True),  # minReplicaCount is 0 unless told
        ({"minReplicaCount": 0, "triggers": [ASKS, OTHER]}, True),
        ({"minReplicaCount": 1, "triggers": [ASKS, OTHER]}, False),
        ({"minReplicaCount": 5, "idleReplicaCount": 0, "triggers": [ASKS, OTHER]}, True),
        ({"triggers": [OTHER]}, True),
        ({"minReplicaCount": 0, "triggers": [ASKS]}, False),
        ({"minReplicaCount": 0, "triggers": [ASKS, ENGINE]}, False),
        ({"minReplicaCount": 0, "triggers": [{"type": ["cpu"], "metadata": 1}, None]}, False),
        ({"minReplicaCount": 0, "triggers": [ASKS, {"type": "cpu"}, {"type": "memory"}]}, False),
        ({"minReplicaCount": 0, "triggers": "two"}, False),
        ({"minReplicaCount": 0}, False),
        ({}, False),  # it may not be read
    ],
)
def test_keda_stops_the_last_replica_where_another_trigger_starts_one(
    spec: dict[str, Any], *, may: bool
) -> None:
    """The autoscaler that KEDA makes says 1 in all of them."""
    assert told(scaled=spec, minReplicas=1, maxReplicas=4) is may


@pytest.mark.parametrize(
    ("spec", "may"),
    [
        ({"minReplicas": 0, "metrics": [OURS, EXTERNAL]}, True),
        ({"minReplicas": 0, "metrics": [OBJECT]}, True),
        ({"minReplicas": 0, "metrics": [OURS]}, False),
        ({"minReplicas": 0, "metrics": [CPU, {"type": "External", "external": 3}]}, False),
        ({"minReplicas": 1, "metrics": [EXTERNAL]}, False),
        ({"metrics": [EXTERNAL]}, False),
    ],
)
def test_an_autoscaler_of_kubernetes_does_where_it_says_so(
    spec: dict[str, Any], *, may: bool
) -> None:
    """With the gate HPAScaleToZero; CPU of pods tells nothing where none runs."""
    assert told(**spec) is may


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_need_a_further_trigger_to_be_at_zero(path: Path) -> None:
    """Their second one reads the engine, which tells nothing where no pod runs."""
    documents = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    (spec,) = [entry["spec"] for entry in documents if entry["kind"] == "ScaledObject"]
    assert not told(scaled=spec | {"minReplicaCount": 0})
    assert told(scaled=spec | {"minReplicaCount": 0, "triggers": [*spec["triggers"], OTHER]})
