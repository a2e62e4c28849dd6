"""Planning again: old prices shifted, paths of unchanged jobs kept, changes only where they pay.

After a slot little has changed: old prices are within 0.01 % of the new ones, and re-inserting the
few new jobs keeps the rest. A path that differs from the announced one costs its job the churn
price inside the search (not in the published cost), so that plans of equal cost do not flap.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from planner.slots.slot_problem import NOTHING, Floats, Indices, Path, SlotProblem
from planner.solver.insertion_kernel import add_path, path_fits
from planner.solver.kernel_problem import Draft, KernelProblem, empty_draft
from planner.solver.primal import InsertionPrices
from planner.solver.ruin_recreate_kernel import settle
from planner.solver.work_kernel import insert_best_path

_WEIGHT = 0.8
_SEARCHES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPrices:
    """Prices of a plan: rows [H, R], boots [H, G], work [J] per unit of work."""

    rows: Floats
    boots: Floats
    work: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """The start that an earlier plan gives the next: its prices, and the paths that it announced.

    announced [J, H] of the new problem; kept [J] is False for jobs that are new or whose costs
    changed: they are planned anew at no churn price. churn_price is the saving that a kept job
    must bring to leave its announced path.
    """

    prices: PlanPrices
    announced: Path
    kept: npt.NDArray[np.bool_]
    churn_price: float


def frozen(problem: SlotProblem, announced: Path, slots: int) -> SlotProblem:
    """Return problem with the first slots pinned to the announced paths [J, H] where allowed."""
    jobs = problem.jobs
    required = np.full((problem.size, problem.slots), NOTHING, dtype=np.int16)
    if jobs.required is not None:
        required[:] = jobs.required
    first = announced[:, :slots].astype(np.int64)
    costs = np.take_along_axis(jobs.base_cost[:, :slots], first[:, :, None], axis=2)[:, :, 0]
    open_slots = (required[:, :slots] < 0) & np.isfinite(costs)
    required[:, :slots] = np.where(open_slots, first, required[:, :slots])
    return replace(problem, jobs=replace(jobs, required=required))


def kept_plan(
    kernel: KernelProblem,
    charges: InsertionPrices,
    warm: WarmStart,
    churn: Floats,
    *,
    newcomers_first: bool,
) -> Draft | None:
    """Return the announced plan with the other jobs inserted; None when one finds no room.

    newcomers_first: the other jobs take their place at full prices, and the announced paths that
    they displace are planned anew: small ones, since large ones are kept first and find another
    place least. Otherwise they take what the announced paths leave.
    """
    draft = empty_draft(kernel, charges.lam)
    new = np.flatnonzero(~warm.kept)
    if newcomers_first and not _inserted(kernel, draft, charges, new, 1.0):
        return None
    boards = kernel.boards[warm.announced].sum(axis=1)
    large_first = np.argsort(-boards, kind="stable")
    displaced = [
        job
        for job in large_first[warm.kept[large_first]]
        if not _add_if_fits(kernel, draft, int(job), warm.announced[job])
    ]
    late = displaced if newcomers_first else [*displaced, *new]
    if not _inserted(kernel, draft, charges, np.array(late, dtype=np.int64), _WEIGHT):
        return None
    settle(kernel, draft, np.arange(len(kernel.present)), warm.announced, churn)
    return draft


def towards(
    kernel: KernelProblem, charges: InsertionPrices, today: Draft, warm: WarmStart, churn: Floats
) -> Draft:
    """Return today's plan with every announced path of a kept job that fits, others planned anew.

    There is always one, also where `kept_plan` finds no room for a job. Jobs that give most boards
    back go first, again and again as long as that made room for one that takes more.
    """
    draft = today.copy()
    jobs = np.flatnonzero(warm.kept & (warm.announced != draft.path).any(axis=1))
    more = kernel.boards[warm.announced[jobs]].sum(axis=1) - kernel.boards[draft.path[jobs]].sum(1)
    waiting = [int(job) for job in jobs[np.argsort(more, kind="stable")]]
    while waiting:
        late = []
        for job in waiting:
            add_path(kernel, job, draft.path[job], -1.0, draft.used)
            if not _add_if_fits(kernel, draft, job, warm.announced[job]):
                add_path(kernel, job, draft.path[job], 1.0, draft.used)
                late.append(job)
        if len(late) == len(waiting):
            break
        waiting = late
    for new in map(int, np.flatnonzero(~warm.kept)):
        present = draft.path[new].copy()
        add_path(kernel, new, present, -1.0, draft.used)
        if not _inserted(kernel, draft, charges, np.array([new]), _WEIGHT):
            _add_if_fits(kernel, draft, new, present)
    settle(kernel, draft, np.arange(len(kernel.present)), warm.announced, churn)
    return draft


def _add_if_fits(kernel: KernelProblem, draft: Draft, job: int, path: Path) -> bool:
    """Add an announced path where it fits."""
    if not path_fits(kernel, job, path, draft.used):
        return False
    draft.path[job] = path
    add_path(kernel, job, path, 1.0, draft.used)
    return True


def _inserted(
    kernel: KernelProblem, draft: Draft, charges: InsertionPrices, jobs: Indices, weight: float
) -> bool:
    """Insert the jobs one after the other; False when one finds no room."""
    for job in jobs:
        path = draft.path[job]
        if not insert_best_path(
            kernel, job, weight, charges.rows, charges.nodes, draft, _SEARCHES, -1.0, path
        ):
            return False
        add_path(kernel, job, path, 1.0, draft.used)
    return True
