"""A number of pods that is not understood is unknown and told: none, or one, would be a default."""

from typing import Any

import pytest
from fleet_cases import pods_job

from collectors.kubernetes.own_work import follows
from collectors.kubernetes.pod_templates import demand_of, host_facts, unit_facts
from dashboard.apply.kubernetes.state.rollout import has_rolled_out, missing_events
from data.records.feasible_changes import UNREAD_COUNT, configuration_refusal
from data.records.plans import Configuration

POD = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}
TEMPLATE = {"template": {"spec": POD}}
COUNTS = ["two", "3.5", -1, True, [2], "2 pods"]


def document(kind: str, count: Any) -> dict[str, Any]:
    """An object of a kind whose number of pods is this."""
    specs: dict[str, dict[str, Any]] = {
        "Deployment": {"replicas": count, **TEMPLATE},
        "StatefulSet": {"replicas": count, **TEMPLATE},
        "Job": {"parallelism": count, **TEMPLATE},
        "PyTorchJob": {"pytorchReplicaSpecs": {"Worker": {"replicas": count, **TEMPLATE}}},
        "RayCluster": {
            "headGroupSpec": TEMPLATE, "workerGroupSpecs": [{"replicas": count, **TEMPLATE}],
        },
        "LeaderWorkerSet": {
            "replicas": count, "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": POD}},
        },
        "JobSet": {"replicatedJobs": [{"replicas": count, "template": {"spec": TEMPLATE}}]},
    }  # fmt: skip
    return {"kind": kind, "metadata": {"name": "w", "generation": 2}, "spec": specs[kind]}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    "kind",
    ["Deployment", "StatefulSet", "Job", "PyTorchJob", "RayCluster", "LeaderWorkerSet", "JobSet"],
)
def test_a_number_of_pods_that_is_not_read_is_told(kind: str, count: Any) -> None:
    """No GPUs are counted of it, and the reason why nothing is changed names its text."""
    written = document(kind, count)
    facts = dict(unit_facts(kind, written))
    assert facts == {UNREAD_COUNT: str(count)}
    assert demand_of(kind, written) == ()
    assert list(host_facts((), kind, written)) == []
    job = pods_job("w", kind.lower(), extra=facts, gpu_count=4)
    fewer = Configuration(gpu_model=job.gpu_model, gpu_count=2)
    assert "is not understood" in configuration_refusal(job, fewer)
    assert str(count) in configuration_refusal(job, fewer)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("place", ["spec", "status"])
def test_a_change_is_not_done_while_a_count_is_not_read(kind: str, count: Any, place: str) -> None:
    """Two counts that are not understood are not equal."""
    good = 0 if place == "status" else "none"
    told = {"updatedReplicas": count, "readyReplicas": count, "replicas": count}
    written = document(kind, good if place == "status" else count)
    written["status"] = {"observedGeneration": 2, **told}
    assert not has_rolled_out(written)
    assert "not understood" in missing_events(kind, written, ())


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("field", ["parallelism", "completions", "succeeded"])
def test_a_job_is_not_done_while_a_count_is_not_read(count: Any, field: str) -> None:
    """No pods would be what is left of a number that is taken for 0."""
    spec, status = {"parallelism": 2, "completions": 2}, {"succeeded": 2}
    assert missing_events("Job", {"spec": spec, "status": status}, ()) == ""
    (status if field == "succeeded" else spec)[field] = count
    assert "not understood" in missing_events("Job", {"spec": spec, "status": status}, ())


@pytest.mark.parametrize("count", COUNTS)
def test_completions_that_are_not_read_do_not_follow_the_pods(count: Any) -> None:
    """Else fewer pods would drop the work of the others."""
    assert not follows({"completionMode": "Indexed", "completions": count, "parallelism": count})
    assert follows({"completionMode": "Indexed", "completions": 2, "parallelism": 2})
