"""Gain of a training job on another number of boards: an earlier end, and its further cost.

With R hours left on b boards, s times the speed on b' boards, t hours without work for the change,
and H hours for which it is known what becomes of the boards:

    changed    G = min(R / s, H)
    earlier    G · (s − 1) − t
    boards     b' · (G + t) − b · G · s

After H the rest is done as before. Ends, speeds and t are independent; the ranges are their q10 and
q90 together, central figures the means.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from data.base.units import SECONDS_PER_HOUR
from data.records.recommendations import Range
from planner.jobs.job_end import MIN_RUNS

Values = npt.NDArray[np.float64]
RunsBySize = Mapping[int, Sequence[float]]
"""Lengths in s of ended runs of the same job by the GPUs that they held."""
ASSUMED = "assumed"
"""The mode in which published speeds count where none were measured."""

DOUBLING = (1.33, 1.54, 1.68, 1.76, 1.81, 1.86, 1.89, 1.92, 1.94, 2.05)
"""Equally likely speed-ups of twice the boards where each keeps its batch: of five programs on six
kinds of nodes from 1 to 8 GPUs, 210 medians of Sia's profiles (SOSP 2023). With the batch of all
boards kept q10, median and q90 are 0.84, 1.05 and 1.37: such a job has next to nothing of more
boards (`benchmarks/elastic_scaling.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Hours by which it ends earlier (below 0: later), board-hours that it takes more, 80 %."""

    earlier: Range
    board_hours: Range


def is_measured(now: int, then: int, runs: RunsBySize) -> bool:
    """Return whether enough runs ended on both numbers of boards."""
    return min(len(runs.get(now, ())), len(runs.get(then, ()))) >= MIN_RUNS


def larger_sizes(now: int, runs: RunsBySize, mode: str) -> tuple[int, ...]:
    """Return the sizes above `now` whose speed is known, the largest first.

    Measured sizes where there are any; else, in the mode `assumed`, up to twice the boards.
    """
    measured = [size for size in runs if size > now and is_measured(now, size, runs)]
    if measured or mode != ASSUMED:
        return tuple(sorted(measured, reverse=True))
    return tuple(range(2 * now, now, -1))


def speed_ups(now: int, then: int, runs: RunsBySize, mode: str) -> Values:
    """Return equally likely speeds on `then` boards over that on `now`, empty where not known.

    Measured speeds are ratios of any two runs: as far apart as runs themselves.
    """
    if is_measured(now, then, runs):
        return np.asarray(np.divide.outer(np.array(runs[now]), np.array(runs[then])).ravel())
    if mode != ASSUMED:
        return np.empty(0)
    return np.asarray(np.array(DOUBLING) ** np.log2(then / now), dtype=np.float64)


def gain_of(
    sizes: tuple[int, int],
    ends: Sequence[datetime],
    speeds: Values,
    change_seconds: tuple[float, float, float],
    *,
    as_of: datetime,
    known_hours: float,
) -> Gain:
    """Return the gain of a change from the first to the second of `sizes`, in boards.

    `ends` are equally likely ends without it, `change_seconds` its low, central and high, which
    count by Swanson's weights; `known_hours` is H.
    """
    now, then = sizes
    hours = np.array([(end - as_of).total_seconds() / SECONDS_PER_HOUR for end in ends])
    pause = np.repeat(np.array(change_seconds) / SECONDS_PER_HOUR, (3, 4, 3))
    rest, speed, stop = hours[:, None, None], speeds[None, :, None], pause[None, None, :]
    changed = np.minimum(rest / speed, known_hours)
    earlier = changed * (speed - 1) - stop
    board_hours = then * (changed + stop) - now * changed * speed
    return Gain(earlier=_range(earlier, "h"), board_hours=_range(board_hours, "GPU-h"))


def _range(values: Values, unit: str) -> Range:
    low, high = (float(value) for value in np.quantile(values, (0.1, 0.9)))
    mean = float(values.mean())
    return Range(low=min(low, mean), central=mean, high=max(high, mean), unit=unit)
