"""The terms that board power is made of, as columns that never fall when an input rises.

    P = P_idle + (TDP - P_idle) [ sum_k a_k r_k(u) f^2 + d m + e h ]

with u the utilization, r_k its ramp over the k-th of five pieces (0 before, 1 after), f the SM
clock over its maximum (dynamic power goes with the clock times the voltage squared; 1 where
unknown), m the memory activity, h whether the board is held. All coefficients are 0 or more: the
curve over u is any that rises, straight in each piece.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

KNOTS = (0.0, 0.05, 0.25, 0.5, 0.75, 1.0)
"""The first piece is waking up: a board that computes 5 % of the time runs at full clocks. An L40S
at 9 % GPU_UTIL was measured at 110 W of 350 W, idle 35 W."""

PRIOR_CURVE = (0.0, 0.1, 0.26, 0.46, 0.7, 0.93)
PRIOR_CURVE_WITH_MEMORY = (0.0, 0.09, 0.22, 0.39, 0.6, 0.8)
PRIOR_MEMORY = 0.25
"""Shares of TDP - idle at the knots before anything was measured. The curve was chosen on programs
of known kind on one board (`benchmarks/measured/slow_programs_h200.json`); every other source of
`benchmarks.power_model` only judges it. A fleet's own readings soon outweigh it."""
PRIOR_HELD = 0.06
"""A board with a context but no work: an H100 was measured at 114 W, its neighbours at 67 W."""


def term_names(inputs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the columns for the inputs at hand beside the utilization."""
    names = [f"utilization {100 * low:.0f}-{100 * high:.0f} %" for low, high in pairwise(KNOTS)]
    names += ["memory"] * ("memory_activity" in inputs) + ["held"] * ("held" in inputs)
    return tuple(names)


def prior_of(inputs: tuple[str, ...]) -> Values:
    """Return the coefficients before anything was measured."""
    with_memory = "memory_activity" in inputs
    steps = np.diff(PRIOR_CURVE_WITH_MEMORY if with_memory else PRIOR_CURVE)
    return np.array([*steps, *[PRIOR_MEMORY] * with_memory, *[PRIOR_HELD] * ("held" in inputs)])


def columns_of(values: dict[str, Values], inputs: tuple[str, ...]) -> Values:
    """Return the columns, shape (n, terms), from the utilization and the inputs, all known."""
    clock = np.clip(values["clock_ratio"], 0.0, 1.0) if "clock_ratio" in inputs else 1.0
    columns = [
        np.clip((values["utilization"] - low) / (high - low), 0.0, 1.0) * clock**2
        for low, high in pairwise(KNOTS)
    ]
    if "memory_activity" in inputs:
        columns.append(np.clip(values["memory_activity"], 0.0, 1.0))
    if "held" in inputs:
        columns.append((values["held"] > 0).astype(float))
    return np.column_stack(columns)
