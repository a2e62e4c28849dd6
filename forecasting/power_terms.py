"""The terms that board power is made of, as columns that never fall when an input rises.

    P = P_idle + (TDP - P_idle) [ a w(u) f + b u f^2 + c u^2 f^2 + d m + e h ]

with u the utilization, w(u) = min(1, u / 0.05) the step from asleep to awake, f the SM clock over
its maximum (dynamic power goes with the clock times the voltage squared; 1 where unknown), m the
memory activity, h whether the board is held. Coefficients are 0 or more.
"""

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

AWAKE_AT = 0.05
"""A board that computes 5 % of the time runs at full clocks throughout: an L40S at 8 % GPU_UTIL
was measured at 110 W of 350 W, idle 35 W."""

PRIOR = {"awake": 0.12, "work": 0.45, "work squared": 0.25}
"""Shares of TDP - idle before anything was measured: an estimate of ours, 0.82 at full utilization.
A fleet's own readings soon outweigh it."""
PRIOR_WITH_MEMORY = {"awake": 0.12, "work": 0.35, "work squared": 0.20, "memory": 0.25}
PRIOR_HELD = 0.06
"""A board with a context but no work: an H100 was measured at 114 W, its neighbours at 67 W."""


def term_names(inputs: tuple[str, ...]) -> tuple[str, ...]:
    """Give the names of the columns for the inputs at hand beside the utilization."""
    names = ["awake", "work", "work squared"]
    names += ["memory"] * ("memory_activity" in inputs) + ["held"] * ("held" in inputs)
    return tuple(names)


def prior_of(inputs: tuple[str, ...]) -> Values:
    """Give the coefficients before anything was measured."""
    shares = PRIOR_WITH_MEMORY if "memory_activity" in inputs else PRIOR
    return np.array([{**shares, "held": PRIOR_HELD}[name] for name in term_names(inputs)])


def columns_of(values: dict[str, Values], inputs: tuple[str, ...]) -> Values:
    """Give the columns, shape (n, terms), from the utilization and the inputs, all known."""
    used = np.clip(values["utilization"], 0.0, 1.0)
    clock = np.clip(values["clock_ratio"], 0.0, 1.0) if "clock_ratio" in inputs else 1.0
    columns = [np.minimum(1.0, used / AWAKE_AT) * clock, used * clock**2, used**2 * clock**2]
    if "memory_activity" in inputs:
        columns.append(np.clip(values["memory_activity"], 0.0, 1.0))
    if "held" in inputs:
        columns.append((values["held"] > 0).astype(float))
    return np.column_stack(columns)
