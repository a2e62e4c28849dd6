"""Jobs on shared boards: vector packing over slots, memory hard and compute soft.

Jobs j of one room (who may share with whom) on boards b, over the slots t of what was seen:

    min   boards in use, then what the boards' jobs want beyond a board, then moves
    s.t.  memory bound of the jobs of b <= usable memory                  (memory_bound.py)
          mean over t of E[(sum of the jobs' activity_t - 1)+] <= MAX_LATE_SHARE
          at most `most` jobs on a board

Within a slot a job works at its largest activity for mean / largest of the time, and at none for
the rest, independently of the others; across slots the readings are taken as they fell together.
Boards that are shared today stay as they are while they are feasible, so that few jobs move.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.sharing.memory_bound import MemoryBound, filled, memory_bound

Values = npt.NDArray[np.float64]
MAX_LATE_SHARE = 0.02
"""Share of a board's work that may be late because others work at the same time."""
MOST_JOBS = 4
"""Speeds were measured on pairs; more jobs than twice two on a board are never advised."""
STAY_RATIO = 1.05
"""By so much the memory bound of jobs that share may exceed what newcomers may take; late work by
twice: a bound is an estimate, and who shares moves only where it is clearly broken."""
_ROUNDS_A_JOB, _RUIN = 4, 3
_MOST_TOGETHER, _MOST_TRIES = 400, 200_000
"""Jobs that are looked at together, and boards that are tried for them: a bound on the time."""
_MIN_JOINT_SLOTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingLoad:
    """The use of jobs, arrays [jobs, slots] on one clock, NaN where unknown.

    `memory_mib` and `peak_ratio` are the largest readings of a slot, `mean_ratio` its mean; ratios
    of a whole board, 0..1. Every job has a known slot of each. Only jobs of one `room` [jobs] may
    share; how peaks fall together is learned of all.
    """

    memory_mib: Values
    mean_ratio: Values
    peak_ratio: Values
    room: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingLimits:
    """Memory that the jobs of a board may take, MiB; the window ahead, in slots; jobs a board."""

    usable_mib: float
    window_slots: int
    headroom_ratio: float = 0.2
    most: int = MOST_JOBS


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBoard:
    """Jobs on one board by number, the bound of their memory, and the share of work that is late.

    Of a job alone both are those beside `nearest`, the job that comes closest to fitting, None
    without another.
    """

    jobs: tuple[int, ...]
    bound_mib: float
    late_share: float
    nearest: int | None = None


def shared_boards(
    load: SharingLoad, limits: SharingLimits, standing: Sequence[Sequence[int]] = ()
) -> list[SharedBoard]:
    """Return the boards that hold all jobs; a job that fits beside no other is on one alone.

    `standing` are the groups that share a board today, by number.
    """
    bounds = _bounds(load, limits)
    groups = [list(group) for group in standing]
    shares = {job for group in groups for job in group}
    groups += [[job] for job in range(len(load.room)) if job not in shares]
    boards: list[SharedBoard] = []
    for room in np.unique(load.room):
        waiting = [group for group in groups if load.room[group[0]] == room]
        while waiting:
            part = [waiting.pop(0)]
            while waiting and sum(map(len, part)) + len(waiting[0]) <= _MOST_TOGETHER:
                part.append(waiting.pop(0))
            boards += _packed(load, limits, bounds, part)
    return boards


def _bounds(load: SharingLoad, limits: SharingLimits) -> MemoryBound:
    return memory_bound(
        load.memory_mib,
        most=limits.most,
        window_slots=limits.window_slots,
        headroom_ratio=limits.headroom_ratio,
    )


def _packed(
    load: SharingLoad,
    limits: SharingLimits,
    bounds: MemoryBound,
    groups: Sequence[Sequence[int]],
) -> list[SharedBoard]:
    """Return the boards of some jobs of a room, which share in these groups today."""
    names = [job for group in groups for job in group]
    number = {job: place for place, job in enumerate(names)}
    packing = _Packing(load, limits, bounds, names)
    boards = [part for group in groups for part in packing.kept([number[job] for job in group])]
    fixed = [board for board in boards if len(board) > 1]
    alone = sorted((board[0] for board in boards if len(board) == 1), key=packing.size)
    best = packing.placed(fixed, alone)
    random = np.random.default_rng(0)
    for _ in range(_ROUNDS_A_JOB * len(alone) if len(alone) > 1 else 0):
        if packing.tries > _MOST_TRIES:
            break
        tried = packing.rebuilt(best, fixed, random)
        if packing.worth(tried) <= packing.worth(best):
            best = tried
    return [packing.described(board, names) for board in best]


class _Packing:
    """The state of one search: readings without gaps, and the limits."""

    def __init__(
        self,
        load: SharingLoad,
        limits: SharingLimits,
        bounds: MemoryBound,
        names: Sequence[int],
    ) -> None:
        rows = list(names)
        self.memory = filled(load.memory_mib[rows])
        self.level = np.clip(filled(load.peak_ratio[rows]), 0.0, None)
        mean = np.where(np.isnan(load.mean_ratio[rows]), self.level, load.mean_ratio[rows])
        with np.errstate(invalid="ignore", divide="ignore"):
            self.active = np.where(self.level > 0, np.clip(mean / self.level, 0.0, 1.0), 0.0)
        self.limits = limits
        self.bounds = bounds.of_jobs(rows)
        self.readings = np.isfinite(load.peak_ratio[rows])
        self.late_of: dict[tuple[int, ...], float] = {}
        self.tries = 0

    def size(self, job: int) -> float:
        """Order jobs by what they take, the largest first."""
        memory = float(self.memory[job].max()) / self.limits.usable_mib
        return -max(memory, float(self.level[job].max()))

    def bound(self, board: list[int]) -> float:
        """Return the memory bound of the jobs of a board."""
        return self.bounds.of(board, self.memory[board].sum(axis=0))

    def late(self, board: list[int]) -> float:
        """Return the share of a board's time by which its jobs want more than the board."""
        key = tuple(sorted(board))
        if key not in self.late_of:
            members = list(key)
            joint = self.readings[members].all(axis=0)
            slots = joint if joint.sum() >= _MIN_JOINT_SLOTS else joint | True
            self.late_of[key] = _late(self.level[members][:, slots], self.active[members][:, slots])
        return self.late_of[key]

    def fits(self, board: list[int], *, stays: bool = False) -> bool:
        """Return whether the jobs of a board may share it; one job always has its board."""
        if len(board) == 1:
            return True
        self.tries += 1
        usable = self.limits.usable_mib
        together = float(self.memory[board].sum(axis=0).max())
        if len(board) > self.limits.most or together > usable:
            return False
        if self.bound(board) > usable * (STAY_RATIO if stays else 1.0):
            return False
        return self.late(board) <= MAX_LATE_SHARE * (2.0 if stays else 1.0)

    def described(self, board: list[int], names: Sequence[int]) -> SharedBoard:
        """Return a board with its figures, its jobs by the numbers `names`."""
        members, nearest = board, None
        if len(board) == 1:
            others = [job for job in range(len(self.memory)) if job != board[0]]
            nearest = min(others, key=lambda job: self._excess([board[0], job]), default=None)
            members = board if nearest is None else [board[0], nearest]
        return SharedBoard(
            jobs=tuple(sorted(names[job] for job in board)),
            bound_mib=self.bound(members),
            late_share=self.late(members),
            nearest=None if nearest is None else names[nearest],
        )

    def _excess(self, board: list[int]) -> float:
        """Return the use of the limit that binds a board most; above 1 it is exceeded."""
        return max(self.bound(board) / self.limits.usable_mib, self.late(board) / MAX_LATE_SHARE)

    def kept(self, board: list[int]) -> list[list[int]]:
        """Return a board as it is while it is feasible, else with as few jobs apart as do."""
        apart: list[list[int]] = []
        rest = list(board)
        while not self.fits(rest, stays=True):
            leaves = min(
                rest, key=lambda job: self.bound([other for other in rest if other != job])
            )
            rest.remove(leaves)
            apart.append([leaves])
        return [rest, *apart]

    def placed(self, boards: list[list[int]], jobs: Sequence[int]) -> list[list[int]]:
        """Return the boards with each job on the one that it fills most, the largest job first."""
        boards = [list(board) for board in boards]
        for job in jobs:
            fitting = [board for board in boards if self.fits([*board, job])]
            if fitting:
                min(fitting, key=lambda board: self.late([*board, job])).append(job)
            else:
                boards.append([job])
        return boards

    def rebuilt(
        self, boards: list[list[int]], fixed: list[list[int]], random: np.random.Generator
    ) -> list[list[int]]:
        """Return the boards with a few taken apart and their newcomers placed anew."""
        count = min(_RUIN, len(boards))
        few = np.array([1.0 / len(board) ** 2 for board in boards])
        loosened = set(random.choice(len(boards), count, replace=False, p=few / few.sum()).tolist())
        stays = {job for board in fixed for job in board}
        remaining, loose = [], []
        for number, board in enumerate(boards):
            keep = [job for job in board if job in stays] if number in loosened else board
            if keep:
                remaining.append(keep)
            if number in loosened:
                loose += [job for job in board if job not in stays]
        random.shuffle(loose)
        return self.placed(remaining, loose)

    def worth(self, boards: list[list[int]]) -> tuple[int, float]:
        """Order packings: fewer boards first, then less late work and less memory together."""
        shared = [board for board in boards if len(board) > 1]
        risk = sum(
            self.memory[board].sum(axis=0).max() / self.limits.usable_mib for board in shared
        )
        return len(boards), sum(self.late(board) / MAX_LATE_SHARE for board in shared) + risk


class SharingFit:
    """Jobs that may meet on any board of a node."""

    def __init__(self, load: SharingLoad, limits: SharingLimits) -> None:
        self._room = load.room
        self._packing = _Packing(load, limits, _bounds(load, limits), range(len(load.room)))

    def any_fit(self, jobs: Sequence[int], together: int) -> bool:
        """Return whether so many of the jobs may share a board, whichever of them meet.

        The groups of the largest are asked: by level, by largest reading and by activity.
        """
        names, packing = np.array(jobs), self._packing
        orders = (
            packing.bounds.level_mib,
            packing.memory.max(axis=1),
            (packing.level * packing.active).mean(axis=1),
        )
        largest = (names[np.argsort(-order[names])[:together]].tolist() for order in orders)
        return len(np.unique(self._room[names])) == 1 and all(map(packing.fits, largest))


def _late(level: Values, active: Values) -> float:
    """Return the mean over slots of what jobs want beyond a board: arrays [jobs, slots]."""
    late = np.zeros(level.shape[1])
    for states in range(1, 1 << len(level)):
        works = [bool(states >> job & 1) for job in range(len(level))]
        work = level[works].sum(axis=0)
        chance = np.where(np.array(works)[:, None], active, 1 - active).prod(axis=0)
        late += chance * np.clip(work - 1.0, 0.0, None)
    return float(late.mean())
