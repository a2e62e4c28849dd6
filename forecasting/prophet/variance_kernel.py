"""The compiled search of the noise variance s around the active set.

    f = n/2 ln s + RSS / (2 s) + 2 s + |z|^2 / 2 + |d|_1 / tau

For the terms at hand s is best at the root of 4 s^2 + n s - RSS; terms and s are taken in turn.
The least RSS grows with s and the root grows with RSS, so this is monotone: from above it ends at
the largest stationary s, from below at the smallest. Where both agree there is no other.
"""

from typing import NamedTuple

import numpy as np

from data.base.compiled import copy_into, inner
from forecasting.prophet.kernel import (
    Gram,
    Row,
    RowWorkspace,
    clear,
    eliminate,
    place_smooth,
    settle,
    steepest,
)

MIN_RSS = 1e-12
MIN_VARIANCE = 1e-14
"""Of y / y_scale. Below, the model passes through every point and f has no minimum."""

_ROUNDS = 500
"""5 to 7 are usual, more where two stationary variances nearly meet."""
_SETTLED = 1e-9
_MET = 3e-5
"""Relative distance below which stationary variances are one: f differs by n / 2 of its square."""


class Solution(NamedTuple):
    """One row's optimum: s, f, the largest violation of the optimality conditions.

    `lone` is 1 where both starts met: no other stationary point exists; -1 where not searched.
    """

    variance: float
    objective: float
    residual: float
    lone: int


@inner
def variance_of(rss: float, points: int) -> float:
    """Return the noise variance that maximises the posterior at this sum of squares."""
    rss = max(rss, MIN_RSS)
    # The positive root of 4 s^2 + n s - RSS, in the form that does not cancel.
    root = 2.0 * rss / (points + np.sqrt(points * points + 16.0 * rss))
    return float(max(root, MIN_VARIANCE))


@inner
def _penalty_of(gram: Gram, row: Row, workspace: RowWorkspace) -> float:
    """Return the negative log prior of the terms."""
    total = 0.0
    for q in range(len(workspace.z)):
        value = workspace.z[q] + row.origin[q]
        total += 0.5 * value * value
    for j in range(len(workspace.d)):
        total += abs(workspace.d[j]) / gram.tau
    return total


@inner
def _iterate(
    gram: Gram, row: Row, workspace: RowWorkspace, variance: float, enough: float
) -> float:
    """Iterate the noise variance until it settles or reaches `enough`; return it."""
    for _ in range(_ROUNDS):
        eliminate(gram, row, workspace, variance)
        settle(gram, workspace, variance / gram.tau)
        rss = place_smooth(gram, row, workspace)
        previous = variance
        variance = variance_of(rss, gram.points)
        if abs(variance - previous) <= _SETTLED * variance or variance >= enough:
            break
    return variance


@inner
def _largest_variance(gram: Gram, row: Row, workspace: RowWorkspace) -> float:
    """Return a bound above every stationary variance; there must be no change on the workspace.

    The least RSS at s is at most RSS0 + 2 s P0 for any terms with that RSS and prior penalty, and a
    stationary s is at most RSS / n. Used twice: for the origin, then for the smooth terms.
    """
    level = 0.0
    for q in range(len(workspace.z)):
        level += row.origin[q] ** 2
    bound = row.squares / max(gram.points - level, 0.5 * gram.points)
    bound = max(bound, MIN_VARIANCE)
    eliminate(gram, row, workspace, bound)
    rss = place_smooth(gram, row, workspace)
    room = gram.points - 2.0 * _penalty_of(gram, row, workspace)
    if room > 0.5 * gram.points:
        bound = min(bound, max(rss / room, MIN_VARIANCE))
    return bound


@inner
def _smallest_variance(gram: Gram, row: Row, workspace: RowWorkspace) -> float:
    """Return a bound below every stationary variance: that of least squares without any prior."""
    rss, rest = row.squares, workspace.gradient
    for j in range(len(rest)):
        rest[j] = row.hinge[j]
    for q in range(len(workspace.z)):
        if gram.eigenvalues[q] > 0.0:
            share = row.smooth[q] / gram.eigenvalues[q]
            rss -= share * row.smooth[q]
            for j in range(len(rest)):
                rest[j] -= share * gram.cross[q, j]
    for i in range(len(rest)):
        if gram.triangle[i, i] > 0.0:
            share = rest[i] / gram.triangle[i, i]
            rss -= share * share
            for j in range(i + 1, len(rest)):
                rest[j] -= share * gram.triangle[i, j]
    return variance_of(rss - 1e-12 * row.squares, gram.points)


@inner
def _judged(gram: Gram, row: Row, workspace: RowWorkspace, variance: float) -> tuple[float, float]:
    """Return f and the largest violation of its optimality condition at the terms on the workspace.

    Conditions: every gradient of f in z, d and ln s is 0, or within 1 / tau where d is 0.
    """
    rss = max(place_smooth(gram, row, workspace), MIN_RSS)
    objective = 0.5 * gram.points * np.log(variance) + rss / (2.0 * variance) + 2.0 * variance
    worst = 0.0
    if variance > MIN_VARIANCE:
        worst = abs(0.5 * gram.points - rss / (2.0 * variance) + 2.0 * variance)
    for q in range(len(workspace.z)):
        fall = row.smooth[q] - gram.eigenvalues[q] * workspace.z[q] - workspace.pull[q]
        worst = max(worst, abs(fall / variance - workspace.z[q] - row.origin[q]))
    steepest(workspace)
    for j in range(len(workspace.d)):
        fall = workspace.gradient[j] / variance
        if workspace.d[j] == 0.0:
            worst = max(worst, abs(fall) - 1.0 / gram.tau)
        else:
            worst = max(worst, abs(fall - np.sign(workspace.d[j]) / gram.tau))
    return objective + _penalty_of(gram, row, workspace), worst


@inner
def solve_row(gram: Gram, row: Row, workspace: RowWorkspace, starts: int) -> Solution:
    """Solve one row; z (less the origin) and d are left on the workspace.

    From above first: that is the stationary variance with the most noise. With two starts also from
    below, from the terms on the workspace; the lower f wins, `lone` says whether the starts met.
    """
    clear(workspace)
    upper = _iterate(gram, row, workspace, _largest_variance(gram, row, workspace), np.inf)
    objective, residual = _judged(gram, row, workspace, upper)
    if starts < 2:
        return Solution(upper, objective, residual, -1)
    copy_into(workspace.best_z, workspace.z)
    copy_into(workspace.best_d, workspace.d)
    enough = (1.0 - _MET) * upper
    lower = _smallest_variance(gram, row, workspace)
    if lower < enough:
        lower = _iterate(gram, row, workspace, lower, enough)
    lone = 1 if lower >= enough else 0
    if lone == 0:
        low_objective, low_residual = _judged(gram, row, workspace, lower)
        if low_objective < objective:
            return Solution(lower, low_objective, low_residual, lone)
    copy_into(workspace.z, workspace.best_z)
    copy_into(workspace.d, workspace.best_d)
    return Solution(upper, objective, residual, lone)
