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

from data.base.compiled import inner

Floats = npt.NDArray[np.float64]

LEVEL = 1
"""The smooth column of the constant 1; the slope is in front of it."""
_CHANGES = 600
"""More than any series needs at one noise variance (a few dozen); an end against rounding."""


class Gram(NamedTuple):
    """The shared part of the rows of one design; q smooth columns, S changepoints.

    `eigenvalues` [q] and `basis` [q, q]: natural coefficients = basis @ z. `level` [q]: z of the
    constant 1. `cross` [q, S]: inner products of eigencolumns and hinges; `hinges` [S, S].
    `changepoints` [S] in units of t.
    """

    points: int
    changepoints: Floats
    eigenvalues: Floats
    basis: Floats
    level: Floats
    cross: Floats
    hinges: Floats


class Row(NamedTuple):
    """One series as the solver's input: x = y / y_scale - eigencolumns @ origin.

    `origin` [q]: the smooth terms that are taken out beforehand, so that RSS does not drown in the
    rounding of x'x; at first those of the mean. `smooth` [q] and `hinge` [S]: inner products of x
    with the columns; `squares`: x'x.
    """

    origin: Floats
    squares: float
    smooth: Floats
    hinge: Floats


class RowWorkspace(NamedTuple):
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


@inner
def make_workspace(smooth: int, changes: int) -> RowWorkspace:
    """Return working arrays; z [q] and d [S] hold the answer after `solve_row`."""
    return RowWorkspace(
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
    )


@inner
def _add_schur(gram: Gram, workspace: RowWorkspace, place: int) -> None:
    """Fill the Schur column of the change at this place of the active set."""
    column = workspace.active[place]
    for j in range(len(workspace.d)):
        workspace.schur[place, j] = gram.hinges[column, j]
    for q in range(len(workspace.z)):
        share = gram.cross[q, column] * workspace.weight[q]
        for j in range(len(workspace.d)):
            workspace.schur[place, j] -= share * gram.cross[q, j]


@inner
def eliminate(gram: Gram, row: Row, workspace: RowWorkspace, variance: float) -> None:
    """Eliminate the smooth terms at this noise variance; active columns are made anew."""
    for j in range(len(workspace.d)):
        workspace.correlation[j] = row.hinge[j]
    for q in range(len(workspace.z)):
        workspace.weight[q] = 1.0 / (gram.eigenvalues[q] + variance)
        workspace.free[q] = (row.smooth[q] - variance * row.origin[q]) * workspace.weight[q]
        for j in range(len(workspace.d)):
            workspace.correlation[j] -= workspace.free[q] * gram.cross[q, j]
    for place in range(workspace.count[0]):
        _add_schur(gram, workspace, place)


@inner
def _factorised(workspace: RowWorkspace) -> bool:
    """Factorise the active block (Cholesky); False when a change depends on the others."""
    for i in range(workspace.count[0]):
        for j in range(i):
            total = workspace.schur[j, workspace.active[i]]
            for k in range(j):
                total -= workspace.factor[i, k] * workspace.factor[j, k]
            workspace.factor[i, j] = total / workspace.factor[j, j]
        diagonal = workspace.schur[i, workspace.active[i]]
        total = diagonal
        for k in range(i):
            total -= workspace.factor[i, k] * workspace.factor[i, k]
        if total <= 1e-14 * diagonal:
            return False
        workspace.factor[i, i] = np.sqrt(total)
    return True


@inner
def _solve_active(workspace: RowWorkspace, penalty: float) -> None:
    """Solve for the active changes with their signs held, into `step`."""
    count = workspace.count[0]
    for i in range(count):
        total = workspace.correlation[workspace.active[i]] - penalty * workspace.sign[i]
        for k in range(i):
            total -= workspace.factor[i, k] * workspace.step[k]
        workspace.step[i] = total / workspace.factor[i, i]
    for i in range(count - 1, -1, -1):
        total = workspace.step[i]
        for k in range(i + 1, count):
            total -= workspace.factor[k, i] * workspace.step[k]
        workspace.step[i] = total / workspace.factor[i, i]


@inner
def _drop(workspace: RowWorkspace, place: int) -> None:
    """Take the change at this place out of the active set."""
    workspace.count[0] -= 1
    last = workspace.count[0]
    workspace.d[workspace.active[place]] = 0.0
    workspace.active[place] = workspace.active[last]
    workspace.sign[place] = workspace.sign[last]
    for j in range(len(workspace.d)):
        workspace.schur[place, j] = workspace.schur[last, j]


@inner
def _walk(workspace: RowWorkspace, penalty: float) -> None:
    """Go to the minimum over the active changes, dropping each at its first change of sign."""
    while workspace.count[0] > 0:
        count = workspace.count[0]
        if not _factorised(workspace):
            _drop(workspace, count - 1)
            continue
        _solve_active(workspace, penalty)
        leaving, share = count, 1.0
        for i in range(count):
            if workspace.step[i] * workspace.sign[i] <= 0.0:
                now = workspace.d[workspace.active[i]]
                crossing = now / (now - workspace.step[i]) if now != workspace.step[i] else 0.0
                if leaving == count or crossing < share:
                    leaving, share = i, crossing
        for i in range(count):
            j = workspace.active[i]
            workspace.d[j] += share * (workspace.step[i] - workspace.d[j])
        if leaving == count:
            return
        _drop(workspace, leaving)


@inner
def steepest(workspace: RowWorkspace) -> int:
    """Return the inactive change with the largest gradient; gradients of all go to `gradient`."""
    for j in range(len(workspace.d)):
        workspace.gradient[j] = workspace.correlation[j]
    for i in range(workspace.count[0]):
        value = workspace.d[workspace.active[i]]
        for j in range(len(workspace.d)):
            workspace.gradient[j] -= value * workspace.schur[i, j]
    worst, largest = -1, -1.0
    for j in range(len(workspace.d)):
        if workspace.d[j] == 0.0 and abs(workspace.gradient[j]) > largest:
            worst, largest = j, abs(workspace.gradient[j])
    return worst


@inner
def settle(gram: Gram, workspace: RowWorkspace, penalty: float) -> None:
    """Solve the lasso in the changes of slope from the active set at hand."""
    largest = 0.0
    for j in range(len(workspace.d)):
        largest = max(largest, abs(workspace.correlation[j]))
    limit = penalty * (1.0 + 1e-9) + 1e-15 * largest
    _walk(workspace, penalty)
    for _ in range(_CHANGES):
        worst = steepest(workspace)
        if worst < 0 or abs(workspace.gradient[worst]) <= limit:
            return
        place = workspace.count[0]
        workspace.active[place] = worst
        workspace.sign[place] = 1.0 if workspace.gradient[worst] > 0.0 else -1.0
        _add_schur(gram, workspace, place)
        workspace.count[0] += 1
        _walk(workspace, penalty)
        if workspace.d[worst] == 0.0:  # entered and left at once: nothing is gained beyond rounding
            return


@inner
def place_smooth(gram: Gram, row: Row, workspace: RowWorkspace) -> float:
    """Put the smooth terms (less the origin) to their minimum given d; return the RSS."""
    for q in range(len(workspace.z)):
        workspace.pull[q] = 0.0
        for i in range(workspace.count[0]):
            j = workspace.active[i]
            workspace.pull[q] += gram.cross[q, j] * workspace.d[j]
        workspace.z[q] = workspace.free[q] - workspace.weight[q] * workspace.pull[q]
    rss = row.squares
    for q in range(len(workspace.z)):
        smooth_part = gram.eigenvalues[q] * workspace.z[q]
        rss += workspace.z[q] * (smooth_part + 2.0 * (workspace.pull[q] - row.smooth[q]))
    for i in range(workspace.count[0]):
        j = workspace.active[i]
        total = -2.0 * row.hinge[j]
        for other in range(workspace.count[0]):
            k = workspace.active[other]
            total += gram.hinges[j, k] * workspace.d[k]
        rss += workspace.d[j] * total
    return rss


@inner
def clear(workspace: RowWorkspace) -> None:
    """Begin without any change of slope."""
    workspace.count[0] = 0
    for j in range(len(workspace.d)):
        workspace.d[j] = 0.0
