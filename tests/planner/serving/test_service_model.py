"""What readings teach of a replica, and that orders never fall below the reactive rule."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.base.errors import ImpossibleProblemError
from data.base.units import SLOT_SECONDS
from planner.serving.queueing import WaitObjective, replicas_needed
from planner.serving.service_model import (
    MAX_LEARNT_SLOTS,
    ServiceReadings,
    carried_rate,
    learnt,
    proven_replicas,
    reactive_replicas,
    replicas_for_rates,
    to_order,
)

DAY = 86_400 // SLOT_SECONDS


def readings(slots: int = DAY, **columns: float | np.ndarray) -> ServiceReadings:
    """A service of 2 replicas: 1 request a second, 4 s of service and 1 s of wait each."""
    steady: dict[str, float | np.ndarray] = {
        "running": 4.0, "waiting": 0.0, "finished": 300.0, "fullest": 2.5, "full": np.nan,
        "timed_seconds": 1500.0, "timed": 300.0, "waited_seconds": 300.0, "waited": 300.0,
        "prompt": np.nan, "generated": np.nan, "replicas": 2.0, "cache": np.nan,
    }  # fmt: skip
    found = {
        name: np.broadcast_to(value, slots) + 0.0 for name, value in (steady | columns).items()
    }
    return ServiceReadings(engine="vllm", starts=np.arange(slots) * SLOT_SECONDS, **found)


def test_seconds_of_service_are_without_the_wait() -> None:
    """Of engines whose requests are timed with it; the others' are taken as they are."""
    found = learnt(readings())
    assert found is not None
    assert found.service_seconds.central == pytest.approx(4.0)
    alone = learnt(replace(readings(), engine="ray_serve"))
    assert alone is not None
    assert alone.service_seconds.central == pytest.approx(5.0)


def test_an_engine_that_times_nothing_is_measured_by_littles_law() -> None:
    """4 requests at work and 1 a second that ends are 4 s."""
    nothing = {"timed_seconds": np.nan, "timed": np.nan, "waited_seconds": np.nan, "waited": np.nan}
    found = learnt(readings(**nothing))
    assert found is not None
    assert found.service_seconds.central == pytest.approx(4.0)
    assert learnt(readings(**nothing, finished=np.nan)) is None
    assert learnt(readings(fullest=np.nan)) is None


def test_what_a_replica_holds_is_known_once_it_was_full() -> None:
    """Else the most that was seen: it may hold more."""
    idle = learnt(readings(fullest=np.linspace(1, 7, DAY)))
    assert idle is not None
    assert (idle.slots, idle.seen_full) == (7, False)
    full = np.full(DAY, np.nan)
    full[5:9] = (15.6, 16.0, 16.2, 3.0)
    busy = learnt(readings(fullest=20.0, full=full))
    assert busy is not None
    assert (busy.slots, busy.seen_full) == (16, True)


def test_a_day_before_does_not_count() -> None:
    """A model that was changed carries something else."""
    slower = np.where(np.arange(2 * DAY) < DAY, 30_000.0, 1500.0)
    found = learnt(readings(2 * DAY, timed_seconds=slower))
    assert found is not None
    assert found.service_seconds.high == pytest.approx(4.0)


def test_a_queue_that_grows_is_demand_where_slots_follow() -> None:
    """A drowning service ends fewer than come; over a gap nothing is told."""
    growing = readings(4, waiting=np.array([0.0, 60.0, 120.0, 60.0]))
    assert growing.arrivals == pytest.approx([300, 360, 360, 240])
    apart = replace(growing, starts=np.array([0, 300, 3000, 3300]))
    assert apart.arrivals == pytest.approx([300, 360, 300, 240])


@pytest.mark.parametrize(("clumps", "expected"), [(1, 1.0), (3, 3.0), (40, 4.0)])
def test_the_scv_of_gaps_is_that_of_counts_and_a_trend_is_none(
    clumps: int, expected: float
) -> None:
    """Requests in clumps of k have k times the variance of Poisson's; learnt up to 4."""
    rng = np.random.default_rng(3)
    trend = np.linspace(300, 900, DAY)
    found = learnt(readings(finished=clumps * rng.poisson(trend / clumps).astype(float)))
    assert found is not None
    assert found.arrival_scv == pytest.approx(expected, rel=0.25)


def test_the_reactive_rule_counts_those_who_wait() -> None:
    """(4 + 10) requests on replicas of 2, filled to 0.7."""
    busy = readings(waiting=10.0, fullest=2.0)
    carries = learnt(busy)
    assert carries is not None
    assert reactive_replicas(carries, busy, 0.7) == 10
    assert reactive_replicas(carries, replace(busy, waiting=busy.waiting * np.nan), 1.0) == 2


def test_rates_are_sized_as_the_formula_does() -> None:
    """Rounded up by at most a hundredth of a replica; what cannot be counted is refused."""
    carries = learnt(readings())
    assert carries is not None
    objective = WaitObjective(wait_seconds=1.0, share=0.99)
    rates = [0.0, 0.5, 3.0, 3.0, 20.0]
    sized = replicas_for_rates(carries.load(0.0), rates, objective)
    exact = [replicas_needed(carries.load(rate), objective) for rate in rates]
    assert all(0 <= got - want <= 1 for got, want in zip(sized, exact, strict=True))
    assert sized[0] == 0
    with pytest.raises(ImpossibleProblemError):
        replicas_for_rates(carries.load(0.0), [1e12], objective)
    busy = MAX_LEARNT_SLOTS / carries.service_seconds.central
    with pytest.raises(ImpossibleProblemError, match="50,000"):
        replicas_for_rates(carries.load(0.0), [1.0, 1.01 * busy], objective)


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=20),
    st.integers(0, 5),
    st.integers(0, 60),
    st.integers(0, 25),
)
def test_orders_cover_the_cold_start_and_never_fall_below_the_reactive_rule(
    needed: list[int], ahead: int, at_least: int, first: int
) -> None:
    """What is needed after the cold start is ordered before it, and nothing less than now."""
    found = to_order(needed, ahead=ahead, at_least=at_least, first=first)
    for slot, order in enumerate(found):
        wanted = max(needed[slot : slot + ahead + 1])
        assert order == (max(wanted, at_least) if slot < first else wanted)


@pytest.mark.parametrize("replicas", [1, 2, 7, 40])
@pytest.mark.parametrize("scv", [1.0, 4.0])
def test_what_replicas_carry_is_the_highest_rate_that_asks_for_no_more(
    replicas: int, scv: float
) -> None:
    """A hundredth of a replica more asks for another one."""
    found = learnt(readings(fullest=16.0, full=16.0))
    assert found is not None
    load = replace(found.load(0.0), arrival_scv=scv)
    objective = WaitObjective(wait_seconds=2.0, share=0.99)
    carried = carried_rate(load, replicas, objective)
    assert carried is not None
    part = found.slots / found.service_seconds.central / 100
    enough, more = (
        replicas_needed(replace(load, requests_per_second=rate), objective)
        for rate in (carried, carried + part)
    )
    assert enough <= replicas < more
    assert carried_rate(load, MAX_LEARNT_SLOTS, objective) is None


def test_waits_are_those_timed_else_of_those_that_wait_else_unknown() -> None:
    """Little's law: 30 that wait where 1 a second comes wait 30 s; where none ends, without end."""
    assert list(readings(3).mean_waits) == [1.0] * 3
    untimed = {"waited_seconds": np.nan, "waited": np.nan}
    assert list(readings(3, **untimed, waiting=30.0).mean_waits) == [30.0] * 3
    assert list(readings(3, **untimed, waiting=0.0, finished=0.0).mean_waits) == [0.0] * 3
    stuck = readings(3, **untimed, waiting=30.0, finished=0.0).mean_waits
    assert list(stuck) == [np.inf] * 3
    assert np.isnan(readings(3, **untimed, waiting=np.nan).mean_waits).all()


PROMISE = WaitObjective(wait_seconds=2.0, share=0.99)
UNTIMED = {"waited_seconds": np.nan, "waited": np.nan}


def proven(told: ServiceReadings, came: np.ndarray, rates: tuple[float, ...]) -> tuple[float, ...]:
    """What is proven of replicas of two places and 4 s of service."""
    carries = learnt(readings(fullest=2.0))
    assert carries is not None
    return proven_replicas(told, came, rates, carries, PROMISE)


def test_proven_is_the_fewest_that_carried_as_much_and_kept_the_promise() -> None:
    """Beyond what ever came a quarter more on the same replicas, then in proportion."""
    came = np.array([1.0, 2.0, 3.0, 4.0, 9.0, np.nan])
    waiting = np.array([0.0, 0.0, 0.01, 0.0, 9.0, 0.0])
    there = np.array([4.0, 2.0, 3.0, 3.0, 1.0, 1.0])
    told = readings(6, waiting=waiting, replicas=there, finished=300 * came, **UNTIMED)
    found = proven(told, came, (0.0, 1.5, 2.0, 2.1, 4.0, 4.9, 5.1, 10.0))
    assert found == (2, 2, 2, 3, 3, 3, 4, 6)
    assert proven(readings(6, waiting=5.0, **UNTIMED), came, (1.0,)) == (np.inf,)
    for twice in ([2.0, 3.0], [3.0, 2.0]):  # the highest rate came twice
        calm = readings(2, replicas=np.array(twice), **UNTIMED)
        assert proven(calm, np.full(2, 4.0), (4.0, 10.0)) == (2, 4)


@pytest.mark.parametrize("is_timed", [True, False])
@pytest.mark.parametrize(("scale", "replicas"), [(1, 1), (1, 3), (20, 1)])
def test_replicas_prove_only_what_they_carried_without_late_requests(
    scale: int, replicas: int, is_timed: bool
) -> None:
    """Simulated: 1 place each, 20 s of service, 0.012 requests a second; 20 times as fast as well.

    With one replica 22 % wait above 2 s (fast: 0.1 s), with three none in a hundred: fewer than
    one waits at a time, in most slots nobody.
    """
    rng, seconds, slots = np.random.default_rng(5), 20.0 / scale, 7 * DAY
    comes = np.cumsum(rng.exponential(1 / (0.012 * scale), int(0.012 * scale * slots * 300)))
    free, begins = np.zeros(replicas), np.empty(len(comes))
    for number, at in enumerate(comes):
        begins[number] = max(at, free.min())
        free[free.argmin()] = begins[number] + seconds
    slot = np.minimum((comes // SLOT_SECONDS).astype(int), slots - 1)
    waits, finished = begins - comes, np.bincount(slot, minlength=slots).astype(float)
    waited = np.bincount(slot, weights=waits, minlength=slots)
    busy = 0.012 * 20.0
    told = readings(
        slots, running=busy, waiting=waited / SLOT_SECONDS, finished=finished, fullest=1.0,
        timed_seconds=finished * seconds + waited, timed=finished, replicas=float(replicas),
        **({"waited_seconds": waited, "waited": finished} if is_timed else UNTIMED),
    )  # fmt: skip
    carries = learnt(told)
    assert carries is not None
    promise = WaitObjective(wait_seconds=2.0 / scale, share=0.99)
    late = (waits > promise.wait_seconds).mean()
    (found,) = proven_replicas(told, finished / 300, (0.012 * scale,), carries, promise)
    assert (late <= 0.01) == (replicas == 3)
    assert (found <= replicas) == (replicas == 3)


def test_waits_of_a_moment_prove_large_replicas() -> None:
    """A tenth of a second until the next step of a batch of 32 is not late in a hundred cases."""
    large = readings(fullest=32.0, running=8.0, finished=600.0, waited_seconds=60.0, waited=600.0)
    carries = learnt(large)
    assert carries is not None
    assert proven_replicas(large, np.full(DAY, 2.0), (2.0,), carries, PROMISE) == (2,)


@pytest.mark.parametrize(
    ("seen", "cache", "slots"),
    [
        (2.0, np.nan, 2), (2.0, 0.01, 2), (2.0, 0.2, 8), (2.0, 0.5, 4), (10.0, 0.2, 20),
        (10.0, 0.95, 10),
    ],
)  # fmt: skip
def test_the_cache_tells_what_a_replica_that_was_never_full_holds(
    seen: float, cache: float, slots: int
) -> None:
    """Nine tenths of what fills it, up to eight requests or twice what was seen."""
    found = learnt(readings(fullest=seen, cache=cache))
    assert found is not None
    assert (found.slots, found.seen_full) == (slots, False)


def test_a_replica_that_was_full_days_ago_is_remembered() -> None:
    """A day without a wait says nothing of what a replica can do."""
    full = np.full(3 * DAY, np.nan)
    full[:5] = 16.0
    found = learnt(readings(3 * DAY, full=full, fullest=3.0))
    assert found is not None
    assert (found.slots, found.seen_full) == (16, True)
