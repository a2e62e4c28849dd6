"""Busy time: exact where brute force can tell, bounded always, and moves within their share."""

import time

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from temporal_checks import busy_units, overloads, packings

from benchmarks.packing.busy_time import (
    BusyTime,
    minimise_busy_time,
    static_busy_time,
    volume_busy_time,
)
from benchmarks.packing.fits import Order, Rule, fit
from benchmarks.packing.temporal_instance import TemporalInstance, instance_of

ITEM = st.tuples(st.integers(0, 8), st.integers(1, 6), st.integers(1, 10)).map(
    lambda entry: (entry[0], entry[0] + entry[1], entry[2])
)


def cloudy(seed: int, count: int) -> TemporalInstance:
    """Many small items with long tails."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, 200, count)
    return TemporalInstance(
        capacity=100,
        starts=starts,
        ends=starts + 1 + rng.lognormal(3, 1, count).astype(np.int64),
        sizes=rng.choice([3, 6, 12, 25, 33], count),
    )


def parts_of(instance: TemporalInstance, found: BusyTime) -> TemporalInstance:
    """The parts as an instance of their own."""
    return TemporalInstance(
        capacity=instance.capacity,
        starts=found.starts,
        ends=found.ends,
        sizes=instance.sizes[found.item],
    )


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(ITEM, min_size=1, max_size=6))
def test_busy_time_is_within_the_optimum_and_every_heuristic(
    items: list[tuple[int, int, int]],
) -> None:
    """Volume <= static bound <= optimum = ours on instances where every packing can be tried."""
    instance = instance_of(items, 10)
    optimum = min(busy_units(instance, packing) for packing in packings(instance))
    found = minimise_busy_time(instance, budget_seconds=30, seed=1, rounds=500)
    assert volume_busy_time(instance) <= static_busy_time(instance) <= optimum
    assert found.busy_time == busy_units(instance, found.bin_of) == optimum
    assert overloads(instance, found.bin_of) == []


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2])
def test_parts_make_up_their_items_and_few_items_move(share: float) -> None:
    """Parts of an item follow one another; at most the share is in two bins; nothing is over."""
    instance = cloudy(1, 150)
    found = minimise_busy_time(instance, budget_seconds=30, seed=1, moved_share=share, rounds=1_000)
    parts = parts_of(instance, found)
    assert overloads(parts, found.bin_of) == []
    assert found.busy_time == busy_units(parts, found.bin_of)
    assert found.static_bound <= found.busy_time
    moved = 0
    for item in range(instance.items):
        own = np.flatnonzero(found.item == item)
        own = own[np.argsort(found.starts[own])]
        assert found.starts[own[0]] == instance.starts[item]
        assert found.ends[own[-1]] == instance.ends[item]
        assert (found.ends[own[:-1]] == found.starts[own[1:]]).all()
        assert len(own) <= 2
        moved += len(set(found.bin_of[own])) > 1
    assert moved == found.moved_items <= share * instance.items


def test_moves_save_busy_time() -> None:
    """Moving a fifth of the items once is better than moving none."""
    instance = cloudy(2, 150)
    none, fifth = (
        minimise_busy_time(
            instance, budget_seconds=30, seed=1, moved_share=share, rounds=1_000
        ).busy_time
        for share in (0.0, 0.2)
    )
    assert fifth < none


def test_annealing_is_better_than_the_greedy_that_it_starts_from() -> None:
    """And the greedy by added busy time is better than first fit."""
    instance = cloudy(3, 150)
    first = busy_units(instance, fit(instance, Order.START, Rule.FIRST))
    greedy = busy_units(instance, fit(instance, Order.START_LONGEST, Rule.MIN_ADDED))
    found = minimise_busy_time(instance, budget_seconds=30, seed=1, rounds=3_000)
    assert found.busy_time < greedy < first
    assert found.over_static_ratio == found.busy_time / found.static_bound - 1


def test_the_same_seed_gives_the_same_bins() -> None:
    """Nothing but the instance and the seed decides while the budget is ample."""
    instance = cloudy(4, 100)
    one, two = (
        minimise_busy_time(instance, budget_seconds=120, seed=2, moved_share=0.05, rounds=1_000)
        for _ in range(2)
    )
    assert (one.bin_of == two.bin_of).all()
    assert (one.starts == two.starts).all()


@pytest.mark.parametrize("budget", [0.0, 0.5])
def test_the_budget_is_kept(budget: float) -> None:
    """A short budget gives the greedy's answer or a better one."""
    instance = cloudy(5, 1000)
    begun = time.process_time()
    found = minimise_busy_time(instance, budget_seconds=budget, seed=1, moved_share=0.02)
    assert time.process_time() - begun < budget + 2.5
    greedy = busy_units(instance, fit(instance, Order.START_LONGEST, Rule.MIN_ADDED))
    assert found.busy_time <= greedy


@pytest.mark.parametrize("items", [[], [(2, 5, 3)]])
def test_nothing_and_one_item_are_busy_as_long_as_they_live(
    items: list[tuple[int, int, int]],
) -> None:
    """The smallest instances need no search."""
    found = minimise_busy_time(instance_of(items, 10), budget_seconds=1, seed=1, moved_share=1.0)
    assert found.busy_time == sum(end - start for start, end, _ in items)
    assert found.over_static_ratio == 0
