"""Prices of boards, kW, boots and work, and the charges and bounds that follow from them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.plan_instances import make_instance
from planner.solver.bounds import Bound, better_with_jobs_alone, jobs_alone
from planner.solver.prices import Adam, Market, ResourcePrices
from planner.solver.primal import charges_of
from planner.solver.solve import _prepared


@pytest.mark.parametrize("lanes", [[[0, 2, -1], [1, -1, -1]], [[1, 0, 2]], [[-1, 0, 1]]])
def test_each_job_is_charged_the_price_of_its_own_work(lanes: list[list[int]]) -> None:
    """Lanes without a job fill blocks up: their prices are nobody's."""
    job = np.array(lanes)
    work, values = job + 10.0, job + 20.0
    prices: Any = SimpleNamespace(rows=np.zeros((2, 3)), work=work)
    market: Any = SimpleNamespace(lanes=SimpleNamespace(job=job), node_price=lambda _prices: None)
    found = charges_of(market, prices, values)
    count = job.max() + 1
    assert found.lam.tolist() == [10.0 + number for number in range(count)]
    assert found.values.tolist() == [20.0 + number for number in range(count)]
    assert charges_of(market, prices).values.tolist() == [0.0] * count
    nobody: Any = SimpleNamespace(lanes=SimpleNamespace(job=job[:0]), node_price=market.node_price)
    assert charges_of(nobody, SimpleNamespace(rows=prices.rows, work=work[:0])).lam.tolist() == []


@pytest.mark.parametrize("slope", [1e-3, 1.0, 1e4])
def test_a_first_step_goes_the_rate_whatever_the_excess(slope: float) -> None:
    """Adam (Kingma and Ba, 2015): without its correction a first step would go several rates."""
    rows: Any = SimpleNamespace(
        limit=np.ones((2, 3)), types=1, floor_price=np.zeros((2, 3)),
        over_penalty=np.full((2, 3), np.inf), price=np.zeros((2, 3)),
    )  # fmt: skip
    market: Any = SimpleNamespace(
        rows=rows,
        fleet=SimpleNamespace(boot_cost=np.array([8.0])),
        excess=lambda _prices, _used: (np.full((2, 3), slope), np.full((2, 1), slope)),
    )
    scale = np.array([1.0, 2.0, 3.0])
    prices = ResourcePrices(rows=np.zeros((2, 3)), boots=np.zeros((2, 1)), work=np.zeros(0))
    adam = Adam(market, scale, rate=0.25, decay=0.5)
    first = adam.step(prices, np.zeros((2, 3)))
    assert first.rows == pytest.approx(np.tile(0.25 * scale, (2, 1)), rel=1e-5)
    assert first.boots == pytest.approx(np.full((2, 1), 0.25 * 0.5 * 8.0), rel=1e-5)
    second = adam.step(first, np.zeros((2, 3)))
    assert second.rows == pytest.approx(np.tile(0.375 * scale, (2, 1)), rel=1e-5)


def test_a_node_never_pays_for_being_on() -> None:
    """Where the next slot's boot is dearer than the node, a board is free, no gain."""
    fleet = make_instance(10, 6, seed=1).problem.fleet
    boots = np.tile([[0.0], [1e6]], (3, 3))
    market: Any = SimpleNamespace(fleet=fleet)
    prices: Any = SimpleNamespace(boots=boots)
    found = Market.node_price(market, prices)
    assert (found[0::2] == 0).all()
    assert (found[1::2] > 0).all()


@pytest.mark.parametrize("other", [-np.inf, np.inf])
def test_few_jobs_have_the_better_of_two_bounds(other: float) -> None:
    """That of prices, or that of each job on its own: both hold."""
    task = _prepared(make_instance(10, 6, seed=1).problem, None, 1)
    lam = np.zeros(10)
    alone = jobs_alone(task.kernel, lam, task.survey.forced)
    found = better_with_jobs_alone(
        Bound(value=other, name="prices"), task.kernel, lam, task.survey.forced
    )
    assert np.isfinite(alone.value)
    assert found.value == max(alone.value, other)
