"""For which quota a job waits, in words: its limit, and how much of it is used."""

from collections.abc import Iterable, Iterator, Sequence

from data.base.counts import count_text
from data.facts.gpu_resources import resource_of
from data.facts.jobs import Job, Platform, SchedulerFacts
from data.facts.quotas import Quota, QuotaKind, qos_of, quotas_of_jobs

_LIMITS = ("QOSGrp", "QOSMax", "AssocGrp", "AssocMax", "MaxGRESPerAccount")
"""Beginnings of Slurm's reasons of jobs that a limit keeps waiting."""
_HOLDER_WORDS = {"User": "user", "Account": "account", "Job": "job"}
_KUEUE = "kueue"


def quota_words(job: Job, quotas: Sequence[Quota]) -> str:
    """Return the limits that a waiting job waits for, '' when it does not wait for one."""
    facts = job.scheduling
    if job.platform is Platform.KUBERNETES:
        state = dict(facts.extra).get(_KUEUE, "admitted")
        limits = quotas_of_jobs(quotas, (job,))
        if state.startswith("admitted"):
            full = (quota for quota in limits if _may_hold_back(quota, job))
            return "; ".join(limit_words(quota) for quota in full if _is_full(quota, job))
        rows = [quota for quota in limits if quota.kind is QuotaKind.CLUSTER_QUEUE]
        return "; ".join(map(limit_words, rows)) or "a quota that was not read"
    if not facts.reason.startswith(_LIMITS):
        return ""
    whose = f"QOS {facts.qos}" if "Assoc" not in facts.reason else f"account {facts.account}"
    if "GRES" not in facts.reason:
        return f"a limit of {whose} that is not on GPUs"
    rows = list(_slurm_rows(job, facts, quotas))
    short = [row for row in rows if row.used is not None and _is_short(row, job)]
    return "; ".join(map(limit_words, short or rows)) or f"a limit of {whose} that was not read"


def _slurm_rows(job: Job, facts: SchedulerFacts, quotas: Iterable[Quota]) -> Iterator[Quota]:
    """Yield the limits that a reason may mean: those of accounts hold for accounts below, too."""
    per = next(
        (each for word, each in _HOLDER_WORDS.items() if facts.reason.endswith(f"Per{word}")), ""
    )
    limits = [quota for quota in quotas if quota.source == job.source and quota.per == per]
    if not facts.reason.startswith("Assoc"):
        names = qos_of(facts)
        yield from (
            quota for quota in limits if quota.kind is QuotaKind.QOS and quota.queue in names
        )
        return
    accounts, account = set[str](), facts.account
    parents = {q.queue: q.parent for q in quotas if q.kind is QuotaKind.ACCOUNT}
    while account and account not in accounts:
        accounts.add(account)
        account = parents.get(account, "")
    user = f"{facts.account}/{facts.user}"
    for quota in limits:
        of_account = quota.kind is QuotaKind.ACCOUNT and quota.queue in accounts
        if of_account or (quota.kind is QuotaKind.USER and quota.queue == user):
            yield quota


def _is_short(quota: Quota, job: Job) -> bool:
    return quota.nominal is not None and (quota.used or 0.0) + job.gpu_count > quota.nominal


def _may_hold_back(quota: Quota, job: Job) -> bool:
    """Say whether a limit may keep a job waiting: a resource quota refuses pods, which then lack.

    Pods that wait are counted in it already.
    """
    if quota.kind is not QuotaKind.RESOURCE_QUOTA:
        return quota.kind is QuotaKind.QUEUE
    facts = job.scheduling
    return "pending_pods" not in dict(facts.extra) and quota.resource == resource_of(
        job.mig_profile, facts.extra
    )


def _is_full(quota: Quota, job: Job) -> bool:
    """Return whether a queue has no room for a job by what it may hold at most."""
    if quota.nominal is None or quota.borrowing_limit is None or quota.used is None:
        return False
    return quota.used + job.gpu_count > quota.nominal + quota.borrowing_limit


def limit_words(quota: Quota) -> str:
    """Return a limit and its use, such as `account ml: 3 of 4 gres/gpu in use`."""
    where = f"{quota.kind} {quota.queue}" + (f", flavor {quota.flavor}" if quota.flavor else "")
    limit = "no limit" if quota.nominal is None else f"{quota.nominal:g}"
    if quota.per:
        used = "" if quota.used is None else f", of which {quota.used:g} are in use"
        return f"{where}: at most {limit} {quota.resource} for each {quota.per}{used}"
    if quota.used is None:
        return f"{where}: {limit} {quota.resource}, use unknown"
    text = f"{where}: {quota.used:g} of {limit} {quota.resource} in use"
    if quota.kind not in (QuotaKind.CLUSTER_QUEUE, QuotaKind.QUEUE):
        return text
    borrows = quota.borrowing_limit
    more = "what others lend" if borrows is None else f"{borrows:g}"
    waiting = "" if quota.pending is None else f", {count_text(quota.pending, 'workload')} waiting"
    return f"{text}, may borrow {more}{waiting}" if borrows != 0 else f"{text}{waiting}"
