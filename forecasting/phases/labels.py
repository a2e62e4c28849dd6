"""Labels of the runs of a series: from states around a plateau to kinds of phases.

Everything here counts known samples only; gaps are put back by `forecasting.phases.detect`.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from forecasting.phases.levels import Levels, levels_of
from forecasting.phases.records import PhaseKind

Values = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

MIN_SAMPLES = 8
"""Below this many known samples noise cannot be told from levels: all is one stretch."""
_DEEPEST = 3
"""Plateaus below plateaus that are looked for: early, middle and late training, say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRules:
    """The rules of labels beside the values.

    A low stretch of at most `longest_dip` samples between `changes` is a dip. Levels at or below
    `idle_below` are idle, before a rise only when they last `shortest_idle` samples. `from_start`:
    the first sample is the job's first.
    """

    changes: Positions
    noise: float
    longest_dip: int
    shortest_idle: int
    idle_below: float
    from_start: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Known samples [start, end) below (-1), on (0) or above (1) their plateau."""

    start: int
    end: int
    state: int
    level: float


Label = tuple[int, int, PhaseKind]


def labels_of(values: Values, rules: LabelRules) -> list[Label]:
    """Return (start, end, kind) of every stretch of the known values, in order, without gaps."""
    if not len(values):
        return []
    if len(values) < MIN_SAMPLES:
        idle = _is_idle(float(np.median(values)), rules)
        return [(0, len(values), PhaseKind.IDLE if idle else PhaseKind.STEADY)]
    return _labels(values, 0, rules, _DEEPEST)


def group_medians(values: Values, edges: Positions) -> Values:
    """Return the median of values[edges[i]:edges[i + 1]] for every i; no group may be empty."""
    sizes = np.diff(edges)
    group = np.repeat(np.arange(len(sizes)), sizes)
    ordered = values[np.lexsort((values, group))]
    return np.asarray(
        (ordered[edges[:-1] + (sizes - 1) // 2] + ordered[edges[:-1] + sizes // 2]) / 2
    )


def _labels(values: Values, offset: int, rules: LabelRules, depth: int) -> list[Label]:
    """Return the labels of a part of the values that begins at `offset`."""
    levels = levels_of(values, noise=rules.noise)
    runs = _runs(values, offset, levels, rules)
    if len(runs) == 1:
        kind = PhaseKind.IDLE if _is_idle(runs[0].level, rules) else PhaseKind.STEADY
        return [(offset, offset + len(values), kind)]
    labels: list[Label] = []
    for number, run in enumerate(runs):
        part = values[run.start - offset : run.end - offset]
        labels += _labels_of_run(part, run, rules, depth, first=number == 0)
    return labels


def _labels_of_run(
    part: Values, run: _Run, rules: LabelRules, depth: int, *, first: bool
) -> list[Label]:
    """Return the labels of one run of equal state."""
    short = run.end - run.start <= rules.longest_dip
    idle = _is_idle(run.level, rules)
    if run.state >= 0:
        kind = PhaseKind.SPIKE if run.state and short else PhaseKind.STEADY
        return [(run.start, run.end, PhaseKind.IDLE if idle else kind)]
    if first and rules.from_start:
        return _with_idle_before(part, run, rules, depth)
    if short:
        return [(run.start, run.end, PhaseKind.DIP)]
    if idle:
        # Idle between work: what rises at its end is a warm-up again.
        quiet = np.flatnonzero(part <= rules.idle_below)
        rise = run.start + int(quiet[-1]) + 1
        groups = [(run.start, rise, PhaseKind.IDLE), (rise, run.end, PhaseKind.WARM_UP)]
        return [group for group in groups if group[0] < group[1]]
    if depth:
        return _labels(part, run.start, replace(rules, from_start=False), depth - 1)
    return [(run.start, run.end, PhaseKind.STEADY)]


def _with_idle_before(part: Values, run: _Run, rules: LabelRules, depth: int) -> list[Label]:
    """Label the low stretch at a job's start: idle until it rises, then warm-up.

    Longer than the longest dip after the rise it is work at a lower level, no warm-up.
    """
    busy = np.flatnonzero(part > rules.idle_below)
    rise = int(busy[0]) if len(busy) else len(part)
    if rise < min(rules.shortest_idle, len(part)):
        rise = 0
    before = [(run.start, run.start + rise, PhaseKind.IDLE)] if rise else []
    if rise == len(part):
        return before
    if len(part) - rise <= rules.longest_dip or not depth:
        return [*before, (run.start + rise, run.end, PhaseKind.WARM_UP)]
    inner = replace(rules, from_start=not rise)
    return before + _labels(part[rise:], run.start + rise, inner, depth - 1)


def _is_idle(level: float, rules: LabelRules) -> bool:
    return level <= rules.idle_below


def _runs(values: Values, offset: int, levels: Levels, rules: LabelRules) -> list[_Run]:
    """Return the runs of equal state of a part of the values."""
    first, last = np.searchsorted(rules.changes, [offset + 1, offset + len(values)])
    edges = np.concatenate([[0], rules.changes[first:last] - offset, [len(values)]])
    away = group_medians(values, edges) - levels.plateau
    leave = np.array([levels.leave_of(int(size)) for size in np.diff(edges)])
    states = np.where(away < -leave, -1, np.where(away > leave, 1, 0))
    turns = np.flatnonzero(np.diff(states)) + 1
    state_of = states[np.concatenate([[0], turns])]
    edges = np.concatenate([[0], edges[turns], [len(values)]])
    medians = group_medians(values, edges)
    return [
        _Run(start=offset + int(start), end=offset + int(end), state=int(state), level=float(level))
        for start, end, state, level in zip(edges[:-1], edges[1:], state_of, medians, strict=True)
    ]
