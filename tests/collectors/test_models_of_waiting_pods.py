"""Which GPU model a pod that holds none is told to wait for: the one that its rules allow."""

from pathlib import Path
from typing import Any

import pytest
from beds.kubernetes_lists import NODES, PODS, TRAIN, node, only, pod, told

from data.gpu_resources import PRODUCT_LABEL
from data.records.jobs import JobState

H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"


def affinity(key: str, operator: str, *values: str) -> dict[str, Any]:
    """A required node affinity of one expression, as part of a pod's specification."""
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": [*values]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


def waiting(spec: dict[str, Any]) -> dict[str, Any]:
    """A pod of a Job that no node has taken."""
    found = pod("a", TRAIN, at="", phase="Pending", startTime=None)
    found["spec"] |= spec
    return found


@pytest.mark.parametrize(
    ("spec", "model"),
    [
        ({"nodeSelector": {PRODUCT_LABEL: H100}}, "H100-SXM5-80GB"),
        (affinity(PRODUCT_LABEL, "In", A100), "A100-SXM4-80GB"),
        (affinity(PRODUCT_LABEL, "NotIn", A100), "H100-SXM5-80GB"),
        ({"nodeSelector": {"pool": "b"}}, "A100-SXM4-80GB"),
        ({"nodeSelector": {"pool": "a"}}, ""),
        ({"nodeSelector": {PRODUCT_LABEL: "NVIDIA-L4"}}, ""),
        ({}, ""),
    ],
)
def test_a_pod_that_waits_is_of_the_one_model_that_its_rules_allow(
    tmp_path: Path, spec: dict[str, Any], model: str
) -> None:
    """Its wait counts for that model; of several models, and of one that nobody has, it is unknown.

    Pool a holds both models, pool b A100 alone.
    """
    nodes = [node("n1"), node("n2"), node("n3")]
    for entry, product, pool in zip(nodes, (H100, A100, A100), "aab", strict=True):
        entry["metadata"]["labels"] |= {PRODUCT_LABEL: product, "pool": pool}
    job = only(told({NODES: nodes, PODS: [waiting(spec)]}, tmp_path))
    assert job.scheduler is not None
    assert (job.gpu_model, job.scheduler.state) == (model, JobState.PENDING)


@pytest.mark.parametrize("spec", [{"nodeSelector": {"pool": "b"}}, affinity("pool", "Exists")])
def test_a_node_of_unknown_model_may_take_a_pod_that_waits(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    """Which model it then gets is unknown."""
    nodes = [node("n1"), node("n2")]
    for entry in nodes:
        entry["metadata"]["labels"] |= {PRODUCT_LABEL: A100, "pool": "b"}
    del nodes[1]["metadata"]["labels"][PRODUCT_LABEL]
    assert only(told({NODES: nodes, PODS: [waiting(spec)]}, tmp_path)).gpu_model == ""
