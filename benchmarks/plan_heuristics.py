"""What is done instead of planning with prices: static, reactive, per-slot and per-job rules.

Every rule wishes a configuration per job and slot; `clipped` grants the wishes in job order while
capacity, power and quota (with what may be borrowed) last, and gives the others the largest that
still fits, or nothing.
"""

import numpy as np
import numpy.typing as npt

from benchmarks.plan_instances import OFF, Instance
from planner.slots.coupling_rows import coupling_rows
from planner.slots.slot_problem import SlotProblem, paths_of_today, pinned_cost
from planner.slots.survey_kernel import survey
from planner.solver.kernel_problem import Draft, KernelProblem, empty_draft, make_kernel_problem
from planner.solver.work_kernel import insert_best_path

Paths = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float64]


class Room:
    """What is left of the rows of one slot."""

    def __init__(self, problem: SlotProblem) -> None:
        self._problem = problem
        self._rows = coupling_rows(problem)
        self._types, self._domains = self._rows.types, self._rows.domains
        self._left = self._rows.limit.copy()

    def take(self, job: int, slot: int, option: int) -> bool:
        """Take the room of a configuration; False when it does not fit."""
        grid, jobs = self._problem.grid, self._problem.jobs
        kind = int(grid.gpu_type[option])
        if kind < 0:
            return True
        boards, left = grid.boards[option], self._left[slot]
        need = [(kind, boards)]
        need += [
            (self._types + domain, float(jobs.power_kw[job, option]))
            for domain in np.flatnonzero(self._rows.members[:, kind])
        ]
        if jobs.tenant[job] >= 0:
            need.append((self._types + self._domains + int(jobs.tenant[job]), boards))
        if any(left[row] < amount - 1e-6 for row, amount in need):
            return False
        for row, amount in need:
            left[row] -= amount
        return True


def clipped(problem: SlotProblem, wished: Paths) -> Paths:
    """Return paths that fit, from wishes [J, H]."""
    cost = pinned_cost(problem.jobs)
    room = Room(problem)
    paths = wished.copy()
    for slot in range(problem.slots):
        for job in range(problem.size):
            if room.take(job, slot, int(wished[job, slot])):
                continue
            allowed = np.flatnonzero(np.isfinite(cost[job, slot]))
            smaller = sorted(allowed, key=lambda option: -problem.grid.boards[option])
            wish = problem.grid.boards[wished[job, slot]]
            for option in smaller:
                if problem.grid.boards[option] <= wish and room.take(job, slot, int(option)):
                    paths[job, slot] = option
                    break
    return paths


def _allowed(instance: Instance) -> npt.NDArray[np.bool_]:
    return np.asarray(np.isfinite(instance.problem.jobs.base_cost))


def _held(instance: Instance, constant: npt.NDArray[np.int64]) -> Paths:
    """Return a constant configuration per job, nothing where that is not allowed."""
    allowed = _allowed(instance)
    wanted = np.repeat(constant[:, None], instance.problem.slots, axis=1)
    usable = np.take_along_axis(allowed, wanted[:, :, None], axis=2)[:, :, 0]
    return np.where(usable, wanted, OFF).astype(np.int16)


def static(instance: Instance, *, peak: bool) -> Paths:
    """Return the wish of a reservation: for services the smallest that serves peak (q90) or mean.

    Training jobs get the cheapest constant configuration that ends in time, rigid ones theirs.
    """
    problem, allowed = instance.problem, _allowed(instance)
    constant = np.zeros(problem.size, dtype=np.int64)
    for job in range(problem.size):
        options = np.flatnonzero(allowed[job].any(axis=0) & (problem.grid.boards > 0))
        running = np.array(
            [
                problem.jobs.base_cost[job, allowed[job, :, option], option].sum()
                for option in options
            ]
        )
        demand = instance.demand[job]
        if np.isfinite(demand).all():
            level = float(demand.mean())
            if peak:
                level = float(demand.max() * np.exp(1.2816 * instance.spread))
            good = instance.service[job, options] >= level
            rank = problem.grid.boards[options]
        elif problem.jobs.work[job] > 0:
            hours = allowed[job][: problem.jobs.deadline[job], options].sum(axis=0)
            good = hours * problem.jobs.rate[job, options] >= problem.jobs.work[job]
            rank = running / np.maximum(instance.service[job, options], 1e-9)
        else:
            good, rank = np.ones(len(options), dtype=np.bool_), running
        best = np.where(good, rank, np.inf)
        constant[job] = options[best.argmin() if good.any() else -1]
    return _held(instance, constant)


def reactive(instance: Instance, seen: Floats, *, high: float = 0.9, low: float = 0.5) -> Paths:
    """Return the wish of a threshold rule on services: one size up above `high`, down below `low`.

    `seen` [J, H] is what demand turned out to be; the rule sees the slot before. Other jobs hold
    what `static` gives them.
    """
    problem, allowed = instance.problem, _allowed(instance)
    paths = static(instance, peak=False)
    for job in np.flatnonzero(np.isfinite(instance.demand).all(axis=1)):
        options = np.flatnonzero(allowed[job].all(axis=0) & (problem.grid.boards > 0))
        sizes = options[np.argsort(instance.service[job, options])]
        at = int(np.flatnonzero(sizes == paths[job, 0])[0])
        for slot in range(1, problem.slots):
            load = seen[job, slot - 1] / instance.service[job, sizes[at]]
            at = min(len(sizes) - 1, at + 1) if load > high else at
            at = max(0, at - 1) if load < low else at
            paths[job, slot] = sizes[at]
    return paths


def per_slot(problem: SlotProblem) -> Paths:
    """Return first-fit-decreasing per slot: large wishes first, each the cheapest that fits now.

    A job with work pays for falling behind the steady pace that would finish it in time.
    """
    jobs, cost = problem.jobs, pinned_cost(problem.jobs)
    room = Room(problem)
    paths = np.zeros((problem.size, problem.slots), dtype=np.int16)
    left = jobs.work.copy()
    for slot in range(problem.slots):
        waiting = np.isfinite(cost[:, slot:]).sum(axis=2) > 1
        ahead = np.maximum(waiting.sum(axis=1), 1)
        pace = np.where(slot < jobs.deadline, np.maximum(left, 0.0) / ahead, 0.0)
        behind = np.maximum(pace[:, None] - jobs.rate, 0.0)
        worth = cost[:, slot] + jobs.unfinished_price[:, None] * behind
        order = np.argsort(-problem.grid.boards[worth.argmin(axis=1)], kind="stable")
        for job in order:
            for option in np.argsort(worth[job]):
                if np.isfinite(worth[job, option]) and room.take(int(job), slot, int(option)):
                    paths[job, slot] = option
                    break
        left -= jobs.rate[np.arange(problem.size), paths[:, slot]]
    return paths


def _alone(kernel: KernelProblem, draft: Draft) -> Paths:
    """Return every job's own optimum, as if nothing were shared."""
    nothing, unpriced = np.zeros_like(kernel.limit), np.zeros_like(kernel.node_cost)
    endless = np.full_like(kernel.limit, np.inf)
    free = kernel._replace(limit=endless, over_penalty=endless, floor_price=nothing)
    for job in range(len(kernel.present)):
        insert_best_path(free, job, 1.0, nothing, unpriced, draft, 12, -1.0, draft.path[job])
    return draft.path


def per_job(problem: SlotProblem) -> Paths:
    """Return wish of a dynamic program per job alone, the published recursion without prices."""
    cost = pinned_cost(problem.jobs)
    found = survey(cost, problem.grid.gpu_type, problem.grid.boards, problem.fleet.capacity)
    kernel = make_kernel_problem(problem, coupling_rows(problem), cost, found)
    return _alone(kernel, empty_draft(kernel, problem.jobs.unfinished_price / 3))


def kept(problem: SlotProblem) -> Paths:
    """Return today's allocation."""
    return paths_of_today(problem.jobs, pinned_cost(problem.jobs))
