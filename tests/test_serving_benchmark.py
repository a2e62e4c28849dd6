"""The replay of services: what it counts, and that a forecast never orders less than the rule."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks._serving_kernel import IN_FLIGHT, RATE, replay_kernel
from benchmarks._serving_rules import (
    NO_RULE,
    STEP,
    ReactiveRule,
    floor_of,
    forecast_rates,
    oracle_floor,
    replayed,
)
from benchmarks._serving_traces import RequestTrace, drawn, shuffled

DAY = 86_400


def daily(days: int = 2, seed: int = 1) -> RequestTrace:
    """A service with a morning that quadruples within half an hour."""
    hours = np.arange(days * 48) / 2 % 24
    rates = np.where((hours >= 8) & (hours < 20), 4.0, 1.0)
    return drawn("daily", rates, 1800, 1.0, seed=seed)


def kernel(
    arrivals: list[float], services: list[float], floor: list[int], cold: float = 30.0
) -> tuple[list[float], list[int]]:
    """Waits and replicas held of one slot a replica, by steps of 10 s, of a floor alone."""
    waits, held, _asked = replay_kernel(
        np.array(arrivals), np.array(services), np.array([cold]), np.array(floor),
        10.0, 1, np.array([0, 0, 1]), 1.0, 0.0,
    )  # fmt: skip
    return waits.tolist(), held.tolist()


def test_another_draw_has_other_requests_of_the_same_rates() -> None:
    """About as many of them, at other times."""
    one, other = daily(seed=1), daily(seed=101)
    assert len(one.arrivals) == pytest.approx(len(other.arrivals), rel=0.02)
    assert not np.array_equal(one.arrivals[:100], other.arrivals[:100])


def test_requests_wait_for_a_slot_and_a_replica_for_its_cold_start() -> None:
    """First in first out; ordered at 10 s, the second replica takes the third request at 40 s."""
    waits, held = kernel([0.0, 1.0, 2.0], [50.0, 50.0, 1.0], [1, 2, 2, 2, 2, 2, 2, 2, 2, 2])
    assert waits == [0.0, 39.0, 48.0]
    assert held == [1, 2, 2, 2, 2, 2, 2, 2, 2, 2]


def test_a_stopped_replica_ends_what_it_works_on_and_takes_no_more() -> None:
    """At 10 s the one that is free first stops: the other's slot takes the third request."""
    waits, held = kernel([0.0, 1.0, 12.0], [25.0, 20.0, 1.0], [2, 1, 1, 1])
    assert held == [2, 1, 1, 1]
    assert waits == [0.0, 0.0, 13.0]


def test_what_is_not_ready_is_stopped_first() -> None:
    """An order that is taken back never serves, and the working replica stays."""
    waits, held = kernel([0.0, 31.0], [20.0, 1.0], [1, 2, 1, 1, 1, 1])
    assert held == [1, 2, 1, 1, 1, 1]
    assert waits == [0.0, 0.0]


def test_what_was_never_admitted_waits_to_the_end() -> None:
    """A lost request is no served one."""
    waits, _held = kernel([0.0, 5.0], [1000.0, 1.0], [1, 1, 1])
    assert waits == [0.0, 25.0]


@pytest.mark.parametrize("kind", [IN_FLIGHT, RATE])
@pytest.mark.parametrize("seed", [1, 2])
def test_above_a_floor_no_fewer_replicas_are_held_than_the_rule_asks(kind: int, seed: int) -> None:
    """By construction, on a trace without pattern, whatever the floor says."""
    trace = shuffled(daily(1, seed), seed)
    steps = int(trace.seconds // STEP)
    floor = np.random.default_rng(seed).integers(0, 20, steps)
    rule = np.array([kind, 20, 4])
    capacity = trace.slots if kind == IN_FLIGHT else trace.replica_rate
    _waits, held, asked = replay_kernel(
        trace.arrivals, trace.services, np.array([300.0]), floor, float(STEP), trace.slots, rule,
        0.7 * capacity, 0.0,
    )  # fmt: skip
    assert (held >= np.maximum(asked, np.maximum(floor, 1))).all()
    windowed = [asked[max(0, step - 20) : step + 1].max() for step in range(steps)]
    assert (held >= windowed).all()
    assert (held > np.maximum(windowed, 1)).any()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_without_a_pattern_a_forecast_is_no_worse_than_the_rate_rule(seed: int) -> None:
    """What a rate asks does not depend on replicas: at any minute at least as many are held."""
    trace = shuffled(daily(1, seed), seed)
    rule = ReactiveRule(kind=RATE, target=0.8, window_minutes=15)
    alone = replayed(trace, "alone", rule)
    rates = np.random.default_rng(seed).uniform(0, 6, 144)
    above = replayed(trace, "above", rule, floor_of(trace, rates))
    assert (above.gpu_hours >= alone.gpu_hours - 1e-9).all()
    assert above.missed.sum() <= alone.missed.sum()
    assert above.missed.sum() < alone.missed.sum() or alone.missed.sum() == 0


def test_a_forecast_has_seen_only_what_came_before() -> None:
    """Requests after a moment change no forecast made at or before it."""
    trace = daily(1)
    half = replace(trace, arrivals=np.where(trace.arrivals < DAY / 2, trace.arrivals, np.nan))
    kept = trace.arrivals < DAY / 2
    other = np.sort(np.concatenate([trace.arrivals[kept], np.linspace(DAY / 2, DAY - 1, 50)]))
    changed = replace(half, arrivals=other, services=trace.services[: len(other)])
    slots = int(DAY / 2 // 600)
    first, second = forecast_rates(trace), forecast_rates(changed)
    for level, rates in first.items():
        assert rates[: slots + 1].tolist() == second[level][: slots + 1].tolist()
        assert rates[slots + 20 :].tolist() != second[level][slots + 20 :].tolist()


def test_who_knows_the_morning_orders_before_it() -> None:
    """The clairvoyant's floor rises a cold start ahead, and misses less than the rule it beats."""
    trace = daily()
    floor = oracle_floor(trace, 1.0)
    needs = floor_of(trace, np.bincount((trace.arrivals // 60).astype(int))[:2880] / 60, 60)
    assert (floor >= needs).all()
    jump = int(np.argmax(needs > needs[: 7 * 240].max()))
    assert floor[jump - 480 // STEP] > needs[: 7 * 240].max()
    oracle = replayed(trace, "oracle", NO_RULE, floor)
    rule = replayed(trace, "rule", ReactiveRule(kind=RATE, target=0.9, window_minutes=5))
    assert oracle.missed.sum() < rule.missed.sum()
