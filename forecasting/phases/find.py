"""The phases of a training job, read from one series of its telemetry.

Offline (`find_phases`) the segments come from change points; online (`current_phases`) from
hysteresis around the plateau seen so far, which labels every sample at once. Both never raise on
a broken series: what cannot be said is unknown, with the reason.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from forecasting.phases.change_points import SHORTEST, change_points, noise_scale
from forecasting.phases.epoch_period import recurrence
from forecasting.phases.hints import Hints, told_apart
from forecasting.phases.labels import MIN_SAMPLES, Label, LabelRules, group_medians, labels_of
from forecasting.phases.levels import Flags, Values, known_of, levels_of
from forecasting.phases.records import (
    DIPS,
    UNIT_OF_SIGNAL,
    PhaseKind,
    Phases,
    PhaseSegment,
    Recurrence,
    Signal,
)

__all__ = [
    "DIPS",
    "UNIT_OF_SIGNAL",
    "Hints",
    "PhaseKind",
    "PhaseRules",
    "PhaseSegment",
    "Phases",
    "Recurrence",
    "Signal",
    "current_phases",
    "find_phases",
]

_IDLE_SHARE = {Signal.POWER: 0.35, Signal.ACTIVITY: 0.05, Signal.MEMORY: 0.05}
"""Share of the plateau that counts as idle when no idle level is given. Loaded and idle nodes of
eight H100 draw 7.2 and 2.1-2.7 kW."""
_WORK = frozenset({PhaseKind.STEADY, PhaseKind.SPIKE, *DIPS})
_COARSE_SECONDS = 60.0
_MIN_IDLE_SECONDS = 60.0
_MAX_UNSEEN_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRules:
    """What is known about a job beside the series, and how long its dips may be.

    `idle_below`: levels at or below are idle, in the signal's unit; None takes a share of the
    plateau. `from_start`: the series begins with the job; `ended`: it ends with it. Low stretches
    longer than `longest_dip_seconds` (at least two steps) are work at another level, or idle.
    """

    idle_below: float | None = None
    from_start: bool = True
    ended: bool = False
    longest_dip_seconds: float = 900.0


def find_phases(
    values: npt.ArrayLike,
    step_seconds: float,
    *,
    signal: Signal = Signal.POWER,
    rules: PhaseRules | None = None,
    hints: Hints | None = None,
) -> Phases:
    """Return the phases of a whole series from its change points.

    `values` are readings every `step_seconds`, shape (n,), in the signal's unit; NaN, infinite and
    impossible ones are unknown.
    """
    return _phases(values, step_seconds, signal, rules or PhaseRules(), hints, online=False)


def current_phases(
    values: npt.ArrayLike,
    step_seconds: float,
    *,
    signal: Signal = Signal.POWER,
    rules: PhaseRules | None = None,
) -> Phases:
    """Return the phases of a job that still runs, from hysteresis: the last segment is now.

    Cheaper than `find_phases` and without a delay of its own; dips shallower than three times the
    noise or 4 % of the plateau are not seen. `values` as in `find_phases`.
    """
    return _phases(values, step_seconds, signal, rules or PhaseRules(), None, online=True)


def _phases(
    values: npt.ArrayLike,
    step_seconds: float,
    signal: Signal,
    rules: PhaseRules,
    hints: Hints | None,
    *,
    online: bool,
) -> Phases:
    flat, known = known_of(values)
    step = step_seconds if np.isfinite(step_seconds) and step_seconds > 0 else 1.0
    notes = [] if step == step_seconds else [f"a step of {step_seconds} s is none: 1 s is assumed"]
    readings = flat[known]
    if not len(readings):
        return _nothing_known(len(flat), step, signal, notes)
    noise = noise_scale(readings)
    plateau = levels_of(readings, noise=noise).plateau
    label_rules = LabelRules(
        changes=None if online else change_points(readings, noise=noise, shortest=_shortest(step)),
        noise=noise,
        longest_dip=max(2, int(rules.longest_dip_seconds / step)),
        shortest_idle=math.ceil(_MIN_IDLE_SECONDS / step),
        idle_below=_idle_below(rules, plateau, signal),
        from_start=rules.from_start,
        ended=rules.ended,
    )
    labels = labels_of(readings, label_rules)
    if hints is not None:
        labels = told_apart(labels, np.flatnonzero(known), hints)
    segments = _segments(labels, readings, known, step)
    return Phases(
        segments=segments,
        samples=len(flat),
        step_seconds=step,
        signal=signal,
        noise=noise,
        plateau=plateau,
        epoch=_epoch(segments, np.where(known, flat, np.nan), step),
        notes=(*notes, *_notes(segments, len(readings), rules, step, signal, hints)),
    )


def _epoch(segments: tuple[PhaseSegment, ...], values: Values, step: float) -> Recurrence:
    """Return the recurrence of dips within the work, without what comes before and after it.

    A tail counts as a dip, for a job mostly ends with an evaluation or a checkpoint.
    """
    work = [segment for segment in segments if segment.kind in _WORK]
    if not work:
        return Recurrence(seconds=None, phase_seconds=None, reason="no work was seen")
    begin = work[0].start
    dips = [
        segment.start - begin for segment in segments if segment.kind in {*DIPS, PhaseKind.TAIL}
    ]
    found = recurrence(values[begin : work[-1].end], dips, step_seconds=step)
    if found.seconds is None or found.phase_seconds is None:
        return found
    return replace(found, phase_seconds=(found.phase_seconds + begin * step) % found.seconds)


def _shortest(step: float) -> int:
    """Return the samples of the shortest level: one where a single sample may hold a whole dip."""
    return 1 if step > _COARSE_SECONDS / 2 else SHORTEST


def _idle_below(rules: PhaseRules, plateau: float, signal: Signal) -> float:
    return _IDLE_SHARE[signal] * plateau if rules.idle_below is None else rules.idle_below


def _nothing_known(samples: int, step: float, signal: Signal, notes: list[str]) -> Phases:
    """Return the phases of a series without a single reading."""
    reason = "no sample is known"
    whole = (
        [PhaseSegment(start=0, end=samples, kind=PhaseKind.UNKNOWN, level=None)] if samples else []
    )
    return Phases(
        segments=tuple(whole),
        samples=samples,
        step_seconds=step,
        signal=signal,
        noise=None,
        plateau=None,
        epoch=Recurrence(seconds=None, phase_seconds=None, reason=reason),
        notes=(*notes, reason),
    )


def _segments(
    labels: list[Label], readings: Values, known: Flags, step: float
) -> tuple[PhaseSegment, ...]:
    """Put the labels of the known samples back among the gaps.

    A gap of at most a minute belongs to what was before it; a longer one is unknown.
    """
    sizes = [end - start for start, end, _ in labels]
    numbers = np.full(len(known), -1)
    numbers[known] = np.repeat(np.arange(len(labels)), sizes)
    positions = np.flatnonzero(known)
    before = np.maximum.accumulate(np.where(known, np.arange(len(known)), -1))
    holder = np.where(before < 0, positions[0], before)
    unseen = np.diff(np.concatenate([[-1], positions, [len(known)]])) - 1
    gap_of = np.repeat(unseen, unseen)
    short = np.zeros(len(known), dtype=bool)
    short[~known] = gap_of * step <= _MAX_UNSEEN_SECONDS
    numbers[short] = numbers[holder[short]]
    edges = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1, [len(known)]])
    counted = np.concatenate([[0], np.cumsum(known)])[edges]
    seen = np.diff(counted) > 0
    levels = np.full(len(edges) - 1, np.nan)
    levels[seen] = group_medians(readings, np.unique(counted))
    return tuple(
        PhaseSegment(
            start=int(start),
            end=int(end),
            kind=labels[number][2] if number >= 0 else PhaseKind.UNKNOWN,
            level=float(level) if number >= 0 else None,
        )
        for start, end, number, level in zip(
            edges[:-1], edges[1:], numbers[edges[:-1]], levels, strict=True
        )
    )


def _notes(
    segments: tuple[PhaseSegment, ...],
    samples: int,
    rules: PhaseRules,
    step: float,
    signal: Signal,
    hints: Hints | None,
) -> tuple[str, ...]:
    """Say what was assumed and what cannot be seen."""
    dips = [segment for segment in segments if segment.kind in DIPS]
    kinds = {segment.kind for segment in segments}
    low = sum(dip.end - dip.start for dip in dips)
    steady = sum(
        segment.end - segment.start for segment in segments if segment.kind is PhaseKind.STEADY
    )
    last = next(
        (segment for segment in reversed(segments) if segment.kind is not PhaseKind.UNKNOWN), None
    )
    said = (
        (samples < MIN_SAMPLES, f"{samples} known samples: too few to tell levels from noise"),
        (step > _COARSE_SECONDS, f"dips shorter than about {2 * step:g} s are averaged away"),
        (PhaseKind.DIP in kinds and hints is None,
         "evaluation and checkpoint look alike without hints of memory and writes"),
        (low > steady, "low more than half of the time: the dips may be the normal state"),
        (not rules.ended and last in dips, "the last dip may be the job's end"),
        (rules.idle_below is None and PhaseKind.IDLE in kinds,
         f"idle is {_IDLE_SHARE[signal]:.0%} of the plateau: no idle level was given"),
    )  # fmt: skip
    return tuple(text for holds, text in said if holds)
