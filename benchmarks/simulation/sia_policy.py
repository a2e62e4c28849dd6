"""Sia-like: the integer program of Jayaram Subramanya et al., SOSP 2023, section 3.4, by HiGHS."""

from collections.abc import Mapping
from typing import Any

import highspy
import numpy as np

from benchmarks.simulation.rounds.round_problem import Floats, Ints, RoundProblem, RoundSolution
from benchmarks.simulation.rounds.round_reading import Allocation, RoundReader, RoundView
from data.base.errors import PlanningError


def solve_exactly(
    problem: RoundProblem, *, relative_gap: float = 1e-6, seconds: float = 60.0
) -> RoundSolution:
    """Return the best choice by branch and cut; prices are unknown (NaN), the bound is HiGHS's.

    Errors: PlanningError when HiGHS finds no choice in its time.
    """
    jobs, configs = np.nonzero(np.isfinite(problem.cost))
    count = len(jobs)
    rows = np.concatenate([jobs, len(problem.cost) + problem.kind[configs]])
    columns = np.concatenate([np.arange(count), np.arange(count)])
    values = np.concatenate([np.ones(count), problem.gpus[configs].astype(np.float64)])
    order = np.lexsort((rows, columns))
    model = highspy.HighsLp()
    model.num_col_ = count
    model.num_row_ = len(problem.cost) + len(problem.capacity)
    model.col_cost_ = problem.cost[jobs, configs]
    model.col_lower_ = np.zeros(count)
    model.col_upper_ = np.ones(count)
    model.row_lower_ = np.concatenate([np.ones(len(problem.cost)), np.zeros(len(problem.capacity))])
    model.row_upper_ = np.concatenate(
        [np.ones(len(problem.cost)), problem.capacity.astype(np.float64)]
    )
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.arange(0, 2 * count + 1, 2, dtype=np.int32)
    model.a_matrix_.index_ = rows[order].astype(np.int32)
    model.a_matrix_.value_ = values[order]
    model.integrality_ = [highspy.HighsVarType.kInteger] * count
    choice, cost, bound = _run(model, jobs, configs, relative_gap, seconds)
    return RoundSolution(
        choice=choice, cost=cost, bound=bound, prices=np.full(len(problem.capacity), np.nan)
    )


def _run(
    model: highspy.HighsLp, jobs: Ints, configs: Ints, relative_gap: float, seconds: float
) -> tuple[Ints, float, float]:
    highs = highspy.Highs()  # type: ignore[no-untyped-call]  # highspy types all but this
    options = {
        "output_flag": False,
        "threads": 1,
        "mip_rel_gap": relative_gap,
        "time_limit": seconds,
    }
    for option, value in options.items():
        highs.setOptionValue(option, value)
    highs.passModel(model)
    highs.run()
    solution: Floats = np.array(highs.getSolution().col_value, dtype=np.float64)
    if len(solution) != len(jobs) or solution.sum() < 0.5:
        raise PlanningError(
            f"HiGHS found no choice: {highs.modelStatusToString(highs.getModelStatus())}",
            "give it more seconds",
        )
    taken = solution > 0.5
    choice = np.zeros(int(jobs.max()) + 1, dtype=np.int64)
    choice[jobs[taken]] = configs[taken]
    info = highs.getInfo()
    return choice, float(info.objective_function_value), float(info.mip_dual_bound)


class SiaPolicy:
    """Minimises the sum of (normalised goodput)^p over jobs, with the published settings.

    Goodput is normalised to the job's smallest; a move is discounted by
    (age - restarts * restart) / (age + restart); a job without GPUs costs `no_allocation`. Choices
    are rounded to two decimals and solved to a gap of 1e-4, as in the authors' simulator.
    `shares_speed` gives it what HAS knows of siblings: pooled step times, and how large they grew.
    """

    def __init__(
        self,
        *,
        power: float = -0.5,
        no_allocation: float = 1.1,
        most_nodes: int = 16,
        shares_speed: bool = False,
    ) -> None:
        self.power = power
        self.no_allocation = no_allocation
        self._reader = RoundReader(
            batch_factor=1.0, most_nodes=most_nodes, shares_speed=shares_speed
        )

    def optimize(
        self,
        jobs: Mapping[str, Any],
        nodes: Mapping[str, Mapping[int, Any]],
        prev_allocations: Mapping[str, Allocation],
    ) -> dict[str, Allocation]:
        """Return the allocation of every job."""
        if not jobs:
            return {}
        view = self._reader.read(jobs, nodes, prev_allocations)
        nothing = len(view.table.gpus)
        problem = RoundProblem(
            cost=self._costs(view),
            kind=np.append(view.table.kind, 0),
            gpus=np.append(view.table.gpus, 0),
            capacity=view.table.capacity,
            previous=np.where(view.present >= 0, view.present, nothing),
        )
        return view.allocations(solve_exactly(problem, relative_gap=1e-4).choice)

    def _costs(self, view: RoundView) -> Floats:
        goodput = np.where(view.profiled[:, None], view.goodput, view.allowed * 1.0)
        least = np.where(goodput > 0, goodput, np.inf).min(axis=1, initial=np.inf)
        speedup = goodput / np.where(np.isfinite(least), least, 1.0)[:, None]
        lost = view.restarts * view.restart_seconds
        factor = np.maximum(view.age - lost, 0.0) / (view.age + view.restart_seconds)
        factor = np.where(view.age < view.restart_seconds, 1.0, factor)
        moves = np.broadcast_to((view.present >= 0)[:, None], speedup.shape).copy()
        rows = np.flatnonzero(view.present >= 0)
        moves[rows, view.present[rows]] = False
        speedup = np.where(moves, speedup * factor[:, None], speedup)
        with np.errstate(divide="ignore"):
            cost = np.minimum(np.round(speedup**self.power, 2), 3000.0)
        cost = np.where(view.allowed & (goodput > 0), cost, np.inf)
        cost = np.hstack([cost, np.full((len(cost), 1), self.no_allocation)])
        for row in np.flatnonzero(view.locked & (view.present >= 0)):
            cost[row] = np.inf
            cost[row, view.present[row]] = 0.0
        return cost
