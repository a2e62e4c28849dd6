"""Small problems in counts, exactly: a mixed integer program over the states of jobs.

A job is in one configuration a slot; what it enters and leaves follows. Layouts are a flow, so
that the program of one job alone has whole solutions; only shared limits, changes a day and whole
nodes make it branch. Above some size the prices and the search are better in less time.
"""

from dataclasses import dataclass

import numpy as np

from planner.slots.coupling_rows import CouplingRows
from planner.slots.exact_program import Program
from planner.slots.slot_problem import Floats, Indices, Path, Singles, SlotProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class JobColumns:
    """Columns of a job: options [S] of the grid, active [1 + H, S] from now on, entries [H, S]."""

    options: Indices
    active: Indices
    entries: Indices


def states(cost: Singles) -> int:
    """Return the (slot, configuration) pairs that the jobs of a problem may take."""
    return int(np.isfinite(cost).sum())


def exact_plan(
    problem: SlotProblem,
    rows: CouplingRows,
    cost: Singles,
    *,
    announced: Path,
    churn: Floats,
    below: float,
    seconds: float,
) -> tuple[Path | None, float]:
    """Return the best paths [J, H] below a cost, None for none, and a bound of every plan.

    `cost` is base_cost, pinned. Both results contain the price `churn` [J] of a path that is not
    the announced one [J, H].
    """
    program = Program()
    jobs = columns_of_jobs(program, problem, rows, cost, announced=announced, churn=churn)
    _node_rows(program, problem, jobs)
    answer = program.solved(below=below, seconds=seconds)
    return None if answer.values is None else paths_of(jobs, answer.values), answer.bound


def columns_of_jobs(
    program: Program,
    problem: SlotProblem,
    rows: CouplingRows,
    cost: Singles,
    *,
    announced: Path,
    churn: Floats,
) -> list[JobColumns]:
    """Add what the jobs may do and their shared limits, without nodes."""
    jobs = [_job_columns(program, problem, cost, job) for job in range(problem.size)]
    for job in np.flatnonzero(churn):
        leaves = program.columns([churn[job]])
        stays = jobs[job].options == announced[job][:, None]
        on_path = jobs[job].active[1:][stays][:, None]
        program.rows(1.0, np.inf, (on_path, 1.0), (np.broadcast_to(leaves, on_path.shape), 1.0))
    _limit_rows(program, problem, rows, jobs)
    return jobs


def paths_of(jobs: list[JobColumns], values: Floats) -> Path:
    """Return the paths [J, H] of a solution."""
    active = [job.options[values[job.active[1:]].argmax(axis=1)] for job in jobs]
    return np.array(active, dtype=np.int16)


def _job_columns(program: Program, problem: SlotProblem, cost: Singles, job: int) -> JobColumns:
    """Add what one job may do, without shared limits."""
    jobs, slots = problem.jobs, problem.slots
    allowed = np.isfinite(cost[job])
    options = np.flatnonzero(allowed.any(axis=0) | (np.arange(cost.shape[2]) == jobs.present[job]))
    now = (options == jobs.present[job]).astype(np.float64)
    costs = np.where(allowed, cost[job], 0.0)[:, options]
    free = np.vstack([now, allowed[:, options]])
    active = program.columns(
        np.vstack([np.zeros(len(options)), costs]),
        lower=np.vstack([now, np.zeros(costs.shape)]),
        upper=free,
        whole=True,
    )
    program.rows(1.0, 1.0, (active, 1.0))
    entries = program.columns(np.broadcast_to(jobs.enter_cost[job, options], costs.shape))
    before, after = active[:-1].ravel(), active[1:].ravel()
    program.rows(0.0, np.inf, (entries.ravel(), 1.0), (before, 1.0), (after, -1.0))
    if jobs.leave_cost[job, options].any():
        exits = program.columns(np.broadcast_to(jobs.leave_cost[job, options], costs.shape))
        program.rows(0.0, np.inf, (exits.ravel(), 1.0), (after, 1.0), (before, -1.0))
    _layout_flow(program, problem, job, options, active)
    window = min(problem.change_window, slots)
    for first in range(slots - window + 1 if problem.max_changes else 0):
        program.rows(0.0, problem.max_changes, (entries[None, first : first + window], 1.0))
    if jobs.work[job] > 0:
        missing = program.columns([jobs.unfinished_price[job]], upper=np.inf)
        counted = active[1 : 1 + int(jobs.deadline[job])]
        rate = np.broadcast_to(jobs.rate[job, options], counted.shape).reshape(1, -1)
        program.rows(jobs.work[job], np.inf, (counted[None], rate), (missing, 1.0))
    return JobColumns(options=options, active=active, entries=entries)


def _layout_flow(
    program: Program, problem: SlotProblem, job: int, options: Indices, active: Indices
) -> None:
    layout = problem.grid.layout[options]
    names = np.unique(layout)
    table = problem.jobs.layout_cost[job] * problem.grid.layout_change[np.ix_(names, names)]
    if not table.any():
        return
    flow = program.columns(np.broadcast_to(table, (problem.slots, *table.shape)))
    for number, name in enumerate(names):
        inside = active[:, layout == name]
        program.rows(0.0, 0.0, (flow[:, number], 1.0), (inside[:-1], -1.0))
        program.rows(0.0, 0.0, (flow[:, :, number], 1.0), (inside[1:], -1.0))


def _limit_rows(
    program: Program, problem: SlotProblem, rows: CouplingRows, jobs: list[JobColumns]
) -> None:
    """Add the shared limits, with the price of what is over or below them."""
    for number in range(len(rows.names)):
        columns, factors = _users(problem, rows, jobs, number)
        floor, limit = rows.floor[:, number], rows.limit[:, number]
        if (rows.floor_price[:, number] * floor).any():
            short = program.columns(rows.floor_price[:, number], upper=np.inf)
            program.rows(floor, np.inf, (columns, factors), (short, 1.0))
        between = program.columns(rows.price[:, number], upper=limit - rows.free[:, number])
        over = rows.over_penalty[:, number]
        soft = np.isfinite(over)
        beyond = program.columns(np.where(soft, over, 0.0), upper=np.where(soft, np.inf, 0.0))
        terms = ((columns, factors), (between, -1.0), (beyond, -1.0))
        program.rows(-np.inf, rows.free[:, number], *terms)


def _users(
    problem: SlotProblem, rows: CouplingRows, jobs: list[JobColumns], number: int
) -> tuple[Indices, Floats]:
    """Return the columns [H, n] that use a limit, and how much each does [n]."""
    grid, factors = problem.grid, [np.zeros(0)]
    users = [np.zeros((problem.slots, 0), dtype=np.int64)]
    for job, columns in enumerate(jobs):
        kind = grid.gpu_type[columns.options]
        use = np.where(kind == number, grid.boards[columns.options], 0.0)
        if rows.types <= number < rows.types + rows.domains:
            fed = rows.members[number - rows.types][np.maximum(kind, 0)] & (kind >= 0)
            use = np.where(fed, problem.jobs.power_kw[job, columns.options], 0.0)
        elif number >= rows.types:
            mine = problem.jobs.tenant[job] == number - rows.types - rows.domains
            use = np.where(mine & (kind >= 0), grid.boards[columns.options], 0.0)
        users.append(columns.active[1:, use > 0])
        factors.append(use[use > 0])
    return np.hstack(users), np.concatenate(factors)


def _node_rows(program: Program, problem: SlotProblem, jobs: list[JobColumns]) -> None:
    """Add whole nodes by type, and what switching them on costs."""
    fleet, grid = problem.fleet, problem.grid
    for kind in range(len(fleet.gpu_types)):
        inside = [grid.gpu_type[job.options] == kind for job in jobs]
        used = np.hstack([job.active[1:, here] for job, here in zip(jobs, inside, strict=True)])
        boards = np.concatenate(
            [grid.boards[job.options[here]] for job, here in zip(jobs, inside, strict=True)]
        )
        now = np.concatenate([[fleet.nodes_on[kind]], np.zeros(problem.slots)])
        # No count of nodes is a limit: jobs that stay may hold more than a type has.
        upper = np.where(np.arange(problem.slots + 1) > 0, np.inf, now)
        cost = np.concatenate([[0.0], fleet.node_cost[kind]])
        nodes = program.columns(cost, lower=now, upper=upper, whole=True)
        boots = program.columns(np.full(problem.slots, fleet.boot_cost[kind]), upper=np.inf)
        room = -float(fleet.boards_per_node[kind])
        program.rows(-np.inf, 0.0, (used, boards), (nodes[1:], room))
        program.rows(-np.inf, 0.0, (nodes[1:], 1.0), (nodes[:-1], -1.0), (boots, -1.0))
