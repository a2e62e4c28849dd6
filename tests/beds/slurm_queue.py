"""A simulator of Slurm's queue on nodes: its main scheduler, its backfill and what it expects.

Written from slurm.conf(5) and Slurm's scheduling guide: jobs start in order until one finds no
room; backfill goes on behind it and keeps a whole node for each job that waits, from the start that
the time limits allow. It looks for that start in steps that double from 30 s (bf_window_linear).
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

STEP, DEPTH, NODES, BOARDS = 30, 100, 8, 4
Kept = list[tuple[float, float, int]]
"""Begin, end and node of what is kept."""


@dataclass
class QueueJob:
    """One job on one node; times in s from the begin of the simulation."""

    number: int
    came: float
    gpus: int
    length: float
    limit: float
    user: str
    started: float = np.inf
    node: int = -1

    @property
    def ended(self) -> float:
        """When it gives its GPUs back."""
        return self.started + self.length


@dataclass(frozen=True)
class Look:
    """The queue at a time: what runs, what waits, and the starts that Slurm expects by number."""

    at: float
    running: tuple[QueueJob, ...]
    line: tuple[QueueJob, ...]
    expected: dict[int, float]


def jobs_of_users(
    rng: np.random.Generator, *, ratio: float, users: int, count: int = 200
) -> list[QueueJob]:
    """Return jobs whose runs take such a share of their limits in the mean of all users."""
    spread = 1e6 if users == 1 else 5.0
    means = np.clip(rng.beta(ratio * spread, (1 - ratio) * spread + 1e-3, users), 0.02, 1)
    jobs = []
    for number in range(count):
        user = int(rng.integers(users))
        limit = float(rng.choice([1, 2, 4, 8, 24])) * 3600
        share = rng.beta(4 * means[user], 4 * (1 - means[user]) + 1e-3)
        jobs.append(
            QueueJob(
                number=number,
                came=max(0, number - count // 2) * 600.0 * ratio,
                gpus=int(rng.choice([1, 1, 2, 4])),
                length=max(30.0, share * limit),
                limit=limit,
                user=f"user{user}",
            )
        )
    return jobs


def simulate(jobs: Sequence[QueueJob], looks: Sequence[float], see: Callable[[Look], None]) -> None:
    """Start all jobs on nodes of four boards; show the queue at times in ascending order."""
    free, line = [BOARDS] * NODES, list[QueueJob]()
    running: list[tuple[float, int, QueueJob]] = []
    coming, ahead = list(jobs), list(looks)
    while coming or line:
        arrival = coming[0].came if coming else np.inf
        end = running[0][0] if running else np.inf
        if ahead and ahead[0] < min(arrival, end):
            at = ahead.pop(0)
            runs = [job for _end, _number, job in running]
            starts: dict[int, float] = {}
            _backfill(line, runs, free, at, starts, begins=False)
            see(Look(at, tuple(runs), tuple(line), starts))
            continue
        now = min(arrival, end)
        while running and running[0][0] <= now:
            over = heapq.heappop(running)[2]
            free[over.node] += over.gpus
        while coming and coming[0].came <= now:
            line.append(coming.pop(0))
        first_without_room = next(
            (at for at, job in enumerate(line) if not _start(job, free, running, now)), len(line)
        )
        line = line[first_without_room:]
        while line and any(free):
            runs = [job for _end, _number, job in running]
            found = _backfill(line, runs, free, now, {}, begins=True)
            if found is None:
                break
            job, node = found
            line.remove(job)
            _begin(job, node, free, running, now)


def _start(
    job: QueueJob, free: list[int], running: list[tuple[float, int, QueueJob]], now: float
) -> bool:
    room = [(boards, node) for node, boards in enumerate(free) if boards >= job.gpus]
    if room:
        _begin(job, min(room)[1], free, running, now)
    return bool(room)


def _begin(
    job: QueueJob,
    node: int,
    free: list[int],
    running: list[tuple[float, int, QueueJob]],
    now: float,
) -> None:
    job.started, job.node = now, node
    free[node] -= job.gpus
    heapq.heappush(running, (job.ended, job.number, job))


def _backfill(
    line: Sequence[QueueJob],
    running: Sequence[QueueJob],
    free: Sequence[int],
    now: float,
    starts: dict[int, float],
    *,
    begins: bool,
) -> tuple[QueueJob, int] | None:
    """Return the first job that may start now with its node; give the others a start."""
    kept: Kept = []
    for job in line[:DEPTH]:
        at, node = _expected(job, running, free, kept, now)
        if begins and at <= now:
            return job, node
        starts[job.number] = at
        kept.append((at, at + job.limit, node))
    return None


def _expected(
    job: QueueJob, running: Sequence[QueueJob], free: Sequence[int], kept: Kept, now: float
) -> tuple[float, int]:
    at = now
    while True:
        usable = [
            node
            for node in range(NODES)
            if not any(on == node and a < at + job.limit and b > at for a, b, on in kept)
        ]
        start, node = _room(job, running, free, usable, at)
        edges = [edge for a, b, _on in kept for edge in (a, b) if edge > at]
        if edges and start > min(edges):
            at = min(edges)
        elif any(on == node and a < start + job.limit and b > start for a, b, on in kept):
            at = start
        else:
            return start, node


def _room(
    job: QueueJob, running: Sequence[QueueJob], free: Sequence[int], usable: list[int], at: float
) -> tuple[float, int]:
    room = {node: free[node] for node in usable}
    fits = [(boards, node) for node, boards in room.items() if boards >= job.gpus]
    if fits:
        return at, min(fits)[1]
    ends = sorted((run.started + run.limit, run.node, run.gpus) for run in running)
    ends = [end for end in ends if end[1] in room]
    if not ends:
        return np.inf, -1
    begin, step, done = (ends[0][0] // STEP + 1) * STEP, STEP, 0
    while done < len(ends):
        last = at
        while done < len(ends) and ends[done][0] <= begin + step:
            last, node, gpus = ends[done]
            room[node] += gpus
            done += 1
        fits = [(boards, node) for node, boards in room.items() if boards >= job.gpus]
        if fits:
            return max(at, last), min(fits)[1]
        step *= 2
    return np.inf, -1
