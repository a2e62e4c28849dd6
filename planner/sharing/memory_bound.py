"""Bound of the memory that jobs take together on one board, calibrated on their own past.

The peaks of several jobs seldom fall together, so the sum of their largest readings is far above
what they take at any time; and a job's past says little of its next peak. So a job counts with its
level, and groups of jobs with how far such groups went beyond the sum of their levels in past
windows: the split-conformal quantile over groups drawn from all of them (Vovk et al. 2005).
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from planner.memory.watch.growth import steady_slope

Values = npt.NDArray[np.float64]

CHANCE = 0.02
"""Stated chance that a board's jobs go beyond the bound within the window."""
MIN_JOBS = 30
"""Fewer jobs say too little of how peaks fall together: their largest readings are summed."""
_DRAWS, _MAX_WINDOWS = 2000, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBound:
    """Levels [jobs] and largest readings [jobs] in MiB, and the excess by size of a group.

    `excess_mib[k]` bounds what k jobs take beyond the sum of their levels with 1 - CHANCE; empty
    where there are too few jobs to tell.
    """

    level_mib: Values
    largest_mib: Values
    excess_mib: Values
    headroom_ratio: float

    def of_jobs(self, jobs: list[int]) -> "MemoryBound":
        """Return the bound for some of the jobs, numbered as they stand there."""
        return replace(self, level_mib=self.level_mib[jobs], largest_mib=self.largest_mib[jobs])

    def of(self, members: list[int], together_mib: Values) -> float:
        """Return the bound of the jobs `members`, whose readings sum to `together_mib` [slots]."""
        if len(self.excess_mib) <= len(members):
            most = np.maximum(self.largest_mib, self.level_mib)[members]
            return float(most.sum()) * (1 + self.headroom_ratio)
        bound = float(self.level_mib[members].sum()) + float(self.excess_mib[len(members)])
        return max(bound, float(together_mib.max()))


def memory_bound(
    memory_mib: Values, *, most: int, window_slots: int, headroom_ratio: float, seed: int = 0
) -> MemoryBound:
    """Return the bound for groups of up to `most` jobs over the next `window_slots`.

    `memory_mib` [jobs, slots] is the largest reading of every slot, NaN where unknown; every job
    has one.
    """
    windows = _past_windows(memory_mib, window_slots)
    slope = _slope(windows)
    excess: list[float] = [0.0, 0.0] if windows else []
    random = np.random.default_rng(seed)
    for size in range(2, most + 1) if windows else ():
        scores = np.concatenate([_excesses(window, size, slope, random) for window in windows])
        rank = min(len(scores), int(np.ceil((1 - CHANCE) * (len(scores) + 1))))
        excess.append(float(np.partition(scores, rank - 1)[rank - 1]))
    return MemoryBound(
        level_mib=slope * _levels(memory_mib, window_slots),
        largest_mib=np.nanmax(memory_mib, axis=1, initial=0.0),
        excess_mib=np.array(excess),
        headroom_ratio=headroom_ratio,
    )


def filled(values: Values) -> Values:
    """Return it with a job's largest value in slots that nobody read."""
    largest = np.nanmax(values, axis=1, initial=0.0)
    return np.where(np.isnan(values), largest[:, None], values)


def _levels(memory_mib: Values, window: int) -> Values:
    """Return the median of every job, and what steady growth adds until the window's end."""
    levels = np.zeros(len(memory_mib))
    for job, row in enumerate(memory_mib):
        valid = np.flatnonzero(np.isfinite(row))
        growth = max(0.0, steady_slope(valid.astype(np.float64), row[valid]))
        until = len(row) + window - float(np.median(valid))
        levels[job] = float(np.median(row[valid])) + growth * until
    return levels


@dataclass(frozen=True, slots=True, kw_only=True)
class _PastWindow:
    """A past window: the jobs' levels before it [jobs], and what they took in it [jobs, slots]."""

    level_mib: Values
    coming_mib: Values


def _past_windows(memory_mib: Values, window: int) -> list[_PastWindow]:
    """Return past windows with enough jobs, the newest first."""
    slots = memory_mib.shape[1]
    window = min(window, slots // 2)
    windows = []
    for origin in range(slots - window, window - 1, -window)[:_MAX_WINDOWS] if window else ():
        before, after = memory_mib[:, :origin], memory_mib[:, origin : origin + window]
        there = np.isfinite(before).any(axis=1) & np.isfinite(after).any(axis=1)
        if there.sum() >= MIN_JOBS:
            level, coming = _levels(before[there], window), np.nan_to_num(after[there])
            windows.append(_PastWindow(level_mib=level, coming_mib=coming))
    return windows


def _slope(windows: list[_PastWindow]) -> float:
    """Return how much of a level above the others' comes back in the next peak, 0..1.

    By least squares; the rest is chance, and regresses to the mean.
    """
    if not windows:
        return 1.0
    level = np.concatenate([window.level_mib for window in windows])
    peak = np.concatenate([window.coming_mib.max(axis=1) for window in windows])
    centred = level - level.mean()
    spread = float(centred @ centred)
    return float(np.clip(centred @ peak / spread, 0.0, 1.0)) if spread > 0 else 1.0


def _excesses(window: _PastWindow, size: int, slope: float, random: np.random.Generator) -> Values:
    """Return by how much drawn groups exceeded their levels in a window, MiB [groups]."""
    jobs = len(window.level_mib)
    groups = np.argsort(random.random((_DRAWS, jobs)), axis=1)[:, :size]
    together = sum(window.coming_mib[groups[:, place]] for place in range(size))
    levels = slope * window.level_mib[groups].sum(axis=1)
    return np.asarray(np.max(together, axis=1) - levels, dtype=np.float64)
