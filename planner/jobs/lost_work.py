"""The work that the end of a run loses: since its last checkpoint, or since its start.

That Slurm may requeue a job or that a Job can be suspended says nothing of checkpoints. Without a
sign of them the worst case counts: all that the run has done. A sign without a time leaves what was
assumed for every job before: half of ten minutes between checkpoints.
"""

from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from data.base.units import SECONDS_PER_HOUR
from data.facts.jobs import Job
from data.records.feasible_changes import CHECKPOINT_AT, CHECKPOINTS
from data.settings.all_settings import PlanningSettings

_BETWEEN = (0.0, 300.0, 1800.0)
"""Seconds since a checkpoint whose time nobody tells, as low, central, high."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostWork:
    """Seconds of a run that its end loses, as low, central, high, and their source.

    `at_worst`: nothing tells of a checkpoint, so that all of the run may be lost.
    """

    seconds: tuple[float, float, float]
    since: str
    at_worst: bool = False

    @property
    def hours(self) -> float:
        """The worst case in h."""
        return self.seconds[2] / SECONDS_PER_HOUR


def lost_work_of(job: Job, planning: PlanningSettings) -> LostWork:
    """Return the work that a stop of a job's run loses, as of its last reading."""
    facts = job.scheduling
    extra = dict(facts.extra)
    now = job.last_seen_at
    elapsed = max(0.0, (now - (facts.started_at or job.first_seen_at)).total_seconds())
    if written := extra.get(CHECKPOINT_AT):
        age = min(elapsed, max(0.0, (now - datetime.fromisoformat(written)).total_seconds()))
        return LostWork(seconds=(age, age, age), since=f"its checkpoint of {written}")
    sign = extra.get(CHECKPOINTS, "") or _named_by(job, planning)
    if sign:
        low, central, high = (min(elapsed, seconds) for seconds in _BETWEEN)
        return LostWork(seconds=(low, central, high), since="a checkpoint")
    return LostWork(seconds=(0.0, elapsed, elapsed), since="its start", at_worst=True)


def _named_by(job: Job, planning: PlanningSettings) -> str:
    patterns = (part.strip() for part in planning.checkpointed_jobs.split(","))
    names = (job.job_id, job.namespace)
    return next(
        (
            f"planning.checkpointed_jobs: {pattern}"
            for pattern in patterns
            if pattern and any(fnmatchcase(name, pattern) for name in names)
        ),
        "",
    )
