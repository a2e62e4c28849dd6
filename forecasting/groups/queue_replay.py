"""Starts of waiting jobs: their queue played on from the ends of the jobs that run.

A scheduler expects a start as if every job ran to its time limit, and most end before. So the queue
is played on many times as Slurm would: in order, node by node, with backfill that delays no job
before it (Lifka 1995), while runs last as long as those of the queue and of their users do. Where
the scheduler expects a start itself, which knows more, all plays of the job are scaled by what it
expects over what the same plan expects here with every run at its limit.

Lengths of runs are shares of their time limits. Runs of a queue are long or short together, and
those of a user more so: drawn each for itself, their sum would be almost certain. So a play draws
the law of the queue, then those of its users (Dirichlet), then runs. Ended runs tell of a law by
their shares, others by their shares so far.
"""

import heapq
import math
from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, gammaln  # type: ignore[import-untyped]

from data.facts.jobs import ENDED_STATES, Job, JobState
from data.facts.queue_waits import EXPECTED_START, PRIORITY, QueueWait

Values = npt.NDArray[np.float64]

Counts = npt.NDArray[np.int_]
Runs = Sequence[tuple[str, float]]
"""Users and shares of limits."""

_EDGES: Values = np.array([0, 0.01, 0.025, *np.linspace(0.05, 0.95, 19), 0.99, 1])
"""Of the cells of a law. The last cell holds the runs that reach their limit."""
_MEANS, _SPREADS = np.linspace(0.05, 0.95, 19), np.array([1.0, 2.0, 4.0, 10.0])
"""Before any run every mean is equally likely, and so are wide and narrow beta laws."""
_SHAPE = 8.0
"""A beta law weighs as much as so many runs that ended."""
_PRIOR_WEIGHTS: Values = np.array([2.0, 5.0, 12.0, 30.0, 80.0])
"""The law of the queue weighs as much as so many runs of a user: each equally likely at first."""
_ONE_USER = 1e6
_TINY = 1e-6


class RunLengths:
    """The laws of one queue by its runs, `ended` and `running`, and the `users` who wait."""

    def __init__(self, ended: Runs, running: Runs, users: Iterable[str]) -> None:
        names = sorted({*users, *(user for user, _share in (*ended, *running))})
        self._rows = {user: row for row, user in enumerate(names)}
        self._ended = np.zeros((len(names), len(_EDGES) - 1))
        np.add.at(self._ended, (self.rows(user for user, _ in ended), _cells(_shares(ended))), 1.0)
        self._running, self._so_far = self.rows(user for user, _ in running), _shares(running)
        self._laws = _beta_laws()
        self._likely = self._ended @ np.log(self._laws).T
        for at, law in enumerate(self._laws):
            longer = 1 - np.interp(self._so_far, _EDGES, _sums(law))
            np.add.at(self._likely[:, at], self._running, np.log(np.maximum(longer, _TINY)))
        self._count = self._ended.sum(axis=1) + np.bincount(self._running, minlength=len(names))
        self._alike = self._chances_of_alike() if len(names) > 1 else None

    def rows(self, users: Iterable[str]) -> Counts:
        """Return the numbers of these users among the laws."""
        return np.array([self._rows[user] for user in users], dtype=np.int_)

    def _chances_of_alike(self) -> Values:
        """Return how likely the ended runs are under each prior weight (Dirichlet-multinomial)."""
        law = self._ended.sum(axis=0) + _SHAPE * self._laws.mean(axis=0)
        prior = _PRIOR_WEIGHTS[:, None, None] * (law / law.sum())
        by_cell = (gammaln(prior + self._ended) - gammaln(prior)).sum(axis=(1, 2))
        alike, runs = _PRIOR_WEIGHTS[:, None], self._ended.sum(axis=1)
        return _chances(by_cell + (gammaln(alike) - gammaln(alike + runs)).sum(axis=1))

    def draw(self, rng: np.random.Generator) -> "DrawnLengths":
        """Draw the laws of a play."""
        alike = _ONE_USER if self._alike is None else rng.choice(_PRIOR_WEIGHTS, p=self._alike)
        # Many runs of one user tell little of the others: so much does each of them count.
        weight = alike * np.log1p(self._count / alike) / np.maximum(self._count, 1)
        law = self._laws[rng.choice(len(self._laws), p=_chances(weight @ self._likely))]
        runs = self._ended.copy()
        rests = _longer(_sums(law), self._so_far, rng)
        np.add.at(runs, (self._running, _cells(rests)), 1.0)
        queue = _dirichlet(_SHAPE * law + weight @ runs, rng)
        return DrawnLengths([_sums(row) for row in _dirichlet(alike * queue + runs, rng)])


class DrawnLengths:
    """The laws of one play, a user each."""

    def __init__(self, sums: Sequence[Values]) -> None:
        self._sums = sums

    def shares(self, users: Counts, so_far: Values, rng: np.random.Generator) -> Values:
        """Draw the shares of their limits that runs take, each larger than it is so far."""
        shares = np.empty(len(users))
        for user in np.unique(users):
            of_user = users == user
            shares[of_user] = _longer(self._sums[user], so_far[of_user], rng)
        return shares


def _beta_laws() -> Values:
    """Return the chance of each cell under each law that is possible before any run."""
    means, spreads = (grid.ravel()[:, None] for grid in np.meshgrid(_MEANS, _SPREADS))
    cells = np.diff(betainc(means * spreads, (1 - means) * spreads, _EDGES[None, :]), axis=1)
    return np.asarray(np.maximum(cells, _TINY))


def _shares(runs: Runs) -> Values:
    return np.array([share for _user, share in runs], dtype=np.float64)


def _cells(shares: Values) -> Counts:
    cells = np.searchsorted(_EDGES, shares, side="right") - 1
    return np.asarray(np.clip(cells, 0, len(_EDGES) - 2), dtype=np.int_)


def _sums(law: Values) -> Values:
    return np.concatenate([[0.0], np.cumsum(law) / law.sum()])


def _longer(sums: Values, so_far: Values, rng: np.random.Generator) -> Values:
    """Draw from a law, each share larger than it is so far."""
    below = np.interp(so_far, _EDGES, sums)
    shares = np.interp(below + rng.random(len(so_far)) * (1 - below), sums, _EDGES)
    return np.asarray(np.maximum(shares, so_far))


def _dirichlet(weights: Values, rng: np.random.Generator) -> Values:
    gammas = np.maximum(rng.standard_gamma(weights), 1e-12)
    return np.asarray(gammas / gammas.sum(axis=-1, keepdims=True))


def _chances(logs: Values) -> Values:
    chances = np.exp(logs - logs.max())
    return np.asarray(chances / chances.sum())


Free = Sequence[float] | Mapping[int, float]

_PLAYS, _WORK = 40, 40_000
"""Plays of a queue, fewer where plays times jobs exceed this."""
_DEPTH = 100
"""Jobs in line that are looked at, as Slurm's default_queue_depth."""
_MAX_RESERVED_JOBS = 8
"""Jobs in line that nodes are kept for while it is played: those after them find none to keep."""
_SCHEDULING_SECONDS = 30.0
"""Slurm frees runs in steps when it looks for a start: 30 s after the first, 60 s, 120 s and so on.

From slurm.conf(5), bf_window_linear: starts that it expects lie up to twice as far, and jobs with
short limits pass meanwhile.
"""
_ENDED = 500
_IN_USE = timedelta(days=1)
"""A node on which nothing ran for so long is not counted."""
_LOG_DEVIATION = 0.2
"""Standard deviation of the logarithm by which waits miss that are played with the true lengths.

From queues of a real slurmctld: benchmarks/results/queue_waits.md, seeds 541 and 543.
"""
_MAX_SCALE = 4.0
"""A play is scaled by so much at most: beyond it the scheduler's start is taken for its own."""


class _Request(NamedTuple):
    """GPUs of a job: `width` on each of so many nodes, for `limit` s at most."""

    nodes: int
    width: float
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A job in line, and the time at which its scheduler expects its start, in s; None without."""

    job_id: str
    user: str
    request: _Request
    expected: float | None


class _NodeHold(NamedTuple):
    """GPUs in use on each of some nodes until the time limit, in s; `number` tells runs apart."""

    latest: float
    number: int
    nodes: tuple[int, ...]
    width: float


class QueueReplay:
    """One queue as of a time. Times are in s since 1970."""

    def __init__(self, jobs: Iterable[Job], in_line: Sequence[Job], as_of: datetime) -> None:
        jobs = list(jobs)
        running = [job for job in jobs if job.scheduling.state is JobState.RUNNING]
        self._now = as_of.timestamp()
        self._limited = all(_limit(job) for job in (*running, *in_line))
        self._placed = bool(running) and all(job.scheduling.nodes for job in running)
        rooms = _rooms(jobs, as_of)
        at = {node: number for number, node in enumerate(rooms)}
        self._free = list(rooms.values())
        self._runs: list[_NodeHold] = []
        for number, job in enumerate(running):
            nodes = tuple(at[node] for node in job.scheduling.nodes)
            width = job.gpu_count / max(1, len(nodes))
            for node in nodes:
                self._free[node] = max(0.0, self._free[node] - width)
            latest = max(self._now, _since(job).timestamp() + _limit(job))
            self._runs.append(_NodeHold(latest=latest, number=number, nodes=nodes, width=width))
        # As the scheduler goes through them; the order of its expected starts has backfill in it.
        in_order = sorted(in_line, key=lambda job: (-_priority(job), arrival_of(job), job.job_id))
        largest = max(rooms.values(), default=0.0)
        self._waiting = [
            _Waiting(
                job_id=job.job_id,
                user=_user(job),
                request=_request(job, largest),
                expected=_expected(job, as_of),
            )
            for job in in_order
        ]
        self._limits = np.array([_limit(job) for job in running])
        so_far = np.array([self._now - _since(job).timestamp() for job in running])
        self._so_far = so_far / np.maximum(self._limits, 1.0)
        past_shares = [(_user(job), share) for job in jobs if (share := _share(job)) is not None]
        self._users = [_user(job) for job in running]
        self._lengths = RunLengths(
            past_shares[-_ENDED:],
            list(zip(self._users, self._so_far.tolist(), strict=True)),
            [job.user for job in self._waiting],
        )
        self._basis = (
            f"the lengths of {len(past_shares)} ended runs"
            if past_shares
            else "assumed lengths of runs"
        )
        self._plays = max(12, min(_PLAYS, _WORK // max(1, len(running) + len(in_order))))

    @property
    def usable(self) -> bool:
        """True if every job has a limit and every run its nodes: the ends of others are unknown."""
        return self._limited and self._placed

    def waits(self, days: float) -> dict[str, QueueWait]:
        """Return the remaining wait of each job in line."""
        plays, shares = self._plays_of(self._waiting)
        has_expected = any(job.expected is not None for job in self._waiting)
        by_limits = self._plan() if has_expected else [math.inf] * len(self._waiting)
        return {
            job.job_id: self._wait(
                self._scaled(plays[:, at], by_limits[at], job.expected, shares[:, at]), job, days
            )
            for at, job in enumerate(self._waiting)
        }

    def requeue_waits(self, gpus: int, limit: float, days: float) -> QueueWait:
        """Return the wait of a job that gives so many GPUs back now and asks for them again."""
        returned = next(
            at for at, run in enumerate(self._runs) if round(run.width * len(run.nodes)) == gpus
        )
        run = self._runs[returned]
        again = _Waiting(
            job_id="",
            user=self._users[returned],
            request=_Request(nodes=len(run.nodes), width=run.width, limit=limit),
            expected=None,
        )
        plays, _shares = self._plays_of([*self._waiting, again], returned)
        return self._wait(plays[:, -1], again, days)

    def _plays_of(self, waiting: Sequence[_Waiting], returned: int = -1) -> tuple[Values, Values]:
        """Return the waits of jobs in line [plays, jobs], and the shares of limits they took.

        The run `returned` gives its GPUs back at once.
        """
        rng = np.random.default_rng(0)
        running = self._lengths.rows(self._users)
        users = self._lengths.rows(job.user for job in waiting)
        limits = np.array([job.request.limit for job in waiting])
        starts, all_shares = [], []
        for _ in range(self._plays):
            law = self._lengths.draw(rng)
            rests = law.shares(running, self._so_far, rng) - self._so_far
            ends = self._now + rests * self._limits
            if returned >= 0:
                ends[returned] = self._now
            shares = law.shares(users, np.zeros(len(users)), rng)
            requests = [job.request for job in waiting]
            lengths = (shares * limits).tolist()
            starts.append(self._play(ends.tolist(), requests, lengths, last_alone=returned >= 0))
            all_shares.append(shares)
        waits = np.array(starts) - self._now
        return waits * rng.lognormal(0.0, _LOG_DEVIATION, waits.shape), np.array(all_shares)

    def _play(
        self,
        ends: Sequence[float],
        requests: Sequence[_Request],
        lengths: Sequence[float],
        *,
        last_alone: bool,
    ) -> list[float]:
        """Return the start of each job in line, or of the last alone; infinite: never.

        The scheduler has just looked: nobody starts before something ends.
        """
        free, runs = list(self._free), sorted(self._runs)
        heap = [(end, run.number, run) for end, run in zip(ends, self._runs, strict=True)]
        heapq.heapify(heap)
        starts, line = [math.inf] * len(requests), list(range(len(requests)))
        # Of a requeue nothing else is asked.
        while heap and line and (not last_alone or starts[-1] == math.inf):
            now = heap[0][0]
            while heap and heap[0][0] <= now:
                over = heapq.heappop(heap)[2]
                runs.remove(over)
                for node in over.nodes:
                    free[node] += over.width
            for at, nodes in _startable(now, line[:_DEPTH], requests, free, runs):
                request = requests[at]
                run = _NodeHold(
                    latest=now + request.limit,
                    number=len(ends) + at,
                    nodes=nodes,
                    width=request.width,
                )
                starts[at] = now
                for node in nodes:
                    free[node] -= run.width
                insort(runs, run)
                heapq.heappush(heap, (now + lengths[at], run.number, run))
            line = [at for at in line if starts[at] == math.inf]
        return starts

    def _plan(self) -> list[float]:
        """Return the starts as the scheduler expects them: a whole node is kept for each job."""
        runs, starts = sorted(self._runs), [math.inf] * len(self._waiting)
        reservations: list[tuple[float, float, tuple[int, ...]]] = []
        for at, job in enumerate(self._waiting[:_DEPTH]):
            limit, start, now = job.request.limit, math.inf, self._now
            while now < math.inf:
                busy_nodes = {
                    n
                    for begin, end, on in reservations
                    if begin < now + limit and end > now
                    for n in on
                }
                nodes = [node for node in range(len(self._free)) if node not in busy_nodes]
                start, place = _by_limits(runs, self._free, nodes, job.request, now)
                next_look = min(
                    (
                        edge
                        for begin, end, _on in reservations
                        for edge in (begin, end)
                        if edge > now
                    ),
                    default=math.inf,
                )
                collides = any(
                    begin < start + limit and end > start and not set(on).isdisjoint(place)
                    for begin, end, on in reservations
                )
                if start <= next_look and not collides:
                    if place:
                        reservations.append((start, start + limit, place))
                    break
                now = min(next_look, start) if start > now else next_look
            starts[at] = start
        return starts

    def _scaled(
        self, plays: Values, by_limits: float, expected: float | None, shares: Values
    ) -> Values:
        """Return waits, scaled to the scheduler's where it expects a start."""
        if expected is None:
            return plays
        ratio = (expected - self._now) / max(1.0, by_limits - self._now)
        if 1 / _MAX_SCALE < ratio < _MAX_SCALE:
            return plays * ratio
        return (expected - self._now) * shares

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


def _rooms(jobs: Iterable[Job], as_of: datetime) -> dict[str, float]:
    """Return the GPUs of each node: as many as were ever held on one with the same boards."""
    steps: dict[str, list[tuple[datetime, float]]] = defaultdict(list)
    models: dict[str, str] = {}
    for job in jobs:
        facts, begin = job.scheduling, _since(job)
        end = facts.ended_at or (as_of if facts.state is JobState.RUNNING else job.last_seen_at)
        for node in facts.nodes:
            width = job.gpu_count / len(facts.nodes)
            steps[node] += [(begin, width), (max(begin, end), -width)]
            if end >= as_of - _IN_USE:
                models[node] = job.gpu_model
    most: dict[str, float] = defaultdict(float)
    for node, model in models.items():
        # Of one moment what ends comes before what starts.
        most[model] = max(most[model], *np.cumsum([width for _at, width in sorted(steps[node])]))
    return {node: most[model] for node, model in sorted(models.items())}


def _startable(
    now: float,
    line: Iterable[int],
    requests: Sequence[_Request],
    free: Sequence[float],
    runs: Sequence[_NodeHold],
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield who of the line starts now, and where; `free` and `runs` are to follow each."""
    reservations: dict[int, float] = {}
    refusals: set[_Request] = set()
    places, line = _MAX_RESERVED_JOBS, list(line)
    last = _last_with_room(line, requests, free)
    for position, at in enumerate(line):
        if position > last:
            return
        request = requests[at]
        # Within a look room only shrinks: what was refused is refused again.
        if request in refusals and not places:
            continue
        until = now + request.limit
        nodes = [node for node in range(len(free)) if until <= reservations.get(node, math.inf)]
        if fits := _best(free, nodes, request):
            yield at, fits
            last = _last_with_room(line, requests, free)
            continue
        refusals.add(request)
        if places:
            places -= 1
            start, later = _by_limits(runs, free, nodes, request, now)
            if all(start + request.limit <= reservations.get(node, math.inf) for node in later):
                reservations |= dict.fromkeys(later, start)


def _last_with_room(
    line: Sequence[int], requests: Sequence[_Request], free: Sequence[float]
) -> int:
    """Return the place of the last in line that has room now: nothing is kept from those after."""
    room = sorted(free, reverse=True)
    return next(
        (
            place
            for place in range(len(line) - 1, -1, -1)
            if (request := requests[line[place]]).nodes <= len(room)
            and room[request.nodes - 1] >= request.width
        ),
        -1,
    )


def _best(free: Free, nodes: Iterable[int], request: _Request) -> tuple[int, ...]:
    """Return the fullest nodes with room for a request, none where they are too few."""
    room = sorted((free[node], node) for node in nodes if free[node] >= request.width)
    return tuple(node for _free, node in room[: request.nodes] * (len(room) >= request.nodes))


def _by_limits(
    runs: Iterable[_NodeHold],
    free: Free,
    nodes: Iterable[int],
    request: _Request,
    now: float,
) -> tuple[float, tuple[int, ...]]:
    """Return when and where a request has room if all runs go on to their limits."""
    room = {node: free[node] for node in nodes}
    short = request.nodes - sum(width >= request.width for width in room.values())
    start, first, step = now, 0.0, _SCHEDULING_SECONDS
    for run in runs if short > 0 else ():
        nodes_in_reach = [node for node in run.nodes if node in room]
        if not nodes_in_reach:
            continue
        first = first or (run.latest // _SCHEDULING_SECONDS + 1) * _SCHEDULING_SECONDS
        if run.latest > first + step:
            if short <= 0:
                break
            step *= 2.0 ** math.ceil(math.log2((run.latest - first) / step))
        for node in nodes_in_reach:
            width = room[node]
            room[node] += run.width
            short -= width < request.width <= room[node]
        start = max(now, run.latest)
    place = _best(room, room, request)
    return (start, place) if place else (math.inf, ())


def _request(job: Job, largest: float) -> _Request:
    """Return what a job asks of nodes of which the largest has so many GPUs."""
    nodes = job.extra.get("nodes_requested", "")
    count = max(
        int(nodes) if nodes.isdecimal() else 1, math.ceil(job.gpu_count / max(1.0, largest))
    )
    return _Request(nodes=count, width=job.gpu_count / count, limit=_limit(job))


def _limit(job: Job) -> float:
    """Return a job's time limit in s, 0 where it has none."""
    return job.scheduling.time_limit_seconds or 0.0


def _user(job: Job) -> str:
    return job.scheduling.user or job.owner


def _priority(job: Job) -> float:
    return float(job.extra.get(PRIORITY, 0))


def arrival_of(job: Job) -> datetime:
    """Return the time from which a job waits."""
    return job.scheduling.submitted_at or job.first_seen_at


def _since(job: Job) -> datetime:
    return job.scheduling.started_at or job.first_seen_at


def _expected(job: Job, as_of: datetime) -> float | None:
    start = job.extra.get(EXPECTED_START, "")
    at = datetime.fromisoformat(start) if start else as_of
    return at.timestamp() if at > as_of else None


def _share(job: Job) -> float | None:
    """Return the share of its limit that an ended run took, None where that is not known."""
    facts = job.scheduling
    if not (facts.state in ENDED_STATES and facts.started_at and facts.ended_at and _limit(job)):
        return None
    seconds = (facts.ended_at - facts.started_at).total_seconds()
    return min(1.0, max(0.0, seconds / _limit(job)))
