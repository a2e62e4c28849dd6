"""The compiled programs against programs that are slow and plain."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from benchmarks.plan_instances import make_instance
from planner.slots.coupling_rows import conjugate, coupling_rows
from planner.slots.lanes import pack
from planner.slots.slot_problem import Path, SlotProblem, pinned_cost
from planner.slots.survey_kernel import CostSurvey, survey
from planner.solver.bound_kernel import job_values
from planner.solver.insertion_kernel import node_total, path_cost
from planner.solver.kernel_problem import KernelProblem, empty_draft, make_kernel_problem
from planner.solver.prices import Market, ResourcePrices, node_bound

Floats = npt.NDArray[np.float64]


@njit
def _path_cost(kernel: KernelProblem, job: int, path: Path) -> float:
    return path_cost(kernel, job, path)


def surveyed(problem: SlotProblem) -> CostSurvey:
    """What the costs of a problem say."""
    cost, grid = pinned_cost(problem.jobs), problem.grid
    return survey(cost, grid.gpu_type, grid.boards, problem.fleet.capacity)


def change_table(problem: SlotProblem, job: int) -> Floats:
    """What every change costs a job [S, S]."""
    jobs, grid = problem.jobs, problem.grid
    table = jobs.leave_cost[job][:, None] + jobs.enter_cost[job][None, :]
    table = table + jobs.layout_cost[job] * grid.layout_change[np.ix_(grid.layout, grid.layout)]
    np.fill_diagonal(table, 0.0)
    return np.asarray(table, dtype=np.float64)


def general_value(cost: Floats, change: Floats, present: int) -> float:
    """The O(S^2) program over (slot, configuration)."""
    value = np.full(len(change), np.inf)
    value[present] = 0.0
    for slot in cost:
        value = (value[:, None] + change).min(axis=0) + slot
    return float(value.min())


def random_prices(market: Market, seed: int) -> ResourcePrices:
    """Prices inside their boxes."""
    rng = np.random.default_rng(seed)
    free = market.free_prices()
    rows = rng.uniform(0.0, 0.4, free.rows.shape)
    switching = rng.uniform(0.0, 1.0, free.boots.shape) * market.fleet.boot_cost
    work = rng.uniform(0.0, 1.0, free.work.shape) * market.lanes.unfinished_price
    return ResourcePrices(rows=rows, boots=switching, work=work)


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 20), st.booleans())
@settings(max_examples=examples(15), deadline=None, derandomize=True)
def test_the_separable_program_is_the_general_one(
    seed: int, count: int, slots: int, mig: bool
) -> None:
    """At any prices, the lanes give the value of the program over all pairs of configurations."""
    problem = make_instance(count, slots, seed=seed, mig=mig).problem
    cost = pinned_cost(problem.jobs)
    rows = coupling_rows(problem)
    market = Market(lanes=pack(problem, cost, surveyed(problem)), rows=rows, fleet=problem.fleet)
    prices = random_prices(market, seed)
    answer = market.ask(prices, market.all_blocks, searches=1)
    board, kilowatt, tenant = market.charges(prices)
    total = 0.0
    kind = problem.grid.gpu_type
    for block, lane in np.argwhere(market.lanes.job >= 0):
        job = int(market.lanes.job[block, lane])
        lam = float(prices.work[block, lane])
        counted = (np.arange(slots) < problem.jobs.deadline[job])[:, None]
        shared = board[:, kind] + tenant[:, [problem.jobs.tenant[job]]]
        paid = shared * problem.grid.boards + kilowatt[:, kind] * problem.jobs.power_kw[job]
        own = cost[job] + np.where(kind >= 0, paid, 0.0)
        if problem.jobs.work[job] > 0:
            own = own - lam * counted * problem.jobs.rate[job]
            total += lam * problem.jobs.work[job]
        total += general_value(own, change_table(problem, job), int(problem.jobs.present[job]))
    assert answer.value == pytest.approx(total, rel=2e-6, abs=1e-3)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("room", [2, 8])
def test_the_label_bound_is_between_the_priced_bound_and_the_optimum(seed: int, room: int) -> None:
    """For a job with work, priced bound <= label bound <= best of all its paths."""
    problem = make_instance(12, 5, seed=seed).problem
    rows = coupling_rows(problem)
    kernel = make_kernel_problem(problem, rows, pinned_cost(problem.jobs), surveyed(problem))
    endless = np.full_like(kernel.limit, np.inf)
    free = kernel._replace(limit=endless, over_penalty=endless)
    draft = empty_draft(kernel, problem.jobs.unfinished_price / 3)
    everyone = np.arange(problem.size)
    nothing, unpriced = np.zeros_like(kernel.limit), np.zeros_like(kernel.node_cost)
    labelled, priced = np.zeros(problem.size), np.zeros(problem.size)
    job_values(free, everyone, nothing, unpriced, draft, room, labelled)
    job_values(free, everyone, nothing, unpriced, draft, 0, priced)
    workers = np.flatnonzero(problem.jobs.work > 0)
    assert len(workers)
    for job in workers:
        options = [np.flatnonzero(np.isfinite(slot)) for slot in kernel.cost[job]]
        options = [
            option[np.linspace(0, len(option) - 1, min(5, len(option))).astype(int)]
            for option in options
        ]
        best = min(
            _path_cost(kernel, job, np.array(path, dtype=np.int16))
            for path in itertools.product(*options)
        )
        assert priced[job] <= labelled[job] + 1e-9
        assert labelled[job] <= best + 1e-6 * abs(best)


@given(st.integers(0, 10_000))
@settings(max_examples=examples(30), deadline=None, derandomize=True)
def test_nodes_cost_what_the_best_switching_costs(seed: int) -> None:
    """Bridging gaps layer by layer is as cheap as trying every number of nodes in every slot."""
    rng = np.random.default_rng(seed)
    problem = make_instance(4, 9, seed=seed % 7).problem
    kernel = make_kernel_problem(
        problem, coupling_rows(problem), pinned_cost(problem.jobs), surveyed(problem)
    )
    kernel = kernel._replace(
        node_cost=rng.uniform(0, 1, (9, 3)),
        boot_cost=rng.uniform(0, 2, 3),
        nodes_on=rng.integers(0, 4, 3).astype(np.float64),
    )
    used = rng.integers(0, 30, (9, 3)).astype(np.float64)
    counts = np.arange(5)
    for kind in range(3):
        value = np.where(counts == kernel.nodes_on[kind], 0.0, np.inf)
        for slot in range(9):
            more = np.maximum(counts[None, :] - counts[:, None], 0) * kernel.boot_cost[kind]
            value = (value[:, None] + more).min(axis=0) + counts * kernel.node_cost[slot, kind]
            value[counts < np.ceil(used[slot, kind] / 8)] = np.inf
        assert node_total(kernel, kind, used) == pytest.approx(value.min())


@given(st.integers(0, 10_000))
@settings(max_examples=examples(30), deadline=None, derandomize=True)
def test_the_node_bound_is_the_best_of_all_numbers_of_nodes(seed: int) -> None:
    """At given worths, layers give the exact minimum over nodes per slot, boots included.

    Nodes may stay on through slots without capacity, as in what a plan costs.
    """
    rng = np.random.default_rng(seed)
    fleet = make_instance(4, 6, seed=seed % 7).problem.fleet
    most = rng.integers(0, 4, (3, 6))
    fleet = type(fleet)(
        gpu_types=fleet.gpu_types,
        capacity=8.0 * most,
        boards_per_node=fleet.boards_per_node,
        node_cost=rng.uniform(0, 1, (3, 6)),
        boot_cost=rng.uniform(0, 2, 3),
        nodes_on=rng.integers(0, 4, 3).astype(np.float64),
    )
    worth = rng.uniform(0, 1.5, (6, 3))
    total = 0.0
    counts = np.arange(5)
    for kind in range(3):
        value = np.where(counts == fleet.nodes_on[kind], 0.0, np.inf)
        for slot in range(6):
            more = np.maximum(counts[None, :] - counts[:, None], 0) * fleet.boot_cost[kind]
            gain = fleet.node_cost[kind, slot] - worth[slot, kind]
            value = (value[:, None] + more).min(axis=0) + counts * gain
            value[counts > max(most[kind].max(), fleet.nodes_on[kind])] = np.inf
        total += value.min()
    assert node_bound(fleet, worth) == pytest.approx(total)


def test_the_conjugate_is_the_most_that_use_is_worth() -> None:
    """conjugate(y) equals the largest y * use - cost_of_use over the corners."""
    rows = coupling_rows(make_instance(30, 4, seed=1).problem)
    rng = np.random.default_rng(1)
    high = np.where(np.isfinite(rows.over_penalty), rows.over_penalty, 2.0)
    price = rng.uniform(-rows.floor_price, np.maximum(high, rows.price))
    corners = (np.zeros_like(rows.limit), rows.floor, rows.free, rows.limit)
    worth = np.max([price * use - rows.cost_of_use(use) for use in corners], axis=0)
    assert np.allclose(conjugate(rows, price), worth)
