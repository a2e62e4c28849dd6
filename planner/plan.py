"""TS-DPBP: plan over slots and nodes so that every job meets its demand at least cost.

The planning problem in the solver's arrays (`planner.problem.slot_mapping`), its plan in
configurations, these on nodes. Where nodes cannot hold what the counts allow, the plan is made
again without it.
Today's allocation is a plan, so there is always one, and none costs more than today's.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

import numpy as np
import numpy.typing as npt

from data.base.errors import ImpossibleProblemError
from data.facts.identifiers import digest_of
from data.records.plans import JobPlan, NodePlan, Plan, PlanBound
from planner.fleet.tenants import lending
from planner.nodes.exact_nodes import can_be_exact, exact_on_nodes
from planner.nodes.node_hours import spanning_cost
from planner.nodes.node_plan import NodePlacement, place_plan, placed_as
from planner.nodes.placement_bounds import placement_bounds
from planner.nodes.plan_repair import all_but, without_failed
from planner.nodes.rolling_plan import (
    Rolling,
    revised,
    rolling,
    rounded_prices,
    slot_plan,
    without_pins,
)
from planner.partitions.solve_parts import parts_of_jobs, solve_parts
from planner.partitions.workers import Workforce
from planner.problem.planning_problem import PlanningProblem
from planner.problem.slot_mapping import SlotMapping, as_slot_problem, times_of
from planner.slots.coupling_rows import coupling_rows
from planner.slots.exact_program import CLOSE, PROVED
from planner.slots.plan_cost import changes_of, cost_of_jobs, use_of
from planner.slots.slot_problem import SlotProblem, paths_of_today, pinned_cost
from planner.solver.bounds import BY_MODEL, Bound, better, checked_bound
from planner.solver.solve import solve
from planner.solver.solved_plan import Effort, SolvedPlan, Start
from planner.solver.warm_up import warm_up

Path = npt.NDArray[np.int16]


def autoscaled_slots(
    problem: PlanningProblem, mapping: SlotMapping, paths: Path
) -> npt.NDArray[np.bool_]:
    """Return in which slots of the solver's paths [J, H] a job has a size of its autoscaler."""
    autoscaled = np.zeros(paths.shape, dtype=np.bool_)
    for column, job in enumerate(problem.jobs):
        sizes = [number for number, option in enumerate(job.options) if option.autoscaled]
        if sizes:
            autoscaled[column] = np.isin(mapping.option_of[column][paths[column]], sizes)
    return autoscaled


_MOVES_PER_JOB, _MAX_MOVES = 100, 100_000
_FEW_STEPS = Effort(price_steps=1, dive_chunks=0, moves=0, label_room=0, exact=False)
"""Before an exact program: a plan that it has to beat, and prices to start the next plan from."""
_REPAIRS = 8
_SEARCHES, _SEARCHED_JOBS, _NEAR = 4, 500, 0.005
"""Searches after repairs, as long as each pays and the gap is above half a percent. With 1,400 and
3,600 jobs the first did not pay, and took as long as the plan itself: so many jobs have none."""
_FROZEN_SHARE, _SOLVING_SHARE, _REPAIR_SHARE = 0.3, 0.6, 0.25
"""Shares of the time left for the plan with frozen slots, without, and every later step."""
SECONDS_PER_DAY = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlacedPlan:
    """A plan of paths [J, H] on nodes, with its cost."""

    paths: Path
    placed: NodePlacement
    cost: float

    @property
    def order(self) -> tuple[int, float]:
        """Sort key: what finds no room at all counts before cost."""
        return len(self.placed.failed), self.cost


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The outcome of one effort: a plan on nodes, a bound, the counts and their start."""

    best: _PlacedPlan
    bound: Bound
    solved: SolvedPlan
    start: Rolling | None
    cost_of_now: float

    @property
    def frozen_slots(self) -> int:
        """The first slots that it had to leave as the last plan said."""
        return 0 if self.start is None else self.start.frozen_slots

    @property
    def proved(self) -> bool:
        """Return True if no other search would find a better plan."""
        gap = self.best.cost - self.bound.value
        return not self.best.placed.failed and gap <= PROVED * max(1.0, abs(self.best.cost))


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanClock:
    """The budget in seconds from a start."""

    start: float
    budget: float

    def seconds(self) -> float:
        """Return the seconds spent."""
        return time.monotonic() - self.start

    def share(self, share: float) -> float:
        """Return a share of the seconds left."""
        return share * max(0.0, self.budget - self.seconds())


def build_plan(
    problem: PlanningProblem,
    *,
    budget_seconds: float,
    created_at: datetime,
    progress: Callable[[int, int], None] | None = None,
    last: Plan | None = None,
    reconsidered: Collection[str] = (),
    keeps_first: bool = True,
    workforce: Workforce | None = None,
) -> Plan:
    """Return a feasible plan with its certified lower bounds.

    The work is bounded by counts, so the same problem gives the same plan; a budget that is too
    short for them ends the improvement early. Compiling, once per machine, is not part of it.
    With the `last` plan its first slots are kept (`keeps_first`) and a job leaves its announced
    path only where that pays, `reconsidered` jobs apart. `workforce` plans the parts of
    `planning.partition_by`, this process by default; the plan is the same. Raises
    ImpossibleProblemError when jobs that must hold GPUs cannot be placed together.
    """
    show = progress or (lambda _done, _total: None)
    show(0, 3)
    if not problem.jobs:
        return _empty_plan(problem, created_at)
    warm_up()
    show(1, 3)
    clock = _PlanClock(start=time.monotonic(), budget=budget_seconds)
    mapping = as_slot_problem(problem)
    solver = partial(solve_parts, part_of=parts_of_jobs(problem), workforce=workforce)
    small = clock.share(1.0) > 0 and can_be_exact(problem, mapping.slots)
    searches: list[_Search] = []
    for effort in (_FEW_STEPS, _effort(problem)) if small else (_effort(problem),):
        search = partial(_search, problem, clock=clock, solver=solver, effort=effort, small=small)
        roll = partial(rolling, problem, last=last, reconsidered=reconsidered)
        try:
            start = roll(mapping, keeps_first=keeps_first)
            searches.append(search(mapping, start))
        except ImpossibleProblemError:
            if not any(node.away for node in problem.facts.nodes):
                raise
            mapping = mapping.ignoring_maintenance()
            start = roll(mapping, keeps_first=keeps_first)
            searches = [search(mapping, start)]
        if searches[-1].proved:
            break
    show(2, 3)
    last_search = searches[-1]
    # A bound of plans that keep frozen slots is none of others.
    alike = [entry for entry in searches if entry.frozen_slots == last_search.frozen_slots]
    best = min((entry.best for entry in alike), key=lambda entry: entry.order)
    bound = max((entry.bound for entry in alike), key=lambda entry: entry.value)
    solved, start = last_search.solved, last_search.start
    show(3, 3)
    cost_of_now = last_search.cost_of_now
    # Autoscalers change sizes whoever plans: what that costs or saves is none of the plan's.
    alone = autoscaled_slots(problem, mapping, best.paths)
    sizes = paths_of_today(mapping.slots.jobs, pinned_cost(mapping.slots.jobs))
    scaled = np.where(alone, best.paths, sizes)
    cost_of_now -= cost_of_jobs(mapping.slots, sizes) - cost_of_jobs(mapping.slots, scaled)
    figures = (max(best.cost, cost_of_now), clock.seconds())
    return _plan(problem, mapping, best, alone, solved, bound, start, figures, created_at)


def _effort(problem: PlanningProblem) -> Effort:
    return Effort(moves=min(_MAX_MOVES, _MOVES_PER_JOB * len(problem.jobs)))


def _search(
    problem: PlanningProblem,
    mapping: SlotMapping,
    start: Rolling | None,
    *,
    clock: _PlanClock,
    solver: Callable[..., SolvedPlan],
    effort: Effort,
    small: bool,
) -> _Search:
    """Return the best plan on nodes of one effort, today's allocation included."""
    # Boards that jobs hold in other pools are a correction of the bound, which is none of a model.
    spanning = spanning_cost(problem, mapping.slots.fleet)
    exact = replace(effort, exact=effort.exact and not spanning)
    solved, start = _solved(mapping, start, clock, solver, exact)
    today = _today(problem, mapping, clock)
    # An exact program decides which nodes are off.
    consolidate = effort is not _FEW_STEPS
    best = _on_nodes(problem, mapping, solved, start, clock, consolidate=consolidate)
    if today is not None and (best.placed.failed or today.cost < best.cost):
        best = today
    bound = Bound(value=solved.lower_bound - spanning, name=solved.bound_name)
    if small and not spanning:
        best, bound = _exactly(problem, mapping, best, bound, start)
    return _Search(
        best=best,
        bound=bound,
        solved=solved,
        start=start,
        cost_of_now=solved.cost_of_now if today is None else today.cost,
    )


def _solved(
    mapping: SlotMapping,
    start: Rolling | None,
    clock: _PlanClock,
    solver: Callable[..., SolvedPlan],
    effort: Effort,
) -> tuple[SolvedPlan, Rolling | None]:
    """Return the slot plan; what is frozen gives way where it is impossible or worse than today."""
    planned = partial(slot_plan, solver=solver, effort=effort)
    if start is not None and start.frozen_slots:
        try:
            budget = partial(clock.share, _FROZEN_SHARE)
            frozen = planned(start.frozen_problem, start, budget=budget)
        except ImpossibleProblemError:
            frozen = None
        if frozen is not None and frozen.cost <= _cost_of_today(mapping.slots):
            return frozen, start
        start = without_pins(start, mapping)
    return planned(mapping.slots, start, budget=partial(clock.share, _SOLVING_SHARE)), start


def _cost_of_today(slots: SlotProblem) -> float:
    """Return the cost of today's paths without nodes; infinite where they break a limit."""
    paths = paths_of_today(slots.jobs, pinned_cost(slots.jobs))
    return cost_of_jobs(slots, paths) + _soft_cost(slots, paths)


def _exactly(
    problem: PlanningProblem,
    mapping: SlotMapping,
    best: _PlacedPlan,
    bound: Bound,
    start: Rolling | None,
) -> tuple[_PlacedPlan, Bound]:
    """Return the cheaper of a plan and the exact one on nodes, and the higher of the bounds."""
    slots = mapping.slots if start is None else start.frozen_problem
    counted, announced, prices = bound, best.paths, [np.zeros(slots.size)]
    if start is not None and start.warm_start.churn_price:
        announced = start.warm_start.announced
        prices.append(np.where(start.warm_start.kept, start.warm_start.churn_price, 0.0))
    for churn in prices:
        charged = best.cost + _left(best.paths, announced, churn)
        answer = exact_on_nodes(
            problem,
            mapping,
            slots,
            announced=announced,
            churn=churn,
            below=np.inf if best.placed.failed else charged,
        )
        if churn is prices[0]:
            bound = better(bound, Bound(value=answer.bound, name=BY_MODEL))
        if churn is not prices[-1] or answer.paths is None or answer.boards is None:
            continue
        placed = placed_as(problem, mapping, answer.paths, answer.boards)
        if placed is not None:
            other = _costed(mapping, answer.paths, placed)
            saved = charged - other.cost - _left(other.paths, announced, churn)
            if best.placed.failed or saved > CLOSE * abs(best.cost):
                best = other
    # Of a plan that leaves jobs without a place the bound of complete plans is none.
    return (best, counted) if best.placed.failed else (best, bound)


def _left(paths: Path, announced: Path, churn: npt.NDArray[np.float64]) -> float:
    """Return the price of the announced paths [J, H] that a plan leaves."""
    return float(churn[(paths != announced).any(axis=1)].sum())


def _soft_cost(slots: SlotProblem, paths: Path) -> float:
    rows = coupling_rows(slots)
    return float(rows.cost_of_use(use_of(slots, rows, paths)).sum())


def _costed(mapping: SlotMapping, paths: Path, placed: NodePlacement) -> _PlacedPlan:
    counted = cost_of_jobs(mapping.slots, paths) + _soft_cost(mapping.slots, paths)
    return _PlacedPlan(
        paths=paths, placed=placed, cost=counted + placed.node_cost + placed.move_cost
    )


def _today(problem: PlanningProblem, mapping: SlotMapping, clock: _PlanClock) -> _PlacedPlan | None:
    """Return today's allocation where it is; None when it breaks a limit."""
    paths = paths_of_today(mapping.slots.jobs, pinned_cost(mapping.slots.jobs))
    if not np.isfinite(_cost_of_today(mapping.slots)):
        return None
    budget = clock.share(_REPAIR_SHARE)
    placed = place_plan(problem, mapping, paths, budget_seconds=budget, consolidate=False)
    return None if placed.failed else _costed(mapping, paths, placed)


def _on_nodes(
    problem: PlanningProblem,
    mapping: SlotMapping,
    solved: SolvedPlan,
    start: Rolling | None,
    clock: _PlanClock,
    *,
    consolidate: bool,
) -> _PlacedPlan:
    """Place a slot plan, then win back the cost of its repair.

    A repair moves no job but those without room. A search from there, without what found none, may
    move all; what then finds none is repaired in turn.
    """
    slots = mapping.slots if start is None else start.frozen_problem
    best, without = _repaired(problem, mapping, slots, solved, clock, consolidate=consolidate)
    for _ in range(_SEARCHES if len(problem.jobs) <= _SEARCHED_JOBS else 0):
        close = best.cost - solved.lower_bound <= _NEAR * best.cost
        if close or without is slots or clock.share(1.0) <= 0:
            break
        slots = without
        try:
            anew = solve(
                slots,
                budget_seconds=clock.share(_REPAIR_SHARE),
                effort=replace(_effort(problem), exact=False),
                warm=None if start is None else start.warm_start,
                start=Start(
                    prices=solved.prices,
                    paths=best.paths,
                    bound=Bound(value=solved.lower_bound, name=solved.bound_name),
                ),
            )
        except ImpossibleProblemError:
            break
        other, without = _repaired(problem, mapping, slots, anew, clock, consolidate=consolidate)
        if other.order >= best.order:
            break
        best = other
    return best


def _repaired(
    problem: PlanningProblem,
    mapping: SlotMapping,
    slots: SlotProblem,
    solved: SolvedPlan,
    clock: _PlanClock,
    *,
    consolidate: bool,
) -> tuple[_PlacedPlan, SlotProblem]:
    """Place a slot plan; while a path finds no room, plan again without it.

    What found none is forbidden at first; a job that fails again is left as it is now, where it
    has its place. Gives the problem without what was forbidden, too.
    """
    failed, without = set[int](), slots
    for _repair in range(_REPAIRS):
        budget = clock.share(_REPAIR_SHARE)
        placed = place_plan(
            problem, mapping, solved.paths, budget_seconds=budget, consolidate=consolidate
        )
        again = {lost.job for lost in placed.failed if not lost.displaced} & failed
        failed |= {stretch.job for stretch in placed.failed}
        limited = without_failed(slots, placed.failed, again)
        if limited is None:
            break
        slots, without = limited, without_failed(without, placed.failed, ()) or without
        try:
            solved = solve(
                slots,
                budget_seconds=clock.share(_REPAIR_SHARE),
                effort=Effort(moves=0),
                warm=all_but(solved, placed.failed),
            )
        except ImpossibleProblemError:
            break
    else:
        budget = clock.share(_REPAIR_SHARE)
        placed = place_plan(problem, mapping, solved.paths, budget_seconds=budget)
    return _costed(mapping, solved.paths, placed), without


def _plan(
    problem: PlanningProblem,
    mapping: SlotMapping,
    result: _PlacedPlan,
    alone: npt.NDArray[np.bool_],
    solved: SolvedPlan,
    bound: Bound,
    start: Rolling | None,
    figures: tuple[float, float],
    created_at: datetime,
) -> Plan:
    """Return the record; figures are the cost of today's allocation and the seconds taken."""
    cost_of_now, seconds = figures
    grid, option_of = mapping.slots.grid, mapping.option_of
    job_plans = tuple(
        JobPlan(
            job_id=job.demand.job.job_id,
            now=job.options[0].configuration,
            steps=tuple(
                job.options[option].configuration
                for option in option_of[column][result.paths[column]]
            ),
            stays=result.placed.stays[column],
            unplaced=result.placed.unplaced.get(column, ""),
            scaled_by=job.demand.standing.scaled_by if alone[column].any() else "",
            shares_with=job.demand.share.others if job.demand.share else (),
        )
        for column, job in enumerate(problem.jobs)
    )
    rows = coupling_rows(mapping.slots)
    days = len(problem.slot_starts) * problem.planning.slot_minutes * 60 / SECONDS_PER_DAY
    requested = np.where(alone, mapping.home_row[:, :1], result.paths)
    changes = changes_of(mapping.slots, requested) + result.placed.moves
    lower_bound = checked_bound(bound.value, result.cost)
    cost_bound = PlanBound(
        name=bound.name,
        value=lower_bound,
        attained=result.cost,
        unit=problem.energy.currency,
    )
    return Plan(
        plan_id=digest_of(
            [
                created_at,
                problem.slot_starts,
                [[plan.job_id, plan.now, plan.stretches(), plan.stays] for plan in job_plans],
            ]
        ),
        created_at=created_at,
        slot_starts=problem.slot_starts,
        slot_seconds=problem.planning.slot_minutes * 60,
        jobs=job_plans,
        cost=result.cost,
        cost_of_now=cost_of_now,
        lower_bound=lower_bound,
        slots_gap_ratio=solved.gap,
        currency=problem.energy.currency,
        seconds=seconds,
        bounds=(cost_bound, *placement_bounds(problem, result.placed)),
        nodes=_nodes(problem, result.placed),
        tenants=lending(
            problem.tenants,
            grid.boards[result.paths],
            np.array([job.held_boards for job in problem.jobs]),
        ),
        violations=(
            *mapping.given_up,
            *rows.violations(use_of(mapping.slots, rows, result.paths), times_of(problem)),
            *(
                f"job {problem.jobs[stretch.job].demand.job.job_id}: "
                f"{result.placed.unplaced[stretch.job]}"
                for stretch in result.placed.failed
            ),
        ),
        moves=result.placed.moves,
        move_cost=result.placed.move_cost,
        changes_per_job_day=changes / (len(problem.jobs) * days),
        revised_jobs=revised(start, result.paths),
        frozen_slots=0 if start is None else start.frozen_slots,
        prices=rounded_prices(mapping, solved.prices),
    )


def _nodes(problem: PlanningProblem, placed: NodePlacement) -> tuple[NodePlan, ...]:
    return tuple(
        NodePlan(
            node=node.name,
            gpu_model=node.gpu_model,
            gpus=node.gpus,
            on=tuple(bool(entry) for entry in on),
            open=node.open,
        )
        for node, on in zip(problem.facts.nodes, placed.on, strict=True)
    )


def _empty_plan(problem: PlanningProblem, created_at: datetime) -> Plan:
    """Return the plan of a fleet without jobs: every node may be off."""
    return Plan(
        plan_id=digest_of([created_at, problem.slot_starts, ()]),
        created_at=created_at,
        slot_starts=problem.slot_starts,
        slot_seconds=problem.planning.slot_minutes * 60,
        jobs=(),
        cost=0.0,
        cost_of_now=0.0,
        lower_bound=0.0,
        currency=problem.energy.currency,
        seconds=0.0,
        nodes=tuple(
            NodePlan(
                node=node.name,
                gpu_model=node.gpu_model,
                gpus=node.gpus,
                on=(False,) * len(problem.slot_starts),
            )
            for node in problem.facts.nodes
        ),
    )
