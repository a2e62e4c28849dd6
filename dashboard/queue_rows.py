"""Who waits for GPUs: since when, for what, behind whom, and for how much longer."""

from dataclasses import dataclass
from datetime import datetime

from dashboard.quota_words import quota_words
from data.records.jobs import SchedulerFacts
from data.store import StoreReader

_HOUR, _MINUTE = 3600.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A job that waits. `queue` is its partition or namespace, `reason` its scheduler's word.

    `quota` names the limits that it waits for with their use, '' where it waits for none.
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
    jobs_ahead: int
    gpus_ahead: float
    more_minutes: float | None
    more_minutes_q10: float | None
    more_minutes_q90: float | None
    rests_on: str


def queue_rows(reader: StoreReader) -> tuple[QueueRow, ...]:
    """Return the jobs that wait as of the newest look at their schedulers, queue by queue.

    A reader for one owner does not see who is ahead: places are for readers of the whole fleet.
    """
    known = reader.jobs()
    if not known:
        return ()
    from forecasting.queue_waits import places_in_line  # with NumPy, which other lists do without

    as_of = max(job.last_seen_at for job in known)
    jobs, quotas = {job.job_id: job for job in known}, reader.quotas()
    rows = []
    for place in places_in_line(known, as_of):
        job, wait = jobs[place.job_id], place.wait
        facts = job.scheduler or SchedulerFacts()
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
                jobs_ahead=place.jobs_ahead,
                gpus_ahead=place.gpus_ahead,
                more_minutes=None if timed is None else timed.median / _MINUTE,
                more_minutes_q10=None if timed is None else timed.low / _MINUTE,
                more_minutes_q90=None if timed is None else timed.high / _MINUTE,
                rests_on="it does not wait for room" if wait is None else wait.basis,
            )
        )
    return tuple(rows)
