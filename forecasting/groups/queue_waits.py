"""Waits in the queue, of jobs restarted now or waiting already: median and 80 % band.

Past waits count by how alike the queue was when they began: what was short then (GPUs of all who
waited before, and the job's own, less the free ones) and the job's size. Who still waits counts as
waiting longer than so far. With few starts the forecast is drawn towards all starts of the queue
and towards a stated prior. A job that waits already has the wait of one that came now behind those
that were submitted before it. Once it has waited longer than q90 of what it could expect as it
came, it has what was left of waits as long, by how alike the queue before them was at that age.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from data.facts.jobs import Job, JobState, Platform
from data.facts.queue_waits import PlaceInLine, QueueWait, is_waiting_for_boards
from forecasting.groups.queue_replay import QueueReplay, arrival_of

Values = npt.NDArray[np.float64]
QueueKey = tuple[str, str]

_DAYS = 7.0
_GONE_AFTER = timedelta(hours=1)
"""A job without an end that its source has not named for so long is gone."""
_PRIOR_MEDIAN, _PRIOR_HIGH = 600.0, 6000.0
"""Assumed where little is known: 10 (1-100) min, as much as two starts say."""
_PRIOR_STARTS, _QUEUE_STARTS = 2.0, 3.0
_ALIKE, _SIZES = 0.7, 1.5
"""Widths in which starts are alike: of log(1 + GPUs short), and in doublings of the size."""
_MAX_LANDMARKS = 200
"""Of so many longer waits the queue is looked up at the same age."""
_STRETCH = 2.0
"""A wait grows with what is short, up to so much: the queue of now may be the longest ever seen."""
_BAND = (0.1, 0.5, 0.9)
_PRIOR: Values = _PRIOR_MEDIAN * (_PRIOR_HIGH / _PRIOR_MEDIAN) ** np.array(
    [NormalDist().inv_cdf((n + 0.5) / 10) / NormalDist().inv_cdf(_BAND[2]) for n in range(10)]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """A sum of GPUs that steps at times: `at` ascending, `total` [n + 1] before and after them."""

    at: Values
    total: Values

    def before(self, moments: Values) -> Values:
        """Return the sum of what came before each moment."""
        return np.asarray(self.total[np.searchsorted(self.at, moments, side="left")])

    def until(self, moments: Values) -> Values:
        """Return the sum of what came before or at each moment."""
        return np.asarray(self.total[np.searchsorted(self.at, moments, side="right")])


def _steps(at: Values, gpus: Values) -> _Steps:
    order = np.argsort(at, kind="stable")
    return _Steps(at=at[order], total=np.concatenate([[0.0], np.cumsum(gpus[order])]))


class _Queue:
    """The past of one queue: the times at which jobs came, started and ended."""

    def __init__(self, jobs: Iterable[Job], as_of: datetime) -> None:
        rows = [row for job in jobs for row in _rows(job, as_of)]
        came, started, ended, gpus, first = map(np.array, zip(*rows, strict=True))
        run = np.isfinite(started)
        served = np.where(run, started, ended)
        self._all = (came, served, gpus)
        self._came = _steps(came, gpus)
        self._served = _steps(served, gpus)
        self._started = _steps(started[run], gpus[run])
        self._ended = _steps(ended[run], gpus[run])
        self.boards = float(self._in_use(started[run]).max(initial=0.0))
        now = as_of.timestamp()
        # A requeued run asks for what it gave back itself: its start says nothing of others' waits.
        used = first & (np.isinf(ended) & ~run | run & (started >= now - _DAYS * 86_400))
        self._began = came[used]
        self._ended_waits = run[used]
        self._waits = (np.where(run, started, now) - came)[used]
        self._sizes = gpus[used]
        self._short = np.maximum(0.0, self._shortage(came[used]) + self._sizes)

    def _in_use(self, moments: Values) -> Values:
        return self._started.until(moments) - self._ended.until(moments)

    def _shortage(self, moments: Values) -> Values:
        """Return the GPUs of all jobs that wait at each moment, less the free ones."""
        waiting = self._came.before(moments) - self._served.until(moments)
        return np.maximum(0.0, waiting) - (self.boards - self._in_use(moments))

    def wait_of(self, job: Job, as_of: datetime) -> QueueWait:
        """Return the wait of a job that gives its GPUs back now and asks for as many again."""
        return self._whole_wait(float(self._shortage(np.array([as_of.timestamp()]))[0]), job)

    def wait_behind(self, gpus_ahead: float, job: Job, as_of: datetime) -> QueueWait:
        """Return the remaining wait of a job behind waiting jobs of so many GPUs."""
        now, came_at = as_of.timestamp(), arrival_of(job).timestamp()
        short = gpus_ahead + job.gpu_count - (self.boards - float(self._in_use(np.array([now]))[0]))
        short_at_first = float(self._shortage(np.array([came_at]))[0]) + job.gpu_count
        expected, waited = self._whole_wait(short_at_first, job), now - came_at
        if not expected.known or waited <= expected.high:
            return self._whole_wait(short, job)
        longer = np.flatnonzero(self._waits >= waited)
        if len(longer) > _MAX_LANDMARKS:
            longer = longer[np.linspace(0, len(longer) - 1, _MAX_LANDMARKS).astype(int)]
        began = self._began[longer]
        # Only what waited longer than so still waited then.
        rows = self._all[1] - self._all[0] > waited
        came, served, gpus = (column[rows] for column in self._all)
        ahead = ((came < began[:, None]) & (served > began[:, None] + waited)) @ gpus
        free = self.boards - self._in_use(began + waited)
        short_then = np.maximum(0.0, ahead + self._sizes[longer] - free)
        return self._wait(short, short_then, longer, job.gpu_count, waited=waited)

    def _whole_wait(self, short: float, job: Job) -> QueueWait:
        return self._wait(short, self._short, np.arange(len(self._waits)), job.gpu_count)

    def _wait(
        self,
        short: float,
        short_then: Values,
        rows: npt.NDArray[np.int_],
        gpus: int,
        *,
        waited: float = 0.0,
    ) -> QueueWait:
        """Return the remaining wait of a job of so many GPUs when so many are short.

        `short_then` [rows] are the GPUs that were short of past waits, of `rows` [rows], after
        `waited` s; those of the job itself are among them, as in `short`.
        """
        ended = self._ended_waits[rows]
        wait = QueueWait(starts=int(ended.sum()), waited=waited, days=_DAYS)
        if not wait.known:
            return wait
        short = max(0.0, short)
        alike = (np.log1p(short_then) - np.log1p(short)) / _ALIKE
        sizes = np.log2(self._sizes[rows] / gpus) / _SIZES
        likeness = np.exp(-0.5 * (alike**2 + sizes**2))
        prior = _PRIOR[waited < _PRIOR] - waited
        prior_weight = _PRIOR_STARTS / len(_PRIOR)
        weights = np.concatenate(
            [likeness + _QUEUE_STARTS / len(likeness), np.full(len(prior), prior_weight)]
        )
        ended = np.concatenate([ended, np.ones(len(prior), dtype=np.bool_)])
        longer = np.clip((1 + short) / (1 + short_then), 1 / _STRETCH, _STRETCH)
        waits = np.concatenate([(self._waits[rows] - waited) * longer, prior])
        low, median, high, mean = _spread(waits, ended, weights)
        return replace(wait, low=low, median=median, high=high, mean=mean)


def _spread(
    waits: Values, ended: npt.NDArray[np.bool_], weights: Values
) -> tuple[float, float, float, float]:
    """Return q10, median, q90 and mean of weighted waits, some of which go on (Kaplan and Meier).

    A wait that goes on is longer than it is now, nobody knows by how much.
    """
    order = np.lexsort((~ended, waits))
    waits, ended, weights = waits[order], ended[order], weights[order]
    at_risk = np.cumsum(weights[::-1])[::-1]
    survival = np.cumprod(1 - np.where(ended, weights / at_risk, 0.0))
    places = np.minimum(np.searchsorted(1 - survival, np.array(_BAND) - 1e-12), len(waits) - 1)
    low, median, high = (float(wait) for wait in waits[places])
    gone = np.concatenate([[1.0], survival[:-1]]) - survival
    return low, median, high, float((waits * gone).sum() + waits[-1] * survival[-1])


def queue_waits(jobs: Iterable[Job], as_of: datetime) -> Mapping[str, QueueWait]:
    """Return the forecast of every job that holds GPUs of a scheduler, known or not."""
    waits: dict[str, QueueWait] = {}
    for members in _queues(jobs).values():
        running = [job for job in members if job.scheduling.state is JobState.RUNNING]
        queue = _queue_of(members, as_of) if running else None
        if queue is None:
            waits |= {job.job_id: QueueWait(days=_DAYS) for job in running}
            continue
        replay = _replay_of(members, as_of)
        played: dict[int, QueueWait] = {}
        for job in running:
            if replay.usable and job.gpu_count not in played:
                limits = (
                    other.scheduling.time_limit_seconds
                    for other in running
                    if other.gpu_count == job.gpu_count
                )
                played[job.gpu_count] = replay.requeue_waits(
                    job.gpu_count, max(filter(None, limits)), _DAYS
                )
            waits[job.job_id] = played.get(job.gpu_count) or queue.wait_of(job, as_of)
    return waits


def places_in_line(
    jobs: Iterable[Job], as_of: datetime, *, only: Job | None = None
) -> tuple[PlaceInLine, ...]:
    """Return the place of every job that waits, queue by queue in order of submission.

    `jobs` are all that are known: those that ended say how long jobs waited before. `only` the
    queue of one job is looked at where that is asked for.
    """
    places = []
    for key, members in _queues(jobs).items():
        if only is not None and key != _key(only):
            continue
        waiting = [job for job in members if _waits(job, as_of)]
        if not waiting:
            continue
        queue = _queue_of(members, as_of)
        replay = None if queue is None else _replay_of(members, as_of)
        played = replay.waits(_DAYS) if replay is not None and replay.usable else {}
        jobs_ahead, gpus_ahead = 0, 0.0
        for job in sorted(waiting, key=lambda job: (arrival_of(job), job.job_id)):
            in_line = _in_line(job)
            wait = None
            if in_line:
                wait = played.get(job.job_id, QueueWait(days=_DAYS))
                if not wait.known and queue is not None and job.gpu_count:
                    wait = queue.wait_behind(gpus_ahead, job, as_of)
            places.append(
                PlaceInLine(
                    job_id=job.job_id, jobs_ahead=jobs_ahead, gpus_ahead=gpus_ahead, wait=wait
                )
            )
            if in_line:
                jobs_ahead, gpus_ahead = jobs_ahead + 1, gpus_ahead + job.gpu_count
    return tuple(places)


def _replay_of(members: Iterable[Job], as_of: datetime) -> QueueReplay:
    gone = as_of - _GONE_AFTER
    members = [
        job
        for job in members
        if job.scheduling.state is not JobState.RUNNING or job.last_seen_at >= gone
    ]
    in_line = [job for job in members if _waits(job, as_of) and _in_line(job) and job.gpu_count]
    return QueueReplay(members, in_line, as_of)


def _in_line(job: Job) -> bool:
    """Return whether a job that waits would start for free boards."""
    return is_waiting_for_boards(job.scheduling.reason)


def _queues(jobs: Iterable[Job]) -> dict[QueueKey, list[Job]]:
    queues: dict[QueueKey, list[Job]] = defaultdict(list)
    for job in jobs:
        if job.scheduler is not None and job.platform in (Platform.SLURM, Platform.KUBERNETES):
            queues[_key(job)].append(job)
    return queues


def _waits(job: Job, as_of: datetime) -> bool:
    return job.scheduling.state is JobState.PENDING and job.last_seen_at >= as_of - _GONE_AFTER


def _queue_of(jobs: Iterable[Job], as_of: datetime) -> _Queue | None:
    timed = [job for job in jobs if _rows(job, as_of)]
    return _Queue(timed, as_of) if timed else None


def _key(job: Job) -> QueueKey:
    """Return the queue of a job: its partition, or in Kubernetes the boards of its model."""
    return job.source, job.namespace if job.platform is Platform.SLURM else job.gpu_model


def _rows(job: Job, as_of: datetime) -> list[tuple[float, float, float, float, bool]]:
    """Return (came, started, left, GPUs, is first) of each run of a job; infinite: not yet.

    A run that was requeued left when the next one came. A run of unknown submission is left out.
    """
    facts = job.scheduling
    ended_at = facts.ended_at
    if ended_at is None and job.last_seen_at < as_of - _GONE_AFTER:
        ended_at = job.last_seen_at
    runs: list[tuple[datetime, datetime | None, int]] = [
        (wait.submitted_at, wait.started_at, wait.gpu_count) for wait in facts.earlier_waits
    ]
    if facts.submitted_at is not None:
        runs.append((facts.submitted_at, facts.started_at, job.gpu_count))
    rows = []
    next_came = [*(submitted_at for submitted_at, _started_at, _gpus in runs[1:]), ended_at]
    requeued = dict(facts.extra).get("restarts", "0") != "0" and not facts.earlier_waits
    for at, ((submitted_at, started_at, gpus), left_at) in enumerate(
        zip(runs, next_came, strict=False)
    ):
        if submitted_at <= as_of:
            came = submitted_at.timestamp()
            started = np.inf if started_at is None else max(came, started_at.timestamp())
            ended = np.inf if left_at is None else max(came, left_at.timestamp())
            rows.append((came, started, ended, float(gpus), at == 0 and not requeued))
    return rows
