"""Limits of schedulers' queues that they enforce, and the use of each."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from data.base.clock import require_utc
from data.facts.jobs import Job, Platform, SchedulerFacts

PARTITION_QOS = "partition_qos"
"""The fact of a Slurm job that names the QOS of its partitions, comma-separated."""


class QuotaKind(StrEnum):
    """The kind of a limit's object: queues of Kueue, of KAI or Volcano; QOS, associations of Slurm.

    A resource quota is that of a namespace of Kubernetes, whoever schedules its pods.
    """

    COHORT = "cohort"
    CLUSTER_QUEUE = "cluster queue"
    LOCAL_QUEUE = "local queue"
    QUEUE = "queue"
    RESOURCE_QUOTA = "resource quota"
    QOS = "qos"
    ACCOUNT = "account"
    USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The limit of one queue on one GPU resource, in devices of that resource.

    `queue` is NAMESPACE/NAME of a local queue or resource quota, ACCOUNT/USER of a user. `per`: all
    jobs together (''), or each user, account or job. Limits are None where the scheduler sets
    none: no `nominal` limits nothing, no `borrowing_limit` lets it borrow all that others lend.
    `used` and the workloads that are `admitted` and `pending` are None where nobody tells.
    `parent` is the cohort, cluster queue or account above it.
    """

    source: str
    kind: QuotaKind
    queue: str
    per: str = ""
    resource: str
    flavor: str = ""
    gpu_model: str = ""
    nominal: float | None
    borrowing_limit: float | None
    lending_limit: float | None
    used: float | None = None
    reserved: float | None = None
    admitted: int | None = None
    pending: int | None = None
    weight: float | None = None
    priority: int | None = None
    preempts: str = ""
    parent: str = ""
    observed_at: datetime

    def __post_init__(self) -> None:
        require_utc("observed_at", self.observed_at)

    @property
    def key(self) -> tuple[str, ...]:
        """The key that is unique among the rows of a reading."""
        return self.source, self.kind, self.queue, self.per, self.resource, self.flavor

    @property
    def most(self) -> float:
        """The devices that it lets its jobs have without borrowing, infinite without a limit."""
        return math.inf if self.nominal is None else self.nominal

    @property
    def place(self) -> tuple[str, QuotaKind, str]:
        """The key that all limits of one queue share, and all resource quotas of one namespace."""
        of_namespace = self.kind is QuotaKind.RESOURCE_QUOTA
        where = self.queue.partition("/")[0] if of_namespace else self.queue
        return self.source, self.kind, where


def quotas_of_jobs(quotas: Iterable[Quota], jobs: Iterable[Job]) -> tuple[Quota, ...]:
    """Return the quotas of the queues that these jobs were sent to."""
    rows = tuple(quotas)
    sent = {place for job in jobs for place in _places(job)}
    sent |= {
        (quota.source, QuotaKind.CLUSTER_QUEUE, quota.parent)
        for quota in rows
        if quota.kind is QuotaKind.LOCAL_QUEUE and quota.place in sent
    }
    return tuple(quota for quota in rows if quota.place in sent)


def qos_of(facts: SchedulerFacts) -> tuple[str, ...]:
    """Return the QOS that limit a Slurm job: its own, then those of its partitions."""
    further = dict(facts.extra).get(PARTITION_QOS, "").split(",")
    return tuple(dict.fromkeys((facts.qos, *filter(None, further))))


def _places(job: Job) -> Iterator[tuple[str, QuotaKind, str]]:
    """Yield (source, kind, queue) of each queue that a job names itself, and of its namespace."""
    facts = job.scheduler
    if job.platform is Platform.KUBERNETES:
        yield job.source, QuotaKind.RESOURCE_QUOTA, job.namespace
    if facts is None:
        return
    if job.platform is Platform.KUBERNETES:
        extra = dict(facts.extra)
        if queue := extra.get("queue", ""):
            yield job.source, QuotaKind.LOCAL_QUEUE, f"{job.namespace}/{queue}"
        if queue := extra.get("scheduler_queue", ""):
            yield job.source, QuotaKind.QUEUE, queue
        return
    for qos in qos_of(facts):
        yield job.source, QuotaKind.QOS, qos
    yield job.source, QuotaKind.ACCOUNT, facts.account
    yield job.source, QuotaKind.USER, f"{facts.account}/{facts.user}"
