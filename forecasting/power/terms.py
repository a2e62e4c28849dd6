"""The terms that board power is made of, as columns that never fall when an input rises.

    P = P_idle + (TDP - P_idle) [ sum_k a_k r_k(u) + e h ]

with u the utilization, r_k its ramp over the k-th of five pieces (0 before, 1 after), h whether the
board is held, where that is known. All coefficients are 0 or more: the curve over u is any that
rises, straight in each piece.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

KNOTS = (0.0, 0.05, 0.25, 0.5, 0.75, 1.0)
"""The first piece is waking up: a board that computes 5 % of the time runs at full clocks. An L40S
at 9 % GPU_UTIL was measured at 110 W of 350 W, idle 35 W."""

PRIOR_CURVE = (0.0, 0.1, 0.26, 0.46, 0.7, 0.93)
"""Shares of TDP - idle at the knots before anything was measured. The curve was chosen on programs
of known kind on one board (`benchmarks/measured/slow_programs_h200.json`); every other source of
`benchmarks.power_model` only judges it. A fleet's own readings soon outweigh it."""
PRIOR_HELD = 0.06
"""A board with a context but no work: an H100 was measured at 114 W, its neighbours at 67 W."""


def prior_of(*, with_held: bool) -> Values:
    """Return the coefficients before anything was measured."""
    return np.array([*np.diff(PRIOR_CURVE), *[PRIOR_HELD] * with_held])


def columns_of(utilization: Values, allocated: Values | None) -> Values:
    """Return the columns, shape (n, terms); `allocated` None leaves its term out."""
    columns = [
        np.clip((utilization - low) / (high - low), 0.0, 1.0) for low, high in pairwise(KNOTS)
    ]
    if allocated is not None:
        columns.append((allocated > 0).astype(float))
    return np.column_stack(columns)
