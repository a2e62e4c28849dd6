"""The largest slot of the next window, with a stated chance: split-conformal over a cohort.

A job's own past says too little of its next peak: on real pods own quantiles were exceeded far more
often than they claimed. So the cohort is asked how far the largest slot of a window went beyond the
largest of the day before it, at past windows at the same hour; a job's limit is its own last day's
largest plus that quantile (Vovk et al. 2005; Lei et al. 2018, split-conformal inference).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.base.units import SECONDS_PER_HOUR
from data.records.forecasts import Quantity, WindowPeak
from forecasting.series.demand_series import DemandSeries, Values

_MIN_SCORES = 30
_MAX_DAYS = 7
_ORIGIN_HOURS = 3
LEVELS = (0.90, 0.95)
FLEET = "all jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakSubject:
    """One job's series; `scale` makes jobs comparable: its GPUs, or MiB per GPU."""

    job_id: str
    cohort: str
    series: DemandSeries
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scores:
    """Rises of windows' peaks over the day before, as shares of the jobs' scales.

    `clock` is the origin's hour of the day, `newest` whether its window ended in the last day.
    """

    cohort: npt.NDArray[np.str_]
    clock: npt.NDArray[np.int64]
    newest: npt.NDArray[np.bool_]
    score: Values


def window_peaks(
    subjects: Sequence[PeakSubject], *, quantity: Quantity, window_slots: int
) -> Mapping[str, WindowPeak]:
    """Return per job what its largest slot of the next `window_slots` stays under (q90, q95).

    A job whose cohort has fewer than 30 past windows is measured by all jobs'; when they have fewer
    too, or the job has no known slot in its last day, it has no entry.
    """
    if not subjects:
        return {}
    scores = _gather(subjects, window_slots)
    peaks = {}
    limits: dict[tuple[str, int], tuple[Values, str, int, float | None] | None] = {}
    for subject in subjects:
        series = subject.series
        day = series.values[-series.slots_per_day :]
        if not np.isfinite(day).any():
            continue
        end = series.first_slot + len(series.values) * series.slot_seconds
        key = (subject.cohort, _clock(end))
        if key not in limits:
            limits[key] = _beyond(scores, *key)
        limit = limits[key]
        if limit is None:
            continue
        beyond, cohort, count, coverage = limit
        highest = np.clip(
            np.nanmax(day) + beyond * subject.scale, series.lower, series.upper
        ).tolist()
        peaks[subject.job_id] = WindowPeak(
            quantity=quantity,
            window_hours=window_slots * series.slot_seconds / SECONDS_PER_HOUR,
            q90=highest[0],
            q95=highest[1],
            cohort=cohort,
            scores=count,
            coverage_q90_ratio=coverage,
        )
    return peaks


def _clock(seconds: int) -> int:
    return seconds // (_ORIGIN_HOURS * SECONDS_PER_HOUR) % (24 // _ORIGIN_HOURS)


def _gather(subjects: Sequence[PeakSubject], window: int) -> _Scores:
    cohorts, clocks, newest, values = [], [], [], []
    last_end = max(
        peak_subject.series.first_slot
        + len(peak_subject.series.values) * peak_subject.series.slot_seconds
        for peak_subject in subjects
    )
    for subject in subjects:
        origins, score = _scores_of(subject, window)
        series = subject.series
        starts = series.first_slot + origins * series.slot_seconds
        ends = starts + window * series.slot_seconds
        cohorts.append(np.full(len(score), subject.cohort))
        clocks.append(np.array([_clock(int(start)) for start in starts], dtype=np.int64))
        newest.append(ends > last_end - 24 * SECONDS_PER_HOUR)
        values.append(score)
    return _Scores(
        cohort=np.concatenate(cohorts),
        clock=np.concatenate(clocks),
        newest=np.concatenate(newest),
        score=np.concatenate(values),
    )


def _scores_of(subject: PeakSubject, window: int) -> tuple[npt.NDArray[np.int64], Values]:
    """Return the origins (slots known then) of past windows and each window's score."""
    series = subject.series
    day, length = series.slots_per_day, len(series.values)
    step = max(1, _ORIGIN_HOURS * SECONDS_PER_HOUR // series.slot_seconds)
    oldest = max(day // 4, length - window - _MAX_DAYS * day)
    origins = np.arange(length - window, oldest - 1, -step)
    levels = np.where(np.isfinite(series.values), series.values, -np.inf)
    before = np.array([levels[max(0, origin - day) : origin].max() for origin in origins])
    after = np.array([levels[origin : origin + window].max() for origin in origins])
    usable = np.isfinite(before) & np.isfinite(after) if len(origins) else np.zeros(0, bool)
    score = (after[usable] - before[usable]) / max(subject.scale, 1e-12)
    return np.asarray(origins[usable], dtype=np.int64), np.asarray(score, dtype=np.float64)


def _beyond(
    scores: _Scores, cohort: str, clock: int
) -> tuple[Values, str, int, float | None] | None:
    """Return the scores' conformal quantiles at LEVELS, of whom, how many, and the tested share."""
    for members, name in ((scores.cohort == cohort, cohort), (scores.cohort != "", FLEET)):
        for hours in (scores.clock == clock, scores.clock >= 0):
            mask = members & hours
            count = int(mask.sum())
            if count >= _MIN_SCORES:
                limits = np.array([_conformal(scores.score[mask], level) for level in LEVELS])
                return limits, name, count, _tested(scores, members)
    return None


def _conformal(score: Values, level: float) -> float:
    """Return the ceil(level (n + 1))-th smallest score, the largest when there are too few."""
    rank = min(len(score), int(np.ceil(level * (len(score) + 1))))
    return float(np.partition(score, rank - 1)[rank - 1])


def _tested(scores: _Scores, members: npt.NDArray[np.bool_]) -> float | None:
    """Return the share of the last day's windows under the q90 of the earlier ones."""
    earlier = scores.score[members & ~scores.newest]
    latest = scores.score[members & scores.newest]
    if len(earlier) < _MIN_SCORES or not len(latest):
        return None
    return float((latest <= _conformal(earlier, LEVELS[0])).mean())
