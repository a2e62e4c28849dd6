"""How an autoscaler's bounds served: replicas above need, and waits at the maximum."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.base.units import SLOT_SECONDS
from data.records.recommendations import Range
from data.records.serving import BoundsUse
from planner.serving.bounds_use import NeedRules, bounds_use
from planner.serving.queueing import WaitObjective, replicas_needed
from planner.serving.service_model import ReplicaCarries, ServiceReadings

DAY = 86_400 // SLOT_SECONDS
RULES = NeedRules(
    objective=WaitObjective(wait_seconds=2.0, share=0.99),
    reactive_ratio=0.7,
    cold_start_seconds=480.0,
)
CARRIES = ReplicaCarries(
    slots=8,
    seen_full=True,
    service_seconds=Range(low=3.0, central=4.0, high=5.0, unit="s"),
    arrival_scv=1.0,
)


def readings(rates: np.ndarray, **columns: np.ndarray) -> ServiceReadings:
    """A service of which each request is worked on for 4 s and waits for none."""
    nothing = np.full(len(rates), np.nan)
    steady = {
        "running": 4.0 * rates, "waiting": 0.0 * rates, "finished": SLOT_SECONDS * rates,
        "fullest": nothing, "full": nothing, "timed_seconds": nothing, "timed": nothing,
        "waited_seconds": 0.0 * rates, "waited": SLOT_SECONDS * rates,
        "prompt": nothing, "generated": nothing, "replicas": nothing, "cache": nothing,
    }  # fmt: skip
    starts = np.arange(len(rates)) * SLOT_SECONDS
    return ServiceReadings(engine="vllm", starts=starts, **(steady | columns))


def day_and_night(days: int = 2) -> np.ndarray:
    """0.2 requests a second in the first half of the day, 8 in the second."""
    return np.where(np.arange(days * DAY) % DAY < DAY // 2, 0.2, 8.0)


def used(
    given_readings: ServiceReadings, replicas: np.ndarray, least: int, most: int | None = None
) -> BoundsUse:
    """How bounds served these readings."""
    found = bounds_use(
        given_readings, replicas, CARRIES, RULES, min_replicas=least, max_replicas=most
    )
    assert found is not None
    return found


def test_a_night_at_the_minimum_is_spare_down_to_what_it_needs() -> None:
    """4 replicas by night where 1 is enough: 3 of them, but for the cold start before the peak."""
    rates = day_and_night()
    found = used(readings(rates), np.where(rates < 1, 4.0, 9.0), 4)
    before_peak = 2 * -(-RULES.cold_start_seconds // SLOT_SECONDS) / 12
    assert replicas_needed(replace(CARRIES.load(0.2)), RULES.objective) == 1
    assert found.least_needed == 1
    assert found.spare_hours == pytest.approx(24.0 - before_peak)
    assert found.spare_replica_hours.central == pytest.approx(3 * (24.0 - before_peak))
    assert (found.known_hours, found.span_hours) == (pytest.approx(48.0), pytest.approx(48.0))
    assert found.replica_hours == pytest.approx(24 * 4 + 24 * 9)
    assert (found.times_at_max, found.hours_at_max) == (0, 0.0)


def test_what_the_autoscaler_chose_itself_is_not_the_minimums() -> None:
    """More replicas than the minimum are its own metric's doing, however few are needed."""
    rates = day_and_night()
    assert used(readings(rates), np.full(len(rates), 9.0), 4).spare_replica_hours.high == 0.0


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.floats(0.0, 0.3))
def test_spare_is_never_more_than_was_there_and_grows_with_the_minimum(
    seed: int, least: int, gaps: float
) -> None:
    """Any demand, with readings missing: unknown slots are neither spare nor known."""
    rng = np.random.default_rng(seed)
    rates = np.where(rng.random(60) < gaps, np.nan, rng.gamma(1.0, 3.0, 60))
    if np.isnan(rates).all():
        return
    replicas = np.maximum(least, rng.integers(0, 12, 60)).astype(float)
    given_readings = readings(rates)
    found, lower = (
        used(given_readings, np.minimum(replicas, bound), bound) for bound in (least, 1)
    )
    spare = found.spare_replica_hours
    assert found.known_hours == pytest.approx(np.isfinite(rates).sum() / 12)
    assert 0 <= spare.low <= spare.central <= spare.high
    assert spare.high <= found.replica_hours - found.known_hours * min(1, least) + 1e-9
    assert lower.spare_replica_hours.high == 0.0
    if least <= found.least_needed:
        assert spare.high == 0.0


def test_requests_in_flight_count_as_a_reactive_rule_counts_them() -> None:
    """Few arrivals that are long at work need replicas all the same."""
    rates = np.full(DAY, 0.01)
    busy = readings(rates, running=np.full(DAY, 20.0))
    assert used(busy, np.full(DAY, 4.0), 4).spare_replica_hours.central == 0.0
    assert used(readings(rates), np.full(DAY, 4.0), 4).spare_replica_hours.central > 0.0


def test_waits_at_the_maximum_are_counted_by_spells() -> None:
    """Three spells: 2 slots, 1 slot, and 1 after a gap in the readings; below the maximum none."""
    rates = np.full(DAY, 8.0)
    waited = np.zeros(DAY)
    waited[[10, 11, 50, 90, 91, 120]] = 5 * SLOT_SECONDS * 8.0
    replicas = np.full(DAY, 3.0)
    replicas[120] = 2.0
    late = readings(rates, waited_seconds=waited)
    found = used(late, replicas, 1, 3)
    assert (found.times_at_max, found.hours_at_max) == (3, pytest.approx(5 / 12))
    needed = replicas_needed(CARRIES.load(8.0), RULES.objective)
    assert needed <= found.most_needed <= needed + 1
    gone = np.arange(DAY) != 91
    columns = {
        name: getattr(late, name)[gone]
        for name in ("starts", "running", "waiting", "finished", "waited_seconds", "waited")
    }
    columns |= {name: getattr(late, name)[gone] for name in ("fullest", "full")}
    columns |= {name: getattr(late, name)[gone] for name in ("timed_seconds", "timed")}
    columns |= {
        name: getattr(late, name)[gone] for name in ("prompt", "generated", "replicas", "cache")
    }
    apart = ServiceReadings(engine="vllm", **columns)
    assert used(apart, replicas[gone], 1, 3).times_at_max == 3
    assert used(late, replicas, 1, None).times_at_max == 0


def test_nothing_known_is_no_answer() -> None:
    """Not a service without need."""
    rates = np.full(12, np.nan)
    found = bounds_use(
        readings(rates), np.ones(12), CARRIES, RULES, min_replicas=4, max_replicas=None
    )
    assert found is None


def test_the_doubt_is_that_of_the_seconds_of_service() -> None:
    """Half a day at 6 a second, then a quiet one: 12 replicas less those for 5, 4 and 3 s."""
    rates = np.where(np.arange(DAY) < DAY // 2, 6.0, 0.01)
    spare = used(readings(rates, running=0.0 * rates), np.full(DAY, 12.0), 12).spare_replica_hours
    seconds = CARRIES.service_seconds
    needed = [
        replicas_needed(replace(CARRIES.load(6.0), service_seconds=at), RULES.objective)
        for at in (seconds.high, seconds.central, seconds.low)
    ]
    assert len(set(needed)) == 3
    assert (spare.low, spare.central, spare.high) == pytest.approx(
        tuple(12 * (12 - count) + 12 * 11 for count in needed)
    )


@pytest.mark.parametrize("rate", [0.0, 6.0])
def test_nothing_below_the_new_minimum_counts_as_spare(rate: float) -> None:
    """It is one at least, and what a steady service needs at the most seconds of service."""
    found = used(readings(np.full(DAY, rate)), np.full(DAY, 12.0), 12)
    spare = found.spare_replica_hours
    assert found.least_needed >= 1
    assert spare.low == spare.central == spare.high == 24 * (12 - found.least_needed)


def test_waits_at_the_maximum_without_known_requests_are_not_counted() -> None:
    """What was needed then is unknown as well."""
    rates = np.full(DAY, 8.0)
    waited = np.where(np.arange(DAY) == 10, 5 * SLOT_SECONDS * 8.0, 0.0)
    running = np.where(np.arange(DAY) == 10, np.nan, 32.0)
    found = used(readings(rates, waited_seconds=waited, running=running), np.full(DAY, 3.0), 1, 3)
    assert (found.times_at_max, found.hours_at_max, found.most_needed) == (0, 0.0, 0)


@pytest.mark.parametrize("hours", [0.5, 4.0])
def test_a_queue_that_the_maximum_let_grow_asks_for_no_replicas(hours: float) -> None:
    """Two replicas end 4 requests a second of the 5 that come: 3 had let no queue grow.

    The queue of hours of it is thousands long, and clears with the maximum that is asked for.
    """
    drowning = np.arange(DAY) < hours * 12
    rates = np.where(drowning, 5.0, 0.5)
    queue = np.where(drowning, np.cumsum(drowning) * SLOT_SECONDS, 0.0)
    late = readings(
        rates,
        running=np.where(drowning, 16.0, 2.0),
        waiting=queue,
        finished=SLOT_SECONDS * np.where(drowning, 4.0, 0.5),
        waited_seconds=queue * SLOT_SECONDS,
    )
    found = used(late, np.full(DAY, 2.0), 1, 2)
    needed = replicas_needed(CARRIES.load(5.0), RULES.objective)
    assert found.hours_at_max == pytest.approx(hours)
    assert needed <= found.most_needed <= needed + 1
