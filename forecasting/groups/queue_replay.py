"""Starts of waiting jobs: their queue played on from the ends of the jobs that run.

A scheduler expects a start as if every job ran to its time limit, and most end before. So the queue
is played on many times, in the scheduler's order and with backfill that delays no first job
(Lifka 1995), while runs last as long as ended jobs did of their limits. Where the scheduler expects
a start of its own, which knows nodes and priorities, all plays are scaled to it: it is the base.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from data.facts.jobs import Job, JobState
from data.facts.queue_waits import EXPECTED_START, PRIORITY, QueueWait

Values = npt.NDArray[np.float64]

_PLAYS, _WORK = 60, 60_000
"""Plays of a queue, fewer where plays times jobs exceed this."""
_DEPTH = 100
"""Jobs in line that are looked at, as Slurm's default_queue_depth."""
_ENDED = 500
_PRIOR = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Shares of their limits that runs took, beside those that were observed."""
_SOON = 60.0
_MOST = 4.0
"""A play is scaled by so much at most: beyond it the scheduler's start is taken for its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A job in line: GPUs, limit in s, the scheduler's expected wait in s, None without one."""

    job_id: str
    gpus: int
    limit: float
    expected: float | None


class QueueReplay:
    """One queue as of a time. `boards` are all GPUs that were ever held in it at once."""

    def __init__(self, jobs: Iterable[Job], in_line: Sequence[Job], as_of: datetime, boards: float):
        jobs = list(jobs)
        running = [job for job in jobs if job.scheduling.state is JobState.RUNNING]
        self._limited = all(_limit(job) for job in (*running, *in_line))
        self._running = [
            (job.gpu_count, _limit(job), (as_of - _since(job)).total_seconds()) for job in running
        ]
        self._free = max(0.0, boards - sum(gpus for gpus, _limit, _for in self._running))
        # As the scheduler goes through them; the order of its expected starts has backfill in it.
        in_order = sorted(in_line, key=lambda job: (-_priority(job), arrival_of(job), job.job_id))
        self._waiting = [
            _Waiting(
                job_id=job.job_id,
                gpus=job.gpu_count,
                limit=_limit(job),
                expected=_expected(job, as_of),
            )
            for job in in_order
        ]
        ended = [share for job in jobs if (share := _share(job)) is not None]
        self._shares = np.array([*ended[-_ENDED:], *_PRIOR])
        self._basis = (
            f"the lengths of {len(ended)} ended runs" if ended else "assumed lengths of runs"
        )
        self._plays = max(12, min(_PLAYS, _WORK // max(1, len(running) + len(in_order))))

    @property
    def usable(self) -> bool:
        """Whether every job has a limit: nothing is known of the end of others."""
        return self._limited and bool(self._running)

    def waits(self, days: float) -> dict[str, QueueWait]:
        """Return the remaining wait of each job in line."""
        rng = np.random.default_rng(0)
        plays = np.array([self._play(self._waiting, rng) for _ in range(self._plays)])
        longest = _starts(
            [(limit - elapsed, gpus, limit - elapsed) for gpus, limit, elapsed in self._running],
            [(job.gpus, job.limit, job.limit) for job in self._waiting],
            self._free,
        )
        return {
            job.job_id: self._wait(
                _scaled(plays[:, at], longest[at], job.expected, self._shares), job, days
            )
            for at, job in enumerate(self._waiting)
        }

    def requeue_waits(self, gpus: int, limit: float, days: float) -> QueueWait:
        """Return the wait of a job that gives so many GPUs back now and asks for them again."""
        rng = np.random.default_rng(0)
        run = _Waiting(job_id="", gpus=gpus, limit=limit, expected=None)
        plays = [self._play([*self._waiting, run], rng, freed=gpus)[-1] for _ in range(self._plays)]
        return self._wait(np.array(plays), run, days)

    def _play(
        self, waiting: Sequence[_Waiting], rng: np.random.Generator, freed: int = 0
    ) -> list[float]:
        running = []
        # Ended runs are a sample: each play takes another of it, so that few of them say little.
        lengths = rng.choice(self._shares, len(self._shares))
        for gpus, limit, elapsed in self._running:
            if gpus == freed:
                freed = -1
                running.append((0.0, gpus, 0.0))
                continue
            longer = lengths[lengths * limit > elapsed]
            share = rng.choice(longer) if len(longer) else 1.0
            running.append((max(0.0, share * limit - elapsed), gpus, max(0.0, limit - elapsed)))
        shares = rng.choice(lengths, len(waiting))
        drawn = [
            (job.gpus, job.limit, share * job.limit)
            for job, share in zip(waiting, shares, strict=True)
        ]
        return _starts(running, drawn, self._free)

    def _wait(self, waits: Values, job: _Waiting, days: float) -> QueueWait:
        waits = waits[np.isfinite(waits)]
        if not len(waits):
            return QueueWait(days=days)
        low, median, high = (float(value) for value in np.quantile(waits, (0.1, 0.5, 0.9)))
        base = "the ends of what runs" if job.expected is None else "the scheduler's expected start"
        return QueueWait(
            low=low, median=median, high=high, mean=float(waits.mean()), days=days,
            rests_on=f"from {base} and {self._basis}",
        )  # fmt: skip


def _starts(
    began: Iterable[tuple[float, float, float]],
    waiting: Sequence[tuple[float, float, float]],
    free: float,
) -> list[float]:
    """Return the start of each waiting job, s from now; infinite: never.

    `began` are (end, GPUs, end by limit), `waiting` in order (GPUs, limit, length). The scheduler
    has just looked: nobody starts before something ends.
    """
    running = [(end, at, gpus, latest) for at, (end, gpus, latest) in enumerate(began)]
    heapq.heapify(running)
    starts, line, number = [np.inf] * len(waiting), list(range(len(waiting))), len(running)
    while running and line:
        now = running[0][0]
        while running and running[0][0] <= now:
            free += heapq.heappop(running)[2]
        first, spare, shadow = True, 0.0, np.inf
        for at in line[:_DEPTH]:
            gpus, limit, length = waiting[at]
            passes = first or now + limit <= shadow or gpus <= spare
            if gpus <= free and passes:
                starts[at] = now
                free -= gpus
                spare -= gpus if now + limit > shadow else 0.0
                heapq.heappush(running, (now + length, number, gpus, now + limit))
                number += 1
            elif first:
                first, spare, shadow = False, *_shadow(running, gpus, free)
        line = [at for at in line if starts[at] == np.inf]
    return starts


def _shadow(
    running: Iterable[tuple[float, int, float, float]], gpus: float, free: float
) -> tuple[float, float]:
    """Return the GPUs to spare beside the first job in line, and when it starts by the limits."""
    for latest, _number, width in sorted(
        (latest, number, width) for _, number, width, latest in running
    ):
        free += width
        if free >= gpus:
            return free - gpus, latest
    return 0.0, np.inf


def _scaled(plays: Values, longest: float, expected: float | None, shares: Values) -> Values:
    """Return plays of a wait, scaled towards the scheduler's with every run at its limit."""
    if expected is None:
        return plays
    if (
        not np.isfinite(longest)
        or not longest > _SOON
        or not 1 / _MOST < expected / longest < _MOST
    ):
        return expected * np.resize(shares, len(plays))
    # Half of the difference (of the logarithm): it comes from nodes that do not fit, and shrinks as
    # runs end early. Set on 74 jobs of a real slurmctld: error 12 s; of all of it 34, of none 14.
    return plays * math.sqrt(expected / longest)


def _limit(job: Job) -> float:
    """Return a job's time limit in s, 0 where it has none."""
    return job.scheduling.time_limit_seconds or 0.0


def _priority(job: Job) -> float:
    return float(job.extra.get(PRIORITY, 0))


def arrival_of(job: Job) -> datetime:
    """Return the time from which a job waits."""
    return job.scheduling.submitted_at or job.first_seen_at


def _since(job: Job) -> datetime:
    return job.scheduling.started_at or job.first_seen_at


def _expected(job: Job, as_of: datetime) -> float | None:
    start = job.extra.get(EXPECTED_START, "")
    return max(0.0, (datetime.fromisoformat(start) - as_of).total_seconds()) if start else None


def _share(job: Job) -> float | None:
    """Return the share of its limit that an ended run took, None where that is not known."""
    facts = job.scheduling
    ended = facts.state in (JobState.FINISHED, JobState.FAILED, JobState.CANCELLED)
    if not (ended and facts.started_at and facts.ended_at and facts.time_limit_seconds):
        return None
    seconds = (facts.ended_at - facts.started_at).total_seconds()
    return min(1.0, max(0.0, seconds / facts.time_limit_seconds))
