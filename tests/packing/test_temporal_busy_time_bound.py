"""The bound on busy time without moves: never above the optimum, never below what it is made of."""

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from temporal_checks import busy_units, packings

from benchmarks.packing.busy_time import minimise_busy_time, static_busy_time
from benchmarks.packing.busy_time_bound import busy_time_bound
from benchmarks.packing.temporal_instance import TemporalInstance, instance_of

ITEM = st.tuples(st.integers(0, 8), st.integers(1, 6), st.integers(1, 10)).map(
    lambda entry: (entry[0], entry[0] + entry[1], entry[2])
)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(ITEM, min_size=1, max_size=6))
def test_the_bound_lies_between_the_static_one_and_the_optimum(
    items: list[tuple[int, int, int]],
) -> None:
    """On instances where every packing can be tried."""
    instance = instance_of(items, 10)
    optimum = min(busy_units(instance, packing) for packing in packings(instance))
    bound = busy_time_bound(instance, np.arange(instance.items), budget_seconds=30)
    assert static_busy_time(instance) <= bound <= optimum


def test_staying_in_one_bin_costs_more_than_the_load_says() -> None:
    """The load never asks for a bin that whole lives do not, and here lives ask for more."""
    instance = instance_of([(0, 4, 6), (0, 8, 5), (4, 12, 5), (6, 12, 5)], 10)
    bound = busy_time_bound(instance, np.arange(4), budget_seconds=30)
    optimum = min(busy_units(instance, packing) for packing in packings(instance))
    assert bound == optimum > static_busy_time(instance)


def test_the_bound_is_close_to_what_the_search_finds() -> None:
    """On sixty items of a cloud's kind the search is within 6 % of what is possible."""
    rng = np.random.default_rng(3)
    starts = rng.integers(0, 200, 60)
    instance = TemporalInstance(
        capacity=100,
        starts=starts,
        ends=starts + 1 + rng.lognormal(3, 1, 60).astype(np.int64),
        sizes=rng.choice([12, 25, 33, 50], 60),
    )
    found = minimise_busy_time(instance, budget_seconds=60, seed=1, rounds=3_000)
    bound = busy_time_bound(instance, found.bin_of, budget_seconds=60)
    assert found.static_bound < bound <= found.busy_time <= 1.06 * bound


@pytest.mark.parametrize("items", [[], [(0, 5, 3)]])
def test_no_items_and_no_room_for_the_graph_bound_nothing(
    items: list[tuple[int, int, int]],
) -> None:
    """Where the graph is too large the answer is zero, which is always true."""
    instance = instance_of(items, 10)
    assert busy_time_bound(instance, np.zeros(len(items)), budget_seconds=1, most_nodes=1) == 0
