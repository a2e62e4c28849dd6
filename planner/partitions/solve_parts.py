"""A slot problem solved in parts (clusters, pools, tenants), in other processes if given.

    1 prices   of all that parts share: parts answer, their use together moves the prices
    2 shares   of every limit, in proportion to the parts' use at these prices
    3 plans    each part by itself, in its share, from these prices
    4 bound    sum of what jobs cost at least at the best prices, plus what no job decides
    5 joint    the paths put together, never dearer than today's allocation, and improved

Lagrangian decomposition (Geoffrion 1974) with a right-hand-side allocation for the primal. The
shares of a limit add up to it, so the parts' plans fit together. Parts that share nothing need no
prices: each is solved by itself and the sum of the bounds is the bound.

Shares of common resources by part, in proportion to use at the last prices.

At prices near the best ones the mean of the jobs' answers nearly fits, so a share is close to what
the part takes in the plan of the whole. What no other part can use belongs to one part.

A part is a cluster (jobs that one source names), a pool (boards that are alike to a plan, and the
jobs that hold some of them now), or a tenant (`tenants.by`). What jobs of several parts may use is
shared; it gets prices: each part answers them, and their use together moves them. The steps are
those of the whole problem (`planner.solver.prices`), so the bound is as good as undivided; a round
sends each part the prices [H, R + G] and gets back its use [H, R] and one sum.

The work of a part is a function of the opened part and its argument alone: where and how often it
is computed makes no difference.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from data.base.errors import ImpossibleProblemError
from planner.partitions.split import FleetPart, Shares, limited, split, touched, warmth_of_part
from planner.partitions.workers import LocalWorkforce, Workforce, Workplaces
from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import PlanningProblem
from planner.slots.check_problem import check_costs, check_problem
from planner.slots.coupling_rows import CouplingRows, coupling_rows
from planner.slots.lanes import pack
from planner.slots.plan_cost import use_of
from planner.slots.slot_problem import (
    Floats,
    Indices,
    Path,
    SlotFleet,
    SlotProblem,
    paths_of_today,
    pinned_cost,
)
from planner.slots.survey_kernel import survey
from planner.solver.bounds import Bound, jobs_bound, priced_constant
from planner.solver.kernel_problem import KernelProblem, make_kernel_problem
from planner.solver.prices import (
    BlockAnswer,
    Market,
    PriceExchange,
    PriceSearch,
    ResourcePrices,
    settled_prices,
)
from planner.solver.primal import charges_of
from planner.solver.replan import PlanPrices, WarmStart
from planner.solver.solve import solve
from planner.solver.solved_plan import Effort, SolvedPlan, Start


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPart:
    """A part that can answer prices."""

    market: Market
    kernel: KernelProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class PartLayout:
    """A part's packed jobs as the joint market needs them, arrays [B, 16]."""

    job: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    unfinished_price: Floats


def open_part(part: FleetPart) -> OpenPart:
    """Pack the jobs of a part. Errors: ImpossibleProblemError for costs that make no sense."""
    problem = part.problem
    cost = pinned_cost(problem.jobs)
    costs = survey(cost, problem.grid.gpu_type, problem.grid.boards, problem.fleet.capacity)
    check_costs(problem, costs)
    rows = coupling_rows(problem)
    return OpenPart(
        market=Market(lanes=pack(problem, cost, costs), rows=rows, fleet=problem.fleet),
        kernel=make_kernel_problem(problem, rows, cost, costs),
    )


def layout_of(part: OpenPart, _nothing: object) -> PartLayout:
    """Return the layout of the part's packed jobs."""
    lanes = part.market.lanes
    return PartLayout(job=lanes.job, unfinished_price=lanes.unfinished_price)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Prices, with those of the part's work, and how often its price of work may be searched."""

    prices: ResourcePrices
    searches: int


def answer_of(part: OpenPart, question: Question) -> BlockAnswer:
    """Return the answer of the part's jobs to these prices."""
    market = part.market
    return market.ask(question.prices, market.all_blocks, searches=question.searches)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """The task of a part's plan: its problem within its share, and its start."""

    problem: SlotProblem
    budget_seconds: float
    seed: int
    effort: Effort
    warm: WarmStart | None
    start: Start | None


def plan_of(_part: OpenPart, errand: PartitionTask) -> SolvedPlan | None:
    """Return the part's plan; None when its jobs find no room in its share."""
    try:
        return solve(
            errand.problem,
            budget_seconds=errand.budget_seconds,
            seed=errand.seed,
            effort=errand.effort,
            warm=errand.warm,
            start=errand.start,
        )
    except ImpossibleProblemError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundQuestion:
    """Prices, with those of the part's work, and the labels of a slot and configuration."""

    prices: ResourcePrices
    label_room: int


def bound_of(part: OpenPart, question: BoundQuestion) -> Bound:
    """Return a lower bound on the part's jobs at these prices."""
    return jobs_bound(
        part.kernel,
        charges_of(part.market, question.prices),
        label_room=question.label_room,
        expired=lambda: False,
    )


def parts_of_jobs(problem: PlanningProblem) -> Indices:
    """Return the number of the part of every job [J].

    All the same where the plan is not divided.
    """
    names = [_part_of(problem, column, job) for column, job in enumerate(problem.jobs)]
    number = {name: index for index, name in enumerate(sorted(set(names)))}
    return np.array([number[name] for name in names], dtype=np.int64)


def _part_of(problem: PlanningProblem, column: int, job_problem: JobProblem) -> str:
    job = job_problem.demand.job
    match problem.planning.partition_by:
        case "cluster":
            return f"{job.platform} {job.source}"
        case "pool":
            return str(problem.pools.of_job[column])
        case "tenant":
            return job.tenant(problem.rules.tenants.by)
        case _:
            return ""


_PRICE_MEMORY = 0.9


class MeanUse:
    """The mean of what parts used [P, H, R], later answers counting more."""

    def __init__(self, parts: int, shape: tuple[int, ...]) -> None:
        self._sum = np.zeros((parts, *shape))
        self._weight = 0.0

    def note(self, used: Sequence[Floats]) -> None:
        """Take in one round of answers."""
        self._sum = _PRICE_MEMORY * self._sum + np.stack(used)
        self._weight = _PRICE_MEMORY * self._weight + 1

    def mean(self) -> Floats:
        """Return the mean of the rounds so far."""
        return np.asarray(self._sum / self._weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartMarket(PriceExchange):
    """All parts as one market; blocks [B, 16] of the parts lie one after another."""

    places: Workplaces
    layouts: tuple[PartLayout, ...]
    mean_use: MeanUse

    @property
    def all_blocks(self) -> Indices:
        """Return every block."""
        return np.arange(sum(len(layout.job) for layout in self.layouts))

    def part_prices(self, prices: ResourcePrices) -> list[ResourcePrices]:
        """Return the prices for each part, with those of its own work."""
        ends = np.cumsum([0, *(len(layout.job) for layout in self.layouts)])
        return [replace(prices, work=prices.work[a:b]) for a, b in pairwise(ends)]

    def ask(self, prices: ResourcePrices, blocks: Indices, *, searches: int) -> BlockAnswer:
        """Return the optimum of every job at these prices: each part answers for all its blocks."""
        del blocks
        answers = self.places.each(
            answer_of,
            [Question(prices=price, searches=searches) for price in self.part_prices(prices)],
        )
        self.mean_use.note([entry.used for entry in answers])
        return BlockAnswer(
            value=sum(entry.value for entry in answers),
            values=np.concatenate([entry.values for entry in answers]),
            used=np.sum([entry.used for entry in answers], axis=0),
            work=np.concatenate([entry.work for entry in answers]),
        )

    def free_prices(self) -> ResourcePrices:
        """Return prices of zero; work at a third of what unfinished work costs."""
        shape = self.rows.limit.shape
        unfinished = np.concatenate([layout.unfinished_price for layout in self.layouts])
        return ResourcePrices(
            rows=np.zeros(shape),
            boots=np.zeros((shape[0], self.rows.types)),
            work=unfinished / 3,
        )


_TOLERANCE = 1e-9


def shares_of(
    used: Floats,
    touches: npt.NDArray[np.bool_],
    rows: CouplingRows,
    fleet: SlotFleet,
    *,
    integral: bool,
) -> Shares:
    """Return the shares of parts that use used [P, H, R] and may use touches [P, R].

    `integral`: configurations hold whole boards, so boards are shared out whole.
    """
    ratio = _ratios(used, touches)
    free, limit = ratio * rows.free, ratio * rows.limit
    if integral:
        boards = np.ones(len(rows.names), dtype=np.bool_)
        boards[rows.types : rows.types + rows.domains] = False
        limit[:, :, boards] = _rounded(limit[:, :, boards], rows.limit[:, boards])
        free[:, :, boards] = np.minimum(free[:, :, boards], limit[:, :, boards])
        # Capacity has no room between what is free and the limit.
        free[:, :, : rows.types] = limit[:, :, : rows.types]
    return Shares(
        floor=ratio * rows.floor,
        free=free,
        limit=limit,
        nodes_on=ratio[:, 0, : rows.types] * fleet.nodes_on,
    )


def _ratios(used: Floats, touches: npt.NDArray[np.bool_]) -> Floats:
    """Return the share [P, H, R] of every part: of a row that nobody may use, the first has all."""
    may = touches.copy()
    may[0, ~touches.any(axis=0)] = True
    use = np.where(may[:, None, :], used, 0.0)
    total = use.sum(axis=0)
    even = may / may.sum(axis=0)
    proportional = np.divide(use, total, where=total > _TOLERANCE, out=np.zeros_like(use))
    return np.asarray(np.where(total > _TOLERANCE, proportional, even[:, None, :]))


def _rounded(shares: Floats, total: Floats) -> Floats:
    """Return whole numbers [P, H, R] summing to the whole part of the total: largest rest first."""
    down = np.floor(shares + _TOLERANCE)
    rest = np.floor(total + _TOLERANCE) - down.sum(axis=0)
    order = np.argsort(-(shares - down), axis=0, kind="stable")
    rank = np.argsort(order, axis=0, kind="stable")
    return np.asarray(down + (rank < rest))


_PRICE_SHARE, _PART_SHARE = 0.3, 0.6
"""Prices may take so much of the budget, the parts' plans so much of what is then left."""
_JOINT_MOVES = 0.25
"""Moves of the joint plan beside those of all parts."""
_WHOLE_WITHIN = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """One call: the problem, its parts, the rows that they touch [P, R], and the budget."""

    problem: SlotProblem
    rows: CouplingRows
    parts: tuple[FleetPart, ...]
    touches: npt.NDArray[np.bool_]
    warm: WarmStart | None
    seed: int
    effort: Effort
    started: float
    budget_seconds: float

    def left(self) -> float:
        """Return the seconds that are left."""
        return max(0.0, self.budget_seconds - (time.monotonic() - self.started))

    @property
    def shared(self) -> bool:
        """Return whether two parts may use one row."""
        return bool((self.touches.sum(axis=0) > 1).any())


def solve_parts(
    problem: SlotProblem,
    part_of: Indices,
    *,
    budget_seconds: float,
    seed: int = 1,
    effort: Effort | None = None,
    warm: WarmStart | None = None,
    workforce: Workforce | None = None,
) -> SolvedPlan:
    """Return the plan of the jobs' parts, part_of [J], with the certified bound of the whole.

    `effort` is that of the whole; each part has its share of the moves by jobs. The same problem,
    parts, seed and effort give the same plan, whatever the workforce (this process by default) and
    whatever of it is lost on the way, as long as the budget does not end the work early.

    Raises ImpossibleProblemError and PlanningError as `solve` does.
    """
    effort = effort or Effort()
    if len(np.unique(part_of)) < 2:
        return solve(problem, budget_seconds=budget_seconds, seed=seed, effort=effort, warm=warm)
    started = time.monotonic()
    check_problem(problem)
    rows = coupling_rows(problem)
    parts = split(problem, part_of, warm)
    task = _Task(
        problem=problem,
        rows=rows,
        parts=parts,
        touches=np.stack([touched(part, rows) for part in parts]),
        warm=warm,
        seed=seed,
        effort=effort,
        started=started,
        budget_seconds=budget_seconds,
    )
    weights = [float(part.problem.jobs.base_cost.size) for part in parts]
    with (workforce or LocalWorkforce()).opened(open_part, parts, weights) as places:
        start, plans, steps = _coupled(task, places) if task.shared else _apart(task, places)
    joint = Effort(
        price_steps=0, moves=round(_JOINT_MOVES * effort.moves) if task.shared else 0, label_room=0
    )
    solved = solve(
        problem, budget_seconds=task.left(), seed=seed, effort=joint, warm=warm, start=start
    )
    return replace(
        solved,
        prices=start.prices,
        price_steps=steps,
        moves=solved.moves + sum(entry.moves for entry in plans if entry is not None),
        seconds=time.monotonic() - started,
    )


Made = Sequence[SolvedPlan | None]


def _coupled(task: _Task, places: Workplaces) -> tuple[Start, Made, int]:
    """Return the joint start of parts that share rows, their plans, and the price steps made."""
    layouts = tuple(places.each(layout_of, [None] * len(task.parts)))
    market = PartMarket(
        rows=task.rows,
        fleet=task.problem.fleet,
        places=places,
        layouts=layouts,
        mean_use=MeanUse(len(task.parts), task.rows.limit.shape),
    )
    search = _priced(task, market)
    each = market.part_prices(search.prices)
    prices = [
        _by_job(resource_prices, layout.job)
        for resource_prices, layout in zip(each, layouts, strict=True)
    ]
    plans = _plans(task, places, _shares(task, _use_of_parts(task, market.mean_use)), prices)
    bounds = places.each(
        bound_of,
        [
            BoundQuestion(prices=resource_prices, label_room=task.effort.label_room)
            for resource_prices in each
        ],
    )
    value = sum(bound.value for bound in bounds) + priced_constant(market, search.prices)
    start = Start(
        prices=_joint_prices(task, prices, search.prices.rows, search.prices.boots),
        paths=_together(task, plans),
        bound=Bound(value=value, name=_name(bounds)),
    )
    return start, plans, len(search.trace)


def _priced(task: _Task, market: PartMarket) -> PriceSearch:
    start = market.free_prices()
    if task.warm is not None:
        start = market.boxed(task.warm.prices.rows, task.warm.prices.boots)
        work = [
            np.where(layout.job >= 0, task.warm.prices.work[part.jobs][layout.job], 0.0)
            for part, layout in zip(task.parts, market.layouts, strict=True)
        ]
        most = np.concatenate([layout.unfinished_price for layout in market.layouts])
        start = replace(start, work=np.minimum(np.concatenate(work), most))
    end = task.started + _PRICE_SHARE * task.budget_seconds
    return settled_prices(
        market,
        start,
        jobs=task.problem.size,
        most_steps=task.effort.price_steps,
        warm=task.warm is not None,
        expired=lambda: time.monotonic() >= end,
    )


def _by_job(prices: ResourcePrices, job_of_lane: Indices) -> PlanPrices:
    """Return a part's prices with those of work by job."""
    lanes = job_of_lane >= 0
    work = np.zeros(int(lanes.sum()))
    work[job_of_lane[lanes]] = prices.work[lanes]
    return PlanPrices(rows=prices.rows, boots=prices.boots, work=work)


def _joint_prices(
    task: _Task, parts: Sequence[PlanPrices], rows: Floats, boots: Floats
) -> PlanPrices:
    work = np.zeros(task.problem.size)
    for part, part_prices in zip(task.parts, parts, strict=True):
        work[part.jobs] = part_prices.work
    return PlanPrices(rows=rows, boots=boots, work=work)


def _use_of_parts(task: _Task, answered: MeanUse) -> Floats:
    """Return the use [P, H, R] that shares follow: of the announced paths, or of the answers."""
    if task.warm is None:
        return answered.mean()
    announced = [warmth_of_part(part, task.warm).announced for part in task.parts]
    return np.stack(
        [
            use_of(part.problem, task.rows, paths)
            for part, paths in zip(task.parts, announced, strict=True)
        ]
    )


def _shares(task: _Task, use: Floats) -> Shares:
    boards = task.problem.grid.boards
    integral = bool((np.abs(boards - np.round(boards)) < _WHOLE_WITHIN).all())
    return shares_of(use, task.touches, task.rows, task.problem.fleet, integral=integral)


def _plans(
    task: _Task,
    places: Workplaces,
    shares: Shares,
    prices: Sequence[PlanPrices] | None,
) -> Made:
    """Return every part's plan in its share, from prices where they are known already.

    None is a part whose jobs find no room there. Without prices the bound is the part's as well.
    """
    errands = []
    for number, part in enumerate(task.parts):
        own_prices = None if prices is None else prices[number]
        warm = None if task.warm is None else warmth_of_part(part, task.warm)
        if warm is not None and own_prices is not None:
            warm = replace(warm, prices=own_prices)
        ratio = len(part.jobs) / task.problem.size
        errands.append(
            PartitionTask(
                problem=limited(part, number, shares, task.rows),
                budget_seconds=_PART_SHARE * task.left() * min(1.0, places.at_once * ratio),
                seed=task.seed,
                effort=replace(
                    task.effort,
                    moves=int(np.ceil(task.effort.moves * ratio)),
                    label_room=0 if prices is not None else task.effort.label_room,
                ),
                warm=warm,
                start=Start(prices=own_prices) if own_prices is not None and warm is None else None,
            )
        )
    return places.each(plan_of, errands)


def _together(task: _Task, plans: Made) -> Path:
    """Return the parts' paths as those of the whole.

    Jobs of a part without plan as they are now.
    """
    jobs = task.problem.jobs
    paths = paths_of_today(jobs, pinned_cost(jobs))
    for part, plan in zip(task.parts, plans, strict=True):
        if plan is not None:
            paths[part.jobs] = part.columns[plan.paths]
    return paths


def _apart(task: _Task, places: Workplaces) -> tuple[Start, Made, int]:
    """Return the start of parts that share nothing: each solved by itself, bounds added up."""
    nothing = np.zeros((len(task.parts), *task.rows.limit.shape))
    plans = _plans(task, places, _shares(task, nothing), None)
    rows, boots = np.zeros(task.rows.limit.shape), np.zeros_like(task.problem.fleet.capacity.T)
    solved = [entry for entry in plans if entry is not None]
    if len(solved) < len(plans):
        # There is no room anywhere else: the whole problem says for which job, or finds a way.
        joint = solve(task.problem, budget_seconds=task.left(), seed=task.seed, effort=task.effort)
        return Start(prices=joint.prices, paths=joint.paths), plans, joint.price_steps
    for part, plan in zip(task.touches, solved, strict=True):
        rows[:, part] = plan.prices.rows[:, part]
        types = part[: task.rows.types]
        boots[:, types] = plan.prices.boots[:, types]
    value = sum(prices.lower_bound for prices in solved)
    names = [Bound(value=prices.lower_bound, name=prices.bound_name) for prices in solved]
    start = Start(
        prices=_joint_prices(task, [plan.prices for plan in solved], rows, boots),
        paths=_together(task, plans),
        bound=Bound(value=value, name=_name(names)),
    )
    return start, plans, max(prices.price_steps for prices in solved)


def _name(bounds: Sequence[Bound]) -> str:
    """Return the names of the parts' bounds, each once."""
    return ", ".join(sorted({bound.name for bound in bounds}))
