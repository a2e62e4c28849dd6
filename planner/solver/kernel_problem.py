"""Inputs and outputs of the primal kernels: the problem as plain arrays, and a draft plan."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.slots.coupling_rows import CouplingRows
from planner.slots.slot_problem import Floats, Indices, Path, Singles, SlotProblem
from planner.slots.survey_kernel import CostSurvey


class KernelProblem(NamedTuple):
    """The problem for one job at a time. options [J, S] are the first option_count [J] entries."""

    cost: Singles
    options: Indices
    option_count: Indices
    gpu_type: Indices
    boards: Floats
    layout: Indices
    layout_change: Floats
    leave: Singles
    enter: Singles
    layout_cost: Floats
    power: Singles
    rate: Singles
    present: Indices
    tenant: Indices
    work: Floats
    deadline: Indices
    unfinished_price: Floats
    floor: Floats
    floor_price: Floats
    free: Floats
    price: Floats
    limit: Floats
    over_penalty: Floats
    priced: npt.NDArray[np.bool_]
    members: npt.NDArray[np.bool_]
    boards_per_node: Floats
    node_cost: Floats
    boot_cost: Floats
    nodes_on: Floats
    max_changes: int
    change_window: int


class Draft(NamedTuple):
    """A plan under way: path [J, H], used [H, R], and the cost of each job, row and type's nodes.

    lam [J] is the price of work that a job's last search ended with. changed [J] says that a job's
    path is not the announced one.
    """

    path: Path
    used: Floats
    job_cost: Floats
    row_cost: Floats
    node_cost: Floats
    lam: Floats
    changed: npt.NDArray[np.bool_]

    def copy(self) -> "Draft":
        """Return a draft that shares nothing with this one."""
        return Draft._make(part.copy() for part in self)


def make_kernel_problem(
    problem: SlotProblem, rows: CouplingRows, cost: Singles, costs: CostSurvey
) -> KernelProblem:
    """Return the arrays of a problem; `cost` is base_cost [J, H, S] with pins, surveyed."""
    jobs, grid, fleet = problem.jobs, problem.grid, problem.fleet
    allowed = costs.allowed.copy()
    allowed[np.arange(problem.size), jobs.present] = True
    return KernelProblem(
        cost=cost,
        options=np.argsort(~allowed, axis=1, kind="stable").astype(np.int64),
        option_count=allowed.sum(axis=1).astype(np.int64),
        gpu_type=grid.gpu_type.astype(np.int64),
        boards=grid.boards.astype(np.float64),
        layout=grid.layout.astype(np.int64),
        layout_change=grid.layout_change.astype(np.float64),
        leave=np.ascontiguousarray(jobs.leave_cost, dtype=np.float32),
        enter=np.ascontiguousarray(jobs.enter_cost, dtype=np.float32),
        layout_cost=jobs.layout_cost.astype(np.float64),
        power=np.ascontiguousarray(jobs.power_kw, dtype=np.float32),
        rate=np.ascontiguousarray(jobs.rate, dtype=np.float32),
        present=jobs.present.astype(np.int64),
        tenant=jobs.tenant.astype(np.int64),
        work=jobs.work.astype(np.float64),
        deadline=jobs.deadline.astype(np.int64),
        unfinished_price=jobs.unfinished_price.astype(np.float64),
        floor=rows.floor,
        floor_price=rows.floor_price,
        free=rows.free,
        price=rows.price,
        limit=rows.limit,
        over_penalty=rows.over_penalty,
        priced=rows.priced,
        members=rows.members,
        boards_per_node=fleet.boards_per_node.astype(np.float64),
        node_cost=np.ascontiguousarray(fleet.node_cost.T, dtype=np.float64),
        boot_cost=fleet.boot_cost.astype(np.float64),
        nodes_on=fleet.nodes_on.astype(np.float64),
        max_changes=problem.max_changes,
        change_window=problem.change_window,
    )


def empty_draft(kernel: KernelProblem, lam: Floats) -> Draft:
    """Return the draft in which no job is placed yet."""
    jobs, slots, _width = kernel.cost.shape
    return Draft(
        path=np.zeros((jobs, slots), dtype=np.int16),
        used=np.zeros_like(kernel.limit),
        job_cost=np.zeros(jobs),
        row_cost=(kernel.floor_price * kernel.floor).sum(axis=0),
        node_cost=np.zeros(len(kernel.boards_per_node)),
        lam=lam.copy(),
        changed=np.zeros(jobs, dtype=np.bool_),
    )


def uncoupled(kernel: KernelProblem) -> KernelProblem:
    """Return the kernel problem with limits of infinity: prices alone couple the jobs."""
    endless = np.full_like(kernel.limit, np.inf)
    return kernel._replace(limit=endless, over_penalty=endless)
