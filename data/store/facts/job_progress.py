"""Progress and checkpoints that jobs reported: a row a holder and time, read by job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from data.facts.jobs import Job
from data.facts.progress import ProgressReport
from data.records.feasible_changes import CHECKPOINT_AT

if TYPE_CHECKING:
    import pandas as pd

_WEEK, _FINE = timedelta(days=7), timedelta(hours=6)
BY_JOB = """
WITH named AS (SELECT DISTINCT label_id, job_id FROM allocations WHERE label_id <> ''),
told AS (
    SELECT coalesce(named.job_id, p.label_id) AS job_id, reported_at, max(done_ratio) AS done_ratio
    FROM job_progress AS p LEFT JOIN named ON named.label_id = p.label_id
    WHERE reported_at >= :start AND reported_at <= :end AND done_ratio IS NOT NULL
        AND (:job_id = '' OR coalesce(named.job_id, p.label_id) = :job_id)
    GROUP BY 1, 2
)
SELECT job_id, max(reported_at) AS reported_at, arg_max(done_ratio, reported_at) AS done_ratio
FROM told GROUP BY job_id, CASE WHEN reported_at >= :fine THEN reported_at
    ELSE to_timestamp(floor(epoch(reported_at) / 3600) * 3600) END
ORDER BY 1, 2
"""
"""Of the pods of one job the furthest tells: others may have begun anew. Of what is older than some
hours the last report of an hour: a thousand jobs report two million times a week."""

CHECKPOINTS_BY_JOB = """
WITH named AS (SELECT DISTINCT label_id, job_id FROM allocations WHERE label_id <> '')
SELECT coalesce(named.job_id, p.label_id) AS job_id, max(checkpoint_at) AS checkpoint_at
FROM job_progress AS p LEFT JOIN named ON named.label_id = p.label_id
WHERE reported_at >= :start AND reported_at <= :end AND checkpoint_at IS NOT NULL GROUP BY 1
"""


def week_to(end: datetime) -> dict[str, datetime]:
    """Return the span of the reports that tell an end: the week up to `end`."""
    return {"start": end - _WEEK, "fine": end - _FINE, "end": end}


def by_job(frame: pd.DataFrame) -> dict[str, tuple[ProgressReport, ...]]:
    """Return the reports of `BY_JOB` by job, by time."""
    reports_of: dict[str, list[ProgressReport]] = {}
    columns = (frame[name] for name in ("job_id", "reported_at", "done_ratio"))
    for job_id, reported_at, done_ratio in zip(*columns, strict=True):
        report = ProgressReport(
            reported_at=reported_at.to_pydatetime(), done_ratio=float(done_ratio)
        )
        reports_of.setdefault(str(job_id), []).append(report)
    return {job_id: tuple(reports) for job_id, reports in reports_of.items()}


def with_checkpoints(jobs: Iterable[Job], frame: pd.DataFrame) -> tuple[Job, ...]:
    """Return jobs with the last checkpoints of `CHECKPOINTS_BY_JOB`, where none is told later."""
    times = frame["checkpoint_at"].dt.to_pydatetime()
    checkpoints = dict(zip(frame["job_id"].astype(str), times, strict=True))
    return tuple(
        job if job.scheduler is None else _with_checkpoint(job, checkpoints.get(job.job_id))
        for job in jobs
    )


def _with_checkpoint(job: Job, at: datetime | None) -> Job:
    mark = job.extra.get(CHECKPOINT_AT)
    if at is None or (mark and datetime.fromisoformat(mark) >= at):
        return job
    extra = tuple((job.extra | {CHECKPOINT_AT: at.isoformat()}).items())
    return replace(job, scheduler=replace(job.scheduling, extra=extra))
