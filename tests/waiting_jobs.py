"""Jobs of a queue of Slurm: one runs, two wait for GPUs, one is held."""

from datetime import datetime, timedelta

from factories import make_job

from data.facts.jobs import Job, JobState, Platform, SchedulerFacts


def waiting_jobs(now: datetime) -> tuple[Job, ...]:
    """Return slurm:1, which runs on 8 GPUs, and slurm:2 to slurm:4, which came after it."""
    return (
        _job(1, now, JobState.RUNNING, came=60, gpus=8),
        _job(2, now, JobState.PENDING, came=30, reason="Resources", gpus=4),
        _job(3, now, JobState.PENDING, came=20, reason="JobHeldUser"),
        _job(4, now, JobState.PENDING, came=10, reason="Priority", gpus=2),
    )


def _job(
    number: int, now: datetime, state: JobState, *, came: float, reason: str = "", gpus: int = 1
) -> Job:
    """A job of the partition gpu that was submitted `came` minutes ago, and ran at once if ever."""
    submitted = now - timedelta(minutes=came)
    return make_job(
        f"slurm:{number}",
        platform=Platform.SLURM,
        namespace="gpu",
        gpu_count=gpus,
        first_seen_at=submitted,
        last_seen_at=now,
        source="slurm",
        scheduler=SchedulerFacts(
            state=state,
            reason=reason,
            user="ann",
            account="vision",
            submitted_at=submitted,
            started_at=None if state is JobState.PENDING else submitted,
        ),
    )
