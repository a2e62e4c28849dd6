"""Shares of tenants that schedulers enforce; they precede those of the settings.

A tenant's share is its scheduler's where that limits the tenant alone: its quota is the nominal
one, and it borrows as far as the scheduler lets it. The settings add a guarantee within it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from glob import escape

from data.facts.gpu_resources import BOARDS
from data.facts.jobs import Job
from data.facts.quotas import Quota, QuotaKind, quotas_of_jobs
from data.settings.fleet import TenantSettings, TenantShare

_BOARDS = (*BOARDS, "gres/gpu")
"""Resources that count boards: slices and boards of one type alone bound no tenant as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcedShare:
    """The boards that schedulers let a tenant have, and borrow above; `where` names the source."""

    quota: float
    borrowable: float
    where: str


def enforced_shares(
    by: str, quotas: Sequence[Quota], jobs: Sequence[Job]
) -> dict[str, EnforcedShare]:
    """Return by tenant what schedulers enforce of it; `by` is what a tenant is (`tenants.by`).

    An account of Slurm, or a namespace all of whose local queues lead to cluster queues that no
    other namespace has, and one with a resource quota, which holds within those too. A limit that
    several tenants share, or of unknown size, bounds none of them alone, and none bounds a tenant
    of whose live `jobs` one goes past it.
    """
    boards = [quota for quota in quotas if quota.resource in _BOARDS and not quota.per]
    owned: dict[str, list[Quota]] = defaultdict(list)
    live: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        live[job.tenant(by)].append(job)
    for quota in boards:
        if "account" in by and quota.kind is QuotaKind.ACCOUNT:
            owned[quota.queue].append(quota)
    if "namespace" in by:
        owned |= _queue_limits_by_namespace(boards)
    shares = {
        tenant: EnforcedShare(
            quota=sum(quota.most for quota in limits),
            borrowable=sum(_borrowable(quota, boards) for quota in limits),
            where=_where(limits),
        )
        for tenant, limits in owned.items()
        if limits
        and all(quota.nominal is not None for quota in limits)
        and not _go_past(limits, quotas, live[tenant])
    }
    for namespace, limits in _quota_by_namespace(boards).items() if "namespace" in by else ():
        clusters = {quota.source for quota in limits}
        plain = [not job.mig_profile and job.source in clusters for job in live.get(namespace, ())]
        if plain and all(plain):
            shares[namespace] = _within_limits(shares.get(namespace), limits)
    return dict(sorted(shares.items()))


def _where(limits: Iterable[Quota]) -> str:
    return ", ".join(sorted({f"{quota.kind} {quota.queue} of {quota.source}" for quota in limits}))


def _quota_by_namespace(boards: Sequence[Quota]) -> dict[str, list[Quota]]:
    """Return by namespace its tightest resource quota in each cluster.

    What is in use beyond one, from before it was lowered, stays: no quota ends a pod.
    """
    tightest: dict[tuple[str, str], Quota] = {}
    for quota in boards:
        if quota.kind is QuotaKind.RESOURCE_QUOTA:
            source, _kind, namespace = quota.place
            before = tightest.get((source, namespace), quota)
            tightest[source, namespace] = min(before, quota, key=_admits)
    quotas: dict[str, list[Quota]] = defaultdict(list)
    for (_source, namespace), quota in tightest.items():
        quotas[namespace].append(quota)
    return quotas


def _admits(quota: Quota) -> float:
    return max(quota.most, quota.used or 0.0)


def _within_limits(share: EnforcedShare | None, limits: Sequence[Quota]) -> EnforcedShare:
    """Return a share cut down to what resource quotas admit, which is all of it where None."""
    most = sum(map(_admits, limits))
    if share is None:
        return EnforcedShare(quota=most, borrowable=0.0, where=_where(limits))
    quota = min(share.quota, most)
    borrowable = min(share.quota + share.borrowable, most) - quota
    where = f"{share.where}, {_where(limits)}"
    return EnforcedShare(quota=quota, borrowable=borrowable, where=where)


def _go_past(limits: Sequence[Quota], quotas: Sequence[Quota], jobs: Sequence[Job]) -> bool:
    """Return whether a job has none of the limits on its queues, such as a service beside Kueue."""
    places = {quota.place for quota in limits}
    above = {(quota.source, quota.queue) for quota in limits}
    similar = [
        quota for quota in quotas if quota.place in places or (quota.source, quota.parent) in above
    ]
    return any(
        places.isdisjoint(quota.place for quota in quotas_of_jobs(similar, (job,))) for job in jobs
    )


def _queue_limits_by_namespace(boards: Sequence[Quota]) -> dict[str, list[Quota]]:
    """Return the limits of cluster queues by the namespace that alone has local queues of them."""
    users: dict[tuple[str, str], set[str]] = defaultdict(set)
    queues: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for quota in boards:
        if quota.kind is QuotaKind.LOCAL_QUEUE:
            namespace, above = quota.queue.partition("/")[0], (quota.source, quota.parent)
            users[above].add(namespace)
            queues[namespace].add(above)
    return {
        namespace: [
            quota
            for quota in boards
            if quota.kind is QuotaKind.CLUSTER_QUEUE and (quota.source, quota.queue) in names
        ]
        for namespace, names in queues.items()
        if all(users[queue] == {namespace} for queue in names)
    }


def _borrowable(quota: Quota, boards: Sequence[Quota]) -> float:
    """Return the boards that a queue may borrow: its cohort's others, up to its limit."""
    if not quota.parent or quota.kind is not QuotaKind.CLUSTER_QUEUE:
        return 0.0
    kinds = (QuotaKind.CLUSTER_QUEUE, QuotaKind.COHORT)
    same = (quota.source, quota.flavor, quota.resource)
    tree = [
        row
        for row in boards
        if row.kind in kinds and (row.source, row.flavor, row.resource) == same
    ]
    return _within(quota.borrowing_limit, _cohort(quota, tree, frozenset()))


def _cohort(member: Quota, tree: Sequence[Quota], visited: frozenset[str]) -> float:
    """Return the boards of a member's cohort without it: its own, lent, and borrowed.

    A circle of cohorts, which Kueue puts out of use, has nothing above it.
    """
    if not member.parent or member.parent in visited:
        return 0.0
    visited |= {member.parent}
    group = _object_of(member.parent, tree)
    boards = 0.0 if group is None else group.nominal or 0.0
    boards += sum(
        _within(row.lending_limit, _total(row, tree, visited))
        for row in tree
        if row.parent == member.parent and (row.kind, row.queue) != (member.kind, member.queue)
    )
    above = 0.0 if group is None else _within(group.borrowing_limit, _cohort(group, tree, visited))
    return boards + above


def _total(row: Quota, tree: Sequence[Quota], visited: frozenset[str]) -> float:
    """Return the quota of a queue, or of a cohort with all below it that they lend."""
    total = row.nominal or 0.0
    if row.kind is QuotaKind.COHORT and row.queue not in visited:
        below = (other for other in tree if other.parent == row.queue)
        inside = visited | {row.queue}
        total += sum(_within(other.lending_limit, _total(other, tree, inside)) for other in below)
    return total


def _object_of(cohort: str, tree: Sequence[Quota]) -> Quota | None:
    rows = (row for row in tree if (row.kind, row.queue) == (QuotaKind.COHORT, cohort))
    return next(rows, None)


def _within(limit: float | None, amount: float) -> float:
    return amount if limit is None else min(limit, amount)


def with_enforced_shares(
    settings: TenantSettings, quotas: Sequence[Quota], jobs: Sequence[Job]
) -> TenantSettings:
    """Return the settings in which a scheduler's share of a tenant stands before the stated one."""
    enforced = tuple(
        TenantShare(
            name=escape(tenant),
            # A quota of 0 is no share by weight here: the tenant only borrows.
            weight=stated.weight if share.quota else 0.0,
            quota=share.quota,
            guaranteed=min(stated.guaranteed, share.quota),
            borrowable=share.borrowable,
        )
        for tenant, share in enforced_shares(settings.by, quotas, jobs).items()
        for stated in (_stated(tenant, settings) or TenantShare(name=tenant),)
    )
    return replace(settings, shares=(*enforced, *settings.shares)) if enforced else settings


def contradictions(
    settings: TenantSettings, quotas: Sequence[Quota], jobs: Sequence[Job]
) -> Iterator[str]:
    """Yield settings that contradict a scheduler, with the setting to change."""
    for tenant, share in enforced_shares(settings.by, quotas, jobs).items():
        stated = _stated(tenant, settings)
        if stated is None:
            continue
        for name, stated_count, counts in (
            ("quota", stated.quota, share.quota),
            ("borrowable", stated.borrowable, share.borrowable),
            ("guaranteed", stated.guaranteed, min(stated.guaranteed, share.quota)),
        ):
            if stated_count not in (0.0, counts):
                yield (
                    f"{name} {stated_count:g} of {stated.name} says otherwise for {tenant} than "
                    f"{share.where}, and {counts:g} counts. Take {name} out of that share"
                )


def _stated(tenant: str, settings: TenantSettings) -> TenantShare | None:
    """Return the share that the settings state of a tenant: the first whose pattern fits."""
    return next((row for row in settings.shares if fnmatchcase(tenant, row.name)), None)
