"""The covering linear program that column generation grows, solved by HiGHS."""

from collections.abc import Sequence

import highspy
import numpy as np
import numpy.typing as npt

from planner.nodes.temporal_instance import Ints

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
