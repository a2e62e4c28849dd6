"""Packings: exact where brute force can tell, certified always, and the same for a seed."""

import time

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from temporal_checks import overloads, packings

from benchmarks._cp_sat_packing import cp_sat
from benchmarks.packing.column_generation import covering_bound, state_graph, window
from benchmarks.packing.ejection_search import bin_reduction
from benchmarks.packing.fits import BEST_OF_FIVE, Order, Rule, best_fit_of_five, bins_of, fit
from benchmarks.packing.grids import clique_counts
from benchmarks.packing.moment_bound import gilmore_gomory_bound
from benchmarks.packing.pack import Proof, pack, subset
from benchmarks.packing.temporal_instance import TemporalInstance, clique_grid, instance_of
from planner.packing import run_bounds as bounds

ITEM = st.tuples(st.integers(0, 8), st.integers(1, 6), st.integers(1, 10)).map(
    lambda entry: (entry[0], entry[0] + entry[1], entry[2])
)


def uniform(
    seed: int, *, count: int, horizon: int, smallest: int = 25, largest: int = 75
) -> TemporalInstance:
    """A random instance of the public kind."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(1, horizon, count)
    return TemporalInstance(
        capacity=100,
        starts=starts,
        ends=starts + rng.integers(10, 31, count),
        sizes=rng.integers(smallest, largest + 1, count),
    )


def clique_bounds(instance: TemporalInstance) -> list[int]:
    """Volume, L2 and dual feasible bound."""
    sizes, counts = clique_counts(clique_grid(instance), instance.sizes)
    return [
        int(bound(counts, sizes, instance.capacity).max())
        for bound in (bounds.volume_bound, bounds.l2_bound, bounds.dual_feasible_bound)
    ]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(ITEM, min_size=1, max_size=7))
def test_the_packing_is_optimal_where_every_packing_can_be_tried(
    items: list[tuple[int, int, int]],
) -> None:
    """Volume <= L2 <= dual feasible <= proved bound <= optimum = bins <= every heuristic."""
    instance = instance_of(items, 10)
    optimum = min(int(packing.max()) + 1 for packing in packings(instance))
    packing = pack(instance, budget_seconds=30, seed=1)
    volume, l2, dual = clique_bounds(instance)
    assert volume <= l2 <= dual <= optimum
    assert packing.lower_bound <= optimum == packing.bins
    assert overloads(instance, packing.bin_of) == []
    assert packing.bins <= bins_of(best_fit_of_five(instance))


@pytest.mark.parametrize("seed", range(12))
def test_bounds_and_packings_are_in_order(seed: int) -> None:
    """No bound is above any packing, and no heuristic is below ours."""
    instance = uniform(seed, count=60 + 10 * seed, horizon=60 + 5 * seed)
    packing = pack(instance, budget_seconds=30, seed=seed)
    volume, l2, dual = clique_bounds(instance)
    assert volume <= l2 <= dual <= packing.bins
    assert packing.lower_bound <= packing.bins
    assert packing.lower_bound >= dual or packing.is_optimal
    assert overloads(instance, packing.bin_of) == []
    assert sorted(set(packing.bin_of)) == list(range(packing.bins))
    for order, rule in BEST_OF_FIVE:
        bin_of = fit(instance, order, rule)
        assert overloads(instance, bin_of) == []
        assert packing.bins <= bins_of(bin_of)


@pytest.mark.parametrize("rule", Rule)
@pytest.mark.parametrize("order", Order)
def test_every_fit_is_a_packing_of_all_items(order: Order, rule: Rule) -> None:
    """Bins are numbered from 0 without a gap and never over capacity."""
    instance = uniform(3, count=40, horizon=50, smallest=5)
    bin_of = fit(instance, order, rule)
    assert overloads(instance, bin_of) == []
    assert sorted(set(bin_of)) == list(range(bins_of(bin_of)))


@pytest.mark.parametrize("seed", range(4))
def test_the_packing_equals_cp_sat_where_that_proves(seed: int) -> None:
    """An exact solver finds no fewer bins, and no bound is above its optimum."""
    instance = uniform(seed, count=22, horizon=30)
    packing = pack(instance, budget_seconds=30, seed=1)
    optimum, bound, _ = cp_sat(instance, packing.bins, 20)
    assert packing.lower_bound <= optimum == bound == packing.bins


def test_the_same_seed_gives_the_same_packing() -> None:
    """Nothing but the instance and the seed decides."""
    instance = uniform(5, count=120, horizon=90)
    one, two = (pack(instance, budget_seconds=60, seed=3) for _ in range(2))
    assert (one.bin_of == two.bin_of).all()
    assert (one.lower_bound, one.proof) == (two.lower_bound, two.proof)


def test_sizes_with_a_common_divisor_are_the_same_problem() -> None:
    """Milli-GPUs pack as GPUs do."""
    instance = uniform(6, count=60, horizon=60)
    milli = TemporalInstance(
        capacity=100_999, starts=instance.starts, ends=instance.ends, sizes=instance.sizes * 1000
    )
    one, two = (pack(each, budget_seconds=30, seed=1) for each in (instance, milli))
    assert (one.bin_of == two.bin_of).all()
    assert one.lower_bound == two.lower_bound


@pytest.mark.parametrize("budget", [0.0, 0.3])
def test_the_budget_is_kept(budget: float) -> None:
    """A large instance gets a packing and a bound whatever the time."""
    instance = uniform(8, count=3000, horizon=800)
    pack(subset(instance, np.arange(100)), budget_seconds=1, seed=1)
    begun = time.process_time()
    packing = pack(instance, budget_seconds=budget, seed=1)
    assert time.process_time() - begun < budget + 2.5
    assert overloads(instance, packing.bin_of) == []
    assert 0 < packing.lower_bound <= packing.bins


def test_no_items_need_no_bins() -> None:
    """The empty instance is packed and proved."""
    packing = pack(instance_of([], 5), budget_seconds=1, seed=1)
    assert (packing.bins, packing.lower_bound, packing.is_optimal) == (0, 0, True)
    assert packing.gap_ratio == 0


def test_items_that_never_meet_share_a_bin() -> None:
    """An end is not part of a life: the next item may start there."""
    packing = pack(instance_of([(0, 5, 10), (5, 9, 10), (9, 10, 10)], 10), budget_seconds=1, seed=1)
    assert packing.bins == 1


def test_three_to_a_bin_is_seen_by_dual_feasible_functions_only() -> None:
    """Ten items of 26 of 100: volume and L2 say 3 bins, but only three fit into one."""
    volume, l2, dual = clique_bounds(instance_of([(0, 1, 26)] * 10, 100))
    assert (volume, l2, dual) == (3, 3, 4)


def test_the_pattern_program_proves_what_no_function_of_the_family_does() -> None:
    """It is at least the dual feasible bound on every random instance, and above on some."""
    lifted = 0
    for seed in range(40):
        instance = uniform(seed, count=60, horizon=40, largest=50)
        sizes, counts = clique_counts(clique_grid(instance), instance.sizes)
        floor = int(bounds.dual_feasible_bound(counts, sizes, 100).max())
        ceiling = bins_of(best_fit_of_five(instance))
        found = gilmore_gomory_bound(
            counts, sizes, 100, floor=floor, ceiling=ceiling, deadline=time.monotonic() + 60
        )
        assert floor <= found.bins <= ceiling
        lifted += found.bins > floor
    assert lifted > 0


def test_only_the_program_over_time_sees_what_moments_do_not() -> None:
    """Four moments of two bins each, and no way to keep the items in two."""
    instance = instance_of(
        [(0, 3, 6), (0, 2, 4), (0, 2, 4), (2, 6, 5), (2, 6, 5), (3, 6, 6), (1, 2, 6)], 10
    )
    graph = state_graph(instance, most_nodes=10_000)
    assert graph is not None
    optimum = min(int(packing.max()) + 1 for packing in packings(instance))
    bound = covering_bound(
        graph,
        best_fit_of_five(instance),
        floor=1,
        ceiling=optimum + 3,
        deadline=time.monotonic() + 60,
    )
    assert max(clique_bounds(instance)) <= bound <= optimum


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(ITEM, min_size=1, max_size=7))
def test_the_covering_bound_is_never_above_the_optimum(items: list[tuple[int, int, int]]) -> None:
    """Whatever the items, and never below what every moment needs."""
    instance = instance_of(items, 10)
    optimum = min(int(packing.max()) + 1 for packing in packings(instance))
    graph = state_graph(instance, most_nodes=100_000)
    assert graph is not None
    bound = covering_bound(
        graph,
        np.arange(len(items)),
        floor=0,
        ceiling=len(items),
        deadline=time.monotonic() + 60,
    )
    assert clique_bounds(instance)[0] <= bound <= optimum


def test_a_graph_that_grows_too_large_is_given_up() -> None:
    """No bound is better than one that takes all memory."""
    assert state_graph(uniform(1, count=200, horizon=40, smallest=5), most_nodes=1000) is None


def test_more_than_128_items_at_a_time_are_given_up() -> None:
    """A state has 128 places."""
    assert state_graph(instance_of([(0, 1, 1)] * 129, 1000), most_nodes=10**6) is None


def test_a_window_is_the_items_nearest_to_a_moment() -> None:
    """Those that live then come first."""
    instance = instance_of([(0, 2, 1), (5, 9, 1), (6, 7, 1), (20, 30, 1)], 5)
    assert list(window(instance, 6, 2)) == [1, 2]


def test_the_search_never_gives_a_packing_of_more_bins() -> None:
    """A failed search keeps what it had."""
    instance = uniform(2, count=80, horizon=60)
    bin_of = fit(instance, Order.START, Rule.FIRST)
    search = bin_reduction(clique_grid(instance), instance.sizes, 100, bin_of, seed=1)
    for _ in range(6):
        before = search.bins
        found = search.run(500, deadline=time.monotonic() + 60)
        assert search.bins == before - found
        assert overloads(instance, search.bin_of) == []


def test_the_packing_says_what_proved_its_bound() -> None:
    """Volume does not see that items above half a bin need one each; L2 does."""
    packing = pack(instance_of([(0, 4, 6), (0, 4, 7), (0, 4, 6)], 10), budget_seconds=1, seed=1)
    assert (packing.bins, packing.lower_bound, packing.proof) == (3, 3, Proof.L2)
