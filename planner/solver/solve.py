"""The front door: a problem and a budget in, a plan with a certified gap out.

Always in this order: today's allocation (or its repair) is the plan to beat; prices; a plan at
these prices; ruin and recreate; the bound. Whatever the budget, a plan that fits comes back, and
it costs no more than today's. The work is also bounded by counts (`Effort`): with an endless budget
the same problem, seed and effort give the same plan.

Today's allocation may break a limit of a later slot (maintenance, demand response, a pin). Then
jobs keep their path of today while it fits, those that can yield least first, and the others take
their best path in the room that is left.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from data.base.errors import ImpossibleProblemError, PlanningError
from planner.slots.broken_limits import SLACK
from planner.slots.check_problem import check_costs, check_problem
from planner.slots.coupling_rows import CouplingRows, coupling_rows
from planner.slots.exact_program import CLOSE, PROVED
from planner.slots.lanes import pack
from planner.slots.slot_problem import (
    Floats,
    Indices,
    Path,
    SlotProblem,
    paths_of_today,
    pinned_cost,
)
from planner.slots.survey_kernel import CostSurvey, survey
from planner.solver.bounds import (
    BY_MODEL,
    Bound,
    better,
    better_with_jobs_alone,
    certified_bound,
    checked_bound,
)
from planner.solver.exact import exact_plan, states
from planner.solver.insertion_kernel import add_path, changes_too_often, path_fits
from planner.solver.kernel_problem import Draft, KernelProblem, empty_draft, make_kernel_problem
from planner.solver.prices import SMALL_JOBS, Market, PriceSearch, ResourcePrices, settled_prices
from planner.solver.primal import (
    InsertionPrices,
    charges_of,
    dive,
    draft_cost,
    improve,
    priced_sequence,
    release,
)
from planner.solver.replan import PlanPrices, WarmStart, kept_plan, towards
from planner.solver.ruin_recreate_kernel import settle
from planner.solver.solved_plan import Effort, SolvedPlan, Start
from planner.solver.work_kernel import insert_best_path

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
        elif not insert_best_path(
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


_BATCH = 64
_EJECTIONS, _EJECTING = 40, 32
"""The first 32 batches of moves begin with 40 ejections each."""
_EXACT_STATES = 2_000
"""Jobs in slots and configurations up to which an exact program takes less time than a search."""
_DUAL_SHARE, _BOUND_SHARE, _LABEL_SHARE = 0.35, 0.8, 0.95
"""Prices may take the first 35 % of the budget; the bound starts after 80 % at the latest, and no
chunk of its labels, which may take tens of milliseconds, after 95 %."""


class _Clock:
    """The budget, and the history of costs and bounds."""

    def __init__(self, budget_seconds: float) -> None:
        self._start = time.monotonic()
        self._budget = budget_seconds
        self.history: list[tuple[float, float, float]] = []

    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._start

    def left(self) -> float:
        """Return the seconds that are left."""
        return self._budget - self.seconds()

    def after(self, share: float) -> Callable[[], bool]:
        """Return the question whether this share of the budget is spent."""
        return lambda: self.seconds() >= share * self._budget

    def note(self, cost: float, bound: float) -> None:
        """Record the present cost and bound."""
        self.history.append((self.seconds(), cost, bound))


@dataclass(frozen=True, slots=True, kw_only=True)
class _SolveTask:
    """A problem prepared for the kernels, with the announced paths."""

    problem: SlotProblem
    rows: CouplingRows
    market: Market
    kernel: KernelProblem
    survey: CostSurvey
    announced: Path
    churn: Floats
    seed: int


def solve(
    problem: SlotProblem,
    *,
    budget_seconds: float,
    seed: int = 1,
    effort: Effort | None = None,
    warm: WarmStart | None = None,
    start: Start | None = None,
) -> SolvedPlan:
    """Return a plan that fits, no dearer than today's, with its certified bound.

    `budget_seconds` of wall clock may be 0 (today's plan, and the bound of one round of programs)
    or infinite (`effort` alone bounds the work). `seed` >= 1. `warm` is an earlier plan that jobs
    leave only where it pays, `start` where the search begins.

    Raises ImpossibleProblemError when the problem contradicts itself or when jobs that must hold
    GPUs find no room, PlanningError when `warm` is not of this problem's shape.
    """
    clock = _Clock(budget_seconds)
    effort = effort or Effort()
    check_problem(problem)
    task = _prepared(problem, warm, seed)
    prices = start.prices if start else warm.prices if warm else None
    first = _start_prices(task.market, prices)
    search = _priced(task, first, effort, clock, warm=prices is not None)
    charges = charges_of(task.market, search.prices, search.values)
    today_path = paths_of_today(problem.jobs, task.kernel.cost)
    try:
        today = plan_of_today(
            problem, task.kernel, task.rows, today_path, charges.lam, task.survey.pausable
        )
    except ImpossibleProblemError:
        best, _bound = _exact(task, None, charges, clock)
        if best is None:
            raise
        today = Today(draft=best, fits=False)
    now_cost = draft_cost(today.draft)
    clock.note(now_cost, search.bound)
    if start is not None and start.paths is not None:
        draft = _joined(task, search, charges, today, start.paths)
    else:
        draft = _first_plan(task, search, charges, today, effort, clock, warm)
    proved = Bound(value=-math.inf, name=BY_MODEL)
    if effort.exact and effort.moves and problem.size and clock.left() > 0:
        best, proved = _exact(task, draft, charges, clock)
        draft = best or draft
    moves = _improved(task, draft, charges, max(search.bound, proved.value), effort, clock)
    if draft_cost(draft) > now_cost:
        draft = today.draft
    if _closed(draft, proved.value):
        bound = proved
    elif start is not None and start.bound is not None:
        bound = better_with_jobs_alone(start.bound, task.kernel, charges.lam, task.survey.forced)
    else:
        bound = certified_bound(
            task.kernel,
            task.market,
            search.prices,
            forced=task.survey.forced,
            label_room=effort.label_room,
            expired=clock.after(_LABEL_SHARE),
        )
    bound = better(bound, proved)
    clock.note(draft_cost(draft), bound.value)
    return _solved(task, draft, today, search, bound, moves, clock)


def _prepared(problem: SlotProblem, warm: WarmStart | None, seed: int) -> _SolveTask:
    cost = pinned_cost(problem.jobs)
    costs = survey(cost, problem.grid.gpu_type, problem.grid.boards, problem.fleet.capacity)
    check_costs(problem, costs)
    rows = coupling_rows(problem)
    announced, churn = paths_of_today(problem.jobs, cost), np.zeros(problem.size)
    if warm is not None:
        if warm.announced.shape != announced.shape or warm.prices.rows.shape != rows.limit.shape:
            raise PlanningError(
                f"the earlier plan has {warm.announced.shape} paths and {warm.prices.rows.shape} "
                f"prices, the problem {announced.shape} and {rows.limit.shape}",
                "plan without warm_start when slots, types, power domains or tenants change",
            )
        announced = np.ascontiguousarray(warm.announced)
        churn = np.where(warm.kept, warm.churn_price, 0.0)
    return _SolveTask(
        problem=problem,
        rows=rows,
        market=Market(lanes=pack(problem, cost, costs), rows=rows, fleet=problem.fleet),
        kernel=make_kernel_problem(problem, rows, cost, costs),
        survey=costs,
        announced=announced,
        churn=churn,
        seed=seed,
    )


def _start_prices(market: Market, last: PlanPrices | None) -> ResourcePrices:
    free = market.free_prices()
    if last is None:
        return free
    lanes = market.lanes.job >= 0
    work = np.zeros_like(free.work)
    work[lanes] = last.work[market.lanes.job[lanes]]
    work = np.minimum(work, market.lanes.unfinished_price)
    return replace(market.boxed(last.rows, last.boots), work=work)


def _priced(
    task: _SolveTask, start: ResourcePrices, effort: Effort, clock: _Clock, *, warm: bool
) -> PriceSearch:
    return settled_prices(
        task.market,
        start,
        jobs=task.problem.size,
        most_steps=effort.price_steps,
        warm=warm,
        expired=clock.after(_DUAL_SHARE),
    )


def _first_plan(
    task: _SolveTask,
    search: PriceSearch,
    charges: InsertionPrices,
    today: Today,
    effort: Effort,
    clock: _Clock,
    warm: WarmStart | None,
) -> Draft:
    """Return the cheapest of today's plan, the kept one or the priced one, and the dive's."""
    best = today.draft.copy()
    everyone = np.arange(task.problem.size)
    settle(task.kernel, best, everyone, task.announced, task.churn)
    if warm is not None:
        drafts = [
            kept_plan(task.kernel, charges, warm, task.churn, newcomers_first=first)
            for first in (False, True)
        ]
        if None in drafts:
            drafts.append(towards(task.kernel, charges, today.draft, warm, task.churn))
        for draft in drafts:
            best = _cheaper(task, best, draft)
        if task.problem.size <= SMALL_JOBS:
            # A lone job is in no move, so the announced path would be its last.
            draft = priced_sequence(task.kernel, charges, task.announced, task.churn, task.seed)
            best = _cheaper(task, best, draft)
        clock.note(draft_cost(best), search.bound)
        return best
    if clock.left() <= 0:
        return best
    draft = priced_sequence(task.kernel, charges, task.announced, task.churn, task.seed)
    best = _cheaper(task, best, draft)
    clock.note(draft_cost(best), search.bound)
    step = clock.seconds() / (len(search.trace) + 4)
    chunks = min(effort.dive_chunks, len(task.market.lanes.rows))
    small = effort.exact and states(task.kernel.cost) <= _EXACT_STATES
    if chunks > 1 and not small and clock.left() > 2 * chunks * 2 * step:
        draft = dive(
            task.kernel,
            task.market,
            search.prices,
            search.scale,
            chunks=chunks,
            announced=task.announced,
            churn_price=task.churn,
            seed=task.seed,
        )
        best = _cheaper(task, best, draft)
        clock.note(draft_cost(best), search.bound)
    return best


def _joined(
    task: _SolveTask, search: PriceSearch, charges: InsertionPrices, today: Today, paths: Path
) -> Draft:
    """Return the cheaper of today's plan and `paths`, jobs that they overfill planned anew."""
    everyone = np.arange(task.problem.size)
    best = today.draft.copy()
    settle(task.kernel, best, everyone, task.announced, task.churn)
    prices = PlanPrices(rows=charges.rows, boots=search.prices.boots, work=charges.lam)
    everyone_kept = np.ones(task.problem.size, dtype=np.bool_)
    warm = WarmStart(prices=prices, announced=paths, kept=everyone_kept, churn_price=0.0)
    draft = kept_plan(task.kernel, charges, warm, np.zeros_like(task.churn), newcomers_first=False)
    if draft is not None:
        settle(task.kernel, draft, everyone, task.announced, task.churn)
    return _cheaper(task, best, draft)


def _exact(
    task: _SolveTask, draft: Draft | None, charges: InsertionPrices, clock: _Clock
) -> tuple[Draft | None, Bound]:
    """Return the cheaper of a draft and the exact plan, and what that proves; of few states."""
    bound = Bound(value=-math.inf, name=BY_MODEL)
    if states(task.kernel.cost) > _EXACT_STATES:
        return draft, bound
    free = np.zeros_like(task.churn)
    for churn in (free, task.churn) if task.churn.any() else (free,):
        paths, value = exact_plan(
            task.problem,
            task.rows,
            task.kernel.cost,
            announced=task.announced,
            churn=churn,
            below=math.inf if draft is None else draft_cost(draft) + _charged(churn, draft),
            seconds=_BOUND_SHARE * clock.left(),
        )
        if churn is free:
            bound = replace(bound, value=value)
        if paths is not None:
            other = empty_draft(task.kernel, charges.lam)
            other.path[:] = paths
            for job in range(task.problem.size):
                add_path(task.kernel, job, other.path[job], 1.0, other.used)
            settle(task.kernel, other, np.arange(task.problem.size), task.announced, task.churn)
            saved = math.inf if draft is None else _charged(task.churn, draft) + draft_cost(draft)
            saved -= _charged(task.churn, other) + draft_cost(other)
            draft = other if draft is None or saved > CLOSE * abs(draft_cost(draft)) else draft
    return draft, bound


def _charged(churn: Floats, draft: Draft) -> float:
    return float(churn[draft.changed].sum())


def _cheaper(task: _SolveTask, one: Draft, other: Draft | None) -> Draft:
    """Return the draft with the lower cost, churn included."""
    if other is None:
        return one
    costs = [draft_cost(draft) + _charged(task.churn, draft) for draft in (one, other)]
    return other if costs[1] < costs[0] else one


def _closed(draft: Draft, bound: float) -> bool:
    cost = draft_cost(draft)
    return cost - bound <= PROVED * max(1.0, abs(cost))


def _improved(
    task: _SolveTask,
    draft: Draft,
    charges: InsertionPrices,
    bound: float,
    effort: Effort,
    clock: _Clock,
) -> int:
    """Improve the draft in batches of moves; return how many were tried."""
    movable = np.flatnonzero(task.survey.movable)
    state = np.array([0x9E3779B97F4A7C15 ^ (task.seed * 0x2545F491)], dtype=np.uint64)
    done = 0
    expired = clock.after(_BOUND_SHARE)
    while done < effort.moves and len(movable) > 1 and not expired():
        if _closed(draft, bound):
            break
        batch = min(_BATCH, effort.moves - done)
        if done < _EJECTING * _BATCH:
            release(
                task.kernel,
                draft,
                charges,
                moves=_EJECTIONS,
                announced=task.announced,
                churn_price=task.churn,
                state=state,
            )
        improve(
            task.kernel,
            draft,
            charges,
            moves=batch,
            announced=task.announced,
            churn_price=task.churn,
            movable=movable,
            state=state,
        )
        done += batch
        clock.note(draft_cost(draft), bound)
    return done


def _solved(
    task: _SolveTask,
    draft: Draft,
    today: Today,
    search: PriceSearch,
    bound: Bound,
    moves: int,
    clock: _Clock,
) -> SolvedPlan:
    cost = draft_cost(draft)
    if not math.isfinite(cost) or not task.rows.fits(draft.used):
        raise PlanningError(
            "the plan breaks a limit that it was built to keep", "report it with the problem"
        )
    lam = np.zeros(task.problem.size)
    lanes = task.market.lanes.job >= 0
    lam[task.market.lanes.job[lanes]] = search.prices.work[lanes]
    return SolvedPlan(
        paths=draft.path,
        cost=cost,
        cost_of_now=draft_cost(today.draft),
        now_fits=today.fits,
        lower_bound=checked_bound(bound.value, cost),
        bound_name=bound.name,
        prices=PlanPrices(rows=search.prices.rows, boots=search.prices.boots, work=lam),
        used=draft.used,
        changed=np.flatnonzero((draft.path != task.announced).any(axis=1)),
        violated=task.rows.violations(draft.used),
        price_steps=len(search.trace),
        moves=moves,
        seconds=clock.seconds(),
        history=tuple(clock.history),
    )
