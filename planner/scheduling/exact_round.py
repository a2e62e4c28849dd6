"""The same round as a mixed integer program for HiGHS: the measure of the quick solver."""

import highspy
import numpy as np

from data.errors import PlanningError
from planner.scheduling.round_problem import Floats, Ints, RoundProblem, RoundSolution


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
