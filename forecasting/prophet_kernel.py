"""The compiled solver of Prophet's additive MAP for rows that share one Gram matrix.

Minimised exactly, over the smooth terms z, the changes of slope d and the noise variance s:

    f = n/2 ln s + RSS / (2 s) + 2 s + |z|^2 / 2 + |d|_1 / tau

z is in the eigenbasis of the smooth columns (`prophet_gram_kernel`), where their Gram matrix is
diagonal and their priors are standard normal, so for any s they are eliminated at the price of one
division each. What is left is a lasso in d of at most 25 variables, solved by an active set with
sign search (Lee et al. 2007, "Efficient sparse coding algorithms": feature-sign). Outside it s is
iterated to its root, 4 s^2 + n s - RSS = 0. Nothing here is as long as the series.

The least RSS grows with s and the root grows with RSS, so the iteration is monotone: from above it
ends at the largest stationary s, from below at the smallest. Where both agree there is no other.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from forecasting.prophet_compile_kernel import inner

Floats = npt.NDArray[np.float64]

SMALLEST_RSS = 1e-12
SMALLEST_VARIANCE = 1e-14
"""Of y / y_scale. Below, the model passes through every point and f has no minimum."""

_ROUNDS = 500
_CHANGES = 600
_SETTLED = 1e-9
_MET = 3e-5
"""Relative distance below which stationary variances are one: f differs by n / 2 of its square."""


class Gram(NamedTuple):
    """What the rows of one design share; q smooth columns, S changepoints.

    `eigenvalues` [q] and `basis` [q, q]: natural coefficients = basis @ z. `level` [q]: z of the
    constant 1. `cross` [q, S]: inner products of eigencolumns and hinges; `hinges` [S, S].
    `changepoints` [S] in units of t. `triangle` [S, S]: U with U'U the Schur complement of the
    hinges without any prior, for bounds; [0, 0] when these are not wanted.
    """

    points: int
    tau: float
    changepoints: Floats
    eigenvalues: Floats
    basis: Floats
    level: Floats
    cross: Floats
    hinges: Floats
    triangle: Floats


class Row(NamedTuple):
    """What the solver needs to know of one series: x = y / y_scale - eigencolumns @ origin.

    `origin` [q]: the smooth terms that are taken out beforehand, so that RSS does not drown in the
    rounding of x'x; at first those of the mean. `smooth` [q] and `hinge` [S]: inner products of x
    with the columns; `squares`: x'x.
    """

    origin: Floats
    squares: float
    smooth: Floats
    hinge: Floats


class _Desk(NamedTuple):
    """Working arrays of one row, made once per batch."""

    z: Floats
    d: Floats
    weight: Floats
    free: Floats
    pull: Floats
    correlation: Floats
    gradient: Floats
    schur: Floats
    factor: Floats
    step: Floats
    active: Any
    count: Any
    sign: Floats
    best_z: Floats
    best_d: Floats


class Solution(NamedTuple):
    """One row's optimum: s, f, the largest violation of the optimality conditions.

    `lone` is 1 where both starts met: no other stationary point exists; -1 where not searched.
    """

    variance: float
    objective: float
    residual: float
    lone: int


@inner
def make_desk(smooth: int, changes: int) -> _Desk:
    """Give working arrays; z [q] and d [S] hold the answer after `solve_row`."""
    return _Desk(
        np.zeros(smooth),
        np.zeros(changes),
        np.zeros(smooth),
        np.zeros(smooth),
        np.zeros(smooth),
        np.zeros(changes),
        np.zeros(changes),
        np.zeros((changes, changes)),
        np.zeros((changes, changes)),
        np.zeros(changes),
        np.zeros(changes, np.int64),
        np.zeros(1, np.int64),
        np.zeros(changes),
        np.zeros(smooth),
        np.zeros(changes),
    )


@inner
def variance_of(rss: float, points: int) -> float:
    """Give the noise variance that maximises the posterior at this sum of squares."""
    rss = max(rss, SMALLEST_RSS)
    # The positive root of 4 s^2 + n s - RSS, in the form that does not cancel.
    root = 2.0 * rss / (points + np.sqrt(points * points + 16.0 * rss))
    return float(max(root, SMALLEST_VARIANCE))


@inner
def _add_schur(gram: Gram, desk: _Desk, place: int) -> None:
    """Fill the Schur column of the change at this place of the active set."""
    column = desk.active[place]
    for j in range(len(desk.d)):
        desk.schur[place, j] = gram.hinges[column, j]
    for q in range(len(desk.z)):
        share = gram.cross[q, column] * desk.weight[q]
        for j in range(len(desk.d)):
            desk.schur[place, j] -= share * gram.cross[q, j]


@inner
def _eliminate(gram: Gram, row: Row, desk: _Desk, variance: float) -> None:
    """Eliminate the smooth terms at this noise variance; active columns are made anew."""
    for j in range(len(desk.d)):
        desk.correlation[j] = row.hinge[j]
    for q in range(len(desk.z)):
        desk.weight[q] = 1.0 / (gram.eigenvalues[q] + variance)
        desk.free[q] = (row.smooth[q] - variance * row.origin[q]) * desk.weight[q]
        for j in range(len(desk.d)):
            desk.correlation[j] -= desk.free[q] * gram.cross[q, j]
    for place in range(desk.count[0]):
        _add_schur(gram, desk, place)


@inner
def _factorised(desk: _Desk) -> bool:
    """Factorise the active block (Cholesky); False when a change depends on the others."""
    for i in range(desk.count[0]):
        for j in range(i):
            total = desk.schur[j, desk.active[i]]
            for k in range(j):
                total -= desk.factor[i, k] * desk.factor[j, k]
            desk.factor[i, j] = total / desk.factor[j, j]
        own = desk.schur[i, desk.active[i]]
        total = own
        for k in range(i):
            total -= desk.factor[i, k] * desk.factor[i, k]
        if total <= 1e-14 * own:
            return False
        desk.factor[i, i] = np.sqrt(total)
    return True


@inner
def _solve_active(desk: _Desk, penalty: float) -> None:
    """Solve for the active changes with their signs held, into `step`."""
    count = desk.count[0]
    for i in range(count):
        total = desk.correlation[desk.active[i]] - penalty * desk.sign[i]
        for k in range(i):
            total -= desk.factor[i, k] * desk.step[k]
        desk.step[i] = total / desk.factor[i, i]
    for i in range(count - 1, -1, -1):
        total = desk.step[i]
        for k in range(i + 1, count):
            total -= desk.factor[k, i] * desk.step[k]
        desk.step[i] = total / desk.factor[i, i]


@inner
def _drop(desk: _Desk, place: int) -> None:
    """Take the change at this place out of the active set."""
    desk.count[0] -= 1
    last = desk.count[0]
    desk.d[desk.active[place]] = 0.0
    desk.active[place] = desk.active[last]
    desk.sign[place] = desk.sign[last]
    for j in range(len(desk.d)):
        desk.schur[place, j] = desk.schur[last, j]


@inner
def _walk(desk: _Desk, penalty: float) -> None:
    """Go to the minimum over the active changes, dropping each at its first change of sign."""
    while desk.count[0] > 0:
        count = desk.count[0]
        if not _factorised(desk):
            _drop(desk, count - 1)
            continue
        _solve_active(desk, penalty)
        leaving, share = count, 1.0
        for i in range(count):
            if desk.step[i] * desk.sign[i] <= 0.0:
                now = desk.d[desk.active[i]]
                crossing = now / (now - desk.step[i]) if now != desk.step[i] else 0.0
                if leaving == count or crossing < share:
                    leaving, share = i, crossing
        for i in range(count):
            j = desk.active[i]
            desk.d[j] += share * (desk.step[i] - desk.d[j])
        if leaving == count:
            return
        _drop(desk, leaving)


@inner
def _steepest(desk: _Desk) -> int:
    """Give the inactive change with the largest gradient; gradients of all go to `gradient`."""
    for j in range(len(desk.d)):
        desk.gradient[j] = desk.correlation[j]
    for i in range(desk.count[0]):
        value = desk.d[desk.active[i]]
        for j in range(len(desk.d)):
            desk.gradient[j] -= value * desk.schur[i, j]
    worst, largest = -1, -1.0
    for j in range(len(desk.d)):
        if desk.d[j] == 0.0 and abs(desk.gradient[j]) > largest:
            worst, largest = j, abs(desk.gradient[j])
    return worst


@inner
def _settle(gram: Gram, desk: _Desk, penalty: float) -> None:
    """Solve the lasso in the changes of slope from the active set at hand."""
    largest = 0.0
    for j in range(len(desk.d)):
        largest = max(largest, abs(desk.correlation[j]))
    limit = penalty * (1.0 + 1e-9) + 1e-15 * largest
    _walk(desk, penalty)
    for _ in range(_CHANGES):
        worst = _steepest(desk)
        if worst < 0 or abs(desk.gradient[worst]) <= limit:
            return
        place = desk.count[0]
        desk.active[place] = worst
        desk.sign[place] = 1.0 if desk.gradient[worst] > 0.0 else -1.0
        _add_schur(gram, desk, place)
        desk.count[0] += 1
        _walk(desk, penalty)
        if desk.d[worst] == 0.0:  # entered and left at once: nothing is gained beyond rounding
            return


@inner
def _place_smooth(gram: Gram, row: Row, desk: _Desk) -> float:
    """Put the smooth terms (less the origin) to their minimum given d; give the RSS."""
    for q in range(len(desk.z)):
        desk.pull[q] = 0.0
        for i in range(desk.count[0]):
            j = desk.active[i]
            desk.pull[q] += gram.cross[q, j] * desk.d[j]
        desk.z[q] = desk.free[q] - desk.weight[q] * desk.pull[q]
    rss = row.squares
    for q in range(len(desk.z)):
        own = gram.eigenvalues[q] * desk.z[q]
        rss += desk.z[q] * (own + 2.0 * (desk.pull[q] - row.smooth[q]))
    for i in range(desk.count[0]):
        j = desk.active[i]
        total = -2.0 * row.hinge[j]
        for other in range(desk.count[0]):
            k = desk.active[other]
            total += gram.hinges[j, k] * desk.d[k]
        rss += desk.d[j] * total
    return rss


@inner
def _penalty_of(gram: Gram, row: Row, desk: _Desk) -> float:
    """Give the negative log prior of the terms."""
    total = 0.0
    for q in range(len(desk.z)):
        value = desk.z[q] + row.origin[q]
        total += 0.5 * value * value
    for j in range(len(desk.d)):
        total += abs(desk.d[j]) / gram.tau
    return total


@inner
def _clear(desk: _Desk) -> None:
    """Begin without any change of slope."""
    desk.count[0] = 0
    for j in range(len(desk.d)):
        desk.d[j] = 0.0


@inner
def _iterate(gram: Gram, row: Row, desk: _Desk, variance: float, enough: float) -> float:
    """Iterate the noise variance until it settles or reaches `enough`; give it."""
    for _ in range(_ROUNDS):
        _eliminate(gram, row, desk, variance)
        _settle(gram, desk, variance / gram.tau)
        rss = _place_smooth(gram, row, desk)
        previous = variance
        variance = variance_of(rss, gram.points)
        if abs(variance - previous) <= _SETTLED * variance or variance >= enough:
            break
    return variance


@inner
def _largest_variance(gram: Gram, row: Row, desk: _Desk) -> float:
    """Give a bound above every stationary variance; there must be no change on the desk.

    The least RSS at s is at most RSS0 + 2 s P0 for any terms with that RSS and prior penalty, and a
    stationary s is at most RSS / n. Used twice: for the origin, then for the smooth terms.
    """
    level = 0.0
    for q in range(len(desk.z)):
        level += row.origin[q] ** 2
    bound = row.squares / max(gram.points - level, 0.5 * gram.points)
    bound = max(bound, SMALLEST_VARIANCE)
    _eliminate(gram, row, desk, bound)
    rss = _place_smooth(gram, row, desk)
    room = gram.points - 2.0 * _penalty_of(gram, row, desk)
    if room > 0.5 * gram.points:
        bound = min(bound, max(rss / room, SMALLEST_VARIANCE))
    return bound


@inner
def _smallest_variance(gram: Gram, row: Row, desk: _Desk) -> float:
    """Give a bound below every stationary variance: that of least squares without any prior."""
    rss, rest = row.squares, desk.gradient
    for j in range(len(rest)):
        rest[j] = row.hinge[j]
    for q in range(len(desk.z)):
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
def _judged(gram: Gram, row: Row, desk: _Desk, variance: float) -> tuple[float, float]:
    """Give f and the largest violation of its optimality conditions at the terms on the desk.

    Conditions: every gradient of f in z, d and ln s is 0, or within 1 / tau where d is 0.
    """
    rss = max(_place_smooth(gram, row, desk), SMALLEST_RSS)
    objective = 0.5 * gram.points * np.log(variance) + rss / (2.0 * variance) + 2.0 * variance
    worst = 0.0
    if variance > SMALLEST_VARIANCE:
        worst = abs(0.5 * gram.points - rss / (2.0 * variance) + 2.0 * variance)
    for q in range(len(desk.z)):
        fall = row.smooth[q] - gram.eigenvalues[q] * desk.z[q] - desk.pull[q]
        worst = max(worst, abs(fall / variance - desk.z[q] - row.origin[q]))
    _steepest(desk)
    for j in range(len(desk.d)):
        fall = desk.gradient[j] / variance
        if desk.d[j] == 0.0:
            worst = max(worst, abs(fall) - 1.0 / gram.tau)
        else:
            worst = max(worst, abs(fall - np.sign(desk.d[j]) / gram.tau))
    return objective + _penalty_of(gram, row, desk), worst


@inner
def _copy(source: Floats, target: Floats) -> None:
    for i in range(len(source)):
        target[i] = source[i]


@inner
def solve_row(gram: Gram, row: Row, desk: _Desk, starts: int) -> Solution:
    """Solve one row; z (less the origin) and d are left on the desk.

    From above first: that is the stationary variance with the most noise. With two starts also from
    below, from the terms on the desk; the lower f wins, and `lone` says whether the starts met.
    """
    _clear(desk)
    upper = _iterate(gram, row, desk, _largest_variance(gram, row, desk), np.inf)
    objective, residual = _judged(gram, row, desk, upper)
    if starts < 2:
        return Solution(upper, objective, residual, -1)
    _copy(desk.z, desk.best_z)
    _copy(desk.d, desk.best_d)
    enough = (1.0 - _MET) * upper
    lower = _smallest_variance(gram, row, desk)
    if lower < enough:
        lower = _iterate(gram, row, desk, lower, enough)
    lone = 1 if lower >= enough else 0
    if lone == 0:
        low_objective, low_residual = _judged(gram, row, desk, lower)
        if low_objective < objective:
            return Solution(lower, low_objective, low_residual, lone)
    _copy(desk.best_z, desk.z)
    _copy(desk.best_d, desk.d)
    return Solution(upper, objective, residual, lone)
