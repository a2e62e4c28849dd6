"""The cost of a plan from its paths: jobs, changes, and soft limits; nodes come apart."""

import numpy as np
import numpy.typing as npt

from planner.slots.coupling_rows import CouplingRows
from planner.slots.slot_problem import SlotProblem

Floats = npt.NDArray[np.float64]
Path = npt.NDArray[np.int16]


def cost_of_jobs(problem: SlotProblem, paths: Path) -> float:
    """Return the cost of all slots and changes of paths [J, H]; infinite where not allowed."""
    jobs, grid = problem.jobs, problem.grid
    rows = paths.astype(np.int64)
    slots = np.take_along_axis(jobs.base_cost, rows[:, :, None], axis=2)[:, :, 0]
    before = np.hstack([jobs.present[:, None], rows[:, :-1]])
    changed = before != rows
    leaving = np.take_along_axis(jobs.leave_cost, before, axis=1)
    entering = np.take_along_axis(jobs.enter_cost, rows, axis=1)
    layouts = grid.layout_change[grid.layout[before], grid.layout[rows]]
    changes = leaving + entering + jobs.layout_cost[:, None] * layouts
    return float(slots.sum(dtype=np.float64) + (changes * changed).sum(dtype=np.float64))


def use_of(problem: SlotProblem, rows: CouplingRows, paths: Path) -> Floats:
    """Return the use of all rows [H, R] by paths [J, H]."""
    jobs, grid = problem.jobs, problem.grid
    used = np.zeros((problem.slots, len(rows.names)))
    kind, boards = grid.gpu_type[paths], grid.boards[paths]
    power = np.take_along_axis(jobs.power_kw, paths.astype(np.int64), axis=1)
    job, slot = np.nonzero(kind >= 0)
    np.add.at(used, (slot, kind[job, slot]), boards[job, slot])
    for domain in range(rows.domains):
        fed = rows.members[domain][np.maximum(kind, 0)] & (kind >= 0)
        used[:, rows.types + domain] = np.where(fed, power, 0.0).sum(axis=0)
    owned = jobs.tenant[job] >= 0
    column = rows.types + rows.domains + jobs.tenant[job[owned]]
    np.add.at(used, (slot[owned], column), boards[job[owned], slot[owned]])
    return used


def changes_of(problem: SlotProblem, paths: Path) -> int:
    """Return the number of changes of configuration on the paths, from now on."""
    before = np.hstack([problem.jobs.present[:, None], paths[:, :-1]])
    return int((before != paths).sum())
