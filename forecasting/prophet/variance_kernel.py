"""The compiled search of the noise variance s around the active set.

    f = n/2 ln s + RSS / (2 s) + 2 s + |z|^2 / 2 + |d|_1 / tau

For the terms at hand s is best at the root of 4 s^2 + n s - RSS; terms and s are taken in turn.
The least RSS grows with s and the root grows with RSS, so this is monotone: from above it ends at
the largest stationary s.
"""

import numpy as np

from data.base.compiled import inner
from forecasting.prophet.kernel import (
    Gram,
    Row,
    RowWorkspace,
    clear,
    eliminate,
    place_smooth,
    settle,
)
from forecasting.prophet.terms import CHANGE_SCALE

MIN_RSS = 1e-12
MIN_VARIANCE = 1e-14
"""Of y / y_scale. Below, the model passes through every point and f has no minimum."""

_ROUNDS = 500
"""5 to 7 are usual, more where two stationary variances nearly meet."""
_CONVERGENCE = 1e-9


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
        total += abs(workspace.d[j]) / CHANGE_SCALE
    return total


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
def solve_row(gram: Gram, row: Row, workspace: RowWorkspace) -> float:
    """Solve one row; return s. z (less the origin) and d are left on the workspace.

    From above: that is the stationary variance with the most noise.
    """
    clear(workspace)
    variance = _largest_variance(gram, row, workspace)
    for _ in range(_ROUNDS):
        eliminate(gram, row, workspace, variance)
        settle(gram, workspace, variance / CHANGE_SCALE)
        previous = variance
        variance = variance_of(place_smooth(gram, row, workspace), gram.points)
        if abs(variance - previous) <= _CONVERGENCE * variance:
            break
    return variance
