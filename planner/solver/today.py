"""The plan to start from: today's allocation, or the nearest to it that fits.

Today's allocation may break a limit of a later slot (maintenance, demand response, a pin). Then
jobs keep their path of today while it fits, those that can yield least first, and the others take
their best path in the room that is left.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.base.errors import ImpossibleProblemError
from planner.slots.broken_limits import SLACK
from planner.slots.coupling_rows import CouplingRows
from planner.slots.slot_problem import Floats, Indices, Path, SlotProblem
from planner.solver.insertion_kernel import add_path, changes_too_often, path_fits
from planner.solver.kernel_problem import Draft, KernelProblem, empty_draft
from planner.solver.ruin_recreate_kernel import settle
from planner.solver.work_kernel import insert

_ROUNDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Today:
    """A draft that fits; `fits` says that it is today's allocation itself."""

    draft: Draft
    fits: bool


def plan_of_today(
    problem: SlotProblem,
    kernel: KernelProblem,
    rows: CouplingRows,
    path: Path,
    lam: Floats,
    pausable: npt.NDArray[np.bool_],
) -> Today:
    """Return today's allocation `path` [J, H], repaired where it does not fit.

    Raises ImpossibleProblemError when jobs that must hold GPUs cannot be placed together.
    """
    draft = empty_draft(kernel, lam)
    everyone = np.arange(problem.size)
    draft.path[:] = path
    for job in everyone:
        add_path(kernel, int(job), path[job], 1.0, draft.used)
    steady = not any(changes_too_often(kernel, int(job), path[job]) for job in everyone)
    if steady and rows.fits(draft.used):
        settle(kernel, draft, everyone, path, np.zeros(problem.size))
        return Today(draft=draft, fits=True)
    first: list[int] = []
    for _round in range(_ROUNDS):
        draft = empty_draft(kernel, lam)
        refused = _fill(kernel, draft, _least_flexible(kernel, pausable, first), path)
        if refused is None:
            settle(kernel, draft, everyone, path, np.zeros(problem.size))
            return Today(draft=draft, fits=False)
        if first and refused == first[0]:
            break
        first = [refused, *(job for job in first if job != refused)]
    raise _impossible(problem, kernel, rows, draft, first[0])


def _least_flexible(
    kernel: KernelProblem, pausable: npt.NDArray[np.bool_], first: list[int]
) -> Indices:
    """Return all jobs: `first`, then those that may not always pause, large before small."""
    rank = np.lexsort((-kernel.boards[kernel.present], pausable))
    ahead = set(first)
    return np.array([*first, *(job for job in rank if job not in ahead)], dtype=np.int64)


def _fill(kernel: KernelProblem, draft: Draft, order: Indices, path: Path) -> int | None:
    """Place every job; return the first for which nothing fits."""
    nothing = np.zeros_like(kernel.limit)
    for job in order:
        if path_fits(kernel, job, path[job], draft.used):
            draft.path[job] = path[job]
        elif not insert(
            kernel, job, 0.0, nothing, kernel.node_cost / kernel.boards_per_node, draft, 6,
            -1.0, draft.path[job],
        ):  # fmt: skip
            return int(job)
        add_path(kernel, job, draft.path[job], 1.0, draft.used)
    return None


def _impossible(
    problem: SlotProblem, kernel: KernelProblem, rows: CouplingRows, draft: Draft, job: int
) -> ImpossibleProblemError:
    """Return the error that names the job without room, the slot and the limit."""
    types, domains = rows.types, rows.domains
    name = problem.jobs.names[job]
    for slot in range(problem.slots):
        broken: list[str] = []
        options = np.flatnonzero(np.isfinite(kernel.cost[job, slot]))
        for option in options:
            kind = int(kernel.gpu_type[option])
            if kind < 0:
                broken = []
                break
            amount = np.zeros(len(rows.names))
            amount[kind] = kernel.boards[option]
            amount[types : types + domains] = rows.members[:, kind] * kernel.power[job, option]
            if kernel.tenant[job] >= 0:
                amount[types + domains + kernel.tenant[job]] = kernel.boards[option]
            hard = np.isinf(rows.over_penalty[slot])
            over = hard & (draft.used[slot] + amount > rows.limit[slot] + SLACK) & (amount > 0)
            if not over.any():
                broken = []
                break
            broken += [rows.names[row] for row in np.flatnonzero(over)]
        if broken:
            return ImpossibleProblemError(
                f"job {name!r} finds no room in slot {slot}: {', '.join(sorted(set(broken)))}",
                "allow it to hold nothing there, give the limit a price, or remove a pin",
            )
    return ImpossibleProblemError(
        f"job {name!r} finds no path through the slots",
        "allow it to hold nothing for a while, or more changes a day",
    )
