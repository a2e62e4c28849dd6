"""The compiled loops over the rows of a batch: the survey, and the two ways to solve.

Rows that share one design bring their inner products, made by one matrix product; a row with gaps
of its own brings itself, and its design and Gram matrix are made on the way.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from data.base.compiled import inner, outer
from forecasting.prophet.gram_kernel import gram_of, row_around
from forecasting.prophet.kernel import LEVEL, Floats, Gram, Row, RowWorkspace, make_workspace
from forecasting.prophet.terms_kernel import changepoint_rows
from forecasting.prophet.variance_kernel import solve_row

Integers = npt.NDArray[np.int64]

_REFINE_BELOW = 1e-5
"""RSS / x'x below which a row is solved again around its answer: f is then known to 1e-9 or so."""
_DEPENDENT = 1e-16
"""Square of a column's remainder below which it depends on the columns before."""


class RowSurvey(NamedTuple):
    """A survey of each row [series]: counts of finite values; slots count from 0.

    `closest` is the least distance of two known slots, `low` and `high` are the extremes.
    """

    counts: Integers
    first: Integers
    last: Integers
    closest: Integers
    low: Floats
    high: Floats


class Answers(NamedTuple):
    """The optimum of every row, of y / y_scale: `smooth` [series, q], `delta` [series, S].

    `smooth` are natural coefficients: k, m, seasonal. `slope` and `intercept` are those of the
    trend after the last changepoint, per unit of t. A row that its design could pass through
    whatever its values has no optimum and is `unbounded`.
    """

    smooth: Floats
    delta: Floats
    slope: Floats
    intercept: Floats
    variance: Floats
    unbounded: npt.NDArray[np.bool_]


@outer
def survey_rows(values: Floats) -> RowSurvey:
    """Return the survey of each row of [series, slots]."""
    series, slots = values.shape
    counts, first = np.zeros(series, np.int64), np.zeros(series, np.int64)
    last, closest = np.zeros(series, np.int64), np.full(series, slots)
    low, high = np.full(series, np.inf), np.full(series, -np.inf)
    for i in range(series):
        before = -1
        for slot in range(slots):
            value = values[i, slot]
            if not np.isfinite(value):
                continue
            if before < 0:
                first[i] = slot
            elif slot - before < closest[i]:
                closest[i] = slot - before
            before = slot
            counts[i] += 1
            low[i] = min(low[i], value)
            high[i] = max(high[i], value)
        last[i] = before
    return RowSurvey(counts, first, last, closest, low, high)


@outer
def scale_rows(
    values: Floats, which: Any, offsets: Any, pattern: Any, scale: Floats, result: Floats
) -> tuple[Floats, Floats]:
    """Fill y / y_scale less its mean, known points only: [rows, points]; return means and x'x.

    Row r takes the slots `pattern + offsets[r]` of series `which[r]`.
    """
    means, squares = np.zeros(len(which)), np.zeros(len(which))
    for r in range(len(which)):
        source, target = values[which[r]], result[r]
        total = 0.0
        for i in range(len(pattern)):
            target[i] = source[pattern[i] + offsets[r]] / scale[which[r]]
            total += target[i]
        means[r] = total / len(pattern)
        for i in range(len(pattern)):
            target[i] -= means[r]
            squares[r] += target[i] * target[i]
    return means, squares


@inner
def _keep(
    gram: Gram,
    row: Row,
    workspace: RowWorkspace,
    variance: float,
    answers: Answers,
    i: int,
) -> None:
    """Write one solution, its smooth terms in natural coefficients."""
    for q in range(len(workspace.z)):
        total = 0.0
        for term in range(len(workspace.z)):
            total += gram.basis[q, term] * (workspace.z[term] + row.origin[term])
        answers.smooth[i, q] = total
    answers.slope[i] = answers.smooth[i, 0]
    answers.intercept[i] = answers.smooth[i, LEVEL]
    for j in range(len(workspace.d)):
        answers.delta[i, j] = workspace.d[j]
        answers.slope[i] += workspace.d[j]
        answers.intercept[i] -= workspace.d[j] * gram.changepoints[j]
    answers.variance[i] = variance


@inner
def _rough(row: Row, gram: Gram, variance: float) -> bool:
    """Return whether RSS is so small beside x'x that rounding shows in its significant digits."""
    return bool(variance * gram.points < _REFINE_BELOW * row.squares)


@outer
def solve_shared(
    gram: Gram,
    which: Any,
    means: Floats,
    squares: Floats,
    products: Floats,
    answers: Answers,
) -> npt.NDArray[np.bool_]:
    """Solve the series `which` of one design from `products` [rows, q + S], eigencolumns first.

    Gives which of them `solve_own` should solve more precisely.
    """
    q = len(gram.eigenvalues)
    workspace = make_workspace(q, gram.cross.shape[1])
    rough = np.zeros(len(which), np.bool_)
    for r in range(len(which)):
        row = Row(means[r] * gram.level, squares[r], products[r, :q], products[r, q:])
        variance = solve_row(gram, row, workspace)
        rough[r] = _rough(row, gram, variance)
        _keep(gram, row, workspace, variance, answers, which[r])
    return rough


@inner
def _solve_from_values(
    gram: Gram,
    y: Floats,
    t: Floats,
    smooth: Floats,
    rows: Any,
    workspace: RowWorkspace,
) -> tuple[Row, float]:
    """Solve one scaled series around its mean, then if need be around that answer."""
    origin = y.mean() * gram.level
    for once_more in (True, False):
        row = row_around(y, origin, t, smooth, rows, gram)
        variance = solve_row(gram, row, workspace)
        if not (once_more and _rough(row, gram, variance)):
            break
        origin = row.origin + workspace.z
    return row, variance


@inner
def _columns(t: Floats, smooth: Floats, rows: Any) -> Floats:
    """Return all columns of a design, the hinges last: [q + S, points]."""
    points, q = smooth.shape
    columns = np.zeros((q + len(rows), points))
    for i in range(points):
        for j in range(q):
            columns[j, i] = smooth[i, j]
        for j in range(len(rows)):
            columns[q + j, i] = max(t[i] - t[rows[j]], 0.0)
    return columns


@outer
def passes_through(t: Floats, smooth: Floats, rows: Any) -> bool:
    """Return whether the design can pass through every point, whatever the series.

    It can when as many of its columns are independent (Gram-Schmidt, largest remainder first) as
    there are points.
    """
    points, terms = len(t), smooth.shape[1] + len(rows)
    if points > terms:
        return False
    columns = _columns(t, smooth, rows)
    for _ in range(points):
        best, largest = 0, 0.0
        for j in range(terms):
            size = np.dot(columns[j], columns[j])
            if size > largest:
                best, largest = j, size
        if largest < _DEPENDENT:
            return False
        pivot = columns[best].copy()
        for j in range(terms):
            share = np.dot(columns[j], pivot) / largest
            for i in range(points):
                columns[j, i] -= share * pivot[i]
    return True


@outer
def smooth_columns(t: Floats, slots: Any, clock: Floats) -> Floats:
    """Return the columns with normal priors at the known slots: [points, q]."""
    seasonal = clock.shape[1]
    columns = np.ones((len(slots), 2 + seasonal))
    for i in range(len(slots)):
        columns[i, 0] = t[i]
        for c in range(seasonal):
            columns[i, 2 + c] = clock[slots[i], c]
    return columns


@outer
def solve_own(
    values: Floats,
    which: Any,
    survey: RowSurvey,
    scale: Floats,
    clock: Floats,
    precision: Floats,
    answers: Answers,
) -> None:
    """Solve the series `which`, each on its own known slots.

    `clock` [slots, seasonal] are the Fourier columns of all slots, `precision` the priors of a
    design with gaps of its own.
    """
    for i in which:
        slots = np.flatnonzero(np.isfinite(values[i]))
        span = float(survey.last[i] - survey.first[i])
        t = np.zeros(len(slots))
        y = np.zeros(len(slots))
        for k in range(len(slots)):
            t[k] = (slots[k] - survey.first[i]) / span
            y[k] = values[i, slots[k]] / scale[i]
        smooth = smooth_columns(t, slots, clock)
        rows = changepoint_rows(len(slots))
        if passes_through(t, smooth, rows):
            answers.unbounded[i] = True
            continue
        gram = gram_of(t, smooth, precision, rows)
        workspace = make_workspace(smooth.shape[1], len(rows))
        row, variance = _solve_from_values(gram, y, t, smooth, rows, workspace)
        _keep(gram, row, workspace, variance, answers, i)
