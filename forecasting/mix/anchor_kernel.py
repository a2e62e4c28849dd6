"""Short leads anchored on the newest reading: quantile regression on recent moves, compiled.

A job's next slot is its last one, moved on. A slot in which demand rose shows a part of the rise
only, since it began within the slot (Working 1960 on changes of averages), and tails are longer
after a move. So every quantile has a line of its own in the last rise, the last fall, what the same
time of earlier days did next, and how far from it the series is.

Where the job has calmed down, lines of its whole past hold too much. So the upper ones, by which
plans are made, go only as far from the last value as has lately paid: rent, and a missing GPU-hour
at p rents, cost p times the check loss of the quantile 1 - 1/p that is held. The outer two pairs
are then moved apart until they held their share of the newest moments (conformalized quantile
regression: Romano, Patterson and Candès 2019).
"""

import math
from typing import Any

import numpy as np

from data.base.compiled import copy_into, inner, outer, reordering
from forecasting.mix.members_kernel import sort

LEVELS = np.array([0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95])
FEATURES = 5
MIN_ROWS = 96
_MAX_ROWS = 672
_PROFILE_DAYS = 14
_RIDGE = 0.01
_SMOOTH = 0.05
"""Width, in standard deviations of what is fitted, inside which the loss is taken as a square."""
_STEPS = 12
_KEEP_PER_ROW_OF_DAY = 0.97
"""What a row counts a day later."""
_SHARES = 4
"""A line's move counts whole, or 3, 2, 1 or none of so many parts."""
_REPLAY_DAYS = 0.5
"""Time in which what a share of a move would have cost comes to count half."""
_SHARE_MARGIN = 0.03
"""What leaving the whole of a line out must save, share of the line's loss."""
_NEGLIGIBLE = 1e-3
_BAND_ROWS = 168
"""Newest moments at which a band must have held its share."""


@inner
def _features(y: Any, origin: int, lead: int, season: int, out: Any) -> bool:
    """Write the features of an origin (slots known then) and a lead; False: its last slots unknown.

    Rise and fall of the last slot; what the same time of up to 14 days did over the lead, and where
    it ended against the last value, both 0 with fewer than two days known; one.
    """
    if origin < 2:
        return False
    last, before = y[origin - 1], y[origin - 2]
    if np.isnan(last) or np.isnan(before):
        return False
    out[0] = max(last - before, 0.0)
    out[1] = min(last - before, 0.0)
    moved, level, days = 0.0, 0.0, 0
    for day in range(1, _PROFILE_DAYS + 1):
        then = origin - 1 - day * season
        if then < 0:
            break
        if then + lead >= origin or np.isnan(y[then]) or np.isnan(y[then + lead]):
            continue
        moved += y[then + lead] - y[then]
        level += y[then + lead]
        days += 1
    out[2] = moved / days if days >= 2 else 0.0
    out[3] = level / days - last if days >= 2 else 0.0
    out[4] = 1.0
    return True


@inner
def _rows(
    y: Any, lead: int, season: int, by_age: Any, features: Any, rows: Any, weights: Any
) -> int:
    """Write features and then the change over the lead of past moments, newest first; how many.

    `weights` are theirs; `by_age` [slots] those of an age, NaN until one is needed.
    """
    count, origin = 0, len(y) - lead
    while origin >= 2 and count < len(weights):
        change = y[origin + lead - 1] - y[origin - 1]
        if not np.isnan(change) and _features(y, origin, lead, season, features):
            for k in range(FEATURES):
                rows[k, count] = features[k]
            rows[FEATURES, count] = change
            age = len(y) - lead - origin
            if np.isnan(by_age[age]):
                by_age[age] = _KEEP_PER_ROW_OF_DAY ** (age / season)
            weights[count] = by_age[age]
            count += 1
        origin -= 1
    return count


@inner
def _solve(matrix: Any, right: Any) -> None:
    """Solve a symmetric positive system in place by Gauss without pivots; `right` is the answer."""
    size = len(right)
    for k in range(size):
        for i in range(k + 1, size):
            ratio = matrix[i, k] / matrix[k, k]
            for j in range(k, size):
                matrix[i, j] -= ratio * matrix[k, j]
            right[i] -= ratio * right[k]
    for k in range(size - 1, -1, -1):
        for j in range(k + 1, size):
            right[k] -= matrix[k, j] * right[j]
        right[k] /= matrix[k, k]


@reordering
def _product(vector: Any, rows: Any, row: int, count: int) -> Any:
    """Return the inner product with a row, of the first `count`."""
    total = 0.0
    for i in range(count):
        total += vector[i] * rows[row, i]
    return total


@inner
def _moments(rows: Any, count: int, square: Any) -> Any:
    """Fill each feature's mean square; return the standard deviation of the changes."""
    changes = rows[FEATURES]
    for k in range(FEATURES):
        square[k] = _product(rows[k], rows, k, count) / count
    mean, spread = changes[:count].sum() / count, 0.0
    for i in range(count):
        spread += (changes[i] - mean) ** 2
    return math.sqrt(spread / count)


@reordering
def _normal_equations(
    rows: Any, weights: Any, count: int, level: float, floor: float, c: Any, matrix: Any, right: Any
) -> None:
    """Write the weighted sums of products of the features, and of them and the changes.

    A row's weight is the majorizer's at the coefficients `c`. The last feature is 1, and of the
    first two, a rise and a fall, one is 0.
    """
    c0, c1, c2, c3, c4 = c[0], c[1], c[2], c[3], c[4]
    m00, m20, m30, m40, r0 = 0.0, 0.0, 0.0, 0.0, 0.0
    m11, m21, m31, m41, r1 = 0.0, 0.0, 0.0, 0.0, 0.0
    m22, m32, m42, r2 = 0.0, 0.0, 0.0, 0.0
    m33, m43, m44, r3, r4 = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(count):
        f0, f1, f2, f3, change = rows[0, i], rows[1, i], rows[2, i], rows[3, i], rows[5, i]
        missed = change - f0 * c0 - f1 * c1 - f2 * c2 - f3 * c3 - c4
        slope = level if missed > 0 else 1.0 - level
        w4 = weights[i] * slope / max(abs(missed), floor)
        w0, w1, w2, w3 = w4 * f0, w4 * f1, w4 * f2, w4 * f3
        m00, m20, m30, m40 = m00 + w0 * f0, m20 + w0 * f2, m30 + w0 * f3, m40 + w0
        m11, m21, m31, m41 = m11 + w1 * f1, m21 + w1 * f2, m31 + w1 * f3, m41 + w1
        m22, m32, m42 = m22 + w2 * f2, m32 + w2 * f3, m42 + w2
        m33, m43, m44 = m33 + w3 * f3, m43 + w3, m44 + w4
        r0, r1, r2 = r0 + w0 * change, r1 + w1 * change, r2 + w2 * change
        r3, r4 = r3 + w3 * change, r4 + w4 * change
    right[0], right[1], right[2], right[3], right[4] = r0, r1, r2, r3, r4
    matrix[0, 0], matrix[1, 1], matrix[2, 2], matrix[3, 3], matrix[4, 4] = m00, m11, m22, m33, m44
    matrix[1, 0], matrix[2, 0], matrix[3, 0], matrix[4, 0] = 0.0, m20, m30, m40
    matrix[2, 1], matrix[3, 1], matrix[4, 1] = m21, m31, m41
    matrix[3, 2], matrix[4, 2], matrix[4, 3] = m32, m42, m43


@inner
def _fit(
    rows: Any, weights: Any, count: int, level: float, square: Any, floor: float, coefficients: Any
) -> None:
    """Improve a quantile's coefficients: majorize-minimize of the check loss (Hunter, Lange 2000).

    `rows` are the features and the changes. A ridge in units of each feature's mean `square` pulls
    them towards the last value as it is; misses below `floor` count as that.
    """
    matrix, right = np.empty((FEATURES, FEATURES)), np.empty(FEATURES)
    for _step in range(_STEPS):
        _normal_equations(rows, weights, count, level, floor, coefficients, matrix, right)
        heavy = matrix[4, 4]
        for k in range(FEATURES):
            for j in range(k):
                matrix[j, k] = matrix[k, j]
            matrix[k, k] += _RIDGE * heavy * square[k] + 1e-12 * heavy
        _solve(matrix, right)
        copy_into(coefficients, right)


@inner
def _move(features: Any, coefficients: Any, floor: float) -> float:
    """Return the distance of a line from the last value; one below `floor` is 0."""
    move = 0.0
    for k in range(FEATURES):
        move += features[k] * coefficients[k]
    return 0.0 if abs(move) < floor else move


@inner
def _paying_share(
    rows: Any, count: int, level: float, coefficients: Any, floor: float, season: int
) -> float:
    """Return the share of a line's moves with the least check loss at its last moments.

    The rows are newest first. A part that is left out must save its part of the margin.
    """
    losses = np.zeros(_SHARES + 1)
    weight, fading = 1.0, 0.5 ** (1.0 / (_REPLAY_DAYS * season))
    for i in range(count):
        move = _move(rows[:, i], coefficients, floor)
        for part in range(_SHARES + 1):
            missed = rows[FEATURES, i] - move * part / _SHARES
            losses[part] += weight * max(level * missed, (level - 1.0) * missed)
        weight *= fading
        if weight < _NEGLIGIBLE:
            break
    best = _SHARES
    for part in range(_SHARES):
        losses[part] += _SHARE_MARGIN * losses[_SHARES] * (1.0 - part / _SHARES)
        if losses[part] < losses[best]:
            best = part
    return best / _SHARES


@outer
def anchored(y: Any, leads: Any, season: int) -> Any:
    """Return quantiles [LEVELS, leads] after the series' last slot, NaN where little is known.

    y: the series, NaN unknown; leads in slots; season is the slots of a day.
    """
    quantiles = np.full((len(LEVELS), len(leads)), np.nan)
    now, features = np.empty(FEATURES), np.empty(FEATURES)
    rows, weights = np.empty((FEATURES + 1, _MAX_ROWS)), np.empty(_MAX_ROWS)
    square, by_age = np.empty(FEATURES), np.full(len(y), np.nan)
    moves, misses = np.empty((len(LEVELS), _BAND_ROWS)), np.empty(_BAND_ROWS)
    for k in range(len(leads)):
        if not _features(y, len(y), leads[k], season, now):
            continue
        count = _rows(y, leads[k], season, by_age, features, rows, weights)
        if count < MIN_ROWS:
            continue
        # The distance below which the fit tells no two values apart.
        floor = _SMOOTH * _moments(rows, count, square) + 1e-12
        coefficients, newest = np.zeros(FEATURES), min(count, _BAND_ROWS)
        for level in range(len(LEVELS)):
            _fit(rows, weights, count, LEVELS[level], square, floor, coefficients)
            share = 1.0
            if LEVELS[level] > 0.5:
                share = _paying_share(rows, count, LEVELS[level], coefficients, floor, season)
            quantiles[level, k] = y[len(y) - 1] + share * _move(now, coefficients, floor)
            for i in range(newest):
                moves[level, i] = share * _move(rows[:, i], coefficients, floor)
        for low, high in ((0, 6), (1, 5)):
            for i in range(newest):
                change = rows[FEATURES, i]
                misses[i] = max(moves[low, i] - change, change - moves[high, i])
            sort(misses, newest)
            rank = int((LEVELS[high] - LEVELS[low]) * (newest + 1))
            apart = max(0.0, misses[min(rank, newest - 1)])
            quantiles[low, k] -= apart
            quantiles[high, k] += apart
        sort(quantiles[:, k], len(LEVELS))
    return quantiles
