"""ResourceQuotas: as a real API enforces them, refused ones, and hostile objects."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from beds.kubernetes import KubernetesBed, running_kubernetes
from beds.kubernetes_apply import deployment, pod_spec
from recorded.record_kubernetes import built_in

from collectors.kubernetes.client import Inventory, KubernetesClient
from collectors.kubernetes.findings import kubernetes_findings
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.kubernetes.queues import resource_quotas
from collectors.shared.collector import Window
from data.base.clock import utc_now
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.quotas import Quota, QuotaKind, quotas_of_jobs
from data.settings.sources import KubernetesSettings

GPU, SLICE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
NOW = utc_now()


def settings_of(bed: KubernetesBed) -> KubernetesSettings:
    """The reader's rights."""
    kubeconfig = str(bed.kubeconfig("reader"))
    return KubernetesSettings(enabled=True, kubeconfig=kubeconfig)


def collected_from(bed: KubernetesBed) -> Collected:
    """Return what the collector gives."""
    collector = KubernetesCollector(KubernetesClient(settings_of(bed)), load_gpu_catalogue())
    now = utc_now()
    return collector.collect(Window(start=now, end=now))


def quota(namespace: str, name: str, hard: dict[str, str], **spec: Any) -> dict[str, Any]:
    """A ResourceQuota."""
    return built_in("v1", "ResourceQuota", name, {"hard": hard, **spec}, namespace=namespace)


@pytest.fixture(scope="module")
def bed() -> Iterator[KubernetesBed]:
    """Two namespaces with quotas on boards and on slices, and two that limit no GPU of a pod."""
    with running_kubernetes() as running:
        for name in ("team", "slices", "loose"):
            running.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        running.apply(
            quota("team", "boards", {f"requests.{GPU}": "6", "pods": "40"}),
            quota("slices", "cut", {f"requests.{SLICE}": "7", f"requests.{GPU}": "0"}),
            # The API takes these names and lets all pods pass; the other holds for some pods.
            quota("loose", "limits", {f"limits.{GPU}": "1", GPU: "1"}),
            quota("loose", "scoped", {f"requests.{GPU}": "1"}, scopes=["Terminating"]),
            deployment("team", replicas=2, pod=pod_spec(2), name="serve"),
            deployment("loose", replicas=1, pod=pod_spec(2), name="serve"),
        )

        def counted() -> bool:
            used = running.get("ResourceQuota", "boards", namespace="team")["status"].get("used")
            return bool(used and used.get(f"requests.{GPU}") == "4" and len(running.pods()) == 3)

        running.until("the quota counts, and more than loose limits say runs", counted, 120.0)
        yield running


@pytest.mark.kubernetes
@pytest.mark.slow
def test_limits_and_use_are_those_that_the_server_enforces(bed: KubernetesBed) -> None:
    """In devices of each resource; a job is under those of its own namespace."""
    told = collected_from(bed)
    assert told.report.warnings == ()
    assert told.report.dropped == (("scoped-quota", 1),)
    assert told.quotas is not None
    found = {(row.queue, row.resource): (row.nominal, row.used) for row in told.quotas}
    assert found == {
        ("team/boards", GPU): (6, 4), ("slices/cut", SLICE): (7, 0), ("slices/cut", GPU): (0, 0),
    }  # fmt: skip
    assert {row.kind for row in told.quotas} == {QuotaKind.RESOURCE_QUOTA}
    under = {job.namespace: quotas_of_jobs(told.quotas, (job,)) for job in told.jobs}
    assert {name: [row.queue for row in rows] for name, rows in under.items()} == {
        "team": ["team/boards"],
        "loose": [],
    }


@pytest.mark.kubernetes
@pytest.mark.slow
def test_one_more_pod_than_is_left_is_what_the_server_refuses(bed: KubernetesBed) -> None:
    """The oracle: what the row leaves fits, and one board more is over the quota."""
    (row,) = (row for row in collected_from(bed).quotas or () if row.queue == "team/boards")
    left = int((row.nominal or 0) - (row.used or 0))
    for gpus, made in ((left + 1, False), (left, True)):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{gpus}"},
               "spec": pod_spec(gpus)}  # fmt: skip
        answer = bed.answer("POST", "api/v1/namespaces/team/pods?dryRun=All", json=pod)
        assert answer.ok is made, answer.text
        assert made or "exceeded quota: boards" in answer.text


@pytest.mark.kubernetes
@pytest.mark.slow
def test_an_account_without_the_right_is_told_and_loses_nothing_else(bed: KubernetesBed) -> None:
    """An account of before has no right to list them: a warning with the way out, and all jobs."""
    before = collected_from(bed)
    role = bed.ask("GET", "apis/rbac.authorization.k8s.io/v1/clusterroles/trimtab-reader")
    path = "apis/rbac.authorization.k8s.io/v1/clusterroles/trimtab-reader"
    rules = [rule for rule in role["rules"] if rule["resources"] != ["resourcequotas"]]
    assert len(rules) == len(role["rules"]) - 1
    merge = {"Content-Type": "application/merge-patch+json"}
    try:
        bed.ask("PATCH", path, json={"rules": rules}, headers=merge)
        listed = "api/v1/resourcequotas"
        bed.until("it is", lambda: bed.answer("GET", listed, user="reader").status_code == 403)
        told = collected_from(bed)
        assert [job.job_id for job in told.jobs] == [job.job_id for job in before.jobs]
        assert told.quotas is None
        (warning,) = told.report.warnings
        assert "resourcequotas" in warning
        assert "deploy/kubernetes-reader.yaml" in warning
        found = {name: said for name, state, said in kubernetes_findings(settings_of(bed))
                 if state == "missing"}  # fmt: skip
        assert 'resources: ["resourcequotas"]' in found["may list ResourceQuota"]
    finally:
        bed.ask("PATCH", path, json={"rules": role["rules"]}, headers=merge)


def read(*documents: Any) -> tuple[list[Quota], Counter[str]]:
    """Return the limits of such objects, and what was dropped."""
    dropped = Counter[str]()
    found = Inventory(objects={"ResourceQuota": list(documents)})
    return list(resource_quotas(found, "kubernetes bed", NOW, dropped)), dropped


@pytest.mark.parametrize("limit", ["many", "-1", True, {"a": 1}, "1e400", "", [1]])
def test_a_limit_that_is_no_quantity_is_left_out(limit: object) -> None:
    """A wrong one would be worse than none; it is counted."""
    found, dropped = read({"spec": {"hard": {f"requests.{GPU}": limit, f"requests.{SLICE}": "2"}}})
    assert [(row.resource, row.nominal, row.used) for row in found] == [(SLICE, 2, None)]
    assert dropped == {"unreadable-quota": 1}


@pytest.mark.parametrize("hard", [None, "all", [GPU], {5: 1}, {f"requests.{GPU}": None}])
@pytest.mark.parametrize("spec", [{"scopes": "x"}, {"scopeSelector": {"a": 1}}, {}, "none"])
def test_hostile_objects_end_nothing(hard: object, spec: Any) -> None:
    """Whatever an API hands on."""
    about = {"name": "x" * 5000, "namespace": "\x1b[2J"}
    found, _dropped = read({"metadata": about, "spec": spec, "status": {"hard": hard}}, {})
    assert found == []
