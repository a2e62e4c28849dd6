"""Jobs that wait in the queue besides a new one, as the store knows them."""

from collections.abc import Iterable
from datetime import timedelta
from statistics import median

from data.base.units import SECONDS_PER_HOUR
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.jobs import Job, JobState
from data.facts.queue_waits import is_waiting_for_boards
from data.store import StoreReader
from forecasting.series.past_runs import past_run_seconds
from planner.scheduling.arrival import UNKNOWN_HOURS, WaitingJob

_RECENT = timedelta(hours=1)


def waiting_jobs(reader: StoreReader, catalogue: GpuCatalogue) -> tuple[WaitingJob, ...]:
    """Return the jobs that wait for whole GPUs, as their scheduler told when it was last asked.

    A job that names no type of the catalogue may run on every one, as fast as the catalogue's
    relative speeds say. How long it runs is the median of finished runs of the same job, else its
    time limit.
    """
    jobs = reader.jobs_lately()
    newest = max((job.last_seen_at for job in jobs), default=None)
    if newest is None:
        return ()
    runs = past_run_seconds(jobs)
    speeds = {entry.name: entry.relative_speed for entry in catalogue}
    return tuple(
        WaitingJob(
            name=job.job_id,
            gpus=job.gpu_count,
            speeds={job.gpu_model: 1.0} if job.gpu_model in speeds else speeds,
            hours=_hours(job, runs.get(job.job_id, ())),
        )
        for job in jobs
        if _waits(job) and job.last_seen_at >= newest - _RECENT
    )


def _waits(job: Job) -> bool:
    facts = job.scheduler
    if facts is None or facts.state is not JobState.PENDING or job.mig_profile:
        return False
    return is_waiting_for_boards(facts.reason)


def _hours(job: Job, runs: Iterable[float]) -> float:
    seconds = list(runs)
    if seconds:
        return median(seconds) / SECONDS_PER_HOUR
    limit = job.scheduling.time_limit_seconds
    return UNKNOWN_HOURS if not limit else limit / SECONDS_PER_HOUR
