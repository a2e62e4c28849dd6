"""When a job ends by itself: nothing can be saved of it after that.

Its scheduler may tell: a time limit, a deadline, an end already known (a recording). Where it does
not, ended runs of the same job give a forecast with a spread. Without either no end is known.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from data.records.jobs import Job, JobState

Values = npt.NDArray[np.float64]

_MIN_RUNS = 5
"""Fewer runs that took longer than this one has taken so far say too little of its end."""
_SPREAD = (0.1, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """The share of each slot in which a job can still be there, arrays [slots], 0..1.

    `low` and `high` are q10 and q90 of a forecast end, all three are the same where it is known,
    and 1 where nobody tells one. `why` names the end within the horizon, '' when there is none.
    """

    low: Values
    central: Values
    high: Values
    why: str = ""

    def hours(self, slot_hours: float) -> float:
        """Return the expected hours of the horizon in which the job is there."""
        return float(self.central.sum()) * slot_hours


def remaining_of(
    job: Job,
    slot_starts: Sequence[datetime],
    slot: timedelta,
    *,
    as_of: datetime,
    past_runs: Sequence[float] = (),
) -> Remaining:
    """Return how much of each slot is left of a job; `past_runs` are lengths of ended runs, s."""
    latest = np.ones(len(slot_starts))
    why = ""
    told = min(_told_ends(job, as_of), default=None)
    if told is not None:
        latest = _shares([told[0]], slot_starts, slot)[0]
        why = f"{told[1]} ends it by {told[0]:%Y-%m-%d %H:%M} UTC" if latest[-1] < 1 else ""
    ends = _forecast_ends(job, past_runs, as_of)
    if not ends:
        return Remaining(low=latest, central=latest, high=latest, why=why)
    shares = np.minimum(_shares(ends, slot_starts, slot), latest)
    central = shares.mean(axis=0)
    low, high = np.quantile(shares, _SPREAD, axis=0)
    if central[-1] < latest[-1]:
        middle = ends[len(ends) // 2]
        runs = f"{len(ends)} ended runs that took longer than it has so far"
        why = f"it is forecast to end around {middle:%Y-%m-%d %H:%M} UTC by {runs}"
    return Remaining(
        low=np.minimum(low, central), central=central, high=np.maximum(high, central), why=why
    )


def _told_ends(job: Job, as_of: datetime) -> Iterator[tuple[datetime, str]]:
    """Give the ends that a scheduler tells, each with its name.

    The limit of a job that waits counts from its start, at the earliest now; while a job is
    suspended, its limit stands still for nobody knows how long.
    """
    facts = job.scheduler
    if facts is None:
        return
    if facts.ended_at is not None:
        yield facts.ended_at, "its recorded end"
    if facts.time_limit_seconds is not None and facts.state is not JobState.SUSPENDED:
        limit = timedelta(seconds=facts.time_limit_seconds)
        yield (facts.started_at or as_of) + limit, "its time limit"
    deadline = dict(facts.extra).get("deadline_at")
    if deadline:
        yield datetime.fromisoformat(deadline), "its deadline"


def _forecast_ends(job: Job, past_runs: Sequence[float], as_of: datetime) -> list[datetime]:
    """Return when the job ends if it is like each ended run that took longer than it has so far."""
    started_at = None if job.scheduler is None else job.scheduler.started_at
    if started_at is None:
        return []
    ends = sorted(started_at + timedelta(seconds=seconds) for seconds in past_runs)
    later = [end for end in ends if end > as_of]
    return later if len(later) >= _MIN_RUNS else []


def _shares(ends: Sequence[datetime], slot_starts: Sequence[datetime], slot: timedelta) -> Values:
    """Return the share of each slot before each end, array [ends, slots]."""
    starts = np.array([at.timestamp() for at in slot_starts])
    left = np.array([end.timestamp() for end in ends])[:, None] - starts
    return np.asarray(np.clip(left / slot.total_seconds(), 0.0, 1.0), dtype=np.float64)
