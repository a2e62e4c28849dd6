"""Which GPU model a pod that holds none is told to wait for: the one that its rules allow."""

from pathlib import Path
from typing import Any

import pytest
from beds.kubernetes_lists import NODES, PODS, TRAIN, node, only, pod, told

from data.facts.gpu_resources import PRODUCT_LABEL
from data.facts.jobs import JobState
from data.records.feasible_changes import has_named_nodes, required_nodes

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

    Pool a holds both models, pool b A100 alone; a node without GPUs takes none.
    """
    nodes = [node("n1"), node("n2"), node("n3")]
    for entry, product, pool in zip(nodes, (H100, A100, A100), "aab", strict=True):
        entry["metadata"]["labels"] |= {PRODUCT_LABEL: product, "pool": pool}
    plain = node("control-plane")
    plain["metadata"]["labels"] = {"pool": "b"}
    plain["status"] = {amounts: {"cpu": "8"} for amounts in ("capacity", "allocatable")}
    job = only(told({NODES: [*nodes, plain], PODS: [waiting(spec)]}, tmp_path))
    assert job.scheduler is not None
    assert (job.gpu_model, job.scheduler.state) == (model, JobState.PENDING)


@pytest.mark.parametrize("spec", [{}, {"nodeSelector": {"zone": "a"}}])
@pytest.mark.parametrize("labels", [{"zone": "a"}, {"zone": "b"}])
def test_a_cluster_of_one_model_tells_it_whatever_else_it_holds(
    tmp_path: Path, spec: dict[str, Any], labels: dict[str, str]
) -> None:
    """Every cluster has a control plane, and a board is asked for by most pods without its name."""
    nodes = [node("n1"), node("n2"), node("control-plane")]
    for entry in nodes[:2]:
        entry["metadata"]["labels"] |= {PRODUCT_LABEL: A100, "zone": "a"}
    nodes[2]["metadata"]["labels"] = labels
    nodes[2]["status"] = {amounts: {"cpu": "8"} for amounts in ("capacity", "allocatable")}
    found = only(told({NODES: nodes, PODS: [waiting(spec)]}, tmp_path))
    assert found.gpu_model == "A100-SXM4-80GB"


@pytest.mark.parametrize(("admitted", "named"), [(200, True), (201, False), (202, False)])
def test_the_nodes_of_a_pod_that_waits_are_named_as_far_as_a_record_has_room(
    tmp_path: Path, admitted: int, named: bool
) -> None:
    """Fifteen hundred names are 60 KB in the record of each job; that it is bound is kept."""
    nodes = [node(f"n{number}") for number in range(203)]
    for entry in nodes[:admitted]:
        entry["metadata"]["labels"]["pool"] = "b"
    job = only(told({NODES: nodes, PODS: [waiting({"nodeSelector": {"pool": "b"}})]}, tmp_path))
    assert len(required_nodes(job)) == (admitted if named else 0)
    assert has_named_nodes(job)


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
