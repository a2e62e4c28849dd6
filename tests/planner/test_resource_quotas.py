"""What a namespace's ResourceQuota admits: plans keep within it, and say where it limits them."""

from dataclasses import replace
from typing import Any

import pytest
from factories import make_job, make_quota
from fleet_cases import PODS
from planning_cases import AS_OF, FREE_NODES, H100, boards, case

from dashboard.cycle.make_problem import fleet_rules
from data.facts.gpu_resources import WHOLE_GPU, resource_of
from data.facts.jobs import Job, SchedulerFacts
from data.facts.quotas import Quota, QuotaKind
from data.records.actions import Action
from data.records.recommendations import Range
from data.records.serving import BoundsUse, ServiceOutlook
from data.settings.fleet import TenantSettings
from data.settings.load import load_settings
from planner.advise import Advice, advise
from planner.jobs.scheduler_shares import enforced_shares
from planner.plan import build_plan

SERVICE = "shop/deployment/chat"


def quota(queue: str = "shop/gpus", **changes: Any) -> Quota:
    """A ResourceQuota of which two GPUs are in use."""
    told = {
        "kind": QuotaKind.RESOURCE_QUOTA, "resource": WHOLE_GPU, "nominal": 3.0, "used": 2.0,
        "lending_limit": 0.0,
    }  # fmt: skip
    return make_quota(queue, **(told | changes))


def service(job_id: str = SERVICE, **changes: Any) -> Job:
    """A service of two GPUs."""
    namespace = job_id.partition("/")[0]
    told = {"namespace": namespace, "gpu_count": 2, "scheduler": PODS}
    return make_job(job_id, **(told | changes))


def advised(job: Job, *quotas: Quota, by: str = "namespace") -> Advice:
    """The advice on a service that needs four boards, of eight."""
    settings = load_settings(None, environ={"TRIMTAB_TENANTS_BY": by}).settings
    rules = replace(fleet_rules(settings, quotas, (job,)), nodes=FREE_NODES.nodes)
    problem = case(
        (job, 0.9, 60_000.0, 900.0),
        gpus=boards(H100, 8),
        rules=rules,
        demand={job.job_id: [3.4] * 24},
    )
    return advise(build_plan(problem, budget_seconds=10, created_at=AS_OF), problem)


@pytest.mark.parametrize("by", ["namespace", "account"])
@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ((), 4),
        ((quota(),), 3),
        ((quota(nominal=2.0),), 2),
        ((quota(nominal=9.0, used=8.0),), 3),
        ((quota(used=None),), 2),
        ((quota(nominal=0.0),), 2),
        ((quota(nominal=9.0), quota("shop/tight")), 3),
        ((quota("bank/gpus", nominal=0.0, used=0.0),), 4),
        ((quota(source="another cluster", nominal=0.0, used=0.0),), 4),
        ((quota(resource=resource_of("1g.10gb"), nominal=0.0, used=0.0),), 4),
    ],
)
def test_a_service_grows_within_the_quota_of_its_namespace(
    by: str, limits: tuple[Quota, ...], most: int
) -> None:
    """Whatever a tenant is: by no more than what all others leave, and it is said what limits."""
    advice = advised(service(), *limits, by=by)
    more = [row for row in advice.recommendations if row.action is Action.SCALE_OUT]
    assert [row.proposed.gpu_count for row in more] == [most] * (most > 2)
    said = more[0].why if more else advice.kept[SERVICE]
    assert ("resource quota shop/" in said) is (most < 4)


@pytest.mark.parametrize(("left", "raised"), [(0.0, None), (3.0, 5), (20.0, 6)])
def test_a_maximum_is_raised_within_the_quota_of_its_namespace(
    left: float, raised: int | None
) -> None:
    """By whole replicas of two GPUs; four run, and requests asked for six."""
    facts = SchedulerFacts(
        managed_by=("HorizontalPodAutoscaler",),
        extra=(("gpus_per_pod", "2"), ("min_replicas", "2"), ("max_replicas", "4")),
    )
    job = service(gpu_count=8, scheduler=facts)
    use = BoundsUse(
        min_replicas=2, max_replicas=4, span_hours=168.0, known_hours=160.0, replica_hours=600.0,
        spare_hours=0.0, spare_replica_hours=Range(low=0, central=0, high=0, unit="replica-h"),
        least_needed=2, times_at_max=3, hours_at_max=4.0, most_needed=6,
    )  # fmt: skip
    outlook = ServiceOutlook(
        job_id=SERVICE, namespace="shop", service="chat", engine="vllm", model="m",
        read_until=AS_OF, replicas=4, running_requests=1.0, waiting_requests=0.0,
        requests_per_second=1.0, bounds=use,
    )  # fmt: skip
    rules = replace(FREE_NODES, quotas=(quota(nominal=10.0 + left, used=10.0),))
    problem = case((job, 0.9, 60_000.0, 5_000.0), gpus=boards(H100, 8), rules=rules)
    plan = build_plan(problem, budget_seconds=10, created_at=AS_OF)
    advice = advise(plan, problem, services=(outlook,))
    if raised is None:
        assert advice.recommendations == ()
        assert "No more than 4 fit: the resource quota shop/gpus" in advice.kept[SERVICE]
        return
    (row,) = advice.recommendations
    assert row.summary == f"maxReplicas of {raised} instead of 4"
    assert ("resource quota shop/gpus" in row.why) is (raised < 6)


def test_the_share_of_a_namespace_is_the_tightest_of_its_limits() -> None:
    """Within its cluster queue, and of two quotas of one cluster; slices bound no whole boards."""
    above = make_quota(
        "research", kind=QuotaKind.CLUSTER_QUEUE, resource=WHOLE_GPU, nominal=4.0,
        borrowing_limit=4.0, parent="all",
    )  # fmt: skip
    lender = replace(above, queue="other", nominal=8.0)
    local = replace(above, kind=QuotaKind.LOCAL_QUEUE, queue="shop/q", parent="research")
    kueue = (above, lender, local)
    job = service(scheduler=SchedulerFacts(extra=(("queue", "q"),)))

    def share(*quotas: Quota, jobs: tuple[Job, ...] = (job,)) -> tuple[float, float] | None:
        found = enforced_shares("namespace", quotas, jobs).get("shop")
        return None if found is None else (found.quota, found.borrowable)

    assert share(*kueue) == (4, 4)
    assert share(*kueue, quota(nominal=6.0)) == (4, 2)
    assert share(*kueue, quota(nominal=3.0)) == (3, 0)
    assert share(quota(nominal=6.0), quota("shop/tight", nominal=5.0)) == (5, 0)
    assert share(quota(nominal=6.0), quota(source="b", nominal=5.0)) == (11, 0)
    assert share(quota(nominal=0.0)) == (2, 0)
    assert share(quota(nominal=0.0, used=0.0)) == (0, 0)
    assert share(quota(resource=resource_of("1g.10gb"))) is None
    assert share(quota(), jobs=(service(),)) == (3, 0)
    assert share(quota(), jobs=()) is None
    assert share(quota(), jobs=(service(source="b"),)) is None
    assert share(quota(), jobs=(service(mig_profile="1g.10gb"),)) is None
    assert enforced_shares("account", (quota(),), (job,)) == {}
    settings = load_settings(None, environ={}).settings
    assert fleet_rules(settings, (quota(),), (job,)).tenants != TenantSettings()
