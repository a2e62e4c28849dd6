"""The phases of a training job, read from one series of its telemetry.

A broken series raises nothing: what cannot be said is unknown, with the reason.
"""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from forecasting.phases.change_points import SHORTEST, change_points, noise_scale
from forecasting.phases.epoch_period import recurrence
from forecasting.phases.labels import MIN_SAMPLES, Label, LabelRules, group_medians, labels_of
from forecasting.phases.levels import Flags, Values, known_of, levels_of
from forecasting.phases.records import PhaseKind, Phases, PhaseSegment, Recurrence, Signal

_IDLE_SHARE = {Signal.POWER: 0.35, Signal.ACTIVITY: 0.05, Signal.MEMORY: 0.05}
"""Share of the plateau that counts as idle. Loaded and idle nodes of eight H100 draw 7.2 and
2.1-2.7 kW."""
_MAX_DIP_SECONDS = 900.0
"""Longer low stretches (of at least two steps) are work at another level, or idle."""
_WORK = frozenset({PhaseKind.STEADY, PhaseKind.SPIKE, PhaseKind.DIP})
_COARSE_SECONDS = 60.0
_MIN_IDLE_SECONDS = 60.0
_MAX_UNSEEN_SECONDS = 60.0


def find_phases(
    values: npt.ArrayLike, step_seconds: float, *, signal: Signal = Signal.POWER
) -> Phases:
    """Return the phases of a whole series from its change points.

    `values` are readings every `step_seconds`, shape (n,), in the signal's unit; NaN, infinite and
    impossible ones are unknown.
    """
    flat, finite = known_of(values)
    step = step_seconds if np.isfinite(step_seconds) and step_seconds > 0 else 1.0
    notes = [] if step == step_seconds else [f"a step of {step_seconds} s is none: 1 s is assumed"]
    readings = flat[finite]
    if not len(readings):
        return _nothing_known(len(flat), step, signal, notes)
    noise = noise_scale(readings)
    plateau = levels_of(readings, noise=noise).plateau
    label_rules = LabelRules(
        changes=change_points(readings, noise=noise, shortest=_shortest(step)),
        noise=noise,
        longest_dip=max(2, int(_MAX_DIP_SECONDS / step)),
        shortest_idle=math.ceil(_MIN_IDLE_SECONDS / step),
        idle_below=_IDLE_SHARE[signal] * plateau,
    )
    segments = _segments(labels_of(readings, label_rules), readings, finite, step)
    return Phases(
        segments=segments,
        samples=len(flat),
        step_seconds=step,
        signal=signal,
        plateau=plateau,
        epoch=_epoch(segments, np.where(finite, flat, np.nan), step),
        notes=(*notes, *_notes(segments, len(readings), step, signal)),
    )


def _epoch(segments: tuple[PhaseSegment, ...], values: Values, step: float) -> Recurrence:
    """Return the recurrence of dips within the work, without what comes before and after it."""
    work = [segment for segment in segments if segment.kind in _WORK]
    if not work:
        return Recurrence(seconds=None, phase_seconds=None, reason="no work was seen")
    begin = work[0].start
    dips = [segment.start - begin for segment in segments if segment.kind is PhaseKind.DIP]
    epoch = recurrence(values[begin : work[-1].end], dips, step_seconds=step)
    if epoch.seconds is None or epoch.phase_seconds is None:
        return epoch
    return replace(epoch, phase_seconds=(epoch.phase_seconds + begin * step) % epoch.seconds)


def _shortest(step: float) -> int:
    """Return the samples of the shortest level: one where a single sample may hold a whole dip."""
    return 1 if step > _COARSE_SECONDS / 2 else SHORTEST


def _nothing_known(samples: int, step: float, signal: Signal, notes: list[str]) -> Phases:
    """Return the phases of a series without a single reading."""
    reason = "no sample is known"
    segments = (
        [PhaseSegment(start=0, end=samples, kind=PhaseKind.UNKNOWN, level=None)] if samples else []
    )
    return Phases(
        segments=tuple(segments),
        samples=samples,
        step_seconds=step,
        signal=signal,
        plateau=None,
        epoch=Recurrence(seconds=None, phase_seconds=None, reason=reason),
        notes=(*notes, reason),
    )


def _segments(
    labels: list[Label], readings: Values, finite: Flags, step: float
) -> tuple[PhaseSegment, ...]:
    """Put the labels of the known samples back among the gaps.

    A gap of at most a minute belongs to what was before it; a longer one is unknown.
    """
    sizes = [end - start for start, end, _ in labels]
    numbers = np.full(len(finite), -1)
    numbers[finite] = np.repeat(np.arange(len(labels)), sizes)
    positions = np.flatnonzero(finite)
    before = np.maximum.accumulate(np.where(finite, np.arange(len(finite)), -1))
    holder = np.where(before < 0, positions[0], before)
    unseen = np.diff(np.concatenate([[-1], positions, [len(finite)]])) - 1
    gap_of = np.repeat(unseen, unseen)
    short = np.zeros(len(finite), dtype=bool)
    short[~finite] = gap_of * step <= _MAX_UNSEEN_SECONDS
    numbers[short] = numbers[holder[short]]
    edges = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1, [len(finite)]])
    counted = np.concatenate([[0], np.cumsum(finite)])[edges]
    nonempty = np.diff(counted) > 0
    levels = np.full(len(edges) - 1, np.nan)
    levels[nonempty] = group_medians(readings, np.unique(counted))
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
    segments: tuple[PhaseSegment, ...], samples: int, step: float, signal: Signal
) -> tuple[str, ...]:
    """Return notes on assumptions and on what the series cannot show."""
    dips = [segment for segment in segments if segment.kind is PhaseKind.DIP]
    kinds = {segment.kind for segment in segments}
    low = sum(dip.end - dip.start for dip in dips)
    steady = sum(
        segment.end - segment.start for segment in segments if segment.kind is PhaseKind.STEADY
    )
    last = next(
        (segment for segment in reversed(segments) if segment.kind is not PhaseKind.UNKNOWN), None
    )
    texts = (
        (samples < MIN_SAMPLES, f"{samples} known samples: too few to tell levels from noise"),
        (step > _COARSE_SECONDS, f"dips shorter than about {2 * step:g} s are averaged away"),
        (PhaseKind.DIP in kinds, "evaluation and checkpoint look alike"),
        (low > steady, "low more than half of the time: the dips may be the normal state"),
        (last in dips, "the last dip may be the job's end"),
        (PhaseKind.IDLE in kinds, f"idle is up to {_IDLE_SHARE[signal]:.0%} of the plateau"),
    )
    return tuple(text for holds, text in texts if holds)
