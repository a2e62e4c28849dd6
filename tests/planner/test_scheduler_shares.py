"""A scheduler's share of a tenant stands before the stated one, which only adds to it."""

from dataclasses import replace

import numpy as np
import pytest
from factories import make_job, make_quota
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from data.facts.jobs import Job, Platform, SchedulerFacts
from data.facts.quotas import Quota, QuotaKind
from data.settings.fleet import TenantSettings, TenantShare
from planner.fleet.tenants import make_tenants
from planner.jobs.scheduler_shares import contradictions, enforced_shares, with_enforced_shares

LIMITS = ("borrowing_limit", "lending_limit")


def cluster_queue(queue: str, nominal: float, cohort: str = "all", **limits: object) -> Quota:
    """A cluster queue of whole GPUs of one flavor."""
    told = {"borrowing_limit": None, "lending_limit": None} | limits
    return make_quota(
        queue,
        kind=QuotaKind.CLUSTER_QUEUE,
        resource="nvidia.com/gpu",
        flavor="h100",
        nominal=nominal,
        parent=cohort,
        **told,
    )


def local_queue(namespace: str, above: str) -> Quota:
    """A local queue that leads to it."""
    return replace(
        cluster_queue(f"{namespace}/q", 0.0, cohort=above),
        kind=QuotaKind.LOCAL_QUEUE,
        nominal=None,
    )


def shares(by: str, *quotas: Quota) -> dict[str, tuple[float, float]]:
    """Return quota and borrowable by tenant."""
    found = enforced_shares(by, quotas, ())
    return {tenant: (share.quota, share.borrowable) for tenant, share in found.items()}


def test_a_namespace_has_the_share_of_its_cluster_queue() -> None:
    """It borrows what the others of the cohort lend, up to its own limit."""
    quotas = (
        cluster_queue("research", 16),
        cluster_queue("serving", 8, borrowing_limit=4.0, lending_limit=5.0),
        cluster_queue("alone", 2, cohort="", borrowing_limit=0.0, lending_limit=0.0),
        *(local_queue(name, name) for name in ("research", "serving", "alone")),
    )
    assert shares("namespace", *quotas) == {
        "research": (16, 5),
        "serving": (8, 4),
        "alone": (2, 0),
    }
    assert shares("account", *quotas) == shares("owner", *quotas) == {}


def cohort(name: str, parent: str, nominal: float, **limits: object) -> Quota:
    """An object of a cohort."""
    return replace(cluster_queue(name, nominal, cohort=parent, **limits), kind=QuotaKind.COHORT)


@st.composite
def cohort_trees(draw: st.DrawFn) -> tuple[Quota, ...]:
    """Cohorts in a tree, some without an object, with queues at any of them."""
    names = [f"c{number}" for number in range(draw(st.integers(1, 5)))]
    amounts, limits = st.integers(0, 8).map(float), st.none() | st.integers(0, 8).map(float)
    found: list[Quota] = []
    for number, name in enumerate(names):
        parent = draw(st.sampled_from(names[:number])) if number and draw(st.booleans()) else ""
        told = {side: draw(limits) if parent else 0.0 for side in LIMITS}
        if parent or draw(st.booleans()):
            found.append(cohort(name, parent, draw(amounts), **told))
    for number in range(draw(st.integers(1, 5))):
        told = {side: draw(limits) for side in LIMITS}
        above = draw(st.sampled_from(names))
        found.append(cluster_queue(f"q{number}", draw(amounts), cohort=above, **told))
    return tuple(found)


def most_that_fits(queue: Quota, tree: tuple[Quota, ...]) -> float:
    """What a queue can use while no other uses anything: a maximum flow, solved by HiGHS."""
    nodes = [quota.queue for quota in tree]
    nodes += sorted({quota.parent for quota in tree} - {"", *nodes})
    at = {name: index for index, name in enumerate(nodes)}
    edges = [quota for quota in tree if quota.parent]
    columns = 2 * len(edges) + 1
    balance = np.zeros((len(nodes), columns))
    bounds: list[tuple[float, float | None]] = []
    for number, edge in enumerate(edges):
        for column, way, limit in (
            (2 * number, 1, edge.lending_limit),
            (2 * number + 1, -1, edge.borrowing_limit),
        ):
            balance[at[edge.queue], column], balance[at[edge.parent], column] = way, -way
            bounds.append((0.0, 1e6 if limit is None else limit))
    balance[at[queue.queue], -1] = 1
    own = np.zeros(len(nodes))
    for quota in tree:
        own[at[quota.queue]] = quota.nominal or 0.0
    aim = np.zeros(columns)
    aim[-1] = -1
    solved = linprog(aim, A_ub=balance, b_ub=own, bounds=[*bounds, (0.0, None)])
    assert solved.status == 0
    return float(-solved.fun)


@given(cohort_trees())
def test_a_queue_borrows_what_its_tree_of_cohorts_can_bring_it(tree: tuple[Quota, ...]) -> None:
    """Every limit on the way, up and down; cohorts without an object pass on what others lend."""
    queues = [quota for quota in tree if quota.kind is QuotaKind.CLUSTER_QUEUE]
    found = shares("namespace", *tree, *(local_queue(quota.queue, quota.queue) for quota in queues))
    for queue in queues:
        quota, borrowable = found[queue.queue]
        assert quota + borrowable == pytest.approx(most_that_fits(queue, tree))


def test_a_circle_of_cohorts_ends() -> None:
    """Kueue puts it out of use; nothing is lent around it for ever."""
    circle = (cohort("a", "b", 2), cohort("b", "a", 3), cluster_queue("q", 1, cohort="a"))
    assert shares("namespace", *circle, local_queue("q", "q"))["q"][0] == 1


def test_a_limit_that_tenants_share_bounds_none_of_them() -> None:
    """Nor one of a slice, nor one of each user."""
    both = (cluster_queue("all", 16), local_queue("a", "all"), local_queue("b", "all"))
    assert shares("namespace", *both) == {}
    slices = replace(cluster_queue("a", 16), resource="nvidia.com/mig-3g.40gb")
    sliced = replace(local_queue("a", "a"), resource=slices.resource)
    assert shares("namespace", slices, sliced) == {}


@pytest.mark.parametrize(
    ("jobs", "bound"),
    [
        ([{"queue": "q"}], True),
        ([{"queue": "q"}, {}], False),
        ([{"queue": "q"}, {"queue": "of another"}], False),
    ],
)
def test_a_tenant_with_jobs_beside_its_queue_is_not_bound(
    jobs: list[dict[str, str]], bound: bool
) -> None:
    """A service that Kueue does not hold back counts against no quota."""
    quotas = (cluster_queue("a", 4), local_queue("search", "a"))
    own = [
        make_job(f"search/{number}", scheduler=SchedulerFacts(extra=tuple(facts.items())))
        for number, facts in enumerate(jobs)
    ]
    assert (enforced_shares("namespace", quotas, own) != {}) is bound


def test_an_account_of_another_cluster_is_not_bound() -> None:
    """Though it has the same name."""
    elsewhere = replace(of_account("ml"), source="another cluster")
    assert enforced_shares("account", (make_quota("ml"),), (of_account("ml"), elsewhere)) == {}


def test_an_account_has_its_limit() -> None:
    """Of GPUs of any type, for all its jobs together."""
    each = make_quota("ml", per="job", nominal=1.0)
    typed = make_quota("ml", resource="gres/gpu:h100", nominal=2.0)
    assert shares("account", make_quota("ml"), each, typed, make_quota("b", nominal=7.0)) == {
        "b": (7, 0),
        "ml": (4, 0),
    }


def of_account(account: str) -> Job:
    """A job of that account."""
    facts = SchedulerFacts(account=account)
    return make_job(f"slurm:{account}", platform=Platform.SLURM, scheduler=facts)


def planned(settings: TenantSettings, *quotas: Quota) -> dict[str, TenantShare]:
    """Return by account the share that limits its plan, of 100 boards."""
    jobs = [of_account(account) for account in ("ml", "vision", "m*")]
    tenants = make_tenants(jobs, 100.0, with_enforced_shares(settings, quotas, jobs))
    return {
        job.tenant("account"): tenants.shares[row]
        for job, row in zip(jobs, tenants.of_job, strict=True)
        if tenants.limiting and row >= 0
    }


def test_the_plan_keeps_to_the_scheduler_and_the_setting_adds_a_guarantee() -> None:
    """Who has no scheduler's limit keeps the stated share."""
    stated = TenantShare(name="*", quota=50.0, guaranteed=20.0, borrowable=9.0)
    found = planned(TenantSettings(by="account", shares=(stated,)), make_quota("ml"))
    assert found["vision"] == stated
    assert (found["ml"].quota, found["ml"].guaranteed, found["ml"].borrowable) == (4, 4, 0)


def test_without_settings_the_scheduler_limits_its_own_tenants_alone() -> None:
    """A name that looks like a pattern is none."""
    settings = TenantSettings(by="account")
    assert {name: share.quota for name, share in planned(settings, make_quota("m*")).items()} == {
        "m*": 4.0
    }
    assert planned(settings) == {}


def test_a_scheduler_that_grants_nothing_of_its_own_leaves_no_fair_share() -> None:
    """A cluster queue may live by borrowing alone: quota 0 of a setting means something else."""
    quotas = (cluster_queue("a", 0), cluster_queue("b", 8), local_queue("search", "a"))
    settings = with_enforced_shares(TenantSettings(), quotas, ())
    (share,) = make_tenants([make_job()], 100.0, settings).shares
    assert (share.quota, share.borrowable) == (0, 8)


@pytest.mark.parametrize(
    ("stated", "named"),
    [
        (TenantShare(name="m?", quota=6.0), "quota 6 of m? says otherwise for ml than account ml"),
        (TenantShare(name="ml", borrowable=2.0), "and 0 counts. Take borrowable out"),
        (TenantShare(name="ml", guaranteed=5.0), "guaranteed 5 of ml"),
    ],
)
def test_a_setting_that_says_otherwise_is_named(stated: TenantShare, named: str) -> None:
    """With what counts, and what to do."""
    (said,) = contradictions(
        TenantSettings(by="account", shares=(stated,)), (make_quota("ml"),), ()
    )
    assert named in said


def test_a_setting_that_says_the_same_or_adds_is_not() -> None:
    """Nor one of a tenant whose scheduler says nothing."""
    same = TenantShare(name="ml", quota=4.0, guaranteed=2.0, weight=3.0)
    other = TenantShare(name="vision", quota=9.0)
    settings = TenantSettings(by="account", shares=(same, other))
    assert list(contradictions(settings, (make_quota("ml"),), ())) == []
