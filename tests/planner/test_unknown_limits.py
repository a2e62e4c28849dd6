"""Limits that a scheduler does not set, or that nobody can read: they are no limit of nothing."""

import math

import pytest
from factories import make_job, make_quota

from data.facts.gpu_resources import WHOLE_GPU
from data.facts.jobs import Platform
from data.facts.quotas import Quota, QuotaKind
from planner.fleet.quota_room import QuotaRoom
from planner.jobs.scheduler_shares import enforced_shares


def cluster_queues(nominal: float | None) -> tuple[Quota, ...]:
    """A cluster queue that one namespace alone has a queue of."""
    own = make_quota("ml/team", kind=QuotaKind.LOCAL_QUEUE, resource=WHOLE_GPU, parent="big")
    queue = make_quota("big", kind=QuotaKind.CLUSTER_QUEUE, resource=WHOLE_GPU, nominal=nominal)
    return own, queue


@pytest.mark.parametrize(
    ("nominal", "shares"), [(4.0, {"ml": 4.0}), (0.0, {"ml": 0.0}), (None, {})]
)
def test_a_queue_of_unknown_quota_is_a_tenant_without_an_enforced_share(
    nominal: float | None, shares: dict[str, float]
) -> None:
    """Not one with a share of nothing, whose jobs would all be beyond it."""
    rows = enforced_shares("namespace", cluster_queues(nominal), ())
    assert {tenant: share.quota for tenant, share in rows.items()} == shares


@pytest.mark.parametrize(("nominal", "room"), [(4.0, 1.0), (0.0, 0.0), (None, math.inf)])
def test_a_resource_quota_without_a_limit_leaves_all_the_room(
    nominal: float | None, room: float
) -> None:
    """As without a quota."""
    job = make_job("ml/pod/p", platform=Platform.KUBERNETES, source="test", namespace="ml")
    quota = make_quota(
        "ml/gpus", kind=QuotaKind.RESOURCE_QUOTA, resource=WHOLE_GPU, nominal=nominal
    )
    assert QuotaRoom((quota,)).beside(job)[0] == room
