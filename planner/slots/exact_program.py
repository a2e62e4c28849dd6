"""A mixed integer program for HiGHS under construction, and its answer."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import highspy
import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix  # type: ignore[import-untyped]

from planner.slots.slot_problem import Floats, Indices

_NODE_COLUMNS = 1_000_000
"""Nodes of the search tree times columns: a count, so that every machine ends at the same plan."""
_LARGE_PROGRAM_OPTIONS = (
    "mip_allow_restart",
    "mip_heuristic_run_feasibility_jump",
    "mip_heuristic_run_rins",
    "mip_heuristic_run_rens",
    "mip_heuristic_run_root_reduced_cost",
)
_SMALL = 1_500
"""Programs of so few columns are over before these pay: they took two thirds of the time."""
CLOSE, _ROUNDING = 1e-5, 1e-6
"""Shares of the cost: the gap at which a search ends, and what bounds of floats are lowered by."""
PROVED = 3 * CLOSE
"""Share of the cost that a gap may have where a plan counts as the cheapest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Values of all columns, None where none below the limit exists or was seen; a lower bound."""

    values: Floats | None
    bound: float


@dataclass(slots=True)
class Program:
    """min cost @ x over columns with bounds, some of them whole, and rows low <= A x <= high."""

    _columns: list[npt.NDArray[np.float64]] = field(default_factory=list)
    _entries: list[npt.NDArray[np.float64]] = field(default_factory=list)
    _sides: list[npt.NDArray[np.float64]] = field(default_factory=list)
    width: int = 0
    height: int = 0

    def columns(
        self,
        cost: npt.ArrayLike,
        *,
        lower: npt.ArrayLike = 0.0,
        upper: npt.ArrayLike = 1.0,
        whole: bool = False,
    ) -> Indices:
        """Add columns in the shape of their cost; return their numbers."""
        shape = np.shape(cost)
        parts = (np.broadcast_to(part, shape).ravel() for part in (cost, lower, upper, whole))
        self._columns.append(np.array([*parts], dtype=np.float64))
        first, self.width = self.width, self.width + int(np.prod(shape))
        return np.arange(first, self.width).reshape(shape)

    def rows(
        self, low: npt.ArrayLike, high: npt.ArrayLike, *terms: tuple[Indices, npt.ArrayLike]
    ) -> None:
        """Add rows, one for each first index of the terms: columns [rows, n] times factors."""
        count = len(terms[0][0])
        for columns, factor in terms if count else ():
            flat = columns.reshape(count, -1)
            row = np.repeat(np.arange(self.height, self.height + count), flat.shape[1])
            factors = np.broadcast_to(factor, flat.shape).ravel()
            self._entries.append(np.array([row, flat.ravel(), factors], dtype=np.float64))
        self._sides.append(np.array([np.broadcast_to(side, count) for side in (low, high)]))
        self.height += count

    def solved(
        self,
        *,
        below: float,
        seconds: float,
        fixed: Sequence[Indices] = (),
        least: Sequence[Indices] = (),
    ) -> Answer:
        """Return the cheapest values up to the cost of a plan, in at most so many seconds.

        The program holds that plan. If it says that nothing is so cheap, it proves nothing. Of
        values that are equal in the `fixed` columns and in their cost, those with the smallest sum
        of the `least` ones are taken.
        """
        limit = below + CLOSE * max(1.0, abs(below)) if np.isfinite(below) else below
        cost, lower, upper, integer = np.concatenate(self._columns, axis=1)
        low, high = np.concatenate(self._sides, axis=1)
        row, column, factor = np.concatenate(self._entries, axis=1)
        place = (row.astype(np.int64), column.astype(np.int64))
        matrix = coo_matrix((factor, place), shape=(self.height, self.width)).tocsr()
        highs = highspy.Highs()  # type: ignore[no-untyped-call]  # highspy types all but this
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("mip_rel_gap", CLOSE),
            *((option, self.width > _SMALL) for option in _LARGE_PROGRAM_OPTIONS),
            ("mip_max_nodes", _NODE_COLUMNS // self.width),
            ("objective_bound", limit),
            ("time_limit", max(0.0, seconds)),
        ):
            highs.setOptionValue(option, value)
        highs.passModel(
            self.width,
            self.height,
            matrix.nnz,
            int(highspy.MatrixFormat.kRowwise),
            int(highspy.ObjSense.kMinimize),
            0.0,
            cost,
            lower,
            upper,
            low,
            high,
            matrix.indptr[:-1].astype(np.int32),
            matrix.indices.astype(np.int32),
            matrix.data,
            integer.astype(np.int32),
        )
        highs.run()
        info = highs.getInfo()
        refused = highs.getModelStatus() in {
            highspy.HighsModelStatus.kInfeasible,
            highspy.HighsModelStatus.kObjectiveBound,
        }
        bound = -np.inf if refused else min(below, float(info.mip_dual_bound))
        values = _values(highs)
        if values is not None and least and values[spared := np.concatenate(least)].any():
            columns = np.arange(self.width, dtype=np.int32)
            for part in fixed:
                lower[part] = upper[part] = np.rint(values[part])
            highs.changeColsBounds(self.width, columns, lower, upper)
            highs.addRow(-np.inf, float(cost @ values), self.width, columns, cost)
            highs.changeColsCost(self.width, columns, np.isin(columns, spared).astype(np.float64))
            highs.setOptionValue("objective_bound", np.inf)
            highs.setOptionValue("mip_rel_gap", 0.0)
            highs.run()
            other = _values(highs)
            values = values if other is None else other
        return Answer(
            values=values,
            bound=bound - _ROUNDING * max(1.0, abs(bound)) if np.isfinite(bound) else bound,
        )


def _values(highs: highspy.Highs) -> Floats | None:
    """Return the columns of the solution that a program found, None for none."""
    status = highs.getInfo().primal_solution_status
    feasible = status == highspy.SolutionStatus.kSolutionStatusFeasible
    return np.array(highs.getSolution().col_value) if feasible else None
