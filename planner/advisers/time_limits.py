"""Advice on time limits: Slurm jobs with limits far over the length of all such jobs before.

A shorter limit lets the scheduler fill gaps with the job and behind it (backfill). Nothing is
claimed as saved: what it is worth depends on the queue.
"""

import math
from collections.abc import Sequence

from data.facts.jobs import Job, Platform
from data.records.feasible_changes import change_refusal
from planner.jobs.job_end import MIN_RUNS

_LONG_LIMIT_FACTOR = 2.0
_MARGIN = 1.5
_STEP_SECONDS = 900


def advised_limit(job: Job, past_runs: Sequence[float]) -> float | None:
    """Return a time limit in s that is half again as long as the longest run, None when it is fine.

    `past_runs` are the lengths in s of ended runs of the same job; fewer than five say too little.
    """
    facts = job.scheduler
    limit = None if facts is None else facts.time_limit_seconds
    if job.platform is not Platform.SLURM or limit is None or len(past_runs) < MIN_RUNS:
        return None
    if change_refusal(job) or facts is None or "time_min_minutes" in dict(facts.extra):
        return None  # with --time-min Slurm shortens it itself, and refuses a limit below that
    advised = math.ceil(_MARGIN * max(past_runs) / _STEP_SECONDS) * _STEP_SECONDS
    return float(advised) if limit >= _LONG_LIMIT_FACTOR * advised else None


def limit_text(seconds: float) -> str:
    """Return a limit as people write it, such as `6.5 h`."""
    return f"{seconds / 3600:.3g} h"


def shorter_limit_reason(job: Job, past_runs: Sequence[float], advised: float) -> str:
    """Return the reason for a shorter limit."""
    limit = job.scheduling.time_limit_seconds
    ordered = sorted(past_runs)
    return (
        f"{len(ordered)} ended runs of this job took {limit_text(ordered[len(ordered) // 2])} in "
        f"the middle and {limit_text(ordered[-1])} at most, and it asks for "
        f"{limit_text(limit or 0.0)}. With {limit_text(advised)} it fits into gaps of the queue "
        "(backfill); a run above its limit is killed. No saving is claimed."
    )
