"""The compiled Gram matrix of one design, and the inner products of a series with its columns.

Hinges are never written out: with A = sum of the x after a point and H = sum of (t - c) x after it,
stepping back by one point of distance e gives H <- H + e A, A <- A + x. So the inner products of a
column with the hinges at all points cost two additions a point, and nothing cancels.
"""

from typing import Any

import numpy as np

from data.base.compiled import inner, outer
from forecasting.prophet.kernel import LEVEL, Floats, Gram, Row

_DEPENDENT = 1e-13
"""Share of the largest eigenvalue below which a smooth column depends on the others."""


@inner
def hinge_products(t: Floats, columns: Floats, rows: Any, result: Floats) -> None:
    """Fill sum_i columns[i] max(t_i - t_row, 0) for each changepoint row, ascending: [S, columns].

    All columns go together, so that the sums of one point do not wait for one another.
    """
    width = columns.shape[1]
    total, after = np.zeros(width), np.zeros(width)
    place = len(rows) - 1
    for i in range(len(t) - 1, -1, -1):
        gap = t[i + 1] - t[i] if i + 1 < len(t) else 0.0
        for c in range(width):
            total[c] += gap * after[c]
            after[c] += columns[i, c]
        while place >= 0 and rows[place] == i:
            for c in range(width):
                result[place, c] = total[c]
            place -= 1
        if place < 0:
            break


@inner
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


@outer
def gram_of(t: Floats, smooth: Floats, precision: Floats, rows: Any) -> Gram:
    """Return the Gram matrix of a design.

    `smooth` [points, q] are the columns with normal priors of this `precision`, `rows` the points
    on which hinges begin.
    """
    points, q = smooth.shape
    scale = 1.0 / np.sqrt(precision)
    scaled = np.empty((points, q))
    for i in range(points):
        for column in range(q):
            scaled[i, column] = smooth[i, column] * scale[column]
    eigenvalues, vectors = np.linalg.eigh(np.dot(scaled.T, scaled))
    products = np.empty((len(rows), q))
    hinge_products(t, scaled, rows, products)
    cross = np.ascontiguousarray(np.dot(products, vectors).T)
    basis, constant = np.empty((q, q)), np.empty(q)
    for number in range(q):
        constant[number] = vectors[LEVEL, number] / scale[LEVEL]
        for column in range(q):
            basis[column, number] = vectors[column, number] * scale[column]
        if eigenvalues[number] <= _DEPENDENT * eigenvalues[q - 1]:  # its prior rules alone
            eigenvalues[number] = 0.0
            cross[number, :] = 0.0
            basis[:, number] = 0.0
    hinges = np.zeros((len(rows), len(rows)))
    hinge_gram(t, rows, hinges)
    return Gram(points, t[rows], eigenvalues, basis, constant, cross, hinges)


@inner
def row_around(y: Floats, origin: Floats, t: Floats, smooth: Floats, rows: Any, gram: Gram) -> Row:
    """Return the solver's row of one scaled series, without the smooth terms `origin`."""
    rest = np.dot(smooth, np.dot(gram.basis, origin))
    for i in range(len(y)):
        rest[i] = y[i] - rest[i]
    hinge = np.zeros((len(rows), 1))
    hinge_products(t, rest.reshape(-1, 1), rows, hinge)
    products = np.dot(np.dot(rest, smooth), gram.basis)
    return Row(origin, np.dot(rest, rest), products, hinge[:, 0].copy())
