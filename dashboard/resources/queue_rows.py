"""Jobs that wait for GPUs: since when, for what, behind whom, and for how much longer."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from dashboard.common.quota_words import quota_words
from dashboard.resources.resource import NoQuery, Resource, View
from data.base.errors import NotKnownError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.cluster_names import MAIN_CLUSTER, cluster_in
from data.facts.jobs import Job, JobState
from data.store import StoreReader

if TYPE_CHECKING:
    from dashboard.submission.job.fleet import SubmissionNode

_HOUR, _MINUTE = 3600.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A job that waits. `queue` is its partition or namespace, `reason` its scheduler's word.

    `quota` names the limits that it waits for with their use, '' where it waits for none;
    `elsewhere` the other clusters with room for it now, beside those that wait there.
    `more_minutes` is the median of how much longer it waits, with q10 and q90; None where nothing
    is known or it does not wait for room. `rests_on` says what the forecast rests on, or why there
    is none.
    """

    job_id: str
    queue: str
    user: str
    account: str
    gpus: int
    gpu_model: str
    submitted_at: datetime | None
    waited_hours: float | None
    reason: str
    quota: str
    elsewhere: str
    jobs_ahead: int
    gpus_ahead: float
    more_minutes: float | None
    more_minutes_q10: float | None
    more_minutes_q90: float | None
    rests_on: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SoonerRow:
    """A change that would start a waiting job sooner, and its wait from now on: q10, q50, q90."""

    change: str
    more_minutes: float
    more_minutes_q10: float
    more_minutes_q90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitDocument:
    """One job that waits, and what would start it sooner."""

    job: QueueRow
    sooner: list[SoonerRow]


class WaitQuery(NoQuery):
    """The job, by its id or what follows the colon of it."""

    job: Annotated[str, Field(min_length=1, max_length=256)]


def wait_document(view: View, query: WaitQuery) -> WaitDocument:
    """Return one job that waits. Errors: NotKnownError where none of that name does."""
    from forecasting.groups.sooner_starts import sooner_starts  # with NumPy

    row = next(
        (row for row in queue_rows(view.reader) if query.job in (row.job_id, _number(row.job_id))),
        None,
    )
    if row is None:
        raise NotKnownError(
            f"no job {query.job} waits for GPUs", "`trimtab queue` lists those that do."
        )
    stored = view.reader.jobs_lately()
    as_of = max(job.last_seen_at for job in stored)
    return WaitDocument(
        job=row,
        sooner=[
            SoonerRow(
                change=start.change,
                more_minutes=start.wait.median / _MINUTE,
                more_minutes_q10=start.wait.low / _MINUTE,
                more_minutes_q90=start.wait.high / _MINUTE,
            )
            for start in sooner_starts(stored, row.job_id, as_of)
        ],
    )


def _number(job_id: str) -> str:
    return job_id.rpartition(":")[2]


WAIT = Resource(
    name="wait",
    about="One job that waits for GPUs, and changes that would start it sooner",
    kind=WaitDocument,
    query=WaitQuery,
    read=wait_document,
    anyone=False,
    alone=True,
)


def queue_rows(reader: StoreReader) -> tuple[QueueRow, ...]:
    """Return the jobs that wait as of the newest look at their schedulers, queue by queue.

    A reader for one owner does not see who is ahead: places are for readers of the whole fleet.
    """
    stored = reader.jobs_lately()
    if not stored:
        return ()
    from forecasting.groups.queue_waits import (
        places_in_line,  # with NumPy, which other lists do without
    )

    as_of = max(job.last_seen_at for job in stored)
    jobs, quotas = {job.job_id: job for job in stored}, reader.quotas()
    elsewhere = _OtherClusters.of(reader, stored)
    rows = []
    for place in places_in_line(stored, as_of):
        job, wait = jobs[place.job_id], place.wait
        facts = job.scheduling
        timed = wait if wait is not None and wait.known else None
        came = facts.submitted_at
        rows.append(
            QueueRow(
                job_id=job.job_id,
                queue=job.namespace,
                user=facts.user,
                account=facts.account,
                gpus=job.gpu_count,
                gpu_model=job.gpu_model,
                submitted_at=came,
                waited_hours=None if came is None else (as_of - came).total_seconds() / _HOUR,
                reason=facts.reason,
                quota=quota_words(job, quotas),
                elsewhere=elsewhere.words(job),
                jobs_ahead=place.jobs_ahead,
                gpus_ahead=place.gpus_ahead,
                more_minutes=None if timed is None else timed.median / _MINUTE,
                more_minutes_q10=None if timed is None else timed.low / _MINUTE,
                more_minutes_q90=None if timed is None else timed.high / _MINUTE,
                rests_on="it does not wait for room" if wait is None else wait.basis,
            )
        )
    return tuple(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OtherClusters:
    """The nodes of every cluster, and the GPUs that jobs wait for there by (cluster, model)."""

    nodes: Mapping[str, Sequence["SubmissionNode"]]
    awaited: Mapping[tuple[str, str], float]

    @classmethod
    def of(cls, reader: StoreReader, jobs: Iterable[Job]) -> "_OtherClusters":
        """Read them; nothing where there is one cluster."""
        clusters = {cluster_in(gpu.node) for gpu in reader.gpus()}
        clusters |= {node.cluster for node in reader.nodes()}
        if len(clusters) < 2:
            return cls(nodes={}, awaited={})
        from dashboard.submission.job.fleet import fleet_of_store  # with NumPy

        catalogue = load_gpu_catalogue()
        awaited: Counter[tuple[str, str]] = Counter()
        for job in jobs:
            if job.scheduling.state is JobState.PENDING:
                awaited[job.cluster, job.gpu_model] += job.gpu_count
        return cls(
            nodes={
                name: fleet_of_store(reader, catalogue, cluster=name).usable for name in clusters
            },
            awaited=awaited,
        )

    def words(self, job: Job) -> str:
        """Return the places where a job's boards are free: on one node, if one is large enough."""
        texts = []
        for cluster, nodes in sorted(self.nodes.items()):
            same = [node for node in nodes if node.gpu_type == job.gpu_model]
            spoken_for = self.awaited.get((cluster, job.gpu_model), 0.0)
            spoken_for += self.awaited.get((cluster, ""), 0.0)
            free = sum(node.free_gpus for node in same) - spoken_for
            largest = max((node.gpus for node in same), default=0)
            fits = max((node.free_gpus for node in same), default=0) >= min(job.gpu_count, largest)
            if cluster != job.cluster and same and fits and free >= job.gpu_count:
                texts.append(f"{cluster or MAIN_CLUSTER}: {free:g} {job.gpu_model} free")
        return "; ".join(texts)
