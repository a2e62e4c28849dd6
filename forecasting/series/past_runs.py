"""Lengths of ended runs of the same recurring job."""

from collections.abc import Iterable

from data.facts.jobs import Job, JobState
from forecasting.series.job_keys import JobKey, job_key


def past_run_seconds(jobs: Iterable[Job]) -> dict[str, tuple[float, ...]]:
    """Return for every job that has not ended the lengths in s of its ended runs, if there are any.

    Only runs that finished count: one that failed or was cancelled says nothing of its length.
    """
    all_jobs = list(jobs)
    lengths: dict[JobKey, list[float]] = {}
    for job in all_jobs:
        seconds = _length(job)
        if seconds is not None:
            lengths.setdefault(job_key(job), []).append(seconds)
    running = (job for job in all_jobs if job.scheduling.ended_at is None)
    return {job.job_id: tuple(ended) for job in running if (ended := lengths.get(job_key(job)))}


def _length(job: Job) -> float | None:
    facts = job.scheduler
    if facts is None or facts.state is not JobState.FINISHED:
        return None
    if facts.started_at is None or facts.ended_at is None:
        return None
    seconds = (facts.ended_at - facts.started_at).total_seconds()
    return seconds if seconds > 0 else None
