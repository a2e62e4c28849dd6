"""Queues of KAI-scheduler and of Volcano: as a real API keeps them, and hostile objects.

Their controllers do not run here: the statuses are written as their APIs describe them.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from beds.kubernetes import KubernetesBed, running_kubernetes
from beds.kubernetes_apply import deployment, pod_spec
from beds.scheduler_queues import KAI, VOLCANO, install_queues, queue
from hypothesis import given
from hypothesis import strategies as st

from collectors.kubernetes.client import Inventory, KubernetesClient
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.kubernetes.queues import quotas_of
from collectors.shared.collector import Window
from data.base.clock import utc_now
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.jobs import Job
from data.facts.quotas import Quota, QuotaKind, quotas_of_jobs
from data.settings.sources import KubernetesSettings

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.10gb"
NOW = utc_now()
_MERGE = {"Content-Type": "application/merge-patch+json"}


def collected_from(bed: KubernetesBed) -> Collected:
    """Return what the collector gives, with the rights of deploy/."""
    kubeconfig = str(bed.kubeconfig("reader"))
    settings = KubernetesSettings(enabled=True, kubeconfig=kubeconfig)
    collector = KubernetesCollector(KubernetesClient(settings), load_gpu_catalogue())
    now = utc_now()
    return collector.collect(Window(start=now, end=now))


def scheduled(name: str, scheduler: str, **labels: str) -> dict[str, Any]:
    """A Deployment of two GPUs that this scheduler is to place."""
    found = deployment(
        "default", replicas=1, pod=pod_spec(2) | {"schedulerName": scheduler}, name=name
    )
    found["spec"]["template"]["metadata"]["labels"] |= labels
    return found


def tell(bed: KubernetesBed, of: tuple[str, str], name: str, **status: Any) -> None:
    """Write the status of a queue."""
    path = f"apis/{of[0]}/{of[1]}/queues/{name}/status"
    bed.ask("PATCH", path, json={"status": status}, headers=_MERGE)


@pytest.fixture(scope="module")
def bed() -> Iterator[KubernetesBed]:
    """A cluster with both schedulers' queues, and a Deployment in one of each."""
    with running_kubernetes() as running:
        install_queues(running)
        running.apply(
            queue("ml", KAI, parentQueue="all", priority=90, resources={
                "gpu": {"quota": 8, "limit": 12.5, "overQuotaWeight": 2}, "cpu": {"quota": 1}}),
            queue("all", KAI, resources={"gpu": {"quota": -1, "limit": -1}}),
            queue("none", KAI, resources={"gpu": {"quota": 0, "limit": -1}}),
            queue("research", VOLCANO, parent="root", weight=3, deserved={GPU: "6", "cpu": "4"},
                  capability={GPU: 10, MIG: "7"}, guarantee={"resource": {GPU: 2}}),
            queue("fixed", VOLCANO, reclaimable=False, deserved={GPU: 1}),
        )  # fmt: skip
        tell(running, KAI, "ml", allocated={GPU: "3500m"}, requested={GPU: "6"})
        tell(
            running, VOLCANO, "research",
            allocated={GPU: "4", "cpu": "3"}, running=2, pending=1, inqueue=3,
        )  # fmt: skip
        yield running


@pytest.mark.kubernetes
@pytest.mark.slow
def test_queues_are_asked_for_where_pods_are_in_them_and_are_those_of_the_api(
    bed: KubernetesBed,
) -> None:
    """An account without the new rights sees no difference until such a scheduler is in use."""
    assert collected_from(bed).quotas == ()
    bed.apply(
        scheduled("kai", "kai-scheduler", **{"kai.scheduler/queue": "ml"}),
        scheduled("vc", "volcano", **{"scheduling.volcano.sh/queue-name": "research"}),
        scheduled("plain", "volcano"),
    )
    bed.until("all pods are there", lambda: len(bed.pods()) == 3)
    told = collected_from(bed)
    assert (told.report.warnings, dict(told.report.dropped)) == ((), {})
    assert told.quotas is not None
    rows = {(quota.queue, quota.resource): quota for quota in told.quotas}
    assert {quota.kind for quota in told.quotas} == {QuotaKind.QUEUE}

    def limits(name: str, resource: str = GPU) -> tuple[float | None, ...]:
        row = rows[name, resource]
        return row.nominal, row.borrowing_limit, row.lending_limit, row.used

    assert limits("ml") == (8, 4.5, None, 3.5)
    assert (rows["ml", GPU].weight, rows["ml", GPU].priority) == (2, 90)
    assert (rows["ml", GPU].reserved, rows["ml", GPU].parent) == (6, "all")
    assert limits("all") == (None, None, None, None)
    assert limits("none") == (0, None, None, None)
    assert limits("research") == (6, 4, 4, 4)
    assert limits("research", MIG) == (7, 0, None, None)
    assert (rows["research", GPU].admitted, rows["research", GPU].pending) == (2, 4)
    assert limits("fixed") == (1, None, 0, None)
    assert set(rows) == {
        *((name, GPU) for name in ("ml", "all", "none", "research", "fixed")), ("research", MIG),
    }  # fmt: skip

    jobs = {job.name: job for job in told.jobs}
    assert {name: queue_of(job) for name, job in jobs.items()} == {
        "kai": "ml",
        "vc": "research",
        "plain": "default",
    }
    assert quotas_of_jobs(told.quotas, (jobs["kai"],)) == (rows["ml", GPU],)


def queue_of(job: Job) -> str:
    """Return the queue that a job is in."""
    assert job.scheduler is not None
    return dict(job.scheduler.extra).get("scheduler_queue", "")


def read(**objects: list[Any]) -> tuple[Quota, ...] | None:
    """Return the quotas of such objects by kind."""
    return quotas_of(
        Inventory(objects=objects), load_gpu_catalogue(), "kubernetes bed", NOW, Counter()
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["spec", "status", "resources", "gpu", "quota", "limit", "deserved", "capability",
             "guarantee", "resource", "allocated", "metadata", "name", "pending", GPU, MIG]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from(["spec", "status", "metadata"]), JSON), max_size=3))
def test_whatever_an_object_holds_gives_rows_or_none(documents: list[dict[str, Any]]) -> None:
    """No field of a foreign object ends a collection; a number is a number, or unknown."""
    for quota in read(KaiQueue=documents, VolcanoQueue=documents) or ():
        told = (quota.nominal, quota.borrowing_limit, quota.lending_limit, quota.used)
        assert all(value is None or value >= 0 for value in told)


def test_what_may_not_be_read_is_unknown() -> None:
    """A refused list is no empty one; what another scheduler told is still told."""
    refused = Inventory(missing={"KaiQueue": "refused"})
    assert quotas_of(refused, load_gpu_catalogue(), "kubernetes bed", NOW, Counter()) is None
    volcano = [{"metadata": {"name": "q"}, "spec": {"capability": {GPU: "4"}}}]
    found = quotas_of(
        Inventory(missing={"KaiQueue": "refused"}, objects={"VolcanoQueue": volcano}),
        load_gpu_catalogue(), "kubernetes bed", NOW, Counter(),
    )  # fmt: skip
    assert [(quota.queue, quota.nominal) for quota in found or ()] == [("q", 4)]
    assert read() == ()
