"""Planning on from the last plan: its prices and paths, its first slots frozen, churn at a price.

A plan is kept with what the next one starts from. Its paths are read off its configurations and
nodes; a job that is new, or whose facts have left what the plan rested on, is planned anew. Where
the last prices do not fit the demand of now, others are sought.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from data.base.errors import ImpossibleProblemError
from data.records.plans import JobPlan, Plan, PlanPrice
from planner.nodes.node_runs import pool_of_name
from planner.problem.planning_problem import PlanningProblem
from planner.problem.slot_mapping import SlotMapping
from planner.slots.coupling_rows import coupling_rows
from planner.slots.slot_problem import NOTHING, SlotProblem
from planner.solver.bounds import Bound, checked_bound
from planner.solver.replan import PlanPrices, WarmStart, frozen
from planner.solver.solve import solve
from planner.solver.solved_plan import Effort, SolvedPlan, Start

Path = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float64]
FROZEN_MINUTES = 30
"""A new plan keeps what the last one said for so long, in whole slots: two cycles of peace."""
_DIGITS = 6
_ALIKE, _FEW_JOBS = 0.9, 500
_STALE = 0.002
"""How much larger a gap than usual shows that the last prices do not fit the demand of now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    """The last plan as the next one's start; `frozen_problem` pins its first slots.

    `usual_gap` is the certified gap of the last plan's counts, as a share of their cost. It is 0
    where it is unknown or says little: for few jobs, whose gap goes with their demand, and where
    more than a tenth of the jobs are planned anew.
    """

    warm_start: WarmStart
    frozen_problem: SlotProblem
    frozen_slots: int
    usual_gap: float

    def churn_cost(self, paths: Path) -> float:
        """Return the churn price of the kept jobs whose paths [J, H] are not the announced ones."""
        warm = self.warm_start
        changed = (paths != warm.announced).any(axis=1) & warm.kept
        return warm.churn_price * int(changed.sum())


def rounded_prices(mapping: SlotMapping, prices: PlanPrices) -> tuple[PlanPrice, ...]:
    """Return the prices of a solved plan by name, to six digits."""
    rows = coupling_rows(mapping.slots).names
    types = mapping.slots.fleet.gpu_types
    by_name = [
        *((name, prices.rows[:, column]) for column, name in enumerate(rows)),
        *((f"boot of {name}", prices.boots[:, column]) for column, name in enumerate(types)),
    ]
    return tuple(
        PlanPrice(of=name, per_slot=tuple(float(f"{value:.{_DIGITS}g}") for value in values))
        for name, values in by_name
        if values.any()
    )


def rolling(
    problem: PlanningProblem,
    mapping: SlotMapping,
    last: Plan | None,
    reconsidered: Collection[str] = (),
    *,
    keeps_first: bool = True,
) -> Rolling | None:
    """Return the start from the last plan; None without one, or one of another grid of slots.

    Its first slots are frozen where `keeps_first`. `reconsidered` are jobs that left their
    forecast, ran out of memory, or changed otherwise.
    """
    elapsed = None if last is None else _elapsed(problem, last)
    if last is None or elapsed is None:
        return None
    plans = {job.job_id: job for job in last.jobs}
    pool_of = pool_of_name(problem)
    present = mapping.slots.jobs.present
    slots = mapping.slots.slots
    announced = np.repeat(present[:, None], slots, axis=1).astype(np.int16)
    unchanged = np.zeros(len(present), dtype=np.bool_)
    for column, entry in enumerate(problem.jobs):
        job_id = entry.demand.job.job_id
        if job_id not in plans or job_id in reconsidered:
            continue
        path = _path(problem, mapping, column, plans[job_id], elapsed, pool_of)
        if path is not None:
            announced[column], unchanged[column] = path, True
    warm_start = WarmStart(
        prices=_prices(mapping, last, elapsed),
        announced=announced,
        kept=unchanged,
        churn_price=problem.planning.churn_ratio * abs(last.cost) / max(1, len(last.jobs)),
    )
    count = min(FROZEN_MINUTES // problem.planning.slot_minutes, slots) if keeps_first else 0
    pinned = frozen(mapping.slots, announced, count)
    required = pinned.jobs.required
    if required is not None:
        before = mapping.slots.jobs.required
        required[~unchanged] = NOTHING if before is None else before[~unchanged]
    says_much = unchanged.mean() >= _ALIKE and len(unchanged) > _FEW_JOBS
    return Rolling(
        warm_start=warm_start,
        frozen_problem=pinned,
        frozen_slots=count,
        usual_gap=(last.slots_gap_ratio or 0.0) if says_much else 0.0,
    )


def slot_plan(
    slots: SlotProblem,
    start: Rolling | None,
    solver: Callable[..., SolvedPlan],
    *,
    effort: Effort,
    budget: Callable[[], float],
) -> SolvedPlan:
    """Return the slot plan from the last one, or from new prices where the last ones do not fit.

    Few steps lead on from old prices: far too few after a surprise, which the gap tells. The plan
    at new prices is then drawn to the announced paths, and the cheaper one taken, churn included.
    `budget` gives the seconds of each search. Raises ImpossibleProblemError as `solve` does.
    """
    warm = None if start is None else start.warm_start
    warm_plan = solver(slots, budget_seconds=budget(), effort=effort, warm=warm)
    if start is None or warm_plan.gap <= start.usual_gap + _STALE:
        return warm_plan
    try:
        anew = solver(slots, budget_seconds=budget(), effort=effort)
        tightest = max(warm_plan, anew, key=lambda plan: plan.lower_bound)
        bound = Bound(value=tightest.lower_bound, name=tightest.bound_name)
        restart = Start(prices=anew.prices, paths=anew.paths, bound=bound)
        drawn = solve(slots, budget_seconds=budget(), effort=effort, warm=warm, start=restart)
    except ImpossibleProblemError:
        return warm_plan
    best = min(warm_plan, drawn, key=lambda plan: plan.cost + start.churn_cost(plan.paths))
    lower = checked_bound(drawn.lower_bound, best.cost)
    # The new prices, whichever plan is taken: the next one would be misled as well.
    return replace(best, lower_bound=lower, bound_name=drawn.bound_name, prices=drawn.prices)


def without_pins(start: Rolling, mapping: SlotMapping) -> Rolling:
    """Return the same start with nothing frozen."""
    return replace(start, frozen_problem=mapping.slots, frozen_slots=0)


def _elapsed(problem: PlanningProblem, last: Plan) -> int | None:
    """Return the slots between two plans, None when one grid is not a later part of the other."""
    slot = timedelta(minutes=problem.planning.slot_minutes)
    if last.slot_seconds != slot.total_seconds() or not last.slot_starts:
        return None
    passed, rest = divmod(problem.slot_starts[0] - last.slot_starts[0], slot)
    alike = not rest and len(last.slot_starts) == len(problem.slot_starts)
    return passed if alike and 0 <= passed < len(last.slot_starts) else None


def _path(
    problem: PlanningProblem,
    mapping: SlotMapping,
    column: int,
    plan: JobPlan,
    elapsed: int,
    pool_of: dict[str, int],
) -> Path | None:
    """Return the rows that the last plan announced; None when one is no option any more."""
    options = {entry.configuration: n for n, entry in enumerate(problem.jobs[column].options)}
    grid, rows = mapping.slots.grid, mapping.option_of[column]
    row_of: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(rows != NOTHING):
        row_of[int(rows[row]), int(grid.gpu_type[row])] = int(row)
    pools = np.full(len(plan.steps), NOTHING, dtype=np.int64)
    for stay in plan.stays:
        pools[stay.start : stay.end] = pool_of.get(stay.node, NOTHING)
    slots = np.minimum(np.arange(len(plan.steps)) + elapsed, len(plan.steps) - 1)
    path = []
    for slot in slots:
        option = options.get(plan.steps[slot])
        if option is None:
            return None
        home = int(mapping.home_row[column, option])
        path.append(row_of.get((option, int(pools[slot])), home))
    return np.array(path, dtype=np.int16)


def _prices(mapping: SlotMapping, last: Plan, elapsed: int) -> PlanPrices:
    """Return the last plan's prices by name, later by the elapsed slots; 0 where there was none."""
    by_name = {price.of: np.array(price.per_slot) for price in last.prices}
    slots = np.minimum(np.arange(mapping.slots.slots) + elapsed, mapping.slots.slots - 1)

    def column(name: str) -> Floats:
        return by_name[name][slots] if name in by_name else np.zeros(len(slots))

    return PlanPrices(
        rows=np.column_stack([column(entry) for entry in coupling_rows(mapping.slots).names]),
        boots=np.column_stack(
            [column(f"boot of {name}") for name in mapping.slots.fleet.gpu_types]
        ),
        work=np.zeros(mapping.slots.size),
    )


def revised(start: Rolling | None, paths: Path) -> int | None:
    """Return the number of jobs that leave their announced path."""
    if start is None:
        return None
    changed = (paths != start.warm_start.announced).any(axis=1)
    return int((changed & start.warm_start.kept).sum())
