"""The work of a part: its answer to prices, its plan in its share, its part of the bound.

Each is a function of the opened part and its argument alone: where and how often it is computed
makes no difference.
"""

from dataclasses import dataclass

import numpy as np

from data.base.errors import ImpossibleProblemError
from planner.partitions.split import FleetPart
from planner.slots.check_problem import check_costs
from planner.slots.coupling_rows import coupling_rows
from planner.slots.lanes import pack
from planner.slots.slot_problem import Floats, SlotProblem, pinned_cost
from planner.slots.survey_kernel import survey
from planner.solver.bounds import Bound, jobs_bound
from planner.solver.kernel_problem import KernelProblem, make_kernel_problem
from planner.solver.prices import BlockAnswer, Market, ResourcePrices
from planner.solver.primal import charges_of
from planner.solver.replan import WarmStart
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
