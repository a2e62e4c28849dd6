"""Compile every kernel before a budget runs: once per machine and release, then from the cache."""

from functools import cache

import numpy as np

from planner.slots.slot_problem import ConfigurationGrid, PlannedJobs, SlotFleet, SlotProblem
from planner.solver.replan import WarmStart
from planner.solver.solve import solve
from planner.solver.solved_plan import Effort

_SMALL_EFFORT = Effort(price_steps=2, dive_chunks=2, moves=8, label_room=2, exact=False)


@cache
def warm_up() -> None:
    """Plan twenty jobs over four slots, cold and warm: about 30 CPU s when nothing is cached."""
    problem = _small_problem()
    plan = solve(problem, budget_seconds=np.inf, effort=_SMALL_EFFORT)
    mask = np.ones(problem.size, dtype=np.bool_)
    warm = WarmStart(prices=plan.prices, announced=plan.paths, kept=mask, churn_price=0.0)
    solve(problem, budget_seconds=np.inf, effort=_SMALL_EFFORT, warm=warm)


def _small_problem() -> SlotProblem:
    """Return twenty jobs that want one board each of the six there are, half of them with work."""
    jobs, slots = 20, 4
    cost = np.ones((jobs, slots, 2), dtype=np.float32)
    cost[::2, :, 0] = 3.0
    working = (np.arange(jobs) % 2).astype(np.float64)
    changes = np.full((jobs, 2), 0.1, dtype=np.float32)
    return SlotProblem(
        grid=ConfigurationGrid(
            names=("nothing", "1 board"),
            gpu_type=np.array([-1, 0]),
            boards=np.array([0.0, 1.0]),
            layout=np.array([0, 1]),
            layout_change=np.zeros((2, 2)),
        ),
        jobs=PlannedJobs(
            names=tuple(str(job) for job in range(jobs)),
            base_cost=cost,
            power_kw=changes,
            leave_cost=changes,
            enter_cost=changes,
            layout_cost=np.zeros(jobs, dtype=np.float32),
            present=np.zeros(jobs, dtype=np.int64),
            tenant=np.full(jobs, -1),
            work=np.multiply(working, 2.0),
            rate=np.outer(working, [0.0, 1.0]).astype(np.float32),
            deadline=np.full(jobs, slots),
            unfinished_price=np.multiply(working, 5.0),
        ),
        fleet=SlotFleet(
            gpu_types=("board",),
            capacity=np.full((1, slots), 6.0),
            boards_per_node=np.array([2.0]),
            node_cost=np.full((1, slots), 0.1),
            boot_cost=np.array([0.1]),
            nodes_on=np.zeros(1),
        ),
    )
