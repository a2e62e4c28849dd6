"""What the store knows of what kept jobs' boards at work, made into why each job is slow."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from dashboard.cycle.memory_outlook import recipes_of
from data.facts.jobs import Job
from data.records.slow_work import SlowWork
from data.store import StoreReader
from planner.slow_work.remedies import remedy_of
from planner.slow_work.rules import slow_work

WINDOW = timedelta(hours=6)
"""Long enough for evaluation and checkpoints to be a part of it; a changed job is judged anew."""


def foreseen_slow_work(
    reader: StoreReader, jobs: Sequence[Job], as_of: datetime
) -> tuple[SlowWork, ...]:
    """Return why each of these jobs is slow by its last six hours, with what to try."""
    activity = reader.job_activity(start=as_of - WINDOW, end=as_of)
    if activity.empty:
        return ()
    recipes = recipes_of(reader.submissions())
    return tuple(
        replace(found, remedy=remedy_of(found.cause, recipes.get(found.job_id)))
        for found in slow_work(activity, {job.job_id: job for job in jobs})
    )
