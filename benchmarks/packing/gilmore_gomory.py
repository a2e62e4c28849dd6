"""The strongest bound of single moments: the pattern program of Gilmore and Gomory (1961).

min sum of x over patterns that cover what is active at one moment; patterns are priced by a
knapsack. Prices of one moment are a dual feasible function for all others, so each program that is
solved lifts the bound of many moments at once (the reason why few are solved).
"""

import math
import time
from collections.abc import Sequence

import highspy
import numpy as np
import numpy.typing as npt

from benchmarks.packing.gilmore_gomory_kernel import best_pattern, first_fit_decreasing
from benchmarks.packing.temporal_instance import Ints

Floats = npt.NDArray[np.float64]
Column = tuple[Ints, Floats, float]
"""Rows, their coefficients, and the cost of a column."""


class CoveringProgram:
    """min sum of cost * x subject to A x >= demand, x >= 0; columns come in rounds."""

    def __init__(self, demand: Floats) -> None:
        self._highs = highspy.Highs()  # type: ignore[no-untyped-call]  # highspy types all but this
        for option, value in (("output_flag", False), ("threads", 1), ("solver", "simplex")):
            self._highs.setOptionValue(option, value)
        rows = len(demand)
        empty = np.zeros(0, dtype=np.int32)
        self._highs.addRows(
            rows,
            demand,
            np.full(rows, highspy.kHighsInf),
            0,
            np.zeros(rows, dtype=np.int32),
            empty,
            np.zeros(0),
        )

    def add(self, columns: Sequence[Column]) -> None:
        """Add columns."""
        count = len(columns)
        lengths = [len(rows) for rows, _, _ in columns]
        self._highs.addCols(
            count,
            np.array([cost for _, _, cost in columns], dtype=np.float64),
            np.zeros(count),
            np.full(count, highspy.kHighsInf),
            sum(lengths),
            np.cumsum([0, *lengths[:-1]]).astype(np.int32),
            np.concatenate([rows for rows, _, _ in columns]).astype(np.int32),
            np.concatenate([values for _, values, _ in columns]).astype(np.float64),
        )

    def solve(self) -> tuple[float, Floats]:
        """Return the value and the row prices, never negative.

        The prices are as exact as the simplex method's tolerance: a bound made from them must
        price every column again by its own means.
        """
        self._highs.run()
        duals = np.array(self._highs.getSolution().row_dual, dtype=np.float64)
        return float(self._highs.getObjectiveValue()), np.maximum(duals, 0.0)


_ROUNDING = 1e-6
_ROUNDS = 200


def _column(pattern: Ints) -> Column:
    rows = np.flatnonzero(pattern)
    return rows, pattern[rows].astype(np.float64), 1.0


def moment_prices(
    counts: Ints, sizes: Ints, capacity: int, start: Ints, *, floor: int, deadline: float
) -> Floats | None:
    """Return prices that certify the moment's rounded bound, or None when it is at most `floor`.

    Farley (1990): prices scaled by the best pattern's value are dual feasible at any time.
    """
    program = CoveringProgram(counts.astype(np.float64))
    single = np.diag(np.minimum(counts, capacity // sizes))
    program.add([_column(pattern) for pattern in np.vstack([single, start])])
    best: Floats | None = None
    best_value = -np.inf
    for _ in range(_ROUNDS):
        value, prices = program.solve()
        if math.ceil(value - _ROUNDING) <= floor:
            return None
        worth, pattern = best_pattern(prices, sizes, counts, capacity)
        certified = float(prices @ counts) / max(1.0, worth)
        if certified > best_value:
            best, best_value = prices, certified
        done = math.ceil(certified - _ROUNDING) >= math.ceil(value - _ROUNDING)
        if done or worth <= 1.0 + _ROUNDING or time.monotonic() > deadline:
            break
        program.add([_column(pattern)])
    return best


def pattern_prices(counts: Ints, sizes: Ints, capacity: int) -> Floats:
    """Return the price of every size, in bins, at which no bin of any pattern is worth more than 1.

    The best total price of `counts` [m] items of distinct `sizes` [m], ascending, that there is.
    """
    start = first_fit_decreasing(counts, sizes, capacity)
    prices = moment_prices(counts, sizes, capacity, start, floor=0, deadline=math.inf)
    if prices is None:
        return np.zeros(len(sizes))
    worth, _ = best_pattern(prices, sizes, capacity // sizes, capacity)
    return np.asarray(prices / max(1.0, worth))
