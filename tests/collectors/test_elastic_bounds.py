"""Bounds of elastic Jobs of Kueue, as annotations tell them."""

import pytest

from collectors.kubernetes.api import Document
from collectors.kubernetes.client import Inventory
from collectors.kubernetes.workloads import Owners, Workload


@pytest.mark.parametrize(
    ("kind", "elastic", "most", "told"),
    [
        ("Job", "true", "8", [("min_replicas", "2"), ("max_replicas", "8")]),
        ("Job", "true", "many", [("min_replicas", "2")]),
        ("Job", "true", "٣", [("min_replicas", "2")]),
        pytest.param("Job", "true", "9" * 5000, [("min_replicas", "2")], id="longer than a number"),
        ("Job", "false", "8", []),
        ("Deployment", "true", "8", []),
    ],
)
def test_annotations_tell_the_bounds_of_an_elastic_job_of_kueue(
    kind: str, elastic: str, most: str, told: list[tuple[str, str]]
) -> None:
    """Kueue has a word for the least number of pods and none for the most."""
    marks = {
        "kueue.x-k8s.io/elastic-job": elastic,
        "kueue.x-k8s.io/job-min-parallelism": "2",
        "trimtab/max-parallelism": most,
    }
    labels = {"kueue.x-k8s.io/queue-name": "research"}
    about = {"name": "d", "namespace": "ml", "labels": labels, "annotations": marks}
    chain: tuple[Document, ...] = ({"metadata": about, "spec": {}},)
    workload = Workload(namespace="ml", kind=kind, name="d", chain=chain)
    assert list(Owners(Inventory()).bounds_of(workload)) == told
