"""The quick solver of a round against the exact program."""

import numpy as np
import pytest
from drawn import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.simulation.rounds.configurations import configurations
from benchmarks.simulation.rounds.round_problem import RoundProblem, solve_round
from benchmarks.simulation.sia_policy import solve_exactly
from data.base.errors import ImpossibleProblemError


def random_round(seed: int, jobs: int) -> RoundProblem:
    """Jobs of random size and scaling on three GPU types; some configurations barred."""
    rng = np.random.default_rng(seed)
    table = configurations({"slow": [4] * 6, "fast": [8] * 2, "middle": [8] * 3}, most_nodes=4)
    speed = np.array([1.0, 4.0, 1.8])[table.kind]
    work = rng.lognormal(0, 1.5, jobs)[:, None]
    goodput = speed * table.gpus ** rng.uniform(0.5, 0.95, jobs)[:, None]
    cost = -(work**-0.75) * np.sqrt(goodput)
    cost[rng.random(cost.shape) < 0.2] = np.inf
    return RoundProblem(
        cost=np.hstack([cost, np.zeros((jobs, 1))]),
        kind=np.append(table.kind, 0),
        gpus=np.append(table.gpus, 0),
        capacity=table.capacity,
        previous=np.full(jobs, len(table.gpus)),
    )


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), jobs=st.integers(1, 25))
def test_bound_exact_and_quick_cost_are_in_order(seed: int, jobs: int) -> None:
    """Lower bound <= exact optimum <= quick cost, which is what its choice costs and fits."""
    problem = random_round(seed, jobs)
    quick, exact = solve_round(problem), solve_exactly(problem)
    slack = 1e-6 * max(1.0, abs(exact.cost))
    assert quick.bound <= exact.cost + slack
    assert exact.cost <= quick.cost + slack
    assert problem.total(quick.choice) == pytest.approx(quick.cost)


def test_quick_cost_is_within_half_a_percent_of_the_optimum_on_average() -> None:
    """Over 30 rounds of 15 jobs."""
    excess = []
    for seed in range(30):
        problem = random_round(seed, 15)
        exact = solve_exactly(problem).cost
        excess.append((solve_round(problem).cost - exact) / abs(exact))
    assert np.mean(excess) < 0.005


def test_warm_prices_change_neither_feasibility_nor_determinism() -> None:
    """The same problem and prices give the same choice, and the bound holds from any start."""
    problem = random_round(3, 20)
    prices = solve_round(problem).prices * 3
    one, two = solve_round(problem, prices=prices), solve_round(problem, prices=prices)
    assert (one.choice == two.choice).all()
    assert one.bound <= solve_exactly(problem).cost + 1e-9


def test_jobs_that_must_stay_on_more_than_there_is_are_refused() -> None:
    """Two jobs locked on all GPUs of a type cannot both stay."""
    cost = np.array([[-1.0, np.inf], [-1.0, np.inf]])
    problem = RoundProblem(
        cost=cost,
        kind=np.array([0, 0]),
        gpus=np.array([8, 0]),
        capacity=np.array([8]),
        previous=np.array([0, 0]),
    )
    with pytest.raises(ImpossibleProblemError, match="must keep"):
        solve_round(problem)


def test_a_job_without_any_choice_is_refused() -> None:
    """A row of infinite costs is no problem that can be solved."""
    with pytest.raises(ImpossibleProblemError, match="no allowed configuration"):
        RoundProblem(
            cost=np.full((1, 2), np.inf),
            kind=np.array([0, 0]),
            gpus=np.array([1, 0]),
            capacity=np.array([1]),
            previous=np.array([1]),
        )
