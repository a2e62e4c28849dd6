"""The compiled Gram matrix of one design, and the inner products of a series with its columns.

Hinges are never written out: with A = sum of the x after a point and H = sum of (t - c) x after it,
stepping back by one point of distance e gives H <- H + e A, A <- A + x. So the inner products of a
column with the hinges at all points cost two additions a point, and nothing cancels.
"""

from typing import Any

import numpy as np
from numba import njit

from forecasting.prophet_kernel import Floats, Gram, Row


@njit(cache=True)
def hinge_products(t: Floats, column: Floats, rows: Any, result: Floats) -> None:
    """Fill sum_i column_i max(t_i - t_row, 0) for each changepoint row, ascending: [S]."""
    total, after = 0.0, 0.0
    place = len(rows) - 1
    for i in range(len(t) - 1, -1, -1):
        if i + 1 < len(t):
            total += (t[i + 1] - t[i]) * after
        while place >= 0 and rows[place] == i:
            result[place] = total
            place -= 1
        after += column[i]


@njit(cache=True)
def hinge_gram(t: Floats, rows: Any, result: Floats) -> None:
    """Fill the inner products of all hinges: [S, S]."""
    none, first, second = 0.0, 0.0, 0.0
    place = len(rows) - 1
    for i in range(len(t) - 1, -1, -1):
        if i + 1 < len(t):
            gap = t[i + 1] - t[i]
            second += gap * (2.0 * first + gap * none)
            first += gap * none
        while place >= 0 and rows[place] == i:
            for j in range(place + 1):
                result[place, j] = second + (t[i] - t[rows[j]]) * first
                result[j, place] = result[place, j]
            place -= 1
        none += 1.0


@njit(cache=True)
def _triangle(eigenvalues: Floats, cross: Floats, hinges: Floats) -> Floats:
    """Give U, U'U = hinges - cross' / eigenvalues cross; rows of dependent hinges are 0."""
    left = hinges.copy()
    for q in range(len(eigenvalues)):
        if eigenvalues[q] > 0.0:
            left -= np.outer(cross[q] / eigenvalues[q], cross[q])
    for k in range(len(left)):
        if left[k, k] <= 1e-13 * hinges[k, k]:
            left[k, :] = 0.0
            continue
        left[k, k:] /= np.sqrt(left[k, k])
        for i in range(k + 1, len(left)):
            for j in range(i, len(left)):
                left[i, j] -= left[k, i] * left[k, j]
    return left


@njit(cache=True)
def gram_of(
    t: Floats,
    smooth: Floats,
    precision: Floats,
    level: int,
    rows: Any,
    tau: float,
    bounded: bool,
) -> Gram:
    """Give the Gram matrix of a design.

    `smooth` [points, q] are the columns with normal priors of this `precision`, the constant in
    column `level`; `rows` are the points on which hinges begin, `tau` the scale of their prior.
    `bounded`: with what the lower bound of the noise variance needs.
    """
    scale = 1.0 / np.sqrt(precision)
    scaled = smooth * scale
    eigenvalues, vectors = np.linalg.eigh(np.dot(scaled.T, scaled))
    q, changes = len(precision), len(rows)
    least = 1e-13 * eigenvalues[-1]
    natural = np.zeros((q, changes))
    for column in range(q):
        hinge_products(t, scaled[:, column].copy(), rows, natural[column])
    cross = np.dot(vectors.T, natural)
    basis = vectors * scale.reshape(-1, 1)
    for one in range(q):
        if eigenvalues[one] <= least:  # a column that depends on the others: its prior rules alone
            eigenvalues[one] = 0.0
            cross[one] = 0.0
            basis[:, one] = 0.0
    hinges = np.zeros((changes, changes))
    hinge_gram(t, rows, hinges)
    constant = vectors[level] / scale[level]
    triangle = _triangle(eigenvalues, cross, hinges) if bounded else np.zeros((0, 0))
    return Gram(len(t), tau, t[rows], eigenvalues, basis, constant.copy(), cross, hinges, triangle)


@njit(cache=True)
def row_around(y: Floats, origin: Floats, t: Floats, smooth: Floats, rows: Any, gram: Gram) -> Row:
    """Give what the solver needs of one scaled series, the smooth terms `origin` taken out."""
    rest = y - np.dot(smooth, np.dot(gram.basis, origin))
    hinge = np.zeros(len(rows))
    hinge_products(t, rest, rows, hinge)
    natural = np.dot(rest, smooth)
    return Row(origin, np.dot(rest, rest), np.dot(natural, gram.basis), hinge)
