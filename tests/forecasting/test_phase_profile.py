"""The profile of a job's phases over slots: what each is expected to be."""

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from forecasting.phases.detect import find_phases
from forecasting.phases.phase_profile import PhaseProfile, phase_profile
from forecasting.phases.records import PhaseKind, Signal

SLOT = 900.0


def hourly_epochs(*, slots: int = 96, every: int = 12, seed: int = 0) -> np.ndarray:
    """Effective GPUs in 15-minute slots: 7.5, and 2 in the first slot of every epoch but slot 0."""
    gpus = 7.5 + np.random.default_rng(seed).normal(scale=0.05, size=slots)
    gpus[every::every] = 2.0
    return gpus


def short_epochs(samples: int = 3600) -> np.ndarray:
    """Board power every 2 s: 700 W with a dip of 4 samples every 20."""
    watts = np.full(samples, 700.0)
    for start in range(20, samples - 4, 20):
        watts[start : start + 4] = 400.0
    return watts + np.random.default_rng(1).normal(scale=5, size=samples)


def expected(profile: PhaseProfile, kind: PhaseKind) -> float:
    """The share of the slots ahead in a kind."""
    return float(profile.future_shares[:, profile.kinds.index(kind)].mean())


def test_dips_are_expected_where_they_were() -> None:
    """Of the next 24 slots, those 0 and 12 steps ahead are dips, the others are not."""
    phases = find_phases(hourly_epochs(), SLOT, signal=Signal.ACTIVITY)
    profile = phase_profile(phases, slot_seconds=SLOT, horizon=24)
    dips = profile.future_shares[:, profile.kinds.index(PhaseKind.DIP)]
    assert dips[[0, 12]].min() > 0.8
    assert np.delete(dips, [0, 12]).max() < 0.05
    assert expected(profile, PhaseKind.DIP) == pytest.approx(1 / 12, abs=0.02)


def test_dips_of_an_epoch_shorter_than_two_slots_are_expected_anywhere() -> None:
    """Epochs of 40 s in slots of 15 minutes: each slot has the share of time in dips."""
    phases = find_phases(short_epochs(), 2.0)
    assert phases.epoch.seconds == pytest.approx(40, rel=0.01)
    profile = phase_profile(phases, slot_seconds=SLOT, horizon=8)
    assert not profile.knows_epoch
    assert expected(profile, PhaseKind.DIP) == pytest.approx(0.2, abs=0.01)
    assert expected(profile, PhaseKind.STEADY) == pytest.approx(0.8, abs=0.01)


def test_a_steady_job_is_expected_to_stay_steady() -> None:
    """It has no epoch."""
    phases = find_phases(np.full(600, 500.0), 2.0)
    profile = phase_profile(phases, slot_seconds=SLOT, horizon=4)
    assert not profile.knows_epoch
    assert expected(profile, PhaseKind.STEADY) == pytest.approx(1.0)


def test_a_job_in_warm_up_is_expected_to_work_later() -> None:
    """What passes by its nature does not last the whole horizon, even when never seen to end."""
    watts = np.concatenate([np.full(600, 700.0), np.full(20, 300.0)])
    phases = find_phases(watts, 2.0)
    assert phases.segments[-1].kind is PhaseKind.DIP
    profile = phase_profile(phases, slot_seconds=SLOT, horizon=4)
    assert profile.future_shares[0, profile.kinds.index(PhaseKind.DIP)] < 0.2
    assert expected(profile, PhaseKind.STEADY) > 0.9


@pytest.mark.parametrize(("slot", "horizon"), [(0.0, 4), (float("nan"), 4), (900.0, -1)])
def test_a_horizon_that_is_none_is_refused(slot: float, horizon: int) -> None:
    """Slots without length and negative horizons are errors that name them."""
    with pytest.raises(ValueError, match="no horizon"):
        phase_profile(find_phases([1.0], 2.0), slot_seconds=slot, horizon=horizon)


@settings(max_examples=examples(80), deadline=None)
@given(
    hnp.arrays(np.float64, st.integers(0, 120), elements=st.sampled_from([0.0, 3.0, 8.0, np.nan])),
    st.sampled_from([60.0, 300.0, 900.0]),
    st.sampled_from([100.0, 900.0, 3600.0]),
)
def test_shares_are_shares(values, step, slot) -> None:
    """For any series every share lies in 0..1 and no slot holds more than itself."""
    phases = find_phases(values, step, signal=Signal.ACTIVITY)
    found = phase_profile(phases, slot_seconds=slot, horizon=12)
    for shares in (found.past_shares, found.future_shares):
        assert ((shares >= 0) & (shares <= 1)).all()
        assert (shares.sum(axis=1) <= 1 + 1e-9).all()
    if PhaseKind.STEADY in found.kinds:
        assert found.future_shares.sum(axis=1) == pytest.approx(np.ones(12))
