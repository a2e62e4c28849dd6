"""The trigger fires as seldom as it says on calibrated bands, and soon after a jump."""

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from forecasting.replan_trigger import limit_of, replan_trigger

Z95 = 1.6448536


def alarms_per_slot(misses: np.ndarray, limit: int) -> float:
    """The share of slots with an alarm, the sum starting anew after each (one side's misses)."""
    score, alarms = 0, 0
    for missed in misses:
        score = score + 4 if missed else max(0, score - 1)
        if score >= limit:
            alarms, score = alarms + 1, 0
    return alarms / len(misses)


def test_the_rate_of_false_alarms_is_as_stated() -> None:
    """Over 400,000 slots of calibrated bands the two sides alarm at the exact rate."""
    values = np.random.default_rng(0).normal(size=400_000)
    limit, stated = limit_of(1e-3, 0.05, 0.05)
    found = alarms_per_slot(values > Z95, limit) + alarms_per_slot(values < -Z95, limit)
    assert stated <= 1e-3
    assert found == pytest.approx(stated, rel=0.12)


def test_whole_calls_keep_the_rate_too() -> None:
    """Of 3,000 calibrated days of 96 slots, at most the stated share (and 3 s) is re-planned."""
    rng = np.random.default_rng(1)
    low, high = np.full(96, -Z95), np.full(96, Z95)
    fired = [replan_trigger(rng.normal(size=96), low, high).triggered for _ in range(3000)]
    stated = 1 - np.exp(-96 * limit_of(1e-3, 0.05, 0.05)[1])
    assert np.mean(fired) <= stated + 3 * np.sqrt(stated / 3000)
    assert np.mean(fired) > stated / 2


def test_misses_that_come_in_runs_are_allowed_for() -> None:
    """With a persistence of 0.4 the rate holds where the independent rule alarms too often."""
    rng = np.random.default_rng(2)
    after_hit = 0.05 * 0.6 / 0.95
    misses = np.zeros(400_000, dtype=bool)
    for slot, draw in enumerate(rng.random(400_000)):
        misses[slot] = draw < (0.4 if misses[slot - 1] else after_hit)
    fitting, stated = limit_of(1e-3, 0.05, 0.4)
    assert 2 * alarms_per_slot(misses, fitting) == pytest.approx(stated, rel=0.2)
    assert 2 * alarms_per_slot(misses, limit_of(1e-3, 0.05, 0.05)[0]) > 5e-3


def test_a_jump_is_noticed_after_three_slots() -> None:
    """Eight deviations up: the third slot outside fires, and the reason says where and why."""
    observed = np.zeros(96)
    observed[40:] = 8.0
    found = replan_trigger(observed, np.full(96, -Z95), np.full(96, Z95))
    assert (found.triggered, found.slot, found.side) == (True, 42, "above")
    assert found.slots_to_notice == 3
    assert "3 of the last 43 known slots above the band" in found.reason


def test_a_fall_is_noticed_on_its_side() -> None:
    """A job that went quiet is below the band."""
    found = replan_trigger(np.zeros(20), np.ones(20), np.full(20, 2.0))
    assert (found.side, found.slot) == ("below", 2)


def test_a_drift_is_noticed_within_ten_slots() -> None:
    """A shift of two deviations is found after 6 slots in the median, 10 in the mean."""
    delays = []
    for seed in range(300):
        observed = np.random.default_rng(seed).normal(size=300) + 2.0
        found = replan_trigger(observed, np.full(300, -Z95), np.full(300, Z95))
        delays.append(300 if found.slot is None else found.slot + 1)
    assert np.median(delays) <= 6
    assert np.mean(delays) <= 10


def test_single_misses_are_no_reason() -> None:
    """One miss in twenty on each side is what the band promises."""
    observed = np.zeros(200)
    observed[::20] = 9.0
    observed[10::20] = -9.0
    found = replan_trigger(observed, np.full(200, -1.0), np.full(200, 1.0))
    assert not found.triggered
    assert found.misses == 20
    assert "inside the band" in found.reason


def test_unknown_slots_say_nothing() -> None:
    """Missing readings, unknown bands and crossed bands neither raise nor clear the alarm."""
    observed = np.array([5.0, np.nan, 5.0, np.inf, 5.0, 5.0, 5.0])
    low = np.array([0.0, 0.0, 0.0, 0.0, np.nan, 3.0, 0.0])
    high = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    found = replan_trigger(observed, low, high)
    assert (found.slot, found.slots_seen) == (6, 3)


def test_a_rarer_alarm_takes_longer() -> None:
    """The limit grows as fewer false alarms are allowed, and the exact rate stays below."""
    rates = (1e-2, 1e-3, 1e-4, 1e-5)
    found = [limit_of(rate, 0.05, 0.05) for rate in rates]
    assert [limit for limit, _ in found] == sorted({limit for limit, _ in found})
    assert all(exact <= rate for (_, exact), rate in zip(found, rates, strict=True))


@pytest.mark.parametrize(
    "wrong", [{"miss_rate": 0.0}, {"persistence": 1.0}, {"false_alarms_per_slot": 2.0}]
)
def test_impossible_rates_are_refused(wrong: dict[str, float]) -> None:
    """A rate outside of 0..1 is an error that names it."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replan_trigger([1.0], [0.0], [2.0], **wrong)


@settings(max_examples=examples(60), deadline=None)
@given(hnp.arrays(np.float64, st.integers(0, 60)), hnp.arrays(np.float64, st.integers(0, 60)))
def test_any_floats_have_an_answer(observed, band) -> None:
    """Series of any floats and different lengths are read as far as they go."""
    found = replan_trigger(observed, band, band + 1.0)
    assert found.triggered == (found.slot is not None)
