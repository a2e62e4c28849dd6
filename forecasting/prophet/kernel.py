"""The compiled active set: Prophet's additive MAP at one noise variance, from the Gram matrix.

Minimised exactly, over the smooth terms z and the changes of slope d, at the noise variance s:

    RSS / 2 + s |z|^2 / 2 + s |d|_1 / tau

z is in the eigenbasis of the smooth columns (`prophet_gram_kernel`), where their Gram matrix is
diagonal and their priors are standard normal, so for any s they are eliminated at the price of one
division each. What is left is a lasso in d of at most 25 variables, solved by an active set with
sign search (Lee et al. 2007, "Efficient sparse coding algorithms": feature-sign), which begins with
the active set of the s before. Nothing here is as long as the series.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from data.compiled import inner

Floats = npt.NDArray[np.float64]

_CHANGES = 600
"""More than any series needs at one noise variance (a few dozen); an end against rounding."""


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


class Desk(NamedTuple):
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


@inner
def make_desk(smooth: int, changes: int) -> Desk:
    """Give working arrays; z [q] and d [S] hold the answer after `solve_row`."""
    return Desk(
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
def _add_schur(gram: Gram, desk: Desk, place: int) -> None:
    """Fill the Schur column of the change at this place of the active set."""
    column = desk.active[place]
    for j in range(len(desk.d)):
        desk.schur[place, j] = gram.hinges[column, j]
    for q in range(len(desk.z)):
        share = gram.cross[q, column] * desk.weight[q]
        for j in range(len(desk.d)):
            desk.schur[place, j] -= share * gram.cross[q, j]


@inner
def eliminate(gram: Gram, row: Row, desk: Desk, variance: float) -> None:
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
def _factorised(desk: Desk) -> bool:
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
def _solve_active(desk: Desk, penalty: float) -> None:
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
def _drop(desk: Desk, place: int) -> None:
    """Take the change at this place out of the active set."""
    desk.count[0] -= 1
    last = desk.count[0]
    desk.d[desk.active[place]] = 0.0
    desk.active[place] = desk.active[last]
    desk.sign[place] = desk.sign[last]
    for j in range(len(desk.d)):
        desk.schur[place, j] = desk.schur[last, j]


@inner
def _walk(desk: Desk, penalty: float) -> None:
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
def steepest(desk: Desk) -> int:
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
def settle(gram: Gram, desk: Desk, penalty: float) -> None:
    """Solve the lasso in the changes of slope from the active set at hand."""
    largest = 0.0
    for j in range(len(desk.d)):
        largest = max(largest, abs(desk.correlation[j]))
    limit = penalty * (1.0 + 1e-9) + 1e-15 * largest
    _walk(desk, penalty)
    for _ in range(_CHANGES):
        worst = steepest(desk)
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
def place_smooth(gram: Gram, row: Row, desk: Desk) -> float:
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
def clear(desk: Desk) -> None:
    """Begin without any change of slope."""
    desk.count[0] = 0
    for j in range(len(desk.d)):
        desk.d[j] = 0.0
