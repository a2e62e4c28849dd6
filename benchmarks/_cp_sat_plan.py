"""CP-SAT on one plan: `python -m benchmarks._cp_sat_plan SECONDS WORKERS`, pickles in and out.

A program of its own: ortools and highspy bring two builds of one HiGHS library and cannot live in
one process.
"""

import pickle
import sys
import time

import numpy as np

from benchmarks.exact_plan import ExactModel, ExactResult

_AMOUNTS, _MONEY = 1_000, 1_000_000


def solve(model: ExactModel, seconds: float, workers: int) -> ExactResult:
    """Return what CP-SAT finds; amounts are rounded to 1/1000 and money to 1/1,000,000."""
    from ortools.sat.python import cp_model  # cannot be loaded beside highspy

    started = time.monotonic()
    built = cp_model.CpModel()
    whole = model.whole > 0
    tops = np.where(np.isfinite(model.upper), model.upper, 1e6)
    columns = [
        built.new_int_var(0, int(top if is_whole else top * _AMOUNTS), "")
        for top, is_whole in zip(tops, whole, strict=True)
    ]
    starts, numbers, factors = model.matrix.indptr, model.matrix.indices, model.matrix.data
    for row in range(model.matrix.shape[0]):
        part = slice(starts[row], starts[row + 1])
        terms = [
            (columns[number], round(factor * (_AMOUNTS if whole[number] else 1)))
            for number, factor in zip(numbers[part], factors[part], strict=True)
        ]
        low, high = (
            int(
                np.clip(
                    np.nan_to_num(entry[row] * _AMOUNTS, posinf=1e15, neginf=-1e15), -1e15, 1e15
                )
            )
            for entry in (model.low, model.high)
        )
        total = sum(column * factor for column, factor in terms)
        built.add_linear_constraint(total, low, high)
    money = [
        round(cost * (_MONEY if is_whole else _MONEY / _AMOUNTS))
        for cost, is_whole in zip(model.cost, whole, strict=True)
    ]
    built.minimize(sum(column * price for column, price in zip(columns, money, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = workers
    status = solver.solve(built)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return ExactResult(
        status=str(solver.status_name(status)).lower(),
        cost=solver.objective_value / _MONEY if found else float("nan"),
        bound=solver.best_objective_bound / _MONEY if found else float("nan"),
        seconds=time.monotonic() - started,
    )


def main() -> None:
    """Solve the model on standard input."""
    model = pickle.load(sys.stdin.buffer)  # noqa: S301 # benchmarks.exact_plan wrote it
    sys.stdout.buffer.write(pickle.dumps(solve(model, float(sys.argv[1]), int(sys.argv[2]))))


if __name__ == "__main__":
    main()
