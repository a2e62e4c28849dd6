"""Quotas of Kueue's queues: as a real API keeps them in both versions, and hostile objects.

Kueue's controller does not run here: the statuses are written as its API describes them.
"""

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from beds.kubernetes import KubernetesBed, running_kubernetes
from beds.kueue import cluster_queue, cohort_of, flavor, install_kueue, local_queue, usage

from collectors.kubernetes.client import Inventory, KubernetesClient
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.kubernetes.queues import kueue_quotas
from collectors.shared.collector import Window
from data.base.clock import utc_now
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.jobs import JobState
from data.facts.quotas import Quota, QuotaKind
from data.settings.sources import KubernetesSettings

VERSIONS = ("v1beta2", "v1beta1")
GPU = "nvidia.com/gpu"
NOW = utc_now()
LIVE = [pytest.mark.kubernetes, pytest.mark.slow]


@pytest.fixture(scope="module")
def bed() -> Iterator[KubernetesBed]:
    """A cluster without Kueue."""
    with running_kubernetes() as running:
        yield running


def collected_from(bed: KubernetesBed) -> Collected:
    """Return what the collector gives, with the reader's rights."""
    settings = KubernetesSettings(enabled=True, kubeconfig=str(bed.kubeconfig("reader")))
    collector = KubernetesCollector(KubernetesClient(settings), load_gpu_catalogue())
    now = utc_now()
    return collector.collect(Window(start=now, end=now))


@pytest.fixture(scope="module")
def without_kueue(bed: KubernetesBed) -> Collected:
    """What the cluster told before."""
    return collected_from(bed)


@pytest.fixture(scope="module", params=[pytest.param(name, marks=LIVE) for name in VERSIONS])
def kueue(
    bed: KubernetesBed, without_kueue: Collected, request: pytest.FixtureRequest
) -> KubernetesBed:
    """Three queues in one version: two of a cohort, one alone that no controller has seen."""
    assert without_kueue.quotas == ()
    version: str = request.param
    install_kueue(bed, version)
    bed.apply(
        flavor("h100", "NVIDIA-H100-80GB-HBM3", version),
        flavor("a100", "NVIDIA-A100-SXM4-80GB", version),
        cluster_queue(
            "research",
            version,
            {"flavor": "h100", "name": GPU, "nominalQuota": 16, "borrowingLimit": "8"},
            {"flavor": "a100", "name": GPU, "nominalQuota": "4", "lendingLimit": 0},
            cohort="all",
            fairSharing={"weight": "500m"},
            preemption={"reclaimWithinCohort": "Any", "withinClusterQueue": "Never"},
        ),
        cluster_queue(
            "serving", version, {"flavor": "h100", "name": GPU, "nominalQuota": 8}, cohort="all"
        ),
        cluster_queue("alone", version, {"flavor": "h100", "name": GPU, "nominalQuota": 2}),
        local_queue("train", "default", "research", version),
        cohort_of(
            "all", version, "company",
            {"flavor": "a100", "name": GPU, "nominalQuota": 4, "borrowingLimit": 2},
        ),
    )  # fmt: skip
    told = {
        "flavorsUsage": usage(h100="18", a100="0"),
        "flavorsReservation": usage(h100="20", a100="1"),
        "pendingWorkloads": 3,
        "admittedWorkloads": 5,
    }
    bed.patch_status("ClusterQueue", "research", told)
    bed.patch_status("LocalQueue", "train", told | {"flavorsUsage": usage(h100="6")})
    return bed


def rows_of(told: Collected, kind: QuotaKind) -> dict[tuple[str, str], Quota]:
    """Return the rows of a kind by queue and flavor."""
    return {(q.queue, q.flavor): q for q in told.quotas or () if q.kind is kind}


def quota_in(bed: KubernetesBed, queue: str) -> dict[tuple[str, str], list[float | None]]:
    """Return nominal, borrowing and lending of a queue's GPUs, as the API has them."""
    (group,) = bed.get("ClusterQueue", queue)["spec"]["resourceGroups"]
    names = ("nominalQuota", "borrowingLimit", "lendingLimit")
    return {
        (queue, entry["name"]): [float(r[n]) if n in r else None for n in names]
        for entry in group["flavors"]
        for r in entry["resources"]
        if r["name"] == GPU
    }


def test_limits_are_those_of_the_api(kueue: KubernetesBed) -> None:
    """Of GPUs alone; what a cohort does not limit is None, and alone nobody borrows or lends."""
    rows = rows_of(collected_from(kueue), QuotaKind.CLUSTER_QUEUE)
    found = {
        key: [row.nominal, row.borrowing_limit, row.lending_limit] for key, row in rows.items()
    }
    alone = {("alone", "h100"): [2.0, 0.0, 0.0]}
    assert found == quota_in(kueue, "research") | quota_in(kueue, "serving") | alone
    assert {row.gpu_model for key, row in rows.items() if key[1] == "h100"} == {"H100-SXM5-80GB"}
    research = rows["research", "h100"]
    assert (research.parent, research.weight) == ("all", 0.5)
    assert research.preempts == "reclaimWithinCohort: Any"


def test_a_cohort_has_quotas_of_its_own_and_passes_on_what_others_lend(
    kueue: KubernetesBed,
) -> None:
    """Of a flavor that it does not name it has none, and nothing keeps its queues from lending."""
    rows = rows_of(collected_from(kueue), QuotaKind.COHORT)
    found = {
        key: (row.parent, row.nominal, row.borrowing_limit, row.lending_limit)
        for key, row in rows.items()
    }
    assert found == {
        ("all", "a100"): ("company", 4, 2, None),
        ("all", "h100"): ("company", 0, None, None),
    }


def test_use_and_workloads_are_those_of_the_status(kueue: KubernetesBed) -> None:
    """By flavor; of a queue that no controller has seen they are unknown, not 0."""
    told = collected_from(kueue)
    rows = rows_of(told, QuotaKind.CLUSTER_QUEUE)
    status = kueue.get("ClusterQueue", "research")["status"]
    for name, where in (("used", "flavorsUsage"), ("reserved", "flavorsReservation")):
        for entry in status[where]:
            (total,) = [r["total"] for r in entry["resources"] if r["name"] == GPU]
            assert getattr(rows["research", entry["name"]], name) == float(total)
    assert rows["research", "h100"].pending == status["pendingWorkloads"] == 3
    assert rows["research", "h100"].admitted == status["admittedWorkloads"] == 5
    alone = rows["alone", "h100"]
    assert (alone.used, alone.reserved, alone.pending, alone.admitted) == (None,) * 4
    assert (told.report.warnings, dict(told.report.dropped)) == ((), {})


def test_a_local_queue_uses_what_is_above_it(kueue: KubernetesBed) -> None:
    """It has no limit of its own."""
    rows = rows_of(collected_from(kueue), QuotaKind.LOCAL_QUEUE)
    assert {key: row.used for key, row in rows.items()} == {
        ("default/train", "h100"): 6,
        ("default/train", "a100"): None,
    }
    assert {(row.parent, row.nominal) for row in rows.values()} == {("research", None)}


@pytest.mark.kubernetes
@pytest.mark.slow
def test_without_kueue_there_are_no_quotas(without_kueue: Collected) -> None:
    """None, which is known, and not a question is asked for its queues."""
    assert without_kueue.quotas == ()
    assert without_kueue.report.warnings == ()


def read(**objects: list[Any]) -> tuple[tuple[Quota, ...], Counter[str]]:
    """Return the quotas of such objects by kind, and what was dropped."""
    dropped = Counter[str]()
    found = kueue_quotas(
        Inventory(objects=objects), load_gpu_catalogue(), "kubernetes bed", NOW, dropped
    )
    assert found is not None
    return found, dropped


@pytest.mark.parametrize("missing", ["ClusterQueue", "Workload"])
def test_what_may_not_be_read_is_unknown(missing: str) -> None:
    """What was read before stays; without a refusal there is no Kueue."""
    refused = Inventory(missing={missing: "refused"})
    catalogue = load_gpu_catalogue()
    assert kueue_quotas(refused, catalogue, "kubernetes bed", NOW, Counter()) is None
    assert kueue_quotas(Inventory(), catalogue, "kubernetes bed", NOW, Counter()) == ()


@pytest.mark.parametrize("limit", ["many", "-1", True, {"a": 1}, "1e400", "", "9" * 400, [1]])
@pytest.mark.parametrize("name", ["nominalQuota", "borrowingLimit", "lendingLimit"])
def test_a_limit_that_is_no_quantity_is_left_out(name: str, limit: object) -> None:
    """A wrong one would be worse than none; it is counted."""
    broken = {"flavor": "h100", "name": GPU, "nominalQuota": 1} | {name: limit}
    whole = {"flavor": "a100", "name": GPU, "nominalQuota": "1k"}
    found, dropped = read(ClusterQueue=[cluster_queue("q", "v1beta2", broken, whole, cohort="all")])
    assert [(q.flavor, q.nominal) for q in found] == [("a100", 1000)]
    assert dropped["unreadable-quota"] == 1


def test_hostile_names_are_one_short_line() -> None:
    """Whatever an API hands on; names that become one are kept once and counted."""
    gpus = {"flavor": "h\n100", "name": GPU, "nominalQuota": 1}
    queues = [cluster_queue(f"{'x' * 5000}{n}", "v1beta2", gpus) for n in range(2)]
    queues.append(cluster_queue("\x1b[2Jboss\0", "v1beta2", gpus))
    found, dropped = read(ClusterQueue=queues, LocalQueue=[{"spec": "none"}, {}])
    assert len(found) == 2
    assert all(len(q.queue) <= 300 and q.queue.isprintable() for q in found)
    assert all(q.flavor.isprintable() for q in found)
    assert dropped["repeated-queue"] == 1


@pytest.mark.parametrize("status", ["many", {"flavorsUsage": "all"}, {"pendingWorkloads": -1}])
def test_a_status_that_cannot_be_read_is_unknown(status: object) -> None:
    """The limit stands."""
    queue = cluster_queue("q", "v1beta2", {"flavor": "h100", "name": GPU, "nominalQuota": 1})
    found, _dropped = read(ClusterQueue=[queue | {"status": status}])
    assert [(q.nominal, q.used, q.pending) for q in found] == [(1, None, None)]


@pytest.mark.parametrize(
    ("spec", "conditions", "state"),
    [
        ({}, {}, JobState.PENDING),
        ({}, {"QuotaReserved": "False"}, JobState.PENDING),
        ({"active": False}, {"QuotaReserved": "False"}, JobState.SUSPENDED),
        ({}, {"QuotaReserved": "False", "Evicted": "True"}, JobState.SUSPENDED),
        ({}, {"QuotaReserved": "True", "Admitted": "True"}, JobState.SUSPENDED),
    ],
)
def test_what_kueue_suspends_before_its_first_run_waits(
    spec: dict[str, Any], conditions: dict[str, str], state: JobState
) -> None:
    """One that ran, or that a person stopped, is suspended: another's word brings it back."""
    gpus = {"name": "main", "resources": {"limits": {GPU: "1"}}}
    template = {"spec": {"containers": [gpus]}}
    about = {"name": "j", "namespace": "ml"}
    workload = {
        "metadata": about | {"ownerReferences": [{"kind": "Job", "name": "j", "controller": True}]},
        "spec": spec,
        "status": {
            "conditions": [
                {"type": kind, "status": holds, "message": "no quota left"}
                for kind, holds in conditions.items()
            ]
        },
    }
    job = {"metadata": about, "spec": {"suspend": True, "template": template}}
    found = Inventory(objects={"Job": [job], "Workload": [workload]})
    client: Any = SimpleNamespace(name="bed", inventory=lambda: found)
    collector = KubernetesCollector(client, load_gpu_catalogue())
    facts = collector.collect(Window(start=NOW, end=NOW)).jobs[0].scheduler
    assert facts is not None
    assert facts.state is state
    if state is JobState.PENDING:
        assert facts.reason == ("no quota left" if conditions else "waits for quota")
