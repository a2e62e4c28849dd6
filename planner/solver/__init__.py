"""The numeric core of TS-DPBP: plans over (slot, configuration) with a certified gap.

`solve(problem, budget_seconds=...)` in `solve.py` is the front door; `slot_problem.py` says what a
problem is. docs/internals/planner.md has the recursion and the bounds.
"""
