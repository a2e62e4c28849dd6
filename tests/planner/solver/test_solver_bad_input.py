"""Problems that contradict themselves are refused by name."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.exact_plan import true_cost
from benchmarks.plan_instances import make_instance
from data.base.errors import ImpossibleProblemError
from planner.slots.exact_program import CLOSE
from planner.slots.slot_problem import PowerDomains, SlotProblem, TenantQuotas
from planner.solver.solve import solve
from planner.solver.solved_plan import Effort


@pytest.fixture
def problem() -> SlotProblem:
    """Ten jobs over six slots."""
    return make_instance(10, 6, seed=1).problem


def refused(problem: SlotProblem, *words: str) -> None:
    """The problem is refused with these words."""
    with pytest.raises(ImpossibleProblemError) as caught:
        solve(problem, budget_seconds=0.0)
    for word in words:
        assert word in str(caught.value)


def with_cost(problem: SlotProblem, job: int, slot: int, value: float) -> SlotProblem:
    """All configurations of a job cost this in a slot."""
    cost = problem.jobs.base_cost.copy()
    cost[job, slot] = value
    return replace(problem, jobs=replace(problem.jobs, base_cost=cost))


def pinned(problem: SlotProblem, **pins: tuple[int, int]) -> SlotProblem:
    """Jobs pinned in slot 2: name -> (job, configuration)."""
    required = np.full((10, 6), -1, dtype=np.int16)
    for job, option in pins.values():
        required[job, 2] = option
    return replace(problem, jobs=replace(problem.jobs, required=required))


def test_no_slots(problem: SlotProblem) -> None:
    """At least one slot is needed."""
    cost = problem.jobs.base_cost[:, :0]
    refused(replace(problem, jobs=replace(problem.jobs, base_cost=cost)), "no slot")


def test_missing_demand(problem: SlotProblem) -> None:
    """A cost that is unknown names the job and the slot."""
    refused(with_cost(problem, 4, 3, np.nan), "'job-4'", "slot 3", "demand is missing")


def test_nothing_allowed(problem: SlotProblem) -> None:
    """A slot without any configuration names the job and the slot."""
    refused(with_cost(problem, 7, 1, np.inf), "'job-7'", "allowed nothing", "slot 1")


def test_negative_boards(problem: SlotProblem) -> None:
    """Boards cannot be negative."""
    boards = problem.grid.boards.copy()
    boards[3] = -1.0
    refused(replace(problem, grid=replace(problem.grid, boards=boards)), "boards", "[3]")


@pytest.mark.parametrize("name", ["power_kw", "leave_cost", "enter_cost", "rate"])
def test_negative_or_unknown_figures_of_a_job(problem: SlotProblem, name: str) -> None:
    """Power, cost of changes and rates are at least 0 and known."""
    for value in (-1.0, np.nan):
        wrong = getattr(problem.jobs, name).copy()
        wrong[2, 5] = value
        refused(replace(problem, jobs=replace(problem.jobs, **{name: wrong})), name, "[2, 5]")


def test_a_job_larger_than_the_fleet(problem: SlotProblem) -> None:
    """A job that needs more boards than exist is named with slot and type."""
    cost = np.full_like(problem.jobs.base_cost[0], np.inf)
    cost[:, 5] = 1.0
    base = problem.jobs.base_cost.copy()
    base[0] = cost
    capacity = problem.fleet.capacity.copy()
    capacity[0, 4] = 8.0
    broken = replace(
        problem,
        jobs=replace(problem.jobs, base_cost=base),
        fleet=replace(problem.fleet, capacity=capacity),
    )
    refused(broken, "'job-0'", "slot 4", "fast")


def test_a_pin_to_what_is_not_allowed(problem: SlotProblem) -> None:
    """A pin must be one of the job's configurations."""
    banned = int(np.flatnonzero(~np.isfinite(problem.jobs.base_cost[1, 2]))[0])
    refused(pinned(problem, one=(1, banned)), "'job-1'", "slot 2", "pinned")


def test_pins_that_do_not_fit_together(problem: SlotProblem) -> None:
    """Pinned jobs that exceed the capacity are named."""
    base = problem.jobs.base_cost.copy()
    base[[0, 1], 2, 4] = 1.0
    capacity = problem.fleet.capacity.copy()
    capacity[0, 2] = 8.0
    broken = replace(
        problem,
        jobs=replace(problem.jobs, base_cost=base),
        fleet=replace(problem.fleet, capacity=capacity),
    )
    refused(pinned(broken, a=(0, 4), b=(1, 4)), "'job-0'", "'job-1'", "16 boards", "slot 2")


def test_capacity_below_what_is_guaranteed(problem: SlotProblem) -> None:
    """Guarantees above the fleet are charged at their price, and every tenant is named."""
    assert problem.quotas is not None
    quotas = replace(problem.quotas, guaranteed=np.full((8, 6), 1e3), quota=np.full((8, 6), 1e4))
    broken = replace(problem, quotas=quotas)
    plan = solve(broken, budget_seconds=np.inf, effort=Effort(moves=64))
    assert sum("below its guarantee" in text for text in plan.violated) == 8
    assert plan.cost == pytest.approx(true_cost(broken, plan.paths), rel=1e-9)
    assert plan.gap < 2 * CLOSE


def test_jobs_that_must_hold_more_than_there_is(problem: SlotProblem) -> None:
    """Jobs that cannot pause and do not fit together are refused with job, slot and limit."""
    cost = np.full_like(problem.jobs.base_cost, np.inf)
    cost[:, :, 4] = 1.0
    capacity = np.full((3, 6), 40.0)
    broken = replace(
        problem,
        jobs=replace(problem.jobs, base_cost=cost, tenant=np.full(10, -1)),
        fleet=replace(problem.fleet, capacity=capacity),
        power=None,
        quotas=None,
    )
    refused(broken, "finds no room", "capacity of fast", "slot 0")


def must_hold(problem: SlotProblem, option: int, **changes: Any) -> SlotProblem:
    """All jobs hold this configuration in every slot, on more boards than they could fill."""
    cost = np.full_like(problem.jobs.base_cost, np.inf)
    cost[:, :, option] = 1.0
    return replace(
        problem,
        jobs=replace(problem.jobs, base_cost=cost, **changes),
        fleet=replace(problem.fleet, capacity=np.full((3, 6), 1e4)),
        power=None,
        quotas=None,
    )


@pytest.mark.parametrize("tight", [0, 1])
def test_jobs_that_must_draw_more_than_a_feed_gives(problem: SlotProblem, tight: int) -> None:
    """The power domain without room is named, and no other."""
    free = must_hold(problem, 4, tenant=np.full(10, -1))
    kw = float(free.jobs.power_kw[:, 4].sum())
    limits = [[0.5 * kw if row == tight else 2 * kw] * 6 for row in range(2)]
    power = PowerDomains(
        names=("hall A", "site"),
        members=np.full((2, 3), True),
        limit_kw=np.array(limits),
        over_penalty=np.full(2, np.inf),
    )
    solve(replace(free, power=replace(power, limit_kw=np.full((2, 6), 2 * kw))), budget_seconds=0.0)
    refused(replace(free, power=power), "finds no room", power.names[tight])
    with pytest.raises(ImpossibleProblemError) as caught:
        solve(replace(free, power=power), budget_seconds=0.0)
    assert power.names[1 - tight] not in str(caught.value)


@pytest.mark.parametrize("tight", [0, 1, 2])
def test_jobs_that_must_hold_more_than_their_tenant_may(problem: SlotProblem, tight: int) -> None:
    """The tenant without room is named, and no other."""
    names = ("vision", "speech", "robotics")
    boards = float(problem.grid.boards[4])
    quota = np.full((3, 6), 1e4)
    quota[tight] = boards
    none = np.zeros((3, 6))
    quotas = TenantQuotas(
        names=names,
        guaranteed=none,
        guarantee_price=np.zeros(3),
        quota=quota,
        borrow_price=np.zeros(3),
        borrowable=none,
        over_penalty=np.full(3, np.inf),
    )
    broken = replace(must_hold(problem, 4, tenant=np.arange(10) % 3), quotas=quotas)
    with pytest.raises(ImpossibleProblemError, match="finds no room in slot 0") as caught:
        solve(broken, budget_seconds=0.0)
    assert [name for name in names if name in str(caught.value)] == [names[tight]]


def test_a_tenant_without_quota(problem: SlotProblem) -> None:
    """A job of a tenant that the quotas do not list is refused."""
    tenant = problem.jobs.tenant.copy()
    tenant[6] = 8
    refused(replace(problem, jobs=replace(problem.jobs, tenant=tenant)), "tenant", "[6]")


def test_arrays_of_the_wrong_shape(problem: SlotProblem) -> None:
    """A missing column is named with both shapes."""
    jobs = replace(problem.jobs, power_kw=problem.jobs.power_kw[:, :-1])
    refused(replace(problem, jobs=jobs), "jobs.power_kw", "(10, 15)", "(10, 16)")
