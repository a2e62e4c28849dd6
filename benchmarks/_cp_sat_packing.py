"""CP-SAT on one instance: `python -m benchmarks._cp_sat_packing BINS SECONDS < instance`.

Prints the fewest bins found (0: none), the bound, and the seconds taken. A program of its own:
ortools and highspy bring two builds of one HiGHS library and cannot live in one process.
"""

import itertools
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.packing.temporal_instance import TemporalInstance, clique_grid
from benchmarks.packing.text_format import format_instance, parse_instance

ROOT = Path(__file__).parents[1]


def solve(instance: TemporalInstance, bins: int, seconds: float) -> tuple[int, int]:
    """Return the fewest bins found, of at most `bins`, and the bound.

    Item i goes to one of the bins 0..i, which breaks the symmetry of their names.
    """
    from ortools.sat.python import cp_model  # cannot be loaded beside highspy

    model = cp_model.CpModel()
    into = [
        [model.new_bool_var("") for _ in range(min(item + 1, bins))]
        for item in range(instance.items)
    ]
    used = [model.new_bool_var("") for _ in range(bins)]
    for row in into:
        model.add_exactly_one(row)
    for earlier, later in itertools.pairwise(used):
        model.add_implication(later, earlier)
    for active in clique_grid(instance).active():
        for number in range(bins):
            here = [item for item in np.flatnonzero(active) if number < len(into[item])]
            if here:
                load = sum(int(instance.sizes[item]) * into[item][number] for item in here)
                model.add(load <= instance.capacity * used[number])
    model.minimize(sum(used))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return (
        round(solver.objective_value) if found else 0,
        int(np.ceil(solver.best_objective_bound - 1e-6)),
    )


def cp_sat(instance: TemporalInstance, bins: int, seconds: float) -> tuple[int, int, float]:
    """Return (bins, bound, seconds) of CP-SAT in a process of its own, model building included."""
    answer = subprocess.run(  # noqa: S603 # our own module with two numbers
        [sys.executable, "-m", "benchmarks._cp_sat_packing", str(bins), str(seconds)],
        input=format_instance(instance),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    found, bound, taken = answer.stdout.split()
    return int(found), int(bound), float(taken)


def main() -> None:
    """Solve the instance on standard input."""
    started = time.process_time()
    instance = parse_instance(sys.stdin.read(), name="standard input")
    found, bound = solve(instance, int(sys.argv[1]), float(sys.argv[2]))
    print(found, bound, time.process_time() - started)


if __name__ == "__main__":
    main()
