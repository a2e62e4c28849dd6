"""The compiled loops over the rows of a batch: the survey, and the two ways to solve.

Rows that share one design bring their inner products, made by one matrix product; a row with gaps
of its own brings itself, and its design and Gram matrix are made on the way.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from data.base.compiled import inner, outer
from forecasting.prophet.gram_kernel import gram_of, row_around
from forecasting.prophet.kernel import Floats, Gram, Row, RowWorkspace, make_workspace
from forecasting.prophet.terms_kernel import changepoint_rows
from forecasting.prophet.variance_kernel import Solution, solve_row

Integers = npt.NDArray[np.int64]

_ROUGH = 1e-5
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

    `smooth` are natural coefficients: k (linear), m, seasonal. `slope` and `intercept` are
    those of the trend after the last changepoint, per unit of t; `changes` is the number of
    changepoints, `change_scale` the mean of |delta| over them (0 for Prophet's stand-in). A row
    that its design could pass through whatever its values has no optimum and is `unbounded`.
    """

    smooth: Floats
    delta: Floats
    changes: Integers
    change_scale: Floats
    slope: Floats
    intercept: Floats
    variance: Floats
    objective: Floats
    residual: Floats
    lone: Integers
    unbounded: npt.NDArray[np.bool_]


class DesignRecipe(NamedTuple):
    """The recipe of the design of a row with gaps of its own."""

    linear: bool
    changepoints: int
    share: float
    precision: Floats
    tau: float
    starts: int


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
    solution: Solution,
    level: int,
    answers: Answers,
    i: int,
) -> None:
    """Write one solution, its smooth terms in natural coefficients; m is column `level`."""
    for q in range(len(workspace.z)):
        total = 0.0
        for term in range(len(workspace.z)):
            total += gram.basis[q, term] * (workspace.z[term] + row.origin[term])
        answers.smooth[i, q] = total
    answers.change_scale[i] = 0.0
    answers.slope[i] = answers.smooth[i, 0] if level else 0.0
    answers.intercept[i] = answers.smooth[i, level]
    for j in range(len(workspace.d)):
        answers.delta[i, j] = workspace.d[j]
        if gram.changepoints[j] > 0.0:
            answers.change_scale[i] += abs(workspace.d[j]) / len(workspace.d)
        answers.slope[i] += workspace.d[j]
        answers.intercept[i] -= workspace.d[j] * gram.changepoints[j]
    answers.changes[i] = len(workspace.d)
    answers.variance[i] = solution.variance
    answers.objective[i] = solution.objective
    answers.residual[i] = solution.residual
    answers.lone[i] = solution.lone


@inner
def _rough(row: Row, gram: Gram, solution: Solution) -> bool:
    """Return whether RSS is so small beside x'x that rounding shows in its significant digits."""
    return bool(solution.variance * gram.points < _ROUGH * row.squares)


@outer
def solve_shared(
    gram: Gram,
    which: Any,
    means: Floats,
    squares: Floats,
    products: Floats,
    level: int,
    starts: int,
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
        solution = solve_row(gram, row, workspace, starts)
        rough[r] = _rough(row, gram, solution)
        _keep(gram, row, workspace, solution, level, answers, which[r])
    return rough


@inner
def _solve_from_values(
    gram: Gram,
    y: Floats,
    t: Floats,
    smooth: Floats,
    rows: Any,
    starts: int,
    workspace: RowWorkspace,
) -> tuple[Row, Solution]:
    """Solve one scaled series around its mean, then if need be around that answer."""
    origin = y.mean() * gram.level
    for once_more in (True, False):
        row = row_around(y, origin, t, smooth, rows, gram)
        solution = solve_row(gram, row, workspace, starts)
        if not (once_more and _rough(row, gram, solution)):
            break
        origin = row.origin + workspace.z
    return row, solution


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
def smooth_columns(linear: bool, t: Floats, slots: Any, clock: Floats) -> Floats:
    """Return the columns with normal priors at the known slots: [points, q]."""
    trend, seasonal = 2 if linear else 1, clock.shape[1]
    columns = np.ones((len(slots), trend + seasonal))
    for i in range(len(slots)):
        if linear:
            columns[i, 0] = t[i]
        for c in range(seasonal):
            columns[i, trend + c] = clock[slots[i], c]
    return columns


@outer
def solve_own(
    values: Floats,
    which: Any,
    survey: RowSurvey,
    scale: Floats,
    clock: Floats,
    recipe: DesignRecipe,
    answers: Answers,
) -> None:
    """Solve the series `which`, each on its own known slots.

    `clock` [slots, seasonal] are the Fourier columns of all slots.
    """
    level = 1 if recipe.linear else 0
    for i in which:
        slots = np.flatnonzero(np.isfinite(values[i]))
        span = float(survey.last[i] - survey.first[i])
        t = np.zeros(len(slots))
        y = np.zeros(len(slots))
        for k in range(len(slots)):
            t[k] = (slots[k] - survey.first[i]) / span
            y[k] = values[i, slots[k]] / scale[i]
        smooth = smooth_columns(recipe.linear, t, slots, clock)
        rows = changepoint_rows(len(slots), recipe.changepoints, recipe.share)
        if not recipe.linear:
            rows = rows[:0]
        if passes_through(t, smooth, rows):
            answers.unbounded[i] = True
            continue
        gram = gram_of(t, smooth, recipe.precision, level, rows, recipe.tau, recipe.starts > 1)
        workspace = make_workspace(smooth.shape[1], len(rows))
        row, solution = _solve_from_values(gram, y, t, smooth, rows, recipe.starts, workspace)
        _keep(gram, row, workspace, solution, level, answers, i)
