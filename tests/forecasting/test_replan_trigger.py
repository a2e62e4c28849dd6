"""The trigger fires as seldom as it says on calibrated bands, and soon after a jump."""

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from forecasting.jobs.replan_trigger import limit_of, replan_trigger

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
    limit, stated = limit_of(1e-3)
    found = alarms_per_slot(values > Z95, limit) + alarms_per_slot(values < -Z95, limit)
    assert stated <= 1e-3
    assert found == pytest.approx(stated, rel=0.12)


def test_whole_calls_keep_the_rate_too() -> None:
    """Of 3,000 calibrated days of 96 slots, at most the stated share (and 3 s) is re-planned."""
    rng = np.random.default_rng(1)
    low, high = np.full(96, -Z95), np.full(96, Z95)
    fired = [replan_trigger(rng.normal(size=96), low, high) is not None for _ in range(3000)]
    stated = 1 - np.exp(-96 * limit_of(1e-3)[1])
    assert np.mean(fired) <= stated + 3 * np.sqrt(stated / 3000)
    assert np.mean(fired) > stated / 2


def test_a_jump_is_noticed_after_three_slots() -> None:
    """Eight deviations up: the third slot outside fires, and the reason says where and why."""
    observed = np.zeros(96)
    observed[40:] = 8.0
    found = replan_trigger(observed, np.full(96, -Z95), np.full(96, Z95))
    assert found is not None
    assert (found.slot, found.side) == (42, "above")
    assert "3 of the last 43 known slots above the band" in found.reason


def test_a_fall_is_noticed_on_its_side() -> None:
    """A job that went quiet is below the band."""
    found = replan_trigger(np.zeros(20), np.ones(20), np.full(20, 2.0))
    assert found is not None
    assert (found.side, found.slot) == ("below", 2)


def test_a_drift_is_noticed_within_ten_slots() -> None:
    """A shift of two deviations is found after 6 slots in the median, 10 in the mean."""
    delays = []
    for seed in range(300):
        observed = np.random.default_rng(seed).normal(size=300) + 2.0
        found = replan_trigger(observed, np.full(300, -Z95), np.full(300, Z95))
        delays.append(300 if found is None else found.slot + 1)
    assert np.median(delays) <= 6
    assert np.mean(delays) <= 10


def test_single_misses_are_no_reason() -> None:
    """One miss in twenty on each side is what the band promises."""
    observed = np.zeros(200)
    observed[::20] = 9.0
    observed[10::20] = -9.0
    assert replan_trigger(observed, np.full(200, -1.0), np.full(200, 1.0)) is None


def test_unknown_slots_say_nothing() -> None:
    """Missing readings, unknown bands and crossed bands neither raise nor clear the alarm."""
    observed = np.array([5.0, np.nan, 5.0, np.inf, 5.0, 5.0, 5.0])
    low = np.array([0.0, 0.0, 0.0, 0.0, np.nan, 3.0, 0.0])
    high = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    found = replan_trigger(observed, low, high)
    assert found is not None
    assert found.slot == 6
    assert "3 of the last 3 known slots" in found.reason


def test_a_rarer_alarm_takes_longer() -> None:
    """The limit grows as fewer false alarms are allowed, and the exact rate stays below."""
    rates = (1e-2, 1e-3, 1e-4, 1e-5)
    found = [limit_of(rate) for rate in rates]
    assert [limit for limit, _ in found] == sorted({limit for limit, _ in found})
    assert all(exact <= rate for (_, exact), rate in zip(found, rates, strict=True))


@settings(max_examples=examples(60), deadline=None)
@given(hnp.arrays(np.float64, st.integers(0, 60)), hnp.arrays(np.float64, st.integers(0, 60)))
def test_any_floats_have_an_answer(observed, band) -> None:
    """Series of any floats and different lengths are read as far as they go."""
    found = replan_trigger(observed, band, band + 1.0)
    assert found is None or 0 <= found.slot < min(len(observed), len(band))
